package replicator_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// withSource returns a document with that source, a JSON value.
func withSource(source string) []byte {
	return fmt.Appendf(nil, `{"source": %s, "target": "http://b.example/db2"}`, source)
}

func basicHeader(userAndPassword string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(userAndPassword))
}

func TestEndpointURL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"http://h/db":                      "http://h/db/",
		"http://h/db/":                     "http://h/db/",
		"https://H.example:6984/a/b":       "https://H.example:6984/a/b/",
		"HTTP://h/db":                      "http://h/db/",
		"http://h:/db":                     "http://h/db/",
		"http://h:05984/db":                "http://h:5984/db/",
		"http://h/my%2Fdb%2f(x)+$":         "http://h/my%2Fdb%2f(x)+$/",
		"http://[::1]:5984/db":             "http://[::1]:5984/db/",
		"http://u:p@[2001:db8::1]/db":      "http://[2001:db8::1]/db/",
		"http://u:p@h/db":                  "http://h/db/",
		"http://u:p@w@h:80/db":             "http://h:80/db/",
		"http://under_score.example:81/db": "http://under_score.example:81/db/",
	} {
		r := parse(t, withSource(fmt.Sprintf("%q", given)))
		require.Equal(t, want, r.Source.URL, given)
		require.Equal(t, want, r.Source.String(), given)
		_, err := url.Parse(r.Source.URL)
		require.NoError(t, err)
	}
}

func TestEndpointRefusals(t *testing.T) {
	t.Parallel()
	const (
		local  = "must be a full URL with protocol http or https: names of local databases are not supported"
		scheme = "must be a URL with protocol http or https"
		host   = "has an invalid url: its host is not valid"
		port   = "has an invalid url: its port is not valid"
		path   = "has an invalid url: its path has characters that must be percent-encoded"
		none   = "has an invalid url: it names no database"
		shape  = "must be the URL of a database, or an object with its `url`"
	)
	tests := []struct{ source, field, reason string }{
		{`null`, "source", shape},
		{`5`, "source", shape},
		{`["http://h/db"]`, "source", shape},
		{`"db"`, "source", local},
		{`""`, "source", local},
		{`"://h/db"`, "source", "has an invalid url: it has no scheme"},
		{`"ftp://h/db"`, "source", scheme},
		{`"http://"`, "source", host},
		{`"http:///db"`, "source", host},
		{`"http://h h/db"`, "source", host},
		{`"http://é.example/db"`, "source", host},
		{`"http://::1/db"`, "source", host},
		{`"http://[::1/db"`, "source", host},
		{`"http://[::1]x/db"`, "source", host},
		{`"http://[1.2.3.4]/db"`, "source", host},
		{`"http://[fe80::1%eth0]/db"`, "source", host},
		{`"http://h:0/db"`, "source", port},
		{`"http://h:65536/db"`, "source", port},
		{`"http://h:x/db"`, "source", port},
		{`"http://h/a b"`, "source", path},
		{`"http://h/é"`, "source", path},
		{`"http://h/%2"`, "source", path},
		{`"http://h/%zz"`, "source", path},
		{`"http://h/db#x"`, "source", path},
		{`"http://h/db?x=1"`, "source", "has an invalid url: a database's has no query"},
		{`"http://h"`, "source", none},
		{`"http://h//"`, "source", none},
		{`"http://h/db\r\nX: y"`, "source", path},
		{`"http://u:%ff@h/db"`, "source", "user name or password that is not UTF-8"},
		{`{}`, "source.url", "parameter `source.url` must be the URL of a database"},
		{`{"url": 5}`, "source.url", "must be the URL of a database"},
		{`{"url": "db"}`, "source.url", local},
		{`{"url": "http://h/db", "headers": []}`, "source.headers", "must be an object of strings"},
		{`{"url": "http://h/db", "headers": {"X": 5}}`, "source.headers.X", "must be a string"},
		{`{"url": "http://h/db", "headers": {"X Y": "v"}}`, "source.headers.X Y", "must be an object of HTTP headers"},
		{`{"url": "http://h/db", "headers": {"": "v"}}`, "source.headers.", "must be an object of HTTP headers"},
		{`{"url": "http://h/db", "headers": {"X": "v\r\nY: w"}}`, "source.headers.X", "must be an object of HTTP headers"},
		{`{"url": "http://h/db", "headers": {"Authorization": "Basic !"}}`, "source.headers.Authorization", "base64 form of `username:password`"},
		{`{"url": "http://h/db", "headers": {"authorization": "basic dXNlcg=="}}`, "source.headers.authorization", "base64 form"},
		{`{"url": "http://h/db", "headers": {"Authorization": "a", "authorization": "b"}}`, "source.headers.Authorization", "more than once"},
		{`{"url": "http://h/db", "auth": "x"}`, "source.auth", "must be an object"},
		{`{"url": "http://h/db", "auth": {"basic": "x"}}`, "source.auth.basic", "must be an object with `username` and `password`"},
		{`{"url": "http://h/db", "auth": {"basic": {"password": "p"}}}`, "source.auth.basic.username", "must be a string"},
		{`{"url": "http://h/db", "auth": {"basic": {"username": "u"}}}`, "source.auth.basic.password", "must be a string"},
		{`{"url": "http://h/db", "auth": {"basic": {"username": "u", "password": null}}}`, "source.auth.basic.password", "must be a string"},
	}
	for _, test := range tests {
		t.Run(test.source, func(t *testing.T) {
			t.Parallel()
			err := refusal(t, withSource(test.source))
			require.Equal(t, test.field, err.Field)
			require.Contains(t, err.Reason, test.reason)
			require.Contains(t, err.Reason, "`source")
		})
	}
	require.Contains(t, refusal(t, []byte(`{"target": "http://h/db"}`)).Reason, "parameter `source` is missing")
	require.Contains(t, refusal(t, []byte(`{"source": "http://h/db"}`)).Reason, "parameter `target` is missing")
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	const auth = `"auth": {"basic": {"username": "u1", "password": "p1"}}`
	tests := map[string]struct {
		source             string
		username, password string
	}{
		"none":                          {`"http://h/db"`, "", ""},
		"in the URL":                    {`"http://u:p@h/db"`, "u", "p"},
		"escaped in the URL":            {`"http://us%40er:p%3Aw@h/db"`, "us@er", "p:w"},
		"with escapes that are none":    {`"http://u:100%@h/db"`, "u", "100%"},
		"with a colon in the password":  {`"http://u:p:w@h/db"`, "u", "p:w"},
		"with an empty password":        {`"http://u:@h/db"`, "u", ""},
		"a user name alone is not used": {`"http://u@h/db"`, "", ""},
		"in the auth object":            {`{"url": "http://h/db", ` + auth + `}`, "u1", "p1"},
		"in the header":                 {`{"url": "http://h/db", "headers": {"aUthorization": "bASIC ` + basicHeader("u:p@%40:")[6:] + `"}}`, "u", "p@%40:"},
		"auth before URL":               {`{"url": "http://u2:p2@h/db", ` + auth + `}`, "u1", "p1"},
		"URL before header":             {`{"url": "http://u2:p2@h/db", "headers": {"Authorization": "` + basicHeader("u3:p3") + `"}}`, "u2", "p2"},
		"auth before all": {
			`{"url": "http://u2:p2@h/db", ` + auth + `, "headers": {"Authorization": "` + basicHeader("u3:p3") + `"}}`, "u1", "p1",
		},
		"other kinds of auth": {`{"url": "http://u2:p2@h/db", "auth": {"iam": {"key": "k"}}}`, "u2", "p2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := parse(t, withSource(test.source)).Source
			require.Equal(t, "http://h/db/", e.URL)
			require.Equal(t, test.username, e.Username)
			require.Equal(t, test.password, e.Password)
			require.Equal(t, test.username != "", e.HasCredentials())
			require.Empty(t, e.Headers)
		})
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	e := parse(t, withSource(`{"url": "http://h/db", "headers": {"b": "1", "A": "2", "Z": "3", "c": "4"}}`)).Source
	require.Equal(t, []replicator.Header{{Name: "A", Value: "2"}, {Name: "Z", Value: "3"}, {Name: "b", Value: "1"}, {Name: "c", Value: "4"}}, e.Headers)

	// An Authorization of another kind stays, and changes the order.
	e = parse(t, withSource(`{"url": "http://u:p@h/db", "headers": {"b": "1", "A": "2", "Z": "3", "Authorization": "Bearer x"}}`)).Source
	require.Equal(t, "u", e.Username)
	require.Equal(t, []replicator.Header{
		{Name: "A", Value: "2"}, {Name: "Authorization", Value: "Bearer x"}, {Name: "b", Value: "1"}, {Name: "Z", Value: "3"},
	}, e.Headers)
}

