package replicator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"settee/pkg/docjson"
	"settee/pkg/sockopt"
	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// definition returns a document with two endpoints and the given members.
func definition(members string) []byte {
	text := `{"source": "http://a.example/db1", "target": "http://b.example/db2"`
	if members != "" {
		text += ", " + members
	}
	return []byte(text + "}")
}

// parseDocument parses a document with _id and _deleted in its text, which a store keeps apart.
func parseDocument(text []byte, options replicator.ParseOptions) (*replicator.Document, error) {
	var apart struct {
		ID      string `json:"_id"`
		Deleted bool   `json:"_deleted"`
	}
	_ = json.Unmarshal(text, &apart) // invalid text is the parser's to refuse
	if apart.Deleted {
		return replicator.ParseBody(apart.ID, true, docjson.Body{}, options)
	}
	return replicator.ParseText(apart.ID, text, options)
}

// wanted returns the replication that needs a job, or nil. It is nil for a nil document.
func wanted(d *replicator.Document) *replicator.Replication {
	if d == nil || d.State.Terminal() {
		return nil
	}
	return d.Replication
}

func parse(t *testing.T, doc []byte) *replicator.Replication {
	t.Helper()
	d, err := parseDocument(doc, replicator.ParseOptions{})
	require.NoError(t, err, "%s", doc)
	return d.Replication
}

// refusal returns the error for a definition, which must be the same in a document and in a
// request.
func refusal(t *testing.T, doc []byte) *replicator.ParseError {
	t.Helper()
	_, docErr := parseDocument(doc, replicator.ParseOptions{})
	_, requestErr := replicator.ParseRequest(doc, replicator.ParseOptions{})
	var parseErr *replicator.ParseError
	require.ErrorAs(t, docErr, &parseErr, "%s", doc)
	require.Equal(t, docErr, requestErr, "%s", doc)
	return parseErr
}

func TestParseEveryField(t *testing.T) {
	t.Parallel()
	r := parse(t, definition(`
		"create_target": true, "create_target_params": {"q": 8, "partitioned": true},
		"continuous": true, "filter": "ddoc/fun", "query_params": {"b": "1", "a": 2},
		"since_seq": "5-abc", "winning_revs_only": true, "use_checkpoints": false,
		"checkpoint_interval": 5000, "use_bulk_get": false, "worker_processes": 2,
		"worker_batch_size": 100, "http_connections": 10, "connection_timeout": 60000,
		"retries_per_request": 0, "socket_options": "[{keepalive, false}]",
		"source_proxy": "http://p.example:3128", "target_proxy": "socks5://u:p@q.example",
		"user_ctx": {"name": "joe", "roles": ["r1", "r2"]}, "owner": "joe",
		"_id": "doc", "_rev": "1-a", "_replication_state": "completed", "mine": {"any": ["thing"]}`))

	require.Equal(t, &replicator.Replication{
		Source:             replicator.Endpoint{URL: "http://a.example/db1/", Proxy: "http://p.example:3128"},
		Target:             replicator.Endpoint{URL: "http://b.example/db2/", Proxy: "socks5://u:p@q.example"},
		CreateTarget:       true,
		CreateTargetParams: json.RawMessage(`{"q":8,"partitioned":true}`),
		Continuous:         true,
		Filter:             "ddoc/fun",
		QueryParams:        json.RawMessage(`{"b":"1","a":2}`),
		SinceSeq:           json.RawMessage(`"5-abc"`),
		WinningRevsOnly:    true,
		UseCheckpoints:     new(false),
		CheckpointInterval: new(5000),
		UseBulkGet:         new(false),
		WorkerProcesses:    new(2),
		WorkerBatchSize:    new(100),
		HTTPConnections:    new(10),
		ConnectionTimeout:  new(60000),
		RetriesPerRequest:  new(0),
		SocketOptions:      &sockopt.Options{KeepAlive: new(false)},
		UserCtx:            &replicator.UserCtx{Name: new("joe"), Roles: []string{"r1", "r2"}},
		Owner:              new("joe"),
	}, r)
}

func TestParseLeavesMissingFieldsUnset(t *testing.T) {
	t.Parallel()
	require.Equal(t, &replicator.Replication{
		Source: replicator.Endpoint{URL: "http://a.example/db1/"},
		Target: replicator.Endpoint{URL: "http://b.example/db2/"},
	}, parse(t, definition("")))
}

func TestParseRefusesInvalidTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `{"source":`, `{} x`, "{\"a\": \"\xff\"}", `{"a": "\ud800"}`, `{"a": "\udc00\ud800"}`, `{"a": "\ud800\u0041"}`} {
		err := refusal(t, []byte(text))
		require.Equal(t, "invalid UTF-8 JSON", err.Reason, "%q", text)
		require.Empty(t, err.Field)
	}
	for _, text := range []string{`[]`, `null`, `5`, `"x"`} {
		_, err := replicator.ParseRequest([]byte(text), replicator.ParseOptions{})
		require.EqualError(t, err, "Request body must be a JSON object")
		_, err = parseDocument([]byte(text), replicator.ParseOptions{})
		require.EqualError(t, err, "Document must be a JSON object")
	}
	// Surrogate pairs are valid, and so are backslashes that begin other escapes.
	parse(t, definition(`"note": "\ud83d\ude00 \\ud800 \"\\"`))
}

func TestParseRequestCancels(t *testing.T) {
	t.Parallel()
	byID := func(t *testing.T, body string) *replicator.Request {
		request, err := replicator.ParseRequest([]byte(body), replicator.ParseOptions{})
		require.NoError(t, err)
		return request
	}
	for _, name := range []string{"id", "_local_id", "replication_id"} {
		// A cancel by id needs and reads no other field.
		request := byID(t, fmt.Sprintf(`{"cancel": true, %q: "abc+continuous", "source": 5}`, name))
		require.Equal(t, &replicator.Request{Cancel: true, ID: "abc+continuous"}, request)
	}
	require.Equal(t, "abc+continuous", byID(t, `{"cancel": true, "id": "abc continuous"}`).ID)

	request := byID(t, string(definition(`"cancel": true`)))
	require.True(t, request.Cancel)
	require.NotNil(t, request.Replication)

	request = byID(t, string(definition(`"id": "abc"`)))
	require.False(t, request.Cancel)
	require.NotNil(t, request.Replication)

	for body, field := range map[string]string{
		`{"cancel": true}`:                                   "source",
		`{"cancel": true, "id": 5}`:                          "id",
		`{"cancel": true, "id": ""}`:                         "id",
		`{"cancel": true, "id": "a", "replication_id": "b"}`: "id",
	} {
		_, err := replicator.ParseRequest([]byte(body), replicator.ParseOptions{})
		var parseErr *replicator.ParseError
		require.ErrorAs(t, err, &parseErr, body)
		require.Equal(t, field, parseErr.Field, body)
	}
}

// The parameters of requests and of documents may have any type, also without a filter.
func TestParamsOfAnyType(t *testing.T) {
	t.Parallel()
	const params = `{"a":"x","n":5,"b":true,"c":null,"l":[1,{"f":2.5}],"o":{}}`
	for _, filter := range []string{"", `, "filter": "d/f"`, `, "filter": "_custom"`} {
		doc := definition(`"query_params": ` + params + filter)
		request, err := replicator.ParseRequest(doc, replicator.ParseOptions{})
		require.NoError(t, err)
		require.Equal(t, params, string(request.Replication.QueryParams))
		require.Equal(t, request.Replication, parse(t, doc))
	}
}

// Options may ask for more than there is.
func TestWarnings(t *testing.T) {
	t.Parallel()
	require.Empty(t, parse(t, definition(`"worker_batch_size": 10000, "retries_per_request": 1000`)).Warnings())
	require.Equal(t, []string{
		"`http_connections` is 1000, which is the most", "`retries_per_request` is 1000, which is the most",
		"`worker_batch_size` is 10000, which is the most", "`worker_processes` is 100, which is the most",
	}, parse(t, definition(`"worker_processes": 101, "worker_batch_size": 1000000, "http_connections": 99999999999,
		"retries_per_request": "1001"`)).Warnings())
}

// Text that was probably not meant to be decoded is decoded with a warning, which does not quote it.
func TestWarningsAboutDecodedText(t *testing.T) {
	t.Parallel()
	warned := func(userinfo, ids string) []string {
		r := parse(t, []byte(`{"source":"http://`+userinfo+`@a.example/db","target":{"url":"http://`+userinfo+`@b.example/db",
			"auth":{"basic":{"username":"u","password":"%41"}}},"doc_ids":[`+ids+`]}`))
		stored, err := (&replicator.JobArgs{Replication: r}).Stored()
		require.NoError(t, err)
		var again replicator.JobArgs
		require.NoError(t, json.Unmarshal(stored, &again))
		require.Equal(t, r.Warnings(), again.Replication.Warnings())
		return r.Warnings()
	}
	require.Empty(t, warned("ann:p%40ss%2F%25", `"a%2Bb%20c%C3%A9", "50%"`))
	list := warned("ann:%41bc", `"a+b", "c+d"`)
	require.Len(t, list, 2)
	require.Contains(t, list[0], "`doc_ids`")
	require.Contains(t, list[1], "`source`")
	require.NotContains(t, list[1], "bc")
	require.Len(t, warned("%61nn:x", `"%41"`), 2)
	plain, escaped := `{"source":"http://u:%41@a.example/db","target":"http://b.example/db"}`, `{"source":"http://u:A@a.example/db","target":"http://b.example/db"}`
	require.True(t, parse(t, []byte(plain)).Equal(parse(t, []byte(escaped))))
}

