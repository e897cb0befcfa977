package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// After a start a node with databases is ready to run functions before one is called.
func TestFunctionsAreReadyAfterAStart(t *testing.T) {
	t.Parallel()
	store := "pebble:" + filepath.Join(t.TempDir(), "data")
	const ready = "functions of design documents are ready to run"
	node := serveNode(t, store)
	node.ask(http.StatusCreated, http.MethodPut, "db", "")
	node.ask(http.StatusCreated, http.MethodPut, "db/_design/d", `{"validate_doc_update":"function () { throw({forbidden: 'no'}) }"}`)
	require.Zero(t, node.end(syscall.SIGTERM))
	require.NotContains(t, node.logged(), ready)
	node = begin(t, ready, nil, "serve", "--store", store, "--set", "chttpd/port=0", "--set", "log/level=debug")
	node.ask(http.StatusForbidden, http.MethodPut, "db/x", `{}`)
}

// wrongValidator is the reason for a validate function of a wrong type, before selectors could be validate functions with
// "string type" at its end.
const wrongValidator = "`validate_doc_update` field must have object or string type"

// said is a request in a database, and what a CouchDB 3.5 answers. Revisions, sequences and ids that a server makes are
// replaced: see sameWords. If the node answers otherwise, node is its answer.
// CouchDB puts its own stack into some answers, of which only the status counts; answer is empty then.
type said struct {
	method, target, body string
	status               int
	answer               string
	node                 string
}

var varying = []struct {
	text *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b[0-9]+-[0-9a-f]{32}\b`), "REV"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "ID"},
	{regexp.MustCompile(`"(seq|last_seq)":"[^"]*"`), `"$1":"SEQ"`},
	{regexp.MustCompile(`functions-[a-z0-9]+`), "DB"},
	{regexp.MustCompile(`[\r\n]`), ""},
}

// sameWords returns an answer without what differs in each run.
func sameWords(answer string) string {
	for _, v := range varying {
		answer = v.text.ReplaceAllString(answer, v.with)
	}
	return answer
}

// design returns a design document of one function.
func design(member, function string) string {
	text, _ := json.Marshal(function)
	return fmt.Sprintf(`{%q:%s}`, member, text)
}

// validating returns cases in which one document is written in a database with a validate function.
func validating(function string, status int, code, reason string) []said {
	refused, _ := json.Marshal(map[string]string{"error": code, "reason": reason})
	members := strings.Trim(string(refused), "{}")
	return []said{
		{"PUT", "_design/v", design("validate_doc_update", function), 201, `{"ok":true,"id":"_design/v","rev":"REV"}`, ""},
		{"PUT", "doc", `{"a":1}`, status, string(refused), ""},
		{"POST", "_bulk_docs", `{"docs":[{"_id":"doc"}]}`, 201, `[{"id":"doc",` + members + `}]`, ""},
		{"POST", "_bulk_docs", `{"new_edits":false,"docs":[{"_id":"doc","_rev":"1-a"}]}`, 201, `[{"id":"doc","rev":"1-a",` + members + `}]`, ""},
		{"PUT", "_local/doc", `{}`, 201, `{"ok":true,"id":"_local/doc","rev":"0-1"}`, ""},
		{"PUT", "_design/w", `{}`, 201, `{"ok":true,"id":"_design/w","rev":"REV"}`, ""},
	}
}

// designs returns cases in which design documents are written; bodies are by id.
func designs(cases ...said) []said {
	for i := range cases {
		c := &cases[i]
		c.method, c.target = "PUT", fmt.Sprintf("_design/d%d", i)
		if c.answer == "" {
			c.status, c.answer = 201, fmt.Sprintf(`{"ok":true,"id":"_design/d%d","rev":"REV"}`, i)
		}
	}
	return cases
}

func invalidDesign(body, reason string) said {
	answer, _ := json.Marshal(map[string]string{"error": "invalid_design_doc", "reason": reason})
	return said{body: body, status: 400, answer: string(answer)}
}

