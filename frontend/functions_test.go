package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docstore"
)

// design writes a design document, over the one that is there. body is its JSON.
func (n *node) design(path, body string) {
	n.Helper()
	if old := n.get(path); old.status == http.StatusOK {
		rev, _ := old.json(n.T)["_rev"].(string)
		body = strings.Replace(body, "{", `{"_rev":"`+rev+`",`, 1)
	}
	n.put(path, body).is(n.T, http.StatusCreated)
}

// validating returns a design document with a validate function.
func validating(function string) string {
	text, _ := json.Marshal(function)
	return `{"validate_doc_update":` + string(text) + `}`
}

// filtering returns a design document with a filter, whose name is f.
func filtering(function string) string {
	text, _ := json.Marshal(function)
	return `{"filters":{"f":` + string(text) + `}}`
}

// TestValidateAllWrites makes all kinds of writes, which a function refuses.
func TestValidateAllWrites(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.newDatabase("db")
	rev := n.put("/db/doc/file", "content").is(t, http.StatusCreated).rev(t)
	n.design("/db/_design/v", validating(`function (doc, old) { throw {forbidden: doc._id + (old ? " over " + old._rev : "")} }`))
	over := "doc over " + rev
	related := "--b\r\nContent-Type: application/json\r\n\r\n" + `{"_attachments":{"f":{"follows":true,"length":2,"content_type":"text/plain"}}}` +
		"\r\n--b\r\n\r\nhi\r\n--b--"
	for request, reason := range map[[3]string]string{
		{"PUT", "/db/new", `{}`}:                             "new",
		{"PUT", "/db/doc?rev=" + rev, `{}`}:                  over,
		{"PUT", "/db/new?new_edits=false", `{"_rev":"1-a"}`}: "new",
		{"PUT", "/db/new?batch=ok", `{}`}:                    "new",
		{"POST", "/db", `{"_id":"new"}`}:                     "new",
		{"DELETE", "/db/doc?rev=" + rev, ""}:                 over,
		{"PUT", "/db/doc/other?rev=" + rev, "text"}:          over,
		{"PUT", "/db/new/other", "text"}:                     "new",
		{"DELETE", "/db/doc/file?rev=" + rev, ""}:            over,
	} {
		got := n.do(request[0], request[1], request[2], "Content-Type", "application/json")
		refused(t, got, http.StatusForbidden, "forbidden", reason)
	}
	refused(t, n.do("COPY", "/db/doc", "", "Destination", "new"), http.StatusForbidden, "forbidden", "new")
	refused(t, n.put("/db/new", related, "Content-Type", "multipart/related; boundary=b"), http.StatusForbidden, "forbidden", "new")
	for _, body := range []string{`{"docs":[{"_id":"new"},{"_id":"_local/l"}]}`, `{"new_edits":false,"docs":[{"_id":"new","_rev":"1-a"}]}`} {
		results := n.postJSON("/db/_bulk_docs", body).results(t)
		require.Equal(t, "forbidden", results[0]["error"])
		require.Equal(t, "new", results[0]["reason"])
	}
	n.put("/db/_local/doc", `{}`).is(t, http.StatusCreated)
	require.EqualValues(t, 2, n.get("/db/_all_docs").json(t)["total_rows"], "doc and _design/v")
}