func TestPrintingShowsNoSecrets(t *testing.T) {
	t.Parallel()
	r := parse(t, []byte(`{
		"source": {"url": "http://h/db", "headers": {"X-Token": "s3cret"}, "auth": {"basic": {"username": "adm", "password": "s3cret"}}},
		"target": "http://adm:s3cret@h/db2", "proxy": "http://adm:s3cret@p.example"}`))
	args := replicator.JobArgs{Replication: r}
	values := []any{
		r.Source, &r.Source, r.Source.Headers[0], r.Source.Headers, *r, r, args, &args,
		[]replicator.Endpoint{r.Source}, map[string]replicator.Endpoint{"x": r.Target}, struct{ E *replicator.Endpoint }{&r.Source},
		replicator.Request{Replication: r},
	}
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			text := fmt.Sprintf(verb, value)
			require.NotContains(t, text, "s3cret", "%s of %T", verb, value)
			require.NotContains(t, strings.ToLower(text), fmt.Sprintf("%x", "s3cret"), "%s of %T", verb, value)
		}
	}
	require.Equal(t, "http://h/db/", fmt.Sprintf("%v", r.Source))
	require.Equal(t, `replicator.Endpoint("http://h/db/")`, fmt.Sprintf("%#v", r.Source))
	require.Equal(t, "X-Token: *****", fmt.Sprint(r.Source.Headers[0]))
	require.Equal(t, "http://adm:*****@p.example", r.Source.RedactedProxy())

	// One that was not made by parsing.
	require.Equal(t, "http://h/db", replicator.Endpoint{URL: "http://adm:s3cret@h/db"}.String())
	require.Equal(t, "http://adm:*****@h h/", replicator.Endpoint{URL: "http://adm:s3cret@h h/"}.String())
	require.Empty(t, replicator.Endpoint{}.String())
	require.Empty(t, replicator.Endpoint{}.RedactedProxy())

	// Stored they are, or no job could run.
	stored, err := json.Marshal(r.Target)
	require.NoError(t, err)
	require.JSONEq(t, `{"url": "http://h/db2/", "username": "adm", "password": "s3cret", "proxy": "http://adm:s3cret@p.example"}`, string(stored))
}