const (
	documentsToFilter = `{"docs":[{"_id":"a","t":1},{"_id":"b","t":2},{"_id":"c","t":1}]}`
	leavesToFilter    = `{"new_edits":false,"docs":[{"_id":"k","_rev":"1-a","t":1},{"_id":"k","_rev":"1-b","t":2}]}`
	filters           = `{"filters":{
		"one":"function (doc, req) { return doc.t == 1 }",
		"of":"function (doc, req) { return doc.t == req.query.t }",
		"user":"function (doc, req) { return req.userCtx.roles.indexOf('_admin') >= 0 && req.method == 'GET' && req.path[1] == '_changes' && req.secObj && !req.headers.Authorization }",
		"fails":"function (doc) { throw {error: 'code', reason: 'why'} }",
		"error":"function (doc) { if (doc._id == 'c') throw new Error('why'); return true }",
		"loose":"function (doc) { throw 'text' }",
		"list":"function (doc) { throw ['error', 'code', 'why'] }",
		"syntax":"function ("
	},"views":{"v":{"map":"function (doc) { if (doc.t == 1) emit(doc.n, null) }"},"w":{"map":"function (doc) { throw 1 }"}}}`
)

func rows(rows ...string) string {
	for i, row := range rows {
		id, rest, _ := strings.Cut(row, " ")
		revs, rest, _ := strings.Cut(rest, " ")
		rows[i] = fmt.Sprintf(`{"seq":"SEQ","id":%q,"changes":[{"rev":%q}]%s}`, id, revs, rest)
	}
	return `{"results":[` + strings.Join(rows, ",") + `],"last_seq":"SEQ","pending":0}`
}

