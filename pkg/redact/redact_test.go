package redact_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/redact"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"no URL at all: a@b":  "no URL at all: a@b",
		"http://h/db":         "http://h/db",
		"http://h:5984/db":    "http://h:5984/db",
		"http://[::1]:5984/@": "http://[::1]:5984/@",
		"http://[::1]/@":      "http://[::1]/@",
		"could not open http://adm:pw@h:5984/db/: db_not_found": "could not open http://adm:*****@h:5984/db/: db_not_found",
		`Get "https://adm:pw@h/db": dial tcp`:                   `Get "https://adm:*****@h/db": dial tcp`,
		"http://adm:*****@h/":                                   "http://adm:*****@h/",
		"http://token@h/":                                       "http://*****@h/",
		"http://:pw@h/":                                         "http://:*****@h/",
		"http://adm:@h/":                                        "http://adm:*****@h/",
		"http://adm:p:w@h/":                                     "http://adm:*****@h/",
		"http://adm:p@w@h/":                                     "http://adm:*****@h/",
		"http://adm:p/w@h/":                                     "http://adm:*****@h/",
		"http://adm:p?w@h/ and http://x:y@z":                    "http://adm:*****@h/ and http://x:*****@z",
		"http://h:5984/db/user@example.com":                     "http://h:5984/db/user@example.com",
		"http://h/db?to=http://a:b@c":                           "http://h/db?to=http://a:*****@c",
		"socks5://a:b@c https://d:e@f/g@h":                      "socks5://a:*****@c https://d:*****@f/g@h",
		"{http_request_failed,\"GET\",\"http://u:p@127.0.0.1:1/wire/\"}": "{http_request_failed,\"GET\",\"http://u:*****@127.0.0.1:1/wire/\"}",
		"<http://u:p@h> `http://u:p@h`":                                  "<http://u:*****@h> `http://u:*****@h`",
		"://":                                                            "://",
		"://u:p@":                                                        "://u:*****@",
	} {
		require.Equal(t, want, redact.Text(text), text)
		require.Equal(t, want, redact.Text(want), "masking twice changes nothing")
	}
}

// Error texts may quote what a source sent, in any length and form.
func TestTextOfLongTexts(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"://", "://u:p@", "://u:p/", "a://b@c ", "http://u:p"} {
		text := strings.Repeat(part, 100_000)
		once := redact.Text(text)
		require.Equal(t, once, redact.Text(once))
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	set := redact.Set{}.With(`p&ss w"rd/<x>`, "abc", "").WithBasic("me", "pw").
		WithHeader("Cookie", "AuthSession=session-1; theme=dark-mode").WithHeader("authorization", "Bearer token-1").
		WithHeader("X-Api-Key", "api-key-1").WithHeader("Accept", "application/json")
	for said, want := range map[string]string{
		"":                                      "",
		"nothing":                               "nothing",
		`as it is: p&ss w"rd/<x>.`:              "as it is: *****.",
		"query: p%26ss+w%22rd%2F%3Cx%3E":        "query: *****",
		"path: p&ss%20w%22rd%2F%3Cx%3E":         "path: *****",
		`JSON: p&ss w\"rd/<x>`:                  "JSON: *****",
		`JSON: p\u0026ss w\"rd/\u003cx\u003e`:   "JSON: *****",
		"HTML: p&amp;ss w&#34;rd/&lt;x&gt;":     "HTML: *****",
		"lower case: p%26ss%20w%22rd%2f%3cx%3e": "*****",
		"all: %70&ss w%22rd/<x>":                "*****",
		"not a code: 100%, api%zz":              "not a code: 100%, api%zz",
		"basic: bWU6cHc=":                       "basic: *****",
		"short: abc pw":                         "short: abc pw",
		"Bearer token-1, token-1":               "*****, *****",
		"AuthSession=session-1; x dark-mode":    "AuthSession=*****; x *****",
		"api-key-1":                             "*****",
		"application/json":                      "application/json",
		"it was cut: api-k...":                  "it was cut: *****...",
		"it was cut: api...":                    "it was cut: api...",
		"http://u:p@h/ api-key-1":               "http://u:*****@h/ *****",
	} {
		require.Equal(t, want, set.Text(said), said)
		require.Equal(t, want, set.Text(want), "masking twice changes nothing")
		require.Equal(t, want != said && !strings.Contains(said, "://"), set.Has(said) && !strings.Contains(said, "://"), said)
	}
	require.True(t, set.Has("API-KEY-1.example"))
	require.False(t, redact.Set{}.Has("anything"))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		require.NotContains(t, fmt.Sprintf(verb, set), "token")
		require.NotContains(t, fmt.Sprintf(verb, &set), "token")
		require.NotContains(t, fmt.Sprintf(verb, struct{ hidden redact.Set }{set}), "token")
	}
}

