package databases_test

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

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
)

// design writes a design document, over the one that is there. body is its JSON.
func (n *node) design(path, body string) {
	n.Helper()
	if old := n.Get(path); old.Status == http.StatusOK {
		rev, _ := old.JSON(n.T)["_rev"].(string)
		body = strings.Replace(body, "{", `{"_rev":"`+rev+`",`, 1)
	}
	n.Put(path, body).Is(n.T, http.StatusCreated)
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
	n.NewDatabase("db")
	rev := n.Put("/db/doc/file", "content").Is(t, http.StatusCreated).Rev(t)
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
		got := n.Do(request[0], request[1], request[2], "Content-Type", "application/json")
		webtest.Refused(t, got, http.StatusForbidden, "forbidden", reason)
	}
	webtest.Refused(t, n.Do("COPY", "/db/doc", "", "Destination", "new"), http.StatusForbidden, "forbidden", "new")
	webtest.Refused(t, n.Put("/db/new", related, "Content-Type", "multipart/related; boundary=b"), http.StatusForbidden, "forbidden", "new")
	for _, body := range []string{`{"docs":[{"_id":"new"},{"_id":"_local/l"}]}`, `{"new_edits":false,"docs":[{"_id":"new","_rev":"1-a"}]}`} {
		results := n.PostJSON("/db/_bulk_docs", body).Results(t)
		require.Equal(t, "forbidden", results[0]["error"])
		require.Equal(t, "new", results[0]["reason"])
	}
	n.Put("/db/_local/doc", `{}`).Is(t, http.StatusCreated)
	require.EqualValues(t, 2, n.Get("/db/_all_docs").JSON(t)["total_rows"], "doc and _design/v")
}