// functionCases are requests in databases of their own.
var functionCases = map[string][]said{
	"forbidden":      validating(`function (doc) { throw {forbidden: "no"} }`, 403, "forbidden", "no"),
	"unauthorized":   validating(`function (doc) { throw {unauthorized: "who"} }`, 401, "unauthorized", "who"),
	"another member": validating(`function (doc) { throw {other: "text"} }`, 500, "unknown_error", "text"),
	"a text":         validating(`function (doc) { throw "text" }`, 500, "unknown_error", "text"),
	"a list":         validating(`function (doc) { throw ["error", "code", "why"] }`, 500, "code", "why"),
	"a bad function": validating(`"no function"`, 500, "compilation_error", `Expression does not eval to a function. ("no function")`),
	"helpers": validating(`function () { throw {forbidden: [isArray([]), toJSON({a: 1}), sum([1, 2]), typeof log, typeof emit].join()} }`,
		403, "forbidden", `true,{"a":1},3,function,function`),
	"a module": {
		{"PUT", "_design/v", `{"lib":{"a":"exports.no = require('./b').text","b":"exports.text = 'from b'"},
			"validate_doc_update":"function () { throw {forbidden: require('lib/a').no} }"}`, 201, `{"ok":true,"id":"_design/v","rev":"REV"}`, ""},
		{"PUT", "doc", `{}`, 403, `{"error":"forbidden","reason":"from b"}`, ""},
	},
	"an error": {
		{"PUT", "_design/v", design("validate_doc_update", `function (doc) { throw new Error("why") }`), 201, `{"ok":true,"id":"_design/v","rev":"REV"}`, ""},
		{"PUT", "doc", `{}`, 500, `{"error":"Error","reason":"{[]}"}`, `{"error":"Error","reason":"_design/v validate_doc_update: why"}`},
	},
	"passes": {
		{"PUT", "_design/v", design("validate_doc_update", `function (doc) { log("seen"); return false }`), 201, `{"ok":true,"id":"_design/v","rev":"REV"}`, ""},
		{"PUT", "doc", `{"a":1}`, 201, `{"ok":true,"id":"doc","rev":"REV"}`, ""},
		{"POST", "_bulk_docs", `{"docs":[{"_id":"b","x":1}]}`, 201, `[{"ok":true,"id":"b","rev":"REV"}]`, ""},
		{"POST", "_bulk_docs", `{"new_edits":false,"docs":[{"_id":"r","_rev":"1-a"}]}`, 201, `[]`, ""},
	},
	"arguments": {
		{"POST", "_bulk_docs", `{"new_edits":false,"docs":[{"_id":"x","_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]},"n":1},{"_id":"gone","_rev":"1-a","_deleted":true}]}`, 201, `[]`, ""},
		{"PUT", "_security", `{"members":{"names":["bob"]},"admins":{}}`, 200, `{"ok":true}`, ""},
		{"PUT", "_design/v", design("validate_doc_update", `function (n, o, u, s) { throw {forbidden: JSON.stringify([n, o, u, s])} }`), 201, `{"ok":true,"id":"_design/v","rev":"REV"}`, ""},
		{"PUT", "new", `{"a":1}`, 403, saw(`{"_id":"new","a":1}`, `null`), ""},
		{"PUT", "x?rev=2-b", `{"a":1}`, 403, saw(`{"_id":"x","_rev":"2-b","a":1,"_revisions":{"start":2,"ids":["b"]}}`, oldX), ""},
		{"PUT", "x?rev=2-b", `{"_deleted":true,"why":1}`, 403, saw(`{"_id":"x","_rev":"2-b","why":1,"_deleted":true,"_revisions":{"start":2,"ids":["b"]}}`, oldX), ""},
		{"DELETE", "x?rev=2-b", ``, 403, saw(`{"_id":"x","_rev":"2-b","_deleted":true,"_revisions":{"start":2,"ids":["b"]}}`, oldX), ""},
		{"PUT", "x", `{}`, 409, `{"error":"conflict","reason":"Document update conflict."}`, ""},
		{"PUT", "x?rev=1-a", `{}`, 409, `{"error":"conflict","reason":"Document update conflict."}`, ""},
		{"PUT", "gone", `{"back":1}`, 403, saw(`{"_id":"gone","back":1}`, `null`), ""},
		{"POST", "_bulk_docs", `{"new_edits":false,"docs":[{"_id":"x","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]}}]}`, 201,
			`[{"id":"x","rev":"3-c",` + saw(`{"_id":"x","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]}}`, oldX)[1:] + `]`, ""},
		{"POST", "_bulk_docs", `{"new_edits":false,"docs":[{"_id":"x","_rev":"2-b","n":1}]}`, 201, `[]`, ""},
	},
	"design documents": designs(
		said{body: `{"views":{},"filters":{"a":"function ("},"language":"javascript"}`},
		invalidDesign(`{"views":[]}`, "`views` field must have object type"),
		invalidDesign(`{"views":null}`, "`views` field must have object type"),
		invalidDesign(`{"views":{"a":1}}`, "`views.a` field must have object type"),
		invalidDesign(`{"views":{"a":{}}}`, "View `a` must contain map function"),
		invalidDesign(`{"views":{"a":{"map":1}}}`, "`views.a.map` field must have string type"),
		invalidDesign(`{"views":{"a":{"map":"function (doc) {}","reduce":1}}}`, "`views.a.reduce` field must have string type"),
		invalidDesign(`{"views":{"a":{"map":"function (doc) {}","reduce":"_none"}}}`, "`_none` is not a supported reduce function."),
		invalidDesign(`{"views":{"a":{"map":"function (doc) {}","reduce":"_top_0"}}}`, "rank value must be between 1 and 100"),
		invalidDesign(`{"views":{"a":{"map":"function (doc) {}","reduce":"_top_x"}}}`, "invalid rank reducer"),
		invalidDesign(`{"views":{"lib":1}}`, "`views.lib` field must have object type"),
		invalidDesign(`{"filters":1}`, "`filters` field must have object type"),
		invalidDesign(`{"filters":{"a":1}}`, "`filters.a` field must have string or object type"),
		invalidDesign(`{"validate_doc_update":1}`, wrongValidator),
		invalidDesign(`{"validate_doc_update":null}`, wrongValidator),
		invalidDesign(`{"language":1}`, "`language` field must have string type"),
		invalidDesign(`{"language":"query","views":{"a":{"map":"x"}}}`, "`views.a.map` field must have object type"),
		invalidDesign(`{"options":{"partitioned":true}}`, "partitioned option cannot be true in a non-partitioned database."),
		invalidDesign(`{"options":{"local_seq":1}}`, "`options.local_seq` field must have boolean type"),
		invalidDesign(`{"rewrites":1}`, "`rewrites` field must have array or string type"),
		invalidDesign(`{"_deleted":true,"views":1}`, "`views` field must have object type"),
		said{body: `{"views":{"a":{"map":"42"}}}`, status: 400, answer: `{"error":"compilation_error","reason":"Compilation of the map function in the 'a' view failed: Expression does not eval to a function. (42)"}`},
		said{body: `{"views":{"a":{"map":"throw 1"}}}`, status: 400, answer: `{"error":"compilation_error","reason":"Compilation of the map function in the 'a' view failed: 1 (throw 1)"}`},
		said{
			body: `{"views":{"a":{"map":"function ("}}}`, status: 400,
			answer: `{"error":"compilation_error","reason":"Compilation of the map function in the 'a' view failed: SyntaxError: missing formal parameter (function ()"}`,
			node:   `{"error":"compilation_error","reason":"Compilation of the map function in the 'a' view failed: SyntaxError: Unexpected end of input (function ()"}`,
		},
		said{body: `{"views":{"a":{"map":"function named(doc) {}"}}}`, status: 400, answer: `{"error":"compilation_error","reason":"Compilation of the map function in the 'a' view failed: Expression does not eval to a function. (function named(doc) {})"}`},
		said{body: `{"views":{"a":{"map":""}}}`, status: 404, answer: `{"error":"not_found","reason":"missing function"}`},
		said{body: `{"views":{"a":{"map":"var x = 1; function (doc) { emit(x) }"}}}`},
		said{body: `{"views":{"a":{"map":"function (doc) { emit('}') };  // the end"}}}`},
		said{body: `{"views":{"a":{"map":"/* c */ function (doc) {} ; "}}}`},
		said{body: `{"views":{"a":{"map":"(doc) => emit(doc)","reduce":"_sum"}}}`},
		said{body: `{"views":{"a":{"map":"function (doc) {}","reduce":"_top_5"},"lib":{"x":"exports.a ="}}}`},
		said{body: `{"language":"erlang","views":{"a":{"map":"x"}}}`},
	),
	"filters": {
		{"POST", "_bulk_docs", documentsToFilter, 201, `[{"ok":true,"id":"a","rev":"REV"},{"ok":true,"id":"b","rev":"REV"},{"ok":true,"id":"c","rev":"REV"}]`, ""},
		{"POST", "_bulk_docs", leavesToFilter, 201, `[]`, ""},
		{"PUT", "_design/f", filters, 201, `{"ok":true,"id":"_design/f","rev":"REV"}`, ""},
		{"GET", "_changes?filter=f/one", "", 200, rows("a REV", "c REV"), ""},
		{"GET", "_changes?filter=f/one&style=all_docs", "", 200, rows("a REV", "c REV", "k 1-a"), ""},
		{"GET", "_changes?filter=f/of&t=2", "", 200, rows("b REV", "k 1-b"), ""},
		{"GET", "_changes?filter=f/of&t=2&include_docs=true", "", 200,
			rows(`b REV ,"doc":{"_id":"b","_rev":"REV","t":2}`, `k 1-b ,"doc":{"_id":"k","_rev":"1-b","t":2}`), ""},
		{"GET", "_changes?filter=f/one&descending=true", "", 200, rows("c REV", "a REV"), ""},
		{"GET", "_changes?filter=f/user", "", 200, rows("a REV", "b REV", "c REV", "k 1-b", "_design/f REV"), ""},
		{"GET", "_changes?filter=_view&view=f/v", "", 200, rows("a REV", "c REV"), ""},
		{"GET", "_changes?filter=_view&view=f/v&style=all_docs", "", 200, rows("a REV", "c REV", "k 1-a"), ""},
		{"GET", "_changes?filter=f/one&feed=longpoll", "", 200, rows("a REV", "c REV"), ""},
		{"POST", "_changes?filter=f/of&t=2", `{}`, 200, rows("b REV", "k 1-b"), ""},
		{"GET", "_changes?filter=f/error", "", 500, ``, `{"error":"error","reason":"Error: _design/f filters.error: why"}`},
		{"GET", "_changes?filter=f/fails", "", 500, ``, `{"error":"error","reason":"code: why"}`},
		{"GET", "_changes?filter=f/list", "", 500, ``, `{"error":"error","reason":"code: why"}`},
		{"GET", "_changes?filter=f/loose", "", 500, ``, `{"error":"error","reason":"unnamed_error: _design/f filters.loose: text"}`},
		{"GET", "_changes?filter=f/syntax", "", 500, ``, `{"error":"error","reason":"compilation_error: SyntaxError: Unexpected end of input (function ()"}`},
		{"GET", "_changes?filter=_view&view=f/w", "", 500, ``, `{"error":"error","reason":"unnamed_error: _design/f views.w.map: 1"}`},
		{"GET", "_changes?filter=f/none", "", 404, `{"error":"not_found","reason":"missing json key: none"}`, ""},
		{"GET", "_changes?filter=none/x", "", 404, `{"error":"not_found","reason":"missing"}`, ""},
		{"GET", "_changes?filter=f", "", 400, "{\"error\":\"bad_request\",\"reason\":\"`filter` must be of the form `designname/filtername`\"}", ""},
		{"GET", "_changes?filter=/", "", 200, rows("a REV", "b REV", "c REV", "k 1-b", "_design/f REV"), ""},
		{"GET", "_changes?filter=_view", "", 400, "{\"error\":\"bad_request\",\"reason\":\"`view` filter parameter is not provided.\"}", ""},
		{"GET", "_changes?filter=_view&view=/", "", 400, "{\"error\":\"bad_request\",\"reason\":\"`view` must be of the form `designname/viewname`\"}", ""},
		{"GET", "_changes?filter=_view&view=f/none", "", 404, `{"error":"not_found","reason":"missing json key: none"}`, ""},
		{"PUT", "_design/g", `{}`, 201, `{"ok":true,"id":"_design/g","rev":"REV"}`, ""},
		{"GET", "_changes?filter=g/x", "", 404, `{"error":"not_found","reason":"missing json key: filters"}`, ""},
	},
	"another language": {
		{"PUT", "_design/v", `{"language":"erlang","validate_doc_update":"fun(_) -> ok end.","filters":{"a":"x"}}`, 201, `{"ok":true,"id":"_design/v","rev":"REV"}`, ""},
		{"PUT", "doc", `{}`, 500, `{"error":"unknown_query_language","reason":"erlang"}`, ""},
		{"GET", "_changes?filter=v/a", ``, 500, ``, `{"error":"unknown_query_language","reason":"erlang"}`},
	},
}

