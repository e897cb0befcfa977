package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/console"
	"settee/fdbjobs"
	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/outbound"
	"settee/pkg/redact"
)

// Printing a value with a secret never shows the secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	m := &marks{}
	secret := m.plant("printed")
	cfg, _, err := config.Load(config.Options{Flags: []string{"admins/root=" + secret, "chttpd_auth/secret=" + secret, "other/url=http://u:" + secret + "@h"}})
	require.NoError(t, err)
	endpoint := couch.DefaultConfig()
	endpoint.URL, endpoint.Username, endpoint.Password = "http://h/x", "u", secret
	endpoint.Header, endpoint.Proxy = http.Header{"X-Token": {secret}}, "http://u:"+secret+"@h"
	endpoint.Secrets = redact.Set{}.With(secret)
	opened, err := couch.Open(endpoint)
	require.NoError(t, err)
	defer opened.Close()
	body := json.RawMessage(`{"password":"` + secret + `"}`)
	for _, value := range []any{
		cfg, config.Value{Section: "admins", Key: "root", Text: secret}, config.Layer{{Section: "jwt_keys", Key: "hmac:a", Text: secret}},
		endpoint, opened, outbound.TLSConfig{KeyPassword: secret}, outbound.PoolConfig{TLS: outbound.TLSConfig{KeyPassword: secret}},
		outbound.TransportOptions{Proxy: "http://u:" + secret + "@h"},
		fdbjobs.Job{ID: "j", Args: body}, fdbjobs.Spec{ID: "j", Args: body},
		docstore.Edit{ID: "d", Body: docjson.Must(body)}, docjson.Must(body), docstore.Document{ID: "d", Body: body}, docstore.LocalDocument{ID: "_local/d", Body: body},
		docstore.Change{ID: "d", Body: docjson.Must(body)}, accounts.Write{ID: "d", Body: docjson.Must(body), Before: body},
	} {
		var text bytes.Buffer
		for _, shown := range []any{value, &value, []any{value}, map[string]any{"x": value}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
				fmt.Fprintf(&text, verb+"\n", shown)
			}
			slog.New(slog.NewJSONHandler(&text, nil)).Info("x", "value", shown)
			slog.New(slog.NewTextHandler(&text, nil)).Info("x", "value", shown)
			log := zerolog.New(&text)
			log.Info().Interface("value", shown).Msg("x")
		}
		require.Empty(t, m.in(text.String()), "%T: %s", value, &text)
	}
}

// The command's log removes passwords from URLs.
func TestTheLogIsTheLastLineOfDefence(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLog(&out, zerolog.WarnLevel)
	log.Error().Str("any", "http://u:s3cret@h/").Msg("at http://u:s3cret@h/")
	require.Contains(t, out.String(), "http://u:*****@h/")
	require.NotContains(t, out.String(), "s3cret")
}

func TestTextsForTerminals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "",
		"films: 7\tü 漢 🎬\n":               "films: 7\tü 漢 🎬\n",
		"\x1b[2J\x1b]0;x\a":               `\u001b[2J\u001b]0;x\u0007`,
		"over\rwritten\b":                 `over\u000dwritten\u0008`,
		"\u009b2J \u202eback \U000e0041":  `\u009b2J \u202eback \udb40\udc41`,
		"\x9b2J":                          "\ufffd2J",
		`{"id":"` + "\u200d\u2028" + `"}`: `{"id":"\u200d\u2028"}`,
	} {
		shown, rest := harmless([]byte(text))
		require.Equal(t, want, string(shown), "%q", text)
		require.Empty(t, rest)
		shown, rest = nil, nil
		for i := range len(text) { // a character may come in several pieces
			var more []byte
			more, rest = harmless(append(rest, text[i]))
			shown = append(shown, more...)
		}
		require.Equal(t, want, string(shown), "%q", text)
		require.Empty(t, rest)
	}
}

// What servers say does not control the terminal of any command.
func TestHostileServersDoNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusForbidden, http.StatusNotFound} {
		hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			const told = `"condition":{"state":"\u001b[2J","reason":"\u001b[2J","message":"\u001b[2J","fault":{"text":"\u001b[2J"}}`
			fmt.Fprint(w, `{"error":"evil`+"\u009b"+`\u001b[2J","reason":"rea\u001b]0;title\u0007son\u202e","update_seq":"1\u001b[2J","db_name":"\u001b[2J",`+told+`,
				"jobs":[{"id":"\u001b[2J","database":"\u001b[2J","doc_id":"`+"\u009b"+`","state":"crashing","info":{"error":"\u001b[2J"},`+told+`}]}`)
		}))
		defer hostile.Close()
		url := hostile.URL + "/"
		for _, args := range [][]string{
			{"jobs", "--url", url},
			{"jobs", "show", "x", "--url", url},
			{"jobs", "run", "x", "--url", url},
			{"upgrade", "--url", url},
			{"replicate", url + "a", url + "b", "--set", "replicator/retries_per_request=1"},
			{"verify", url + "a", url + "b", "--set", "replicator/retries_per_request=1"},
			{"import-couchdb", url, "--to", url},
			{"backup", url, filepath.Join(t.TempDir(), "backup")},
			{"top", "--url", url},
			{"replicate", "http://\x1b[2J/a", url},
		} {
			out, errs, _ := setteeWith(t, []string{"HOME=" + t.TempDir()}, args...)
			require.NotEmpty(t, out+errs, "%q", args)
			for _, r := range out + errs {
				require.True(t, r == '\n' || r == '\t' || !console.Obeyed(r), "%q: %q", args, out+errs)
			}
		}
	}
}
