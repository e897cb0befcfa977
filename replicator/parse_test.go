package replicator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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

func parse(t *testing.T, doc []byte) *replicator.Replication {
	t.Helper()
	r, err := replicator.ParseDocument(doc, replicator.ParseOptions{})
	require.NoError(t, err, "%s", doc)
	return r
}

// refusal returns the error that both forms of a definition are refused with.
func refusal(t *testing.T, doc []byte) *replicator.ParseError {
	t.Helper()
	_, docErr := replicator.ParseDocument(doc, replicator.ParseOptions{})
	_, requestErr := replicator.ParseRequest(doc, replicator.ParseOptions{})
	var parseErr *replicator.ParseError
	require.ErrorAs(t, docErr, &parseErr, "%s", doc)
	require.Equal(t, docErr, requestErr, "%s", doc)
	return parseErr
}

func TestParseGivesEveryField(t *testing.T) {
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
		SocketOptions:      &replicator.SocketOptions{KeepAlive: new(false)},
		UserCtx:            &replicator.UserCtx{Name: new("joe"), Roles: []string{"r1", "r2"}},
		Owner:              new("joe"),
	}, r)
}

func TestParseLeavesUnsetWhatIsNotGiven(t *testing.T) {
	t.Parallel()
	require.Equal(t, &replicator.Replication{
		Source: replicator.Endpoint{URL: "http://a.example/db1/"},
		Target: replicator.Endpoint{URL: "http://b.example/db2/"},
	}, parse(t, definition("")))
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		members string
		got     func(*replicator.Replication) any
		want    any
	}{
		"doc_ids are decoded, sorted and single": {
			`"doc_ids": ["b%20c", "a", "a+b", "a", "%", "50%x", "ü", "%C3%A9"]`,
			func(r *replicator.Replication) any { return r.DocIDs },
			[]string{"%", "50%x", "a", "a b", "b c", "é", "ü"},
		},
		"doc_ids may be empty, which is not the same as none": {
			`"doc_ids": []`,
			func(r *replicator.Replication) any { return r.DocIDs }, []string{},
		},
		"doc_ids null is none, even beside a selector": {
			`"doc_ids": null, "selector": {}`,
			func(r *replicator.Replication) any { return r.DocIDs }, []string(nil),
		},
		"an empty selector": {
			`"selector": {}`,
			func(r *replicator.Replication) any { return string(r.Selector) }, `{}`,
		},
		"a selector keeps the order of its keys": {
			`"selector": { "b": 1, "a": {"$gt": 1.50} }`,
			func(r *replicator.Replication) any { return string(r.Selector) }, `{"b":1,"a":{"$gt":1.50}}`,
		},
		"a built-in filter": {
			`"filter": "_design"`,
			func(r *replicator.Replication) any { return r.Filter }, "_design",
		},
		"the filter _view names a view": {
			`"filter": "_view", "query_params": {"view": "d/v"}`,
			func(r *replicator.Replication) any { return r.Filter }, "_view",
		},
		"integers may be strings": {
			`"worker_processes": "7"`,
			func(r *replicator.Replication) any { return *r.WorkerProcesses }, 7,
		},
		"since_seq of CouchDB 1.x": {
			`"since_seq": 17`,
			func(r *replicator.Replication) any { return string(r.SinceSeq) }, `17`,
		},
		"since_seq of BigCouch": {
			`"since_seq": [12, "opaque"]`,
			func(r *replicator.Replication) any { return string(r.SinceSeq) }, `[12,"opaque"]`,
		},
		"an empty proxy is none": {
			`"proxy": "", "source_proxy": "http://p.example"`,
			func(r *replicator.Replication) any { return r.Source.Proxy + "|" + r.Target.Proxy }, "http://p.example|",
		},
		"a proxy is for both sides": {
			`"proxy": "https://p.example:8080/"`,
			func(r *replicator.Replication) any { return r.Source.Proxy + "|" + r.Target.Proxy },
			"https://p.example:8080|https://p.example:8080",
		},
		"a proxy's user name and password are made fit for net/url": {
			`"proxy": "http://u%zz:p[@p.example"`,
			func(r *replicator.Replication) any { return r.Source.Proxy }, "http://u%25zz:p%5B@p.example",
		},
		"user_ctx without name and roles": {
			`"user_ctx": {}`,
			func(r *replicator.Replication) any { return r.UserCtx }, &replicator.UserCtx{Roles: []string{}},
		},
		"user_ctx of an anonymous user": {
			`"user_ctx": {"name": null, "roles": ["_admin"]}`,
			func(r *replicator.Replication) any { return r.UserCtx }, &replicator.UserCtx{Roles: []string{"_admin"}},
		},
		"owner null": {
			`"owner": null`,
			func(r *replicator.Replication) any { return r.Owner }, (*string)(nil),
		},
		"the last of two keys counts": {
			`"continuous": "yes", "continuous": true`,
			func(r *replicator.Replication) any { return r.Continuous }, true,
		},
		"socket options that are not known are ignored": {
			`"socket_options": "[{priority,1}, {nodelay, true} , {sndbuf,4096}]"`,
			func(r *replicator.Replication) any { return r.SocketOptions },
			&replicator.SocketOptions{NoDelay: new(true), SendBuffer: new(4096)},
		},
		"cancel and ids are no business of a document": {
			`"cancel": false, "id": 5, "_local_id": {}, "replication_id": ""`,
			func(r *replicator.Replication) any { return r.Continuous }, false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.got(parse(t, definition(test.members))))
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const (
		boolean  = "must be a boolean"
		positive = "must be an integer from 1 to "
		filters  = "`doc_ids`,`filter`,`selector` are mutually exclusive"
		proxy    = "must be a URL with protocol http, https or socks5"
		seq      = "must be an update sequence: a string, an array, or an integer of 0 or more"
		sockets  = "must be a list such as `[{keepalive, true}, {nodelay, false}]`"
	)
	tests := []struct {
		members string
		field   string
		reason  string // a part of it
	}{
		{`"cancel": "yes"`, "cancel", boolean},
		{`"create_target": 1`, "create_target", boolean},
		{`"create_target": null`, "create_target", boolean},
		{`"create_target_params": [1]`, "create_target_params", "must be a JSON object"},
		{`"create_target_params": {"q": {}}`, "create_target_params.q", "must be a JSON object of strings, numbers and booleans"},
		{`"continuous": "true"`, "continuous", "parameter `continuous` must be a boolean"},
		{`"winning_revs_only": "x"`, "winning_revs_only", boolean},
		{`"use_checkpoints": 0`, "use_checkpoints", boolean},
		{`"use_bulk_get": []`, "use_bulk_get", boolean},

		{`"doc_ids": {}`, "doc_ids", "parameter `doc_ids` must be an array"},
		{`"doc_ids": [1]`, "doc_ids", "must be an array of strings"},
		{`"doc_ids": [null]`, "doc_ids", "must be an array of strings"},
		{`"doc_ids": ["%ff"]`, "doc_ids", "UTF-8"},
		{`"doc_ids": ["a"], "filter": "d/f"`, "filter", filters},
		{`"doc_ids": [], "selector": {}`, "selector", filters},
		{`"filter": "d/f", "selector": {}`, "selector", filters},
		{`"filter": "nodash"`, "filter", "Invalid filter. Must match `ddocname/filtername`."},
		{`"filter": "/f"`, "filter", "Invalid filter"},
		{`"filter": "d/"`, "filter", "Invalid filter"},
		{`"filter": ""`, "filter", "Invalid filter"},
		{`"filter": null`, "filter", "Invalid filter"},
		{`"filter": "_view"`, "query_params.view", "must be `ddocname/viewname` when `filter` is `_view`"},
		{`"filter": "_view", "query_params": {"view": 5}`, "query_params.view", "`ddocname/viewname`"},
		{`"filter": "_view", "query_params": {"view": "a/b/c"}`, "query_params.view", "`ddocname/viewname`"},
		{`"query_params": "x"`, "query_params", "must be an object"},
		{`"query_params": {"a": 1e999}`, "query_params", "a number is out of range"},

		{`"selector": null`, "selector", "must be a JSON object"},
		{`"selector": []`, "selector", "must be a JSON object"},
		{`"selector": {"a": {"$foo": 1}}`, "selector", "parameter `selector` is invalid: `$foo` is not an operator"},
		{`"selector": {"a": {"$in": 1}}`, "selector", "the argument of `$in` must be an array"},
		{`"selector": {"a": 1e999}`, "selector", "a number is out of range"},

		{`"since_seq": {}`, "since_seq", seq},
		{`"since_seq": null`, "since_seq", seq},
		{`"since_seq": true`, "since_seq", seq},
		{`"since_seq": ""`, "since_seq", seq},
		{`"since_seq": 1.5`, "since_seq", seq},
		{`"since_seq": -1`, "since_seq", seq},

		{`"worker_processes": "a few"`, "worker_processes", "parameter `worker_processes` " + positive},
		{`"worker_processes": 0`, "worker_processes", positive},
		{`"worker_processes": 5.0`, "worker_processes", positive},
		{`"worker_processes": 101`, "worker_processes", positive + "100"},
		{`"worker_batch_size": 10001`, "worker_batch_size", positive + "10000"},
		{`"http_connections": 1001`, "http_connections", positive + "1000"},
		{`"connection_timeout": 2147483648`, "connection_timeout", positive + "2147483647"},
		{`"worker_processes": null`, "worker_processes", positive},
		{`"worker_batch_size": -1`, "worker_batch_size", positive},
		{`"http_connections": true`, "http_connections", positive},
		{`"connection_timeout": {}`, "connection_timeout", positive},
		{`"checkpoint_interval": ""`, "checkpoint_interval", positive},
		{`"retries_per_request": -1`, "retries_per_request", "must be an integer from 0 to 1000"},

		{`"socket_options": 5`, "socket_options", "must be a string"},
		{`"socket_options": "keepalive"`, "socket_options", sockets},
		{`"socket_options": "[{keepalive, 5}]"`, "socket_options", sockets},
		{`"socket_options": "[{recbuf, 0}]"`, "socket_options", sockets},

		{`"proxy": null`, "proxy", proxy},
		{`"proxy": "p.example:3128"`, "proxy", "parameter `proxy` has an invalid url: it has no scheme"},
		{`"proxy": "gopher://p"`, "proxy", proxy},
		{`"source_proxy": "http://"`, "source_proxy", "invalid url"},
		{`"target_proxy": ["http://p"]`, "target_proxy", proxy},
		{`"proxy": "http://p", "source_proxy": "http://q"`, "proxy", "`proxy` is mutually exclusive with `source_proxy`"},
		{`"proxy": "http://p", "target_proxy": "http://q"`, "proxy", "`proxy` is mutually exclusive with `target_proxy`"},
	}
	for _, test := range tests {
		t.Run(test.members, func(t *testing.T) {
			t.Parallel()
			err := refusal(t, definition(test.members))
			require.Equal(t, test.field, err.Field)
			require.Contains(t, err.Error(), test.reason)
		})
	}
}