// oldX is document x of the case arguments.
const oldX = `{"_id":"x","_rev":"2-b","n":1,"_revisions":{"start":2,"ids":["b","a"]}}`

// saw returns the answer of a validate function that throws its arguments.
func saw(doc, old string) string {
	reason, _ := json.Marshal(`[` + doc + `,` + old + `,{"db":"DB","name":"USER","roles":["_admin"]},{"members":{"names":["bob"]},"admins":{}}]`)
	return `{"error":"forbidden","reason":` + string(reason) + `}`
}

// engineWords are what CouchDB's JavaScript engine says when a function of a view does not compile. CouchDB is built with
// QuickJS, whose words the cases have, or with SpiderMonkey.
var engineWords = regexp.MustCompile(`( view failed: ).* \(`)

// withoutEngine returns an answer with what all builds of CouchDB share.
func withoutEngine(answer string) string { return engineWords.ReplaceAllString(answer, "${1}WORDS (") }

// TestFunctionsAnswerAsCouchDB makes the same requests of a node and of a CouchDB.
func TestFunctionsAnswerAsCouchDB(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, db, user string, c said) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), c.method, db+"/"+c.target, strings.NewReader(c.body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Close = true // after a function failed in a feed, CouchDB may answer twice on a connection
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, strings.ReplaceAll(sameWords(string(text)), `\"`+user+`\"`, `\"USER\"`)
	}
	t.Run("a node", func(t *testing.T) {
		t.Parallel()
		node := serveNode(t, "mem:", "couchdb/os_process_timeout=600000")
		number := 0
		for name, cases := range functionCases {
			number++
			db := node.hosted(fmt.Sprintf("functions-%d", number))
			for _, c := range cases {
				status, answer := ask(t, db, adminName, c)
				want := c.answer
				if c.node != "" {
					want = c.node
				}
				require.Equal(t, c.status, status, "%s: %s %s: %s", name, c.method, c.target, answer)
				assert.Equal(t, want, answer, "%s: %s %s", name, c.method, c.target)
			}
		}
	})
	t.Run("a CouchDB", func(t *testing.T) {
		t.Parallel()
		peer := couchtest.SharedCouchDB(t)
		peer.Do(t, http.MethodPut, "/_node/_local/_config/couchdb/os_process_timeout", []byte(`"600000"`), http.StatusOK)
		words := strings.NewReplacer()
		if peer.Release(t).Before36 {
			words = strings.NewReplacer(wrongValidator, strings.Replace(wrongValidator, "object or ", "", 1))
		}
		differs := func(cases []said) (what string) {
			db := peer.DBWith(t, "functions", "q=1")
			for _, c := range cases {
				status, answer := ask(t, db, peer.Username, c)
				want := words.Replace(c.answer)
				if status != c.status || want != "" && withoutEngine(want) != withoutEngine(answer) {
					what += fmt.Sprintf("%s %s: %d %s, not %d %s\n", c.method, c.target, status, answer, c.status, want)
				}
			}
			return what
		}
		for name, cases := range functionCases {
			// CouchDB learns of a new design document a moment later, and until then lets a write pass.
			what := differs(cases)
			for tries := 1; what != "" && tries < 5; tries++ {
				what = differs(cases)
			}
			assert.Empty(t, what, name)
		}
	})
}