// TestValidateBySelector has validate functions that are selectors, as CouchDB has them after 3.5.3.
func TestValidateBySelector(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.newDatabase("db")
	n.design("/db/_design/v", `{"language":"query","validate_doc_update":{
		"newDoc":{"year":{"$type":"number"}}, "$or":[{"oldDoc":null}, {"oldDoc.year":{"$lt":2000}}]}}`)
	const reason = "document is not valid"
	refused(t, n.put("/db/a", `{"year":"1979"}`), http.StatusForbidden, "forbidden", reason)
	rev := n.put("/db/a", `{"year":1979}`).is(t, http.StatusCreated).rev(t)
	rev = n.put("/db/a?rev="+rev, `{"year":2001}`).is(t, http.StatusCreated).rev(t)
	refused(t, n.put("/db/a?rev="+rev, `{"year":2002}`), http.StatusForbidden, "forbidden", reason)
	results := n.postJSON("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"b","_rev":"1-a"},{"_id":"c","_rev":"1-a","year":1}]}`).results(t)
	require.Len(t, results, 1)
	require.Equal(t, []any{"b", "forbidden", reason}, []any{results[0]["id"], results[0]["error"], results[0]["reason"]})

	for function, says := range map[string]string{
		`{"$no":1}`:        "_design/v validate_doc_update: ",
		`{"":1}`:           "_design/v validate_doc_update: ",
		`"function () {}"`: "_design/v validate_doc_update: ",
	} {
		n.design("/db/_design/v", `{"language":"query","validate_doc_update":`+function+`}`)
		got := n.put("/db/new", `{}`).is(t, http.StatusInternalServerError).json(t)
		require.Contains(t, got["reason"], says, function)
	}
	n.design("/db/_design/v", `{"validate_doc_update":{"newDoc":{}}}`) // a selector is no JavaScript
	n.put("/db/new", `{}`).is(t, http.StatusInternalServerError)
	n.design("/db/_design/v", `{"language":"query","validate_doc_update":{}}`)
	n.put("/db/new", `{}`).is(t, http.StatusCreated)
}

// TestHostileFunctions has functions without end. Each fails its own request, with an error that names it.
func TestHostileFunctions(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	n := start(t, "couchdb/os_process_timeout=500")
	n.newDatabase("db")
	n.newDatabase("other")
	n.put("/db/doc", `{}`).is(t, http.StatusCreated)
	for _, body := range []string{
		`while (true);`,
		`[].indexOf.call({length: Math.pow(2, 53) - 1}, 1)`,
		`var s = "x"; while (true) s += s`,
		`"x".repeat(1 << 28)`,
		`(function f() { f() })()`,
	} {
		fails := func(got answer, name string) {
			t.Helper()
			require.Equal(t, http.StatusInternalServerError, got.status, "%s: %s", body, got.body)
			require.Contains(t, got.json(t)["reason"], name)
		}
		n.design("/db/_design/v", validating("function () { "+body+" }"))
		fails(n.put("/db/new", `{}`), "_design/v validate_doc_update: ")
		results := n.postJSON("/db/_bulk_docs", `{"docs":[{"_id":"new"}]}`).results(t)
		require.Contains(t, results[0]["reason"], "_design/v", body)
		n.design("/db/_design/f", filtering("function () { "+body+" }"))
		fails(n.get("/db/_changes?filter=f/f"), "_design/f filters.f: ")
		n.put("/other/new", `{}`).is(t, http.StatusCreated)
		n.do(http.MethodDelete, "/other/new?rev="+n.get("/other/new").json(t)["_rev"].(string), "").is(t, http.StatusOK)
	}
	n.get("/db/new").is(t, http.StatusNotFound)
	n.design("/db/_design/v", `{"language":"javascript"}`)
	n.put("/db/new", `{}`).is(t, http.StatusCreated)
}

// TestRefusedFunctions has a validate function that fills its memory until it is refused. Nothing is written unchecked,
// another function of the design document runs, and so does the repaired one.
func TestRefusedFunctions(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	n := start(t)
	n.newDatabase("db")
	fills, _ := json.Marshal(`function () { var a = []; while (true) a.push({}) }`)
	n.design("/db/_design/v", `{"validate_doc_update":`+string(fills)+`,"filters":{"f":"function (doc) { return true }"}}`)
	for range 3 {
		n.put("/db/new", `{}`).is(t, http.StatusInternalServerError)
	}
	got := n.put("/db/new", `{}`).is(t, http.StatusInternalServerError).json(t)
	require.Equal(t, "os_process_error", got["error"])
	require.Contains(t, got["reason"], "_design/v validate_doc_update: it needed more memory than it may have repeatedly, and is not called again until 20")
	n.get("/db/new").is(t, http.StatusNotFound)
	n.get("/db/_changes?filter=v/f").is(t, http.StatusOK)
	n.design("/db/_design/v", validating(`function () {}`))
	n.put("/db/new", `{}`).is(t, http.StatusCreated)
}

// TestValidateByWhom has a function that knows the users.
func TestValidateByWhom(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.newPeople()
	n.with("db", security)
	n.design("/db/_design/v", validating(`function (doc, old, user, security) {
		throw {forbidden: [user.db, user.name, user.roles.join(), security.members.roles.join()].join(" ")};
	}`))
	for who, reason := range map[string]string{
		p.root: "db admin _admin staff", p.admin: "db boss  staff", p.member: "db ann staff staff",
	} {
		refused(t, n.as(who, http.MethodPut, "/db/doc", `{}`), http.StatusForbidden, "forbidden", reason)
	}
	n.with("db", `{"members":{},"admins":{}}`)
	n.design("/db/_design/v", validating(`function (doc, old, user) { if (user.name === null) throw {unauthorized: "log in"} }`))
	refused(t, n.as(nobody, http.MethodPut, "/db/doc", `{}`), http.StatusUnauthorized, "unauthorized", "log in")
	n.as(p.user, http.MethodPut, "/db/doc", `{}`).is(t, http.StatusCreated)
}

// TestValidateSystemDatabases has validate functions in databases with checks of their own.
func TestValidateSystemDatabases(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.newUser("ann")
	n.newDatabase("_replicator")
	only := validating(`function (doc) { if (!doc._deleted && !doc.allowed) throw {forbidden: "not allowed"} }`)
	n.design("/_replicator/_design/v", only)
	n.design("/_users/_design/v", only)
	replication := `{"source":"http://a.example/a","target":"http://a.example/b"`
	refused(t, n.put("/_replicator/doc", replication+"}"), http.StatusForbidden, "forbidden", "not allowed")
	n.put("/_replicator/doc", replication+`,"allowed":true}`).is(t, http.StatusCreated)
	user := `{"type":"user","name":"eve","roles":[],"password":"eve-` + secret + `"`
	refused(t, n.put("/_users/org.couchdb.user:eve", user+"}"), http.StatusForbidden, "forbidden", "not allowed")
	n.put("/_users/org.couchdb.user:eve", user+`,"allowed":true}`).is(t, http.StatusCreated)
}

// TestValidateWhileFunctionsChange writes documents while the validate function changes. The changes feed has no document
// after a function that refuses it.
func TestValidateWhileFunctionsChange(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.newDatabase("db")
	const epochs = 8
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				got, err := n.request(http.MethodPut, fmt.Sprintf("/db/doc-%d-%d", w, i), fmt.Sprintf(`{"epoch":%d}`, i%epochs))
				if assert.NoError(t, err) {
					assert.Contains(t, []int{http.StatusCreated, http.StatusForbidden}, got.status, got.body)
				}
			}
		})
	}
	for epoch := range epochs {
		n.design("/db/_design/v", fmt.Sprintf(`{"epoch":%d,%s`, epoch,
			validating(fmt.Sprintf(`function (doc) { if (doc.epoch < %d) throw {forbidden: "late"} }`, epoch))[1:]))
	}
	close(stop)
	writers.Wait()
	// A design document is in the feed at its last change only.
	var last bool
	for row, err := range db.Changes(docstore.ChangesOptions{Documents: true}).All(t.Context()) {
		require.NoError(t, err)
		if row.ID == "_design/v" {
			last = true
		} else if last {
			require.Contains(t, string(row.Document.Body), fmt.Sprint(epochs-1), row.ID)
		}
	}
	require.True(t, last)
	refused(t, n.put("/db/late", `{"epoch":1}`), http.StatusForbidden, "forbidden", "late")
	n.do(http.MethodDelete, "/db/_design/v?rev="+n.get("/db/_design/v").json(t)["_rev"].(string), "").is(t, http.StatusOK)
	n.put("/db/late", `{"epoch":1}`).is(t, http.StatusCreated)
}

