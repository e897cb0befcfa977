package replicator_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"settee/internal/testkit"
	"settee/pkg/erlterm"
	selectors "settee/pkg/selector"
	"settee/pkg/sockopt"
	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// fieldTest has the values that one field of a definition may have, in documents and in requests.
type fieldTest struct {
	got      func(*replicator.Replication) any
	accepted []acceptedValue
	refused  []refusedValue
}

// acceptedValue has the members of a definition and the resulting field.
type acceptedValue struct {
	members string
	want    any
}

// refusedValue has the members of a definition, the field at fault, and the whole reason.
type refusedValue struct {
	members, field, reason string
}

// values returns refusals of one field for one reason.
func values(name, reason string, literals ...string) []refusedValue {
	var refused []refusedValue
	for _, literal := range literals {
		refused = append(refused, refusedValue{fmt.Sprintf("%q: %s", name, literal), name, reason})
	}
	return refused
}

func booleanTest(name string, got func(*replicator.Replication) any, whenTrue, whenFalse any) fieldTest {
	return fieldTest{
		got:      got,
		accepted: []acceptedValue{{fmt.Sprintf("%q: true", name), whenTrue}, {fmt.Sprintf("%q: false", name), whenFalse}},
		refused:  values(name, "parameter `"+name+"` must be a boolean", `"true"`, `1`, `null`, `[]`, `{}`),
	}
}

func integerTest(name string, got func(*replicator.Replication) any, minimum int) fieldTest {
	test := fieldTest{got: got}
	for _, n := range []int{minimum, minimum + 1, math.MaxInt32} {
		test.accepted = append(test.accepted,
			acceptedValue{fmt.Sprintf("%q: %d", name, n), new(n)},
			acceptedValue{fmt.Sprintf(`%q: "%d"`, name, n), new(n)})
	}
	for _, large := range []string{"2147483648", `"99999999999"`, "99999999999999999999"} {
		test.accepted = append(test.accepted, acceptedValue{fmt.Sprintf("%q: %s", name, large), new(math.MaxInt32)})
	}
	reason := fmt.Sprintf("parameter `%s` must be an integer of at least %d", name, minimum)
	test.refused = values(name, reason,
		fmt.Sprint(minimum-1), `"a few"`, `""`, `" 5"`, `5.0`, `5e0`, `-99999999999999999999`, `true`, `null`, `[5]`, `{}`)
	return test
}

func proxyTest(name string, got func(*replicator.Replication) any) fieldTest {
	scheme := "parameter `" + name + "` must be a URL with protocol http, https or socks5"
	invalid := "parameter `" + name + "` has an invalid url: "
	test := fieldTest{got: got}
	for given, want := range map[string]string{
		"":                          "",
		"http://p.example":          "http://p.example",
		"https://p.example:8080/":   "https://p.example:8080",
		"socks5://u:p@[::1]:1":      "socks5://u:p@[::1]:1",
		"http://u%zz:p[@p.example":  "http://u%25zz:p%5B@p.example", // fit for net/url
		"HTTP://p.example:3128/x?y": "http://p.example:3128",
	} {
		test.accepted = append(test.accepted, acceptedValue{fmt.Sprintf("%q: %q", name, given), want})
	}
	test.refused = append(test.refused, values(name, scheme, `null`, `5`, `["http://p"]`, `"gopher://p"`)...)
	test.refused = append(test.refused, values(name, invalid+"it has no scheme", `"p.example:3128"`, `"p"`)...)
	test.refused = append(test.refused, values(name, invalid+"its host is not valid", `"http://"`, `"http://p p"`)...)
	test.refused = append(test.refused, values(name, invalid+"its port is not valid", `"http://p:0"`, `"http://p:99999"`)...)
	return test
}

const (
	exclusiveFilters = "`doc_ids`,`filter`,`selector` are mutually exclusive"
	invalidFilter    = "Invalid filter. Must match `ddocname/filtername`."
	invalidView      = "parameter `query_params.view` must be `ddocname/viewname` when `filter` is `_view`"
	invalidSeq       = "parameter `since_seq` must be an update sequence: a string, an array, or an integer of 0 or more"
	invalidSockets   = "parameter `socket_options` must be a list such as `[{keepalive, true}, {nodelay, false}]`"
	scalarParams     = "parameter `create_target_params` must be a JSON object of strings, numbers and booleans"
	exclusiveProxy   = "`proxy` is mutually exclusive with "
)