// A member of auth that is not used is named, without its value. Only some of many are.
func TestWarningsAboutUnusedAuth(t *testing.T) {
	t.Parallel()
	warned := func(auth string) []string {
		return parse(t, []byte(`{"source":"http://a.example/db","target":{"url":"http://b.example/db","auth":`+auth+`}}`)).Warnings()
	}
	const basic = `"basic":{"username":"u","password":"p"}`
	require.Empty(t, warned(`{}`))
	require.Empty(t, warned(`{`+basic+`}`))
	for auth, field := range map[string]string{
		`{"plugin":{"key":"s3cret"}}`:                            "target.auth.plugin",
		`{"plugin":"s3cret",` + basic + `}`:                      "target.auth.plugin",
		`{"basic":{"username":"u","password":"p","s":"s3cret"}}`: "target.auth.basic.s",
		`{"` + strings.Repeat("x", 1000) + `":"s3cret"}`:         "target.auth." + strings.Repeat("x", 64),
	} {
		list := warned(auth)
		require.Len(t, list, 1, auth)
		require.True(t, strings.HasPrefix(list[0], "`"+field+"` is not used: "), list[0])
		require.NotContains(t, list[0], "s3cret")
	}
	require.Len(t, warned(`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11}`), 10)
}

func TestProtocolsAreASetting(t *testing.T) {
	t.Parallel()
	options := replicator.ParseOptions{EndpointProtocols: []string{"https", "ftp"}, ProxyProtocols: []string{"socks5"}}
	const https = `{"source": "https://a.example/db", "target": "https://b.example/db"`

	_, err := parseDocument(definition(""), options)
	require.EqualError(t, err, "parameter `source` must be a URL with protocol https")
	_, err = parseDocument([]byte(https+`, "proxy": "http://p"}`), options)
	require.EqualError(t, err, "parameter `proxy` must be a URL with protocol socks5")
	d, err := parseDocument([]byte(https+`, "proxy": "socks5://p"}`), options)
	require.NoError(t, err)
	require.NoError(t, d.Replication.Check(options))

	// A definition that was accepted may be refused under later settings.
	require.NoError(t, parse(t, definition("")).Check(replicator.ParseOptions{}))
	var parseErr *replicator.ParseError
	require.ErrorAs(t, parse(t, definition("")).Check(options), &parseErr)
	require.Equal(t, "source", parseErr.Field)
	r := parse(t, []byte(https+`, "target_proxy": "http://p"}`))
	require.ErrorAs(t, r.Check(options), &parseErr)
	require.Equal(t, "target_proxy", parseErr.Field)
}

func TestFilterName(t *testing.T) {
	t.Parallel()
	r := parse(t, definition(`"filter": "ddoc/a/b"`))
	require.True(t, r.NeedsFilterCode())
	ddoc, filter, err := r.FilterName()
	require.NoError(t, err)
	require.Equal(t, "ddoc", ddoc)
	require.Equal(t, "a/b", filter)

	for _, members := range []string{``, `"filter": "_design"`, `"doc_ids": []`, `"selector": {}`} {
		r := parse(t, definition(members))
		require.False(t, r.NeedsFilterCode())
		_, _, err := r.FilterName()
		require.ErrorIs(t, err, replicator.ErrNoFilterFunction)
	}
}

func TestParseErrorsQuoteNoSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`"ftp://adm:s3cret@h/db"`, `"http://adm:s3cret@/db"`, `"http://adm:s3cret/x@h/db"`, `"s3cret"`,
		`"http://adm:s3cret@h:99999/db"`, `"http://adm:s3cret@h/a b"`, `"http://adm:s3cret%ff@h/a"`,
		`{"url": "http://adm:s3cret@h db/"}`, `{"url": "http://h/db", "headers": {"Authorization": "Basic s3cret"}}`,
		`{"url": "http://h/db", "headers": {"X": "s3cret\n"}}`,
		`{"url": "http://h/db", "auth": {"basic": {"password": "s3cret"}}}`,
	} {
		err := refusal(t, []byte(`{"target": "http://b/c", "source": `+text+`}`))
		require.NotContains(t, err.Error(), "s3cret", text)
		require.True(t, strings.HasPrefix(err.Field, "source"), text)
		require.Contains(t, err.Error(), "source", text)
	}
}
