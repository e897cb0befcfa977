package replicator_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// withSource returns a document with that JSON value as its source.
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

// The server and the database of an endpoint have one spelling.
func TestEndpointServer(t *testing.T) {
	t.Parallel()
	for given, want := range map[string][2]string{
		"http://h/db":                     {"http://h/", "db"},
		"http://H:80/db/":                 {"http://h/", "db"},
		"https://h:443/a%2Fb":             {"https://h/", "a/b"},
		"https://u:p@h:6984/x/y/my+db%28": {"https://h:6984/x/y/", "my+db("},
		"http://[2001:DB8:0::1]:5984/db":  {"http://[2001:db8::1]:5984/", "db"},
		"http://[::1]/db":                 {"http://[::1]/", "db"},
	} {
		server, database, ok := parse(t, withSource(fmt.Sprintf("%q", given))).Source.Server()
		require.True(t, ok, given)
		require.Equal(t, want, [2]string{server, database}, given)
	}
	for _, url := range []string{"", "nowhere", "http://h", "http://h/", "http://h//", "http://h/db?x=1", "http://h/%zz/"} {
		_, _, ok := replicator.Endpoint{URL: url}.Server()
		require.False(t, ok, url)
	}
}

// The names in a URL are those by which people look for it.
func TestEndpointNames(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"http://H.example/Db":                {"h.example", "Db"},
		"https://u:p@h:6984/x/y/my+db%28":    {"h", "my+db("},
		"http://[2001:DB8:0::1]:5984/a%2Fb/": {"2001:db8::1", "a/b"},
		"http://h/db/?x=1/2":                 {"h", "db"},
		"http://h/%zz":                       {"", ""},
		"http://h/":                          {"h", ""},
		"http://h":                           {"h", ""},
		"nowhere":                            {"", ""},
		"":                                   {"", ""},
	} {
		host, database := replicator.Endpoint{URL: url}.Names()
		require.Equal(t, want, [2]string{host, database}, url)
	}
}

// withSide returns a document with that JSON value as its source or target.
func withSide(side, value string) []byte {
	other := map[string]string{"source": "target", "target": "source"}[side]
	return fmt.Appendf(nil, `{%q: %s, %q: "http://b.example/db2"}`, side, value, other)
}

