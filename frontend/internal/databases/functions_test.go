package databases_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

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

// TestValidateAllWrites makes all kinds of writes, which a function refuses.
func TestValidateAllWrites(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	rev := n.Put("/db/doc/file", "content").Is(t, http.StatusCreated).Rev(t)
	n.design("/db/_design/v", webtest.Validating(`function (doc, old) { throw {forbidden: doc._id + (old ? " over " + old._rev : "")} }`))
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

// TestValidateByWhom has a function that knows the users.
func TestValidateByWhom(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	n.design("/db/_design/v", webtest.Validating(`function (doc, old, user, security) {
		throw {forbidden: [user.db, user.name, user.roles.join(), security.members.roles.join()].join(" ")};
	}`))
	for who, reason := range map[string]string{
		p.Root: "db admin _admin staff", p.Admin: "db boss  staff", p.Member: "db ann staff staff",
	} {
		webtest.Refused(t, n.As(who, http.MethodPut, "/db/doc", `{}`), http.StatusForbidden, "forbidden", reason)
	}
	n.With("db", `{"members":{},"admins":{}}`)
	n.design("/db/_design/v", webtest.Validating(`function (doc, old, user) { if (user.name === null) throw {unauthorized: "log in"} }`))
	webtest.Refused(t, n.As(webtest.Nobody, http.MethodPut, "/db/doc", `{}`), http.StatusUnauthorized, "unauthorized", "log in")
	n.As(p.User, http.MethodPut, "/db/doc", `{}`).Is(t, http.StatusCreated)
}

// TestFilteredFeedsFollow follows feeds with a filter, which later fails.
func TestFilteredFeedsFollow(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/changes_timeout=600000") // a busy machine calls functions slowly
	n.NewDatabase("db")
	n.design("/db/_design/d", webtest.Filtering(`function (doc, req) {
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
	n.design("/db/_design/d", webtest.Filtering(`function (doc, req) { return doc.n % 3 === 0 }`))
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
	n.design("/db/_design/d", webtest.Filtering(`function (doc, req) { throw {forbidden: JSON.stringify(req.headers)} }`))
	got := n.Do(http.MethodGet, "/db/_changes?filter=d/f", "", "X-Proof", webtest.Secret, "X-Auth-CouchDB-Token", webtest.Secret, "Cookie", webtest.Secret,
		"X-Api-Key", webtest.Secret, "X-Amzn-Oidc-Data", webtest.Secret, "Accept-Language", "seen")
	require.Contains(t, got.Body, "Accept-Language")
	require.Contains(t, got.Body, "seen")
	require.NotContains(t, got.Body, webtest.Secret)
	require.NotContains(t, got.Body, "Authorization")
}