// fieldTests has an entry for every field except source and target, which are in
// endpoint_test.go.
var fieldTests = map[string]fieldTest{
	"create_target": booleanTest("create_target",
		func(r *replicator.Replication) any { return r.CreateTarget }, true, false),
	"continuous": booleanTest("continuous",
		func(r *replicator.Replication) any { return r.Continuous }, true, false),
	"winning_revs_only": booleanTest("winning_revs_only",
		func(r *replicator.Replication) any { return r.WinningRevsOnly }, true, false),
	"use_checkpoints": booleanTest("use_checkpoints",
		func(r *replicator.Replication) any { return r.UseCheckpoints }, new(true), new(false)),
	"use_bulk_get": booleanTest("use_bulk_get",
		func(r *replicator.Replication) any { return r.UseBulkGet }, new(true), new(false)),

	"checkpoint_interval": integerTest("checkpoint_interval",
		func(r *replicator.Replication) any { return r.CheckpointInterval }, 1),
	"worker_processes": integerTest("worker_processes",
		func(r *replicator.Replication) any { return r.WorkerProcesses }, 1),
	"worker_batch_size": integerTest("worker_batch_size",
		func(r *replicator.Replication) any { return r.WorkerBatchSize }, 1),
	"http_connections": integerTest("http_connections",
		func(r *replicator.Replication) any { return r.HTTPConnections }, 1),
	"connection_timeout": integerTest("connection_timeout",
		func(r *replicator.Replication) any { return r.ConnectionTimeout }, 1),
	"retries_per_request": integerTest("retries_per_request",
		func(r *replicator.Replication) any { return r.RetriesPerRequest }, 0),

	"source_proxy": proxyTest("source_proxy", func(r *replicator.Replication) any { return r.Source.Proxy }),
	"target_proxy": proxyTest("target_proxy", func(r *replicator.Replication) any { return r.Target.Proxy }),
	"proxy":        proxyTest("proxy", func(r *replicator.Replication) any { return r.Source.Proxy }),
	"proxies": {
		got: func(r *replicator.Replication) any { return r.Source.Proxy + "|" + r.Target.Proxy },
		accepted: []acceptedValue{
			{`"proxy": "http://p"`, "http://p|http://p"},
			{`"source_proxy": "http://p", "target_proxy": "http://q"`, "http://p|http://q"},
			{`"proxy": "", "source_proxy": "http://p"`, "http://p|"},
			{`"proxy": "http://p", "source_proxy": "", "target_proxy": ""`, "http://p|http://p"},
		},
		refused: []refusedValue{
			{`"proxy": "http://p", "source_proxy": "http://q"`, "proxy", exclusiveProxy + "`source_proxy`"},
			{`"proxy": "http://p", "target_proxy": "http://p"`, "proxy", exclusiveProxy + "`target_proxy`"},
			{`"proxy": "http://p", "source_proxy": "http://q", "target_proxy": "http://q"`, "proxy", exclusiveProxy + "`source_proxy`"},
		},
	},

	"create_target_params": {
		got: func(r *replicator.Replication) any { return string(r.CreateTargetParams) },
		accepted: []acceptedValue{
			{`"create_target_params": {}`, `{}`},
			{`"create_target_params": { "q": 8, "partitioned": true, "n": "3", "x": 1.5 }`, `{"q":8,"partitioned":true,"n":"3","x":1.5}`},
		},
		refused: append(
			values("create_target_params", "parameter `create_target_params` must be a JSON object", `[1]`, `"q=8"`, `null`, `8`),
			refusedValue{`"create_target_params": {"q": {}}`, "create_target_params.q", scalarParams},
			refusedValue{`"create_target_params": {"q": null}`, "create_target_params.q", scalarParams},
			refusedValue{`"create_target_params": {"q": [8]}`, "create_target_params.q", scalarParams},
		),
	},

	"doc_ids": {
		got: func(r *replicator.Replication) any { return r.DocIDs },
		accepted: []acceptedValue{
			{`"doc_ids": ["b%20c", "a", "a+b", "a", "%", "50%x", "ü", "%C3%A9"]`, []string{"%", "50%x", "a", "a b", "b c", "é", "ü"}},
			{`"doc_ids": []`, []string{}}, // which is not the same as none
			{`"doc_ids": null`, []string(nil)},
			{`"doc_ids": null, "selector": {}`, []string(nil)},
			{`"doc_ids": null, "filter": "d/f"`, []string(nil)},
		},
		refused: append(append(append(
			values("doc_ids", "parameter `doc_ids` must be an array", `{}`, `"a"`, `5`, `true`),
			values("doc_ids", "parameter `doc_ids` must be an array of strings", `[1]`, `["a", null]`, `[["a"]]`)...),
			values("doc_ids", "parameter `doc_ids` must be an array of document ids, which are UTF-8 once their escapes are decoded", `["%ff"]`)...),
			refusedValue{`"doc_ids": ["a"], "filter": "d/f"`, "filter", exclusiveFilters},
			refusedValue{`"doc_ids": [], "selector": {}`, "selector", exclusiveFilters},
			refusedValue{`"doc_ids": ["a"], "filter": "d/f", "selector": {}`, "filter", exclusiveFilters},
		),
	},
	"filter": {
		got: func(r *replicator.Replication) any { return r.Filter },
		accepted: []acceptedValue{
			{`"filter": "d/f"`, "d/f"},
			{`"filter": "d/f/g"`, "d/f/g"},
			{`"filter": "_design"`, "_design"},
			{`"filter": "_view", "query_params": {"view": "d/v"}`, "_view"},
		},
		refused: append(
			values("filter", invalidFilter, `"nodash"`, `"/f"`, `"d/"`, `"/"`, `""`, `null`, `5`, `{}`),
			refusedValue{`"filter": "_view"`, "query_params.view", invalidView},
			refusedValue{`"filter": "_view", "query_params": {}`, "query_params.view", invalidView},
			refusedValue{`"filter": "_view", "query_params": {"view": 5}`, "query_params.view", invalidView},
			refusedValue{`"filter": "_view", "query_params": {"view": "v"}`, "query_params.view", invalidView},
			refusedValue{`"filter": "_view", "query_params": {"view": "a/b/c"}`, "query_params.view", invalidView},
			refusedValue{`"filter": "d/f", "selector": {}`, "selector", exclusiveFilters},
		),
	},
	"query_params": {
		got: func(r *replicator.Replication) any { return string(r.QueryParams) },
		accepted: []acceptedValue{
			{`"query_params": {}`, `{}`},
			{`"query_params": { "b": "1", "a": "<ü>" }`, `{"b":"1","a":"\u003cü\u003e"}`},
			{`"query_params": {"limit": 1}`, `{"limit":1}`}, // without a filter it has no effect
			{`"filter": "d/f", "query_params": {"conflicts": "no"}`, `{"conflicts":"no"}`},
		},
		refused: append(
			values("query_params", "parameter `query_params` must be an object", `"x"`, `null`, `[]`, `5`),
			refusedValue{`"filter": "d/f", "query_params": {"limit": "1"}`, "query_params.limit", "parameter `query_params` must not have `limit`, which would not be one of the filter"},
			refusedValue{`"query_params": {"a": 1e999}`, "query_params", "parameter `query_params` is invalid: a number is out of range"},
		),
	},
	"selector": {
		got: func(r *replicator.Replication) any { return string(r.Selector) },
		accepted: []acceptedValue{
			{`"selector": {}`, `{}`},
			{`"selector": { "b": 1, "a": {"$gt": 1.50} }`, `{"b":1,"a":{"$gt":1.50}}`}, // in its order
		},
		refused: append(
			values("selector", "parameter `selector` must be a JSON object", `null`, `[]`, `"x"`, `5`),
			refusedValue{`"selector": {"a": {"$foo": 1}}`, "selector", "parameter `selector` is invalid: Invalid operator: $foo"},
			refusedValue{`"selector": {"a": {"$in": 1}}`, "selector", "parameter `selector` is invalid: Bad argument for operator $in: 1, which must be an array"},
			refusedValue{`"selector": {"a": 1e999}`, "selector", "parameter `selector` is invalid: a number is out of range"},
		),
	},
	"since_seq": {
		got: func(r *replicator.Replication) any { return string(r.SinceSeq) },
		accepted: []acceptedValue{
			{`"since_seq": "5-abc"`, `"5-abc"`},
			{`"since_seq": "now"`, `"now"`},
			{`"since_seq": 0`, `0`},
			{`"since_seq": 17`, `17`},                        // CouchDB 1.x
			{`"since_seq": [12, "opaque"]`, `[12,"opaque"]`}, // BigCouch
			{`"since_seq": 99999999999999999999`, `99999999999999999999`},
		},
		refused: values("since_seq", invalidSeq, `{}`, `null`, `true`, `""`, `1.5`, `-1`),
	},
	"socket_options": {
		got: func(r *replicator.Replication) any { return r.SocketOptions },
		accepted: []acceptedValue{
			{`"socket_options": "[]"`, &sockopt.Options{}},
			{`"socket_options": "[{keepalive, false}]"`, &sockopt.Options{KeepAlive: new(false)}},
			{
				`"socket_options": "[{priority,1}, {nodelay, true} , {sndbuf,4096}, {linger, {true, 0}}]"`,
				&sockopt.Options{NoDelay: new(true), SendBuffer: new(4096)},
			},
		},
		refused: append(
			values("socket_options", "parameter `socket_options` must be a string", `5`, `null`, `[]`, `{"keepalive": true}`),
			values("socket_options", invalidSockets, `""`, `"keepalive"`, `"[{keepalive, 5}]"`, `"[{recbuf, 0}]"`, `"[inet6]"`)...),
	},
}