func TestEndpointRefusals(t *testing.T) {
	t.Parallel()
	const (
		shape    = "parameter `@` must be the URL of a database, or an object with its `url`"
		local    = "parameter `@` must be a full URL with protocol http or https: names of local databases are not supported"
		scheme   = "parameter `@` must be a URL with protocol http or https"
		noScheme = "parameter `@` has an invalid url: it has no scheme"
		host     = "parameter `@` has an invalid url: its host is not valid"
		port     = "parameter `@` has an invalid url: its port is not valid"
		path     = "parameter `@` has an invalid url: its path has characters that must be percent-encoded"
		query    = "parameter `@` has an invalid url: a database's has no query"
		notUTF8  = "parameter `@` has a user name or password that is not UTF-8"
		url      = "parameter `@.url` must be the URL of a database"
		headers  = "parameter `@.headers` must be an object of "
		cannot   = headers + "HTTP headers: "
		basic    = "` must be `Basic` and the base64 form of `username:password` in UTF-8"
		twice    = "parameter `@.headers` must not have Authorization more than once"
		auth     = "parameter `@.auth` must be an object"
		pair     = "parameter `@.auth.basic` must be an object with `username` and `password`"
		username = "parameter `@.auth.basic.username` must be a string"
		password = "parameter `@.auth.basic.password` must be a string"
	)
	// @ stands for source and for target.
	tests := []struct{ value, field, reason string }{
		{`null`, "@", shape},
		{`5`, "@", shape},
		{`true`, "@", shape},
		{`["http://h/db"]`, "@", shape},
		{`"db"`, "@", local},
		{`""`, "@", local},
		{`"h.example/db"`, "@", local},
		{`"http:/h/db"`, "@", local},
		{`"://h/db"`, "@", noScheme},
		{`"ftp://h/db"`, "@", scheme},
		{`"httpx://h/db"`, "@", scheme},
		{`"socks5://h/db"`, "@", scheme},
		{`"http://"`, "@", host},
		{`"http:///db"`, "@", host},
		{`"http://h h/db"`, "@", host},
		{`"http://é.example/db"`, "@", host},
		{`"http://::1/db"`, "@", host},
		{`"http://[::1/db"`, "@", host},
		{`"http://[::1]x/db"`, "@", host},
		{`"http://[1.2.3.4]/db"`, "@", host},
		{`"http://[fe80::1%eth0]/db"`, "@", host},
		{`"http://h:0/db"`, "@", port},
		{`"http://h:65536/db"`, "@", port},
		{`"http://h:x/db"`, "@", port},
		{`"http://h/a b"`, "@", path},
		{`"http://h/é"`, "@", path},
		{`"http://h/%2"`, "@", path},
		{`"http://h/%zz"`, "@", path},
		{`"http://h/db#x"`, "@", path},
		{`"http://h/db\r\nX: y"`, "@", path},
		{`"http://h/db?x=1"`, "@", query},
		{`"http://u:%ff@h/db"`, "@", notUTF8},

		{`{}`, "@.url", url},
		{`{"url": 5}`, "@.url", url},
		{`{"url": null}`, "@.url", url},
		{`{"url": ["http://h/db"]}`, "@.url", url},
		{`{"url": "db"}`, "@.url", strings.Replace(local, "@", "@.url", 1)},
		{`{"url": "ftp://h/db"}`, "@.url", strings.Replace(scheme, "@", "@.url", 1)},
		{`{"url": "http://"}`, "@.url", strings.Replace(host, "@", "@.url", 1)},

		{`{"url": "http://h/db", "headers": []}`, "@.headers", headers + "strings"},
		{`{"url": "http://h/db", "headers": null}`, "@.headers", headers + "strings"},
		{`{"url": "http://h/db", "headers": {"X": 5}}`, "@.headers.X", "parameter `@.headers.X` must be a string"},
		{`{"url": "http://h/db", "headers": {"X Y": "v"}}`, "@.headers.X Y", cannot + "`X Y` cannot be one"},
		{`{"url": "http://h/db", "headers": {"": "v"}}`, "@.headers.", cannot + "`` cannot be one"},
		{`{"url": "http://h/db", "headers": {"X": "v\r\nY: w"}}`, "@.headers.X", cannot + "`X` cannot be one"},
		{`{"url": "http://h/db", "headers": {"Authorization": "Basic !"}}`, "@.headers.Authorization", "parameter `@.headers.Authorization" + basic},
		{`{"url": "http://h/db", "headers": {"authorization": "basic dXNlcg=="}}`, "@.headers.authorization", "parameter `@.headers.authorization" + basic},
		{`{"url": "http://h/db", "headers": {"Authorization": "a", "authorization": "b"}}`, "@.headers.Authorization", twice},

		{`{"url": "http://h/db", "auth": "x"}`, "@.auth", auth},
		{`{"url": "http://h/db", "auth": null}`, "@.auth", auth},
		{`{"url": "http://h/db", "auth": {"basic": "x"}}`, "@.auth.basic", pair},
		{`{"url": "http://h/db", "auth": {"basic": null}}`, "@.auth.basic", pair},
		{`{"url": "http://h/db", "auth": {"basic": {}}}`, "@.auth.basic.username", username},
		{`{"url": "http://h/db", "auth": {"basic": {"password": "p"}}}`, "@.auth.basic.username", username},
		{`{"url": "http://h/db", "auth": {"basic": {"username": "u"}}}`, "@.auth.basic.password", password},
		{`{"url": "http://h/db", "auth": {"basic": {"username": "u", "password": null}}}`, "@.auth.basic.password", password},
		// Credentials that are not used must be valid too.
		{`{"url": "http://u:p@h/db", "auth": {"basic": {"username": 5, "password": "p"}}}`, "@.auth.basic.username", username},
	}
	for _, side := range []string{"source", "target"} {
		of := func(text string) string { return strings.Replace(text, "@", side, 1) }
		for _, test := range tests {
			require.Equal(t, &replicator.ParseError{Field: of(test.field), Reason: of(test.reason)}, refusal(t, withSide(side, test.value)), test.value)
		}
	}
	missing := "parameter `%s` is missing: it must be the URL of a database, or an object with its `url`"
	require.Equal(t, &replicator.ParseError{Field: "source", Reason: fmt.Sprintf(missing, "source")}, refusal(t, []byte(`{"target": "http://h/db"}`)))
	require.Equal(t, &replicator.ParseError{Field: "target", Reason: fmt.Sprintf(missing, "target")}, refusal(t, []byte(`{"source": "http://h/db"}`)))
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
		"with invalid escapes":          {`"http://u:100%@h/db"`, "u", "100%"},
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
		"other kinds of auth": {`{"url": "http://u2:p2@h/db", "auth": {"kerberos": {"key": "k"}}}`, "u2", "p2"},
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

	// An Authorization header of another scheme stays and changes the order.
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
		"target": "http://adm:s3cret@h/db2", "proxy": "http://adm:s3cret@p.example",
		"filter": "d/f", "query_params": {"token": "s3cret"}}`))
	args := replicator.JobArgs{Replication: r}
	values := []any{
		r.Source, &r.Source, r.Source.Headers[0], r.Source.Headers, *r, r, args, &args,
		[]replicator.Endpoint{r.Source}, map[string]replicator.Endpoint{"x": r.Target}, struct{ E *replicator.Endpoint }{&r.Source},
		replicator.Request{Replication: r}, replicator.Document{Replication: r}, &replicator.Document{Replication: r},
	}
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			text := fmt.Sprintf(verb, value)
			require.NotContains(t, text, "s3cret", "%s of %T", verb, value)
			require.NotContains(t, strings.ToLower(text), fmt.Sprintf("%x", "s3cret"), "%s of %T", verb, value)
		}
		text, err := json.Marshal(value)
		require.NoError(t, err)
		require.NotContains(t, string(text), "s3cret", "JSON of %T", value)
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
		zero := zerolog.New(&log)
		zero.Info().Interface("value", value).Any("any", value).Msg("x")
		require.NotContains(t, log.String(), "s3cret", "a log of %T", value)
	}
	require.Equal(t, "http://h/db/", fmt.Sprintf("%v", r.Source))
	require.Equal(t, `replicator.Endpoint("http://h/db/")`, fmt.Sprintf("%#v", r.Source))
	require.Equal(t, "X-Token: *****", fmt.Sprint(r.Source.Headers[0]))
	require.Equal(t, "http://adm:*****@p.example", r.Source.RedactedProxy())

	// An endpoint that was not parsed.
	require.Equal(t, "http://h/db", replicator.Endpoint{URL: "http://adm:s3cret@h/db"}.String())
	require.Equal(t, "http://adm:*****@h h/", replicator.Endpoint{URL: "http://adm:s3cret@h h/"}.String())
	require.Empty(t, replicator.Endpoint{}.String())
	require.Empty(t, replicator.Endpoint{}.RedactedProxy())

	// The stored form has the secrets.
	require.JSONEq(t, `{
		"source": {"url": "http://h/db/", "username": "adm", "password": "s3cret", "headers": [{"name": "X-Token", "value": "s3cret"}], "proxy": "http://adm:s3cret@p.example"},
		"target": {"url": "http://h/db2/", "username": "adm", "password": "s3cret", "proxy": "http://adm:s3cret@p.example"},
		"filter": "d/f", "query_params": {"token": "s3cret"}}`, string(storedForm(t, r)))
}

// storedForm returns the stored form of a replication.
func storedForm(t testing.TB, r *replicator.Replication) json.RawMessage {
	t.Helper()
	text, err := (&replicator.JobArgs{Replication: r}).Stored()
	require.NoError(t, err)
	var args struct {
		Replication json.RawMessage `json:"replication"`
	}
	require.NoError(t, json.Unmarshal(text, &args))
	return args.Replication
}

// A password that is a word of a reason, or the name of the database, is not told by a mask in its place.
func TestSecretsThatAreWords(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"data", "unauthorized", "ann2", "shop24"} {
		r := parse(t, []byte(`{"source": "http://ann2:`+password+`@h/shop24", "target": "http://h/b"}`))
		reason := `unauthorized to access or create database http://h/shop24/ as "ann2"`
		state := replicator.JobState{Error: reason, ErrorCode: "unauthorized", History: replicator.History{{Type: "crashed", Reason: reason}}}
		state.Redact(r.Secrets())
		require.Equal(t, reason, state.Error)
		require.Equal(t, "unauthorized", state.ErrorCode)
		require.Equal(t, reason, state.History[0].Reason)
	}
}