// TestValidateBySelector has validate functions that are selectors, as CouchDB has them after 3.5.3.
func TestValidateBySelector(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	n.design("/db/_design/v", `{"language":"query","validate_doc_update":{
		"newDoc":{"year":{"$type":"number"}}, "$or":[{"oldDoc":null}, {"oldDoc.year":{"$lt":2000}}]}}`)
	const reason = "document is not valid"
	webtest.Refused(t, n.Put("/db/a", `{"year":"1979"}`), http.StatusForbidden, "forbidden", reason)
	rev := n.Put("/db/a", `{"year":1979}`).Is(t, http.StatusCreated).Rev(t)
	rev = n.Put("/db/a?rev="+rev, `{"year":2001}`).Is(t, http.StatusCreated).Rev(t)
	webtest.Refused(t, n.Put("/db/a?rev="+rev, `{"year":2002}`), http.StatusForbidden, "forbidden", reason)
	results := n.PostJSON("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"b","_rev":"1-a"},{"_id":"c","_rev":"1-a","year":1}]}`).Results(t)
	require.Len(t, results, 1)
	require.Equal(t, []any{"b", "forbidden", reason}, []any{results[0]["id"], results[0]["error"], results[0]["reason"]})

	for function, says := range map[string]string{
		`{"$no":1}`:        "_design/v validate_doc_update: ",
		`{"":1}`:           "_design/v validate_doc_update: ",
		`"function () {}"`: "_design/v validate_doc_update: ",
	} {
		n.design("/db/_design/v", `{"language":"query","validate_doc_update":`+function+`}`)
		got := n.Put("/db/new", `{}`).Is(t, http.StatusInternalServerError).JSON(t)
		require.Contains(t, got["reason"], says, function)
	}
	n.design("/db/_design/v", `{"validate_doc_update":{"newDoc":{}}}`) // a selector is no JavaScript
	n.Put("/db/new", `{}`).Is(t, http.StatusInternalServerError)
	n.design("/db/_design/v", `{"language":"query","validate_doc_update":{}}`)
	n.Put("/db/new", `{}`).Is(t, http.StatusCreated)
}

// TestHostileFunctions has functions without end. Each fails its own request, with an error that names it.
func TestHostileFunctions(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	n := start(t, "couchdb/os_process_timeout=500")
	n.NewDatabase("db")
	n.NewDatabase("other")
	n.Put("/db/doc", `{}`).Is(t, http.StatusCreated)
	for _, body := range []string{
		`while (true);`,
		`[].indexOf.call({length: Math.pow(2, 53) - 1}, 1)`,
		`var s = "x"; while (true) s += s`,
		`"x".repeat(1 << 28)`,
		`(function f() { f() })()`,
	} {
		fails := func(got webtest.Answer, name string) {
			t.Helper()
			require.Equal(t, http.StatusInternalServerError, got.Status, "%s: %s", body, got.Body)
			require.Contains(t, got.JSON(t)["reason"], name)
		}
		n.design("/db/_design/v", validating("function () { "+body+" }"))
		fails(n.Put("/db/new", `{}`), "_design/v validate_doc_update: ")
		results := n.PostJSON("/db/_bulk_docs", `{"docs":[{"_id":"new"}]}`).Results(t)
		require.Contains(t, results[0]["reason"], "_design/v", body)
		n.design("/db/_design/f", filtering("function () { "+body+" }"))
		fails(n.Get("/db/_changes?filter=f/f"), "_design/f filters.f: ")
		n.Put("/other/new", `{}`).Is(t, http.StatusCreated)
		n.Do(http.MethodDelete, "/other/new?rev="+n.Get("/other/new").JSON(t)["_rev"].(string), "").Is(t, http.StatusOK)
	}
	n.Get("/db/new").Is(t, http.StatusNotFound)
	n.design("/db/_design/v", `{"language":"javascript"}`)
	n.Put("/db/new", `{}`).Is(t, http.StatusCreated)
}

// TestRefusedFunctions has a validate function that fills its memory until it is refused. Nothing is written unchecked,
// another function of the design document runs, and so does the repaired one.
func TestRefusedFunctions(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	fills, _ := json.Marshal(`function () { var a = []; while (true) a.push({}) }`)
	n.design("/db/_design/v", `{"validate_doc_update":`+string(fills)+`,"filters":{"f":"function (doc) { return true }"}}`)
	for range 3 {
		n.Put("/db/new", `{}`).Is(t, http.StatusInternalServerError)
	}
	got := n.Put("/db/new", `{}`).Is(t, http.StatusInternalServerError).JSON(t)
	require.Equal(t, "os_process_error", got["error"])
	require.Contains(t, got["reason"], "_design/v validate_doc_update: it needed more memory than it may have repeatedly, and is not called again until 20")
	n.Get("/db/new").Is(t, http.StatusNotFound)
	n.Get("/db/_changes?filter=v/f").Is(t, http.StatusOK)
	n.design("/db/_design/v", validating(`function () {}`))
	n.Put("/db/new", `{}`).Is(t, http.StatusCreated)
}

// TestValidateByWhom has a function that knows the users.
func TestValidateByWhom(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	n.design("/db/_design/v", validating(`function (doc, old, user, security) {
		throw {forbidden: [user.db, user.name, user.roles.join(), security.members.roles.join()].join(" ")};
	}`))
	for who, reason := range map[string]string{
		p.Root: "db admin _admin staff", p.Admin: "db boss  staff", p.Member: "db ann staff staff",
	} {
		webtest.Refused(t, n.As(who, http.MethodPut, "/db/doc", `{}`), http.StatusForbidden, "forbidden", reason)
	}
	n.With("db", `{"members":{},"admins":{}}`)
	n.design("/db/_design/v", validating(`function (doc, old, user) { if (user.name === null) throw {unauthorized: "log in"} }`))
	webtest.Refused(t, n.As(webtest.Nobody, http.MethodPut, "/db/doc", `{}`), http.StatusUnauthorized, "unauthorized", "log in")
	n.As(p.User, http.MethodPut, "/db/doc", `{}`).Is(t, http.StatusCreated)
}

// TestValidateWhileFunctionsChange writes documents while the validate function changes. The changes feed has no document
// after a function that refuses it.
func TestValidateWhileFunctionsChange(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
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
				got, err := n.Request(http.MethodPut, fmt.Sprintf("/db/doc-%d-%d", w, i), fmt.Sprintf(`{"epoch":%d}`, i%epochs))
				if assert.NoError(t, err) {
					assert.Contains(t, []int{http.StatusCreated, http.StatusForbidden}, got.Status, got.Body)
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
	webtest.Refused(t, n.Put("/db/late", `{"epoch":1}`), http.StatusForbidden, "forbidden", "late")
	n.Do(http.MethodDelete, "/db/_design/v?rev="+n.Get("/db/_design/v").JSON(t)["_rev"].(string), "").Is(t, http.StatusOK)
	n.Put("/db/late", `{"epoch":1}`).Is(t, http.StatusCreated)
}

// TestFilteredFeedsFollow follows feeds with a filter, which later fails.
func TestFilteredFeedsFollow(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/changes_timeout=600000") // a busy machine calls functions slowly
	n.NewDatabase("db")
	n.design("/db/_design/d", filtering(`function (doc, req) {
		if (doc.fails) throw {error: "code", reason: "why"};
		return doc.kind === req.query.kind;
	}`))
	lines := n.Follow("?feed=continuous&heartbeat=600000&filter=d/f&kind=a")
	events := n.Follow("?feed=eventsource&heartbeat=600000&filter=d/f&kind=a")
	for i, kind := range []string{"b", "a", "b", "a"} {
		n.Put(fmt.Sprintf("/db/doc%d", i), `{"kind":"`+kind+`"}`).Is(t, http.StatusCreated)
	}
	for _, id := range []string{"doc1", "doc3"} {
		lines.Expect(`{"seq":"...","id":"` + id + `"`)
		events.Expect(`data: {"seq":"...","id":"`+id+`"`, "id: ", "")
	}
	n.Put("/db/doc5", `{"fails":true}`).Is(t, http.StatusCreated)
	require.Equal(t, "\n"+`{"code":500,"error":"error","reason":"code: why"}`+"\n", lines.Rest())
}

// TestFiltersSeeMuch filters more rows than a function gets at a time, with a limit, with many leaves and with documents
// that do not fit into its memory together.
func TestFiltersSeeMuch(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	n := start(t, "quickjs/memory_limit_bytes=16777216")
	db := n.NewDatabase("db")
	n.design("/db/_design/d", filtering(`function (doc, req) { return doc.n % 3 === 0 }`))
	var edits []docstore.Edit
	var want []string
	for i := range 1000 {
		id := fmt.Sprintf("doc%03d", i)
		edits = append(edits, webtest.Doc(id, fmt.Sprintf(`{"n":%d}`, i)))
		if i%3 == 0 {
			want = append(want, id)
		}
	}
	webtest.Write(t, db, edits...)
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
		webtest.Write(t, db, webtest.Doc(fmt.Sprint("large", i), fmt.Sprintf(`{"n":0,"text":%q}`, large)))
	}
	require.Equal(t, []string{"large0", "large1", "large2", "large3"}, n.changes("?filter=d/f&since="+all.LastSeq, "").ids())
}

// A function of the database's administrators must not see with what others prove who they are.
func TestFiltersSeeNoCredentials(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd_auth/x_auth_token=x-PROOF")
	n.NewDatabase("db")
	n.Put("/db/doc", "{}").Is(t, http.StatusCreated)
	n.design("/db/_design/d", filtering(`function (doc, req) { throw {forbidden: JSON.stringify(req.headers)} }`))
	got := n.Do(http.MethodGet, "/db/_changes?filter=d/f", "", "X-Proof", webtest.Secret, "X-Auth-CouchDB-Token", webtest.Secret, "Cookie", webtest.Secret,
		"X-Api-Key", webtest.Secret, "X-Amzn-Oidc-Data", webtest.Secret, "Accept-Language", "seen")
	require.Contains(t, got.Body, "Accept-Language")
	require.Contains(t, got.Body, "seen")
	require.NotContains(t, got.Body, webtest.Secret)
	require.NotContains(t, got.Body, "Authorization")
}