// A text shows no secret by what is missing from it.
func TestWordsByChance(t *testing.T) {
	t.Parallel()
	set := redact.Set{}.With("pass", "unauthorized", "Database", "ORIZ", "shop24", "s3cret", "hunTer", "a-token-of-24-characters").
		Beside("http://h/shop24/", "ann")
	for text, want := range map[string]struct{ composed, said string }{
		"Name or password is incorrect.":                 {"Name or password is incorrect.", "*****"},
		"wrong pass":                                     {"wrong pass", "*****"},
		"unauthorized to access http://h/shop24/ as ann": {"unauthorized to access http://h/shop24/ as ann", "*****"},
		"Database does not exist":                        {"Database does not exist", "*****"},
		"AUTHORIZATION":                                  {"AUTHORIZATION", "*****"},
		"a Pass":                                         {"a Pass", "a Pass"},
		"no s3cret, (s3cret)":                            {"no *****, (*****)", "no *****, (*****)"},
		"ann:hunTer":                                     {"ann:*****", "ann:*****"},
		"s3crets s3cret":                                 {"s3crets *****", "*****"},
		"s3crets":                                        {"s3crets", "*****"},
		"xa-token-of-24-charactersx":                     {"x*****x", "x*****x"},
		"p%61ss":                                         {"p%61ss", "*****"},
		"p%61ss s3cre%74":                                {"*****", "*****"},
		"it was cut: unauth...":                          {"it was cut: unauth...", "*****"},
		"http://u:p@h/ s3cret":                           {"http://u:*****@h/ *****", "http://u:*****@h/ *****"},
		"nothing":                                        {"nothing", "nothing"},
	} {
		require.Equal(t, want.composed, set.Text(text), text)
		require.Equal(t, want.said, set.Said(text), text)
		require.Equal(t, want.said, set.Said(want.said), text)
	}
	require.Equal(t, "http://h/***** as *****", redact.Set{}.With("shop24").Text("http://h/shop24 as shop24"))
}

// Extending a set does not change the set it was made from.
func TestSetsDoNotChange(t *testing.T) {
	t.Parallel()
	a := redact.Set{}.With("secret-a")
	b, c := a.With("secret-b"), a.With("secret-c")
	require.Equal(t, "secret-b secret-c", a.Text("secret-b secret-c"))
	require.Equal(t, "***** secret-c", b.Text("secret-b secret-c"))
	require.Equal(t, "secret-b *****", c.Text("secret-b secret-c"))
}

func TestError(t *testing.T) {
	t.Parallel()
	set := redact.Set{}.With("secret-a")
	require.NoError(t, set.Error(nil))
	require.Equal(t, io.EOF, set.Error(io.EOF))
	err := set.Error(fmt.Errorf("said secret-a: %w", io.EOF))
	require.EqualError(t, err, "said *****: EOF")
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, fmt.Errorf("around: %w", err), "around: said *****: EOF")
}

func TestWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := redact.Writer(&out)
	for _, line := range []string{"{\"url\":\"http://u:p@h/\"}\n", "plain\n"} {
		n, err := io.WriteString(w, line)
		require.NoError(t, err)
		require.Len(t, line, n)
	}
	require.Equal(t, "{\"url\":\"http://u:*****@h/\"}\nplain\n", out.String())
	_, err := io.WriteString(redact.Writer(broken{}), "http://u:p@h/")
	require.ErrorIs(t, err, errBroken)
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// FuzzText checks that masking twice changes nothing more, and that a text without a user name
// does not change.
func FuzzText(f *testing.F) {
	for _, text := range []string{"http://u:p@h/", "a://b:c/d@e://f@g", "http://[::1]:x@", "://@://:@", "no"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := redact.Text(text)
		require.Equal(t, once, redact.Text(once))
		for _, c := range text {
			if c == '@' {
				return
			}
		}
		require.Equal(t, text, once)
	})
}

// No secret remains in what a server said.
func FuzzSet(f *testing.F) {
	set := redact.Set{}.With("secret%20a", "se/cr?t", "aaaa", "***")
	for _, seed := range []string{"", "secret%20a", "aaaaa", "aaa...", "%73ecret%2520a", "http://u:p@h", "%", "****", "se%2fcr%3ft"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		masked := set.Said(text)
		for _, secret := range []string{"secret%20a", "se/cr?t", "aaaa"} {
			require.NotContains(t, masked, secret)
		}
	})
}