func TestFields(t *testing.T) {
	t.Parallel()
	for name, test := range fieldTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, value := range test.accepted {
				text := definition(value.members)
				require.Equal(t, value.want, test.got(parse(t, text)), value.members)
				request, err := replicator.ParseRequest(text, replicator.ParseOptions{})
				require.NoError(t, err, value.members)
				require.Equal(t, value.want, test.got(request.Replication), value.members)
			}
			for _, value := range test.refused {
				require.Equal(t, &replicator.ParseError{Field: value.field, Reason: value.reason},
					refusal(t, definition(value.members)), value.members)
			}
		})
	}
	// The last of two members with one name counts.
	require.True(t, parse(t, definition(`"continuous": "yes", "continuous": true`)).Continuous)
	require.Equal(t, "continuous", refusal(t, definition(`"continuous": true, "continuous": "yes"`)).Field)
}

// Integers that are converted have a limit in every field.
func TestLongIntegers(t *testing.T) {
	t.Parallel()
	digits := func(n int) string { return strings.Repeat("9", n) }
	for field, format := range map[string]string{
		"since_seq": `"since_seq": %s`, "selector": `"selector": {"a": {"$in": [[-%s]]}}`,
		"query_params": `"query_params": {"a": {"b": %s}}`, "create_target_params": `"create_target_params": {"q": %s}`,
	} {
		request, err := replicator.ParseRequest(definition(fmt.Sprintf(format, digits(erlterm.MaxDigits))), replicator.ParseOptions{})
		require.NoError(t, err, field)
		_, err = request.Replication.ID(serverUUID, "code")
		require.NoError(t, err, field)
		for _, n := range []int{erlterm.MaxDigits + 1, 1_000_000} {
			require.Equal(t, &replicator.ParseError{
				Field: field, Reason: "parameter `" + field + "` is invalid: an integer has more than 1000 digits",
			}, refusal(t, definition(fmt.Sprintf(format, digits(n)))))
		}
	}
	// A field of the user's own is not converted, so its integers may have any length.
	_ = parse(t, definition(`"mine": `+digits(10_000)))
	// An option is clamped, whatever the length.
	require.Equal(t, math.MaxInt32, *parse(t, definition(`"worker_processes": `+digits(100_000))).WorkerProcesses)
	require.Equal(t, "worker_processes", refusal(t, definition(`"worker_processes": -`+digits(100_000))).Field)
	_, err := parseDocument(definition(`"user_ctx": {"roles": [`+digits(1_000_000)+`]}`), replicator.ParseOptions{})
	var refused *replicator.ParseError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "user_ctx.roles", refused.Field)
}