func TestParseRefusesInDocumentsOnly(t *testing.T) {
	t.Parallel()
	tests := []struct{ members, field, reason string }{
		{`"cancel": true`, "cancel", "delete the document instead"},
		{`"user_ctx": "x"`, "user_ctx", "parameter `user_ctx` must be an object with `name` and `roles`"},
		{`"user_ctx": null`, "user_ctx", "must be an object"},
		{`"user_ctx": {"name": 5}`, "user_ctx.name", "must be a string or null"},
		{`"user_ctx": {"roles": "r"}`, "user_ctx.roles", "must be an array of strings"},
		{`"user_ctx": {"roles": [1]}`, "user_ctx.roles", "must be an array of strings"},
		{`"owner": 5`, "owner", "must be a string or null"},
	}
	for _, test := range tests {
		t.Run(test.members, func(t *testing.T) {
			t.Parallel()
			_, err := replicator.ParseDocument(definition(test.members), replicator.ParseOptions{})
			var parseErr *replicator.ParseError
			require.ErrorAs(t, err, &parseErr)
			require.Equal(t, test.field, parseErr.Field)
			require.Contains(t, parseErr.Reason, test.reason)

			request, err := replicator.ParseRequest(definition(test.members), replicator.ParseOptions{})
			require.NoError(t, err)
			require.Nil(t, request.Replication.UserCtx)
			require.Nil(t, request.Replication.Owner)
		})
	}
}

