package config_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// A login is found by the URL of its server in any spelling.
func TestWatchLogin(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Load(config.Options{Flags: []string{
		"replicator.watches/https://A.example=ann:re:lax", "replicator.watches/http://b.example:5984/couch=bob:relax",
		"replicator.watches/http://[::1]:80/ = eve:a=b",
	}})
	require.NoError(t, err)
	for server, want := range map[string]config.Login{
		"https://a.example/":            {Username: "ann", Password: "re:lax"},
		"https://a.example:443/":        {Username: "ann", Password: "re:lax"},
		"http://b.example:5984/couch/":  {Username: "bob", Password: "relax"},
		"http://[::1]/":                 {Username: "eve", Password: "a=b"},
		"http://a.example/":             {},
		"https://a.example:6984/":       {},
		"http://b.example:5984/":        {},
		"http://b.example:5984/couch/x": {},
		"ftp://a.example/":              {},
		"":                              {},
	} {
		login, ok := cfg.WatchLogin(server)
		require.Equal(t, want, login, server)
		require.Equal(t, want != config.Login{}, ok, server)
	}
}

func TestRefusedWatchLogins(t *testing.T) {
	t.Parallel()
	const url, login = "it must be under the URL of a server", "it must be USER:PASSWORD"
	for set, want := range map[string]string{
		"a.example=ann:relax": url, "ftp://a.example=ann:relax": url, "https://a.example/?x = ann:relax": url,
		"https://a.example/#x = ann:relax": url, "https://=ann:relax": url, "http://ann:relax@a.example/=ann:relax": url,
		"https://a.example=ann": login, "https://a.example=ann:": login, "https://a.example=:relax": login,
	} {
		_, _, err := config.Load(config.Options{Flags: []string{"replicator.watches/" + set}})
		require.ErrorContains(t, err, want, set)
		require.NotContains(t, err.Error(), "relax", set)
	}
}

func TestLoginIsNotPrinted(t *testing.T) {
	t.Parallel()
	login := config.Login{Username: "ann", Password: "relax"}
	text, err := json.Marshal(login)
	require.NoError(t, err)
	require.Equal(t, `"ann" ann ann config.Login{Username: "ann"} map[a:ann]`,
		fmt.Sprintf("%s %v %d %#v %v", text, login, login, login, map[string]config.Login{"a": login}))
}