// A selector may have the size that sources accept.
func TestLargeSelectors(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	selector := func(text string) []byte { return definition(`"selector": ` + text) }
	list := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each+",", n), ",") }
	padded := func(size int) string {
		const frame = `{"a":""}`
		return `{"a":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	or := func(n int) string { return `{"$or":[` + list(n, "1") + `]}` }
	_ = parse(t, selector(padded(selectors.MaxBytes)))
	_ = parse(t, selector(or(selectors.MaxNodes-1)))
	for text, reason := range map[string]string{
		padded(selectors.MaxBytes + 1):                            "Selector has more than 1048576 bytes.",
		or(selectors.MaxNodes):                                    "Selector has more than 50000 fields and operators.",
		`{"$or":[` + list(selectors.MaxNodes/2, `{"a":1}`) + `]}`: "Selector has more than 50000 fields and operators.",
	} {
		require.Equal(t, &replicator.ParseError{Field: "selector", Reason: "parameter `selector` is invalid: " + reason}, refusal(t, selector(text)))
	}
}

// Every field of a definition is tested, here or where the comment says.
func TestEveryFieldIsTested(t *testing.T) {
	t.Parallel()
	elsewhere := []string{"source", "target", "user_ctx", "owner", "schedule", "timezone", "every", "mirror", "mirrored", "doubtful"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[replicator.Replication]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, tested := fieldTests[name]; !tested {
			require.Contains(t, elsewhere, name)
		}
	}
	for name, test := range fieldTests {
		require.NotEmpty(t, test.accepted, name)
		require.NotEmpty(t, test.refused, name)
	}
}

// These fields are for documents only: the user who sends a request is its user, and a
// request may cancel.
func TestFieldsOfDocumentsOnly(t *testing.T) {
	t.Parallel()
	const (
		ctx    = "parameter `user_ctx` must be an object with `name` and `roles`"
		roles  = "parameter `user_ctx.roles` must be an array of strings"
		cancel = "parameter `cancel` must not be true in a document: delete the document instead"
	)
	for members, want := range map[string]*replicator.UserCtx{
		`"user_ctx": {}`: {Roles: []string{}},
		`"user_ctx": {"name": "joe", "roles": ["r1", "r2"]}`:     {Name: new("joe"), Roles: []string{"r1", "r2"}},
		`"user_ctx": {"name": null, "roles": ["_admin"]}`:        {Roles: []string{"_admin"}},
		`"user_ctx": {"name": "joe", "password_scheme": "what"}`: {Name: new("joe"), Roles: []string{}},
		``: nil,
	} {
		require.Equal(t, want, parse(t, definition(members)).UserCtx, members)
	}
	for members, want := range map[string]*string{`"owner": "joe"`: new("joe"), `"owner": ""`: new(""), `"owner": null`: nil, ``: nil} {
		require.Equal(t, want, parse(t, definition(members)).Owner, members)
	}
	parse(t, definition(`"cancel": false, "id": 5, "replication_id": ""`))

	tests := []refusedValue{
		{`"cancel": true`, "cancel", cancel},
		{`"cancel": true, "id": "abc"`, "cancel", cancel},
		{`"user_ctx": "x"`, "user_ctx", ctx},
		{`"user_ctx": null`, "user_ctx", ctx},
		{`"user_ctx": []`, "user_ctx", ctx},
		{`"user_ctx": {"name": 5}`, "user_ctx.name", "parameter `user_ctx.name` must be a string or null"},
		{`"user_ctx": {"roles": "r"}`, "user_ctx.roles", roles},
		{`"user_ctx": {"roles": null}`, "user_ctx.roles", roles},
		{`"user_ctx": {"roles": ["r", 1]}`, "user_ctx.roles", roles},
		{`"owner": 5`, "owner", "parameter `owner` must be a string or null"},
		{`"owner": {}`, "owner", "parameter `owner` must be a string or null"},
	}
	for _, test := range tests {
		_, err := parseDocument(definition(test.members), replicator.ParseOptions{})
		require.Equal(t, &replicator.ParseError{Field: test.field, Reason: test.reason}, err, test.members)

		request, err := replicator.ParseRequest(definition(test.members), replicator.ParseOptions{})
		require.NoError(t, err, test.members)
		if request.Replication != nil {
			require.Nil(t, request.Replication.UserCtx)
			require.Nil(t, request.Replication.Owner)
		}
	}
	require.Equal(t, "parameter `cancel` must be a boolean", refusal(t, definition(`"cancel": "yes"`)).Reason)
	require.Equal(t, "parameter `cancel` must be a boolean", refusal(t, definition(`"cancel": null`)).Reason)
}

// Refusals name the field, in the form of CouchDB's 403.
func TestReasonsNameTheField(t *testing.T) {
	t.Parallel()
	for _, test := range fieldTests {
		for _, value := range test.refused {
			err := refusal(t, definition(value.members))
			name, _, _ := strings.Cut(err.Field, ".")
			require.Contains(t, err.Reason, name)
			body, jsonErr := json.Marshal(err.Forbidden())
			require.NoError(t, jsonErr)
			reason, jsonErr := json.Marshal(err.Reason)
			require.NoError(t, jsonErr)
			require.Equal(t, fmt.Sprintf(`{"error":"forbidden","reason":%s}`, reason), string(body))
		}
	}
}