// TestReplicationsMeetFunctions replicates with a filter of a hosted source, into a hosted target that refuses some of
// the documents.
func TestReplicationsMeetFunctions(t *testing.T) {
	t.Parallel()
	node := serveNode(t, aStore(t), "couchdb/os_process_timeout=600000")
	source, target := node.hosted("source"), node.hosted("target")
	var docs []string
	for i := range 30 {
		docs = append(docs, fmt.Sprintf(`{"_id":"doc%02d","kind":%d}`, i, i%3))
	}
	node.ask(http.StatusCreated, http.MethodPost, "source/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`)
	node.ask(http.StatusCreated, http.MethodPut, "source/_design/f",
		`{"filters":`+design("kind", `function (doc, req) { return doc.kind >= Number(req.query.least) }`)+`}`)
	node.ask(http.StatusCreated, http.MethodPut, "target/_design/v",
		design("validate_doc_update", `function (doc, old, user) {
			if (user.roles.indexOf("_admin") < 0) throw {forbidden: "administrators are bound, too"};
			if (doc.kind === 2) throw {forbidden: "not of this kind"};
		}`))
	result := node.replicateOnce(`"source":%q,"target":%q,"filter":"f/kind","query_params":{"least":"1"}`, source, target)
	assert.Equal(t, 10, result.History[0].DocsWritten)
	assert.Equal(t, 10, result.History[0].DocWriteFailures)
	var info struct {
		Docs int `json:"doc_count"`
	}
	require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "target", "")), &info))
	assert.Equal(t, 10+len("v"), info.Docs)
	assert.True(t, node.replicateOnce(`"source":%q,"target":%q,"filter":"f/kind","query_params":{"least":"1"}`, source, target).NoChanges)
}