// Endpoints may repeat the secrets that they receive.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r := parse(t, []byte(`{
		"source": {"url": "http://adm:url-secret@h/db", "headers": {"X-Token": "header-secret", "Cookie": "a=cookie-secret; b=c", "Accept": "text/plain"}},
		"target": {"url": "http://h/db2", "headers": {"Authorization": "Bearer bearer-secret"}},
		"source_proxy": "http://adm:proxy%2Fsecret@p.example", "filter": "d/f", "query_params": {"token": "param-secret", "type": "user"}}`))
	set := r.Secrets()
	for _, said := range []string{
		"url-secret", "YWRtOnVybC1zZWNyZXQ=", "header-secret", "cookie-secret", "bearer-secret", "proxy/secret", "proxy%2Fsecret", "proxy%2fsecret",
		"param-secret",
	} {
		require.NotContains(t, set.Text("the server says "+said), said)
	}
	for _, said := range []string{"text/plain", "user", "adm"} {
		require.Contains(t, set.Text("the server says "+said), said)
	}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", set, set, set), "secret@")
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", set, set, set), "url-")

	state := replicator.JobState{
		Error: "said url-secret", ErrorCode: "header-secret", SourceSeq: json.RawMessage(`"url-secret"`), ThroughSeq: json.RawMessage(`"2-x"`),
		Result:  json.RawMessage(`{"x":"BEARER-SECRET"}`),
		History: replicator.History{{Type: "crashed", Reason: "said bearer-secret"}},
		Activity: &replicator.Activity{
			Waiting:  []replicator.Wait{{Path: "/url-secret", Error: "said url-secret"}},
			Refusing: &replicator.Refusing{Latest: replicator.Failure{ID: "doc", Reason: "said url-secret"}},
		},
	}
	before := state
	state.Redact(set)
	text, err := json.Marshal(state)
	require.NoError(t, err)
	require.NotContains(t, strings.ToLower(string(text)), "-secret")
	require.Contains(t, string(text), `"2-x"`)
	require.Equal(t, "said bearer-secret", before.History[0].Reason, "a copy is changed")
	require.Equal(t, "/url-secret", before.Activity.Waiting[0].Path)
	require.Equal(t, "said url-secret", before.Activity.Refusing.Latest.Reason)
}