func TestParseRefusesTextsThatAreNoDefinition(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `{"source":`, `{} x`, "{\"a\": \"\xff\"}", `{"a": "\ud800"}`, `{"a": "\udc00\ud800"}`, `{"a": "\ud800\u0041"}`} {
		err := refusal(t, []byte(text))
		require.Equal(t, "invalid UTF-8 JSON", err.Reason, "%q", text)
		require.Empty(t, err.Field)
	}
	for _, text := range []string{`[]`, `null`, `5`, `"x"`} {
		_, err := replicator.ParseRequest([]byte(text), replicator.ParseOptions{})
		require.EqualError(t, err, "Request body must be a JSON object")
		_, err = replicator.ParseDocument([]byte(text), replicator.ParseOptions{})
		require.EqualError(t, err, "Document must be a JSON object")
	}
	// Pairs of surrogates, and backslashes that begin no escape of one, are fine.
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
		// A cancel by id needs nothing else, and looks at nothing else.
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

func TestParseRequestTakesTextParamsOnly(t *testing.T) {
	t.Parallel()
	doc := definition(`"filter": "d/f", "query_params": {"a": "x", "n": 5}`)
	parse(t, doc)
	_, err := replicator.ParseRequest(doc, replicator.ParseOptions{})
	require.EqualError(t, err, "parameter `query_params` must have strings for values: `n` has another")
}

func TestProtocolsAreASetting(t *testing.T) {
	t.Parallel()
	options := replicator.ParseOptions{EndpointProtocols: []string{"https", "ftp"}, ProxyProtocols: []string{"socks5"}}
	const https = `{"source": "https://a.example/db", "target": "https://b.example/db"`

	_, err := replicator.ParseDocument(definition(""), options)
	require.EqualError(t, err, "parameter `source` must be a URL with protocol https")
	_, err = replicator.ParseDocument([]byte(https+`, "proxy": "http://p"}`), options)
	require.EqualError(t, err, "parameter `proxy` must be a URL with protocol socks5")
	r, err := replicator.ParseDocument([]byte(https+`, "proxy": "socks5://p"}`), options)
	require.NoError(t, err)
	require.NoError(t, r.Check(options))

	// What was accepted once may be refused under later settings.
	require.NoError(t, parse(t, definition("")).Check(replicator.ParseOptions{}))
	var parseErr *replicator.ParseError
	require.ErrorAs(t, parse(t, definition("")).Check(options), &parseErr)
	require.Equal(t, "source", parseErr.Field)
	r = parse(t, []byte(https+`, "target_proxy": "http://p"}`))
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
