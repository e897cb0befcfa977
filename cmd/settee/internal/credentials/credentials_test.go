package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// typist is a terminal that answers.
type typist struct{ asked []string }

func (t *typist) Ask(question string) (string, error) {
	t.asked = append(t.asked, question)
	return "typed", nil
}

func (t *typist) AskSecret(question string) (string, error) {
	t.asked = append(t.asked, question)
	return "typed-secret", nil
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	require.NoError(t, os.Chmod(name, mode))
	return name
}

// The variable with credentials of all kinds is before all others, and its text is not quoted.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"SETTEE_SOURCE_USER": "env", "SETTEE_SOURCE_PASSWORD": "in-env", "SETTEE_SOURCE_AUTH": ` {"ibm": {"api_key": "s3cret"}}`}
	f := &Finder{Getenv: func(name string) string { return environment[name] }}
	got, err := f.Endpoint(t.Context(), Source, "http://h/db")
	require.NoError(t, err)
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, `{"url": "http://h/db", "auth": {"ibm": {"api_key": "s3cret"}}}`, string(text))
	got, err = f.Endpoint(t.Context(), Target, "http://h/db")
	require.NoError(t, err)
	require.Equal(t, "http://h/db", got)
	for _, wrong := range []string{"s3cret", `"s3cret"`, `{"ibm": "s3cret"`, "null"} {
		environment["SETTEE_SOURCE_AUTH"] = wrong
		_, err = f.Endpoint(t.Context(), Source, "http://h/db")
		require.ErrorContains(t, err, "SETTEE_SOURCE_AUTH")
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// TestOrder takes away one way after the other: the first that has credentials wins.
func TestOrder(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, filepath.Join(home, ".netrc"), "machine h login home password in-home", 0o600)
	file := write(t, filepath.Join(home, "file"), "machine h login file password in-file", 0o600)
	named := write(t, filepath.Join(home, "named"), "default login named password in-named", 0o600)
	var warnings []string
	environment := map[string]string{"SETTEE_SOURCE_USER": "env", "SETTEE_SOURCE_PASSWORD": "in-env", "NETRC": named}
	screen := &typist{}
	f := &Finder{
		File: file, Home: home, Getenv: func(name string) string { return environment[name] }, Terminal: screen,
		Status: func(_ context.Context, url string) (int, error) {
			assert.Equal(t, "http://h:1/db", url)
			return http.StatusUnauthorized, nil
		},
		Warn: func(text string) { warnings = append(warnings, text) },
	}
	find := func(text, want string) {
		t.Helper()
		got, err := f.URL(t.Context(), Source, text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for range 2 {
		find("http://ann:in-url@h:1/db", "http://ann:in-url@h:1/db")
	}
	require.Len(t, warnings, 1)
	require.NotContains(t, warnings[0], "in-url")
	find("http://h:1/db", "http://file:in-file@h:1/db")
	f.File = ""
	find("http://h:1/db", "http://env:in-env@h:1/db")
	delete(environment, "SETTEE_SOURCE_USER")
	find("http://ann@h:1/db", "http://ann:in-env@h:1/db")
	delete(environment, "SETTEE_SOURCE_PASSWORD")
	find("http://h:1/db", "http://named:in-named@h:1/db")
	delete(environment, "NETRC")
	find("http://H:1/db", "http://home:in-home@H:1/db")
	f.Home = t.TempDir()
	require.Empty(t, screen.asked)
	find("http://h:1/db", "http://typed:typed-secret@h:1/db")
	find("http://h:1/db", "http://typed:typed-secret@h:1/db")
	require.Len(t, screen.asked, 2, "a user and a password are asked for once")
	find("http://ann@h:1/db", "http://ann:typed-secret@h:1/db")
	require.Len(t, screen.asked, 3)
	for status, err := range map[int]error{http.StatusOK: nil, http.StatusNotFound: nil, 0: errors.New("refused")} {
		f.Status = func(context.Context, string) (int, error) { return status, err }
		find("http://h:1/db", "http://h:1/db")
	}
	f.Terminal = nil
	find("http://ann@h:1/db", "http://ann@h:1/db")
	require.Len(t, screen.asked, 3)
	require.Len(t, warnings, 1)
}

// A user in the URL asks for that user's password, and the URL keeps its spelling.
func TestUserOfTheURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"),
		"machine h login bob password b\nmachine h login ann password a:@/%1\nmachine i password any\ndefault login x password y\n", 0o600)
	f := &Finder{File: file, Getenv: func(name string) string {
		return map[string]string{"SETTEE_SOURCE_USER": "bob", "SETTEE_SOURCE_PASSWORD": "env"}[name]
	}}
	for text, want := range map[string]string{
		"http://h/db":          "http://bob:b@h/db",
		"HTTP://a%6En@h/d%2fb": "HTTP://a%6En:a%3A%40%2F%251@h/d%2fb",
		"https://eve@i/":       "https://eve:any@i/",
		"http://eve@h/":        "http://eve@h/", // not the environment's user
		"http://[::1]:5/":      "http://x:y@[::1]:5/",
		"http://h.other/db":    "http://x:y@h.other/db",
		"pebble:/x":            "pebble:/x",
		"ftp://h/":             "ftp://h/",
		"h/db":                 "h/db",
		"":                     "",
		"http://":              "http://",
		`http://h\@i/`:         `http://h\@i/`,
		"http://h%2f/x":        "http://h%2f/x",
	} {
		got, err := f.URL(t.Context(), Source, text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
}

// A server is asked at a page for administrators, a database as it is. Neither request has a user.
func TestWhereCredentialsAreNeeded(t *testing.T) {
	t.Parallel()
	for place, urls := range map[Place][2]string{
		Source: {"http://h:1/db", "http://h:1/db"}, Target: {"http://h/db/", "http://h/db/"},
		Node: {"http://h:1/", "http://h:1/_node/_local/_config"}, CouchDB: {"http://h/x", "http://h/x/_node/_local/_config"},
	} {
		at, ok := split(urls[0])
		require.True(t, ok)
		require.Equal(t, urls[1], place.guarded(at))
	}
}

func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		text, want string
		mode       os.FileMode
	}{
		{"machine h login ann", "file:1: the entry for h has no password", 0o600},
		{"\nmachine h\n password s3cret", "file:2: the entry for h has no login", 0o600},
		{"machine h login ann password a s3cret", "file:1: a word is not one of machine,", 0o600},
		{"# x\nlogin s3cret", "file:2: login comes before the first machine", 0o600},
		{"machine h\nlogin ann\npassword", "file:3: password has no value", 0o600},
		{"machine h\nlogin ann\npassword \"s3cret", "file:3: password has no value", 0o600},
		{"machine \"\"", "file:1: machine has no value", 0o600},
		{"machine h login ann password s3cret", "has the permissions 0640: only its owner may have access to it (chmod 600)", 0o640},
	} {
		file := write(t, filepath.Join(dir, "file"), c.text, c.mode)
		_, err := (&Finder{File: file}).URL(t.Context(), Source, "http://h/")
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "--credentials: "+file)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := (&Finder{File: filepath.Join(dir, "none")}).URL(t.Context(), Source, "http://h/")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = (&Finder{File: dir}).URL(t.Context(), Source, "http://h/")
	require.ErrorContains(t, err, "is a directory")
	for set, want := range map[string]string{
		"SETTEE_TARGET_USER":     "the environment has SETTEE_TARGET_USER, but not SETTEE_TARGET_PASSWORD",
		"SETTEE_TARGET_PASSWORD": "the environment has SETTEE_TARGET_PASSWORD, but not SETTEE_TARGET_USER, and the URL of the target has no user name",
		"NETRC":                  "no such file",
	} {
		f := &Finder{Getenv: func(name string) string {
			if name == set {
				return filepath.Join(dir, "s3cret")
			}
			return ""
		}}
		_, err := f.URL(t.Context(), Target, "http://h/")
		require.ErrorContains(t, err, want)
	}
}