// TestFilteredFeedsFollow follows feeds with a filter, which later fails.
func TestFilteredFeedsFollow(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/changes_timeout=600000") // a busy machine calls functions slowly
	n.newDatabase("db")
	n.design("/db/_design/d", filtering(`function (doc, req) {
		if (doc.fails) throw {error: "code", reason: "why"};
		return doc.kind === req.query.kind;
	}`))
	lines := n.follow("?feed=continuous&heartbeat=600000&filter=d/f&kind=a")
	events := n.follow("?feed=eventsource&heartbeat=600000&filter=d/f&kind=a")
	for i, kind := range []string{"b", "a", "b", "a"} {
		n.put(fmt.Sprintf("/db/doc%d", i), `{"kind":"`+kind+`"}`).is(t, http.StatusCreated)
	}
	for _, id := range []string{"doc1", "doc3"} {
		lines.expect(`{"seq":"...","id":"` + id + `"`)
		events.expect(`data: {"seq":"...","id":"`+id+`"`, "id: ", "")
	}
	n.put("/db/doc5", `{"fails":true}`).is(t, http.StatusCreated)
	require.Equal(t, "\n"+`{"code":500,"error":"error","reason":"code: why"}`+"\n", lines.rest())
}

// TestFiltersSeeMuch filters more rows than a function gets at a time, with a limit, with many leaves and with documents
// that do not fit into its memory together.
func TestFiltersSeeMuch(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	n := start(t, "quickjs/memory_limit_bytes=16777216")
	db := n.newDatabase("db")
	n.design("/db/_design/d", filtering(`function (doc, req) { return doc.n % 3 === 0 }`))
	var edits []docstore.Edit
	var want []string
	for i := range 1000 {
		id := fmt.Sprintf("doc%03d", i)
		edits = append(edits, doc(id, fmt.Sprintf(`{"n":%d}`, i)))
		if i%3 == 0 {
			want = append(want, id)
		}
	}
	write(t, db, edits...)
	all := n.changes("?filter=d/f", "")
	require.Equal(t, want, all.ids())
	var paged []string
	for since := "0"; len(paged) < len(want); {
		page := n.changes("?filter=d/f&limit=7&since="+since, "")
		require.NotEmpty(t, page.ids())
		paged, since = append(paged, page.ids()...), page.LastSeq
	}
	require.Equal(t, want, paged)
	slices.Reverse(want)
	require.Equal(t, want, n.changes("?filter=d/f&descending=true", "").ids())

	large := strings.Repeat("x", 900_000)
	for i := range 4 {
		write(t, db, doc(fmt.Sprint("large", i), fmt.Sprintf(`{"n":0,"text":%q}`, large)))
	}
	require.Equal(t, []string{"large0", "large1", "large2", "large3"}, n.changes("?filter=d/f&since="+all.LastSeq, "").ids())
}

// A function of the database's administrators must not see with what others prove who they are.
func TestFiltersSeeNoCredentials(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd_auth/x_auth_token=x-PROOF")
	n.newDatabase("db")
	n.put("/db/doc", "{}").is(t, http.StatusCreated)
	n.design("/db/_design/d", filtering(`function (doc, req) { throw {forbidden: JSON.stringify(req.headers)} }`))
	got := n.do(http.MethodGet, "/db/_changes?filter=d/f", "", "X-Proof", secret, "X-Auth-CouchDB-Token", secret, "Cookie", secret,
		"X-Api-Key", secret, "X-Amzn-Oidc-Data", secret, "Accept-Language", "seen")
	require.Contains(t, got.body, "Accept-Language")
	require.Contains(t, got.body, "seen")
	require.NotContains(t, got.body, secret)
	require.NotContains(t, got.body, "Authorization")
}