// A ~/.netrc that others may read is refused for the hosts that it has entries for, and does not disturb otherwise.
func TestOpenNetrc(t *testing.T) {
	t.Parallel()
	f := &Finder{Home: t.TempDir(), Getenv: func(string) string { return "" }}
	write(t, filepath.Join(f.Home, ".netrc"), "machine h login ann password s3cret", 0o644)
	_, err := f.URL(t.Context(), Node, "http://h/")
	require.ErrorContains(t, err, "has the permissions 0644")
	got, err := f.URL(t.Context(), Node, "http://i/")
	require.NoError(t, err)
	require.Equal(t, "http://i/", got)
}

func TestParse(t *testing.T) {
	t.Parallel()
	entries, err := parse("x", "# comment machine z\r\nmachine a login # password #x # more\n"+
		"macdef init\ncd /machine\nput x\n\nmachine b account z login \"a b\\\"\\\\\\n\" password \"\"\n\tdefault\nlogin d password e\"")
	require.NoError(t, err)
	require.Equal(t, []entry{
		{line: 2, machine: "a", login: "#", password: "#x", hasPassword: true},
		{line: 7, machine: "b", login: "a b\"\\\n", password: "", hasPassword: true},
		{line: 8, login: "d", password: "e\"", hasPassword: true},
	}, entries)
}

// A macro ends at an empty line, whatever ends the lines of the file.
func TestMacroEnds(t *testing.T) {
	t.Parallel()
	text := "machine a login b password c\nmacdef init\ncd z\n\nmachine d login e password f\nmacdef x\n\ndefault login g password h\n"
	for _, end := range []string{"\n", "\r\n"} {
		entries, err := parse("x", strings.ReplaceAll(text, "\n", end))
		require.NoError(t, err)
		require.Equal(t, []entry{
			{line: 1, machine: "a", login: "b", password: "c", hasPassword: true},
			{line: 5, machine: "d", login: "e", password: "f", hasPassword: true},
			{line: 8, login: "g", password: "h", hasPassword: true},
		}, entries, "%q", end)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("machine a login b password \"c\\\"\" # d\nmacdef x\n\ndefault")
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := parse("x", text)
		if err != nil {
			require.Nil(t, entries)
			require.ErrorContains(t, err, "x:")
		}
	})
}
