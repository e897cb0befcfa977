package databases_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

func TestDatabase(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, number := range []int{3, 4} {
		e := webtest.Recorded(t, number)
		n.RequireSame(e, n.Send(e), webtest.SameText)
	}
	e := webtest.Recorded(t, 5)
	got := n.Send(e)
	n.RequireSame(e, got, webtest.SameText)
	for _, number := range []int{6, 7} {
		e := webtest.Recorded(t, number)
		n.RequireSame(e, n.Send(e), webtest.SameText)
	}

	db, err := n.Documents.Database(t.Context(), "wire")
	require.NoError(t, err)
	revs := webtest.Write(t, db, webtest.Doc("a", `{"x":1}`), webtest.Doc("b", `{}`), webtest.Doc("_design/c", `{}`))
	webtest.Write(t, db, docstore.Edit{ID: "a", Rev: revs[0], Deleted: true})
	got = n.Get("/wire")
	want := webtest.Recorded(t, 34)
	n.RequireSame(want, got, webtest.SameKeys)
	info := got.JSON(t)
	created := info["instance_start_time"].(string)
	require.Regexp(t, `^[0-9]{10}$`, created)
	require.Regexp(t, `^4-[0-9a-f]{24}$`, info["update_seq"])
	for name, value := range map[string]any{
		"db_name": "wire", "doc_count": 2., "doc_del_count": 1., "compact_running": false, "props": map[string]any{},
		"purge_seq": "0", "sizes": map[string]any{"file": 6., "external": 6., "active": 6.},
	} {
		require.Equal(t, value, info[name], name)
	}
	head := n.Do(http.MethodHead, "/wire", "").Is(t, http.StatusOK)
	require.Equal(t, got.Header.Get("Content-Length"), head.Header.Get("Content-Length"))

	e = webtest.Recorded(t, 60)
	got = n.Send(e)
	e.Answer.Body = regexp.MustCompile(`[0-9]{10}`).ReplaceAllString(e.Answer.Body, created)
	n.RequireSame(e, got, webtest.SameText)
	require.Equal(t, http.StatusNotFound, n.Do(http.MethodPost, "/nowhere/_ensure_full_commit", "").Status)

	webtest.Refused(t, n.Do(http.MethodDelete, "/wire?rev=1-a", ""), http.StatusBadRequest, "bad_request",
		"You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?")
	require.Equal(t, "{\"ok\":true}\n", n.Do(http.MethodDelete, "/wire", "").Body)
	missing := webtest.Recorded(t, 3)
	n.RequireSame(missing, n.Get("/wire"), webtest.SameText)
	n.RequireSame(missing, n.Do(http.MethodDelete, "/wire", ""), webtest.SameText)
	require.Equal(t, http.StatusNotFound, n.Do(http.MethodHead, "/wire", "").Status)
	n.Do(http.MethodPatch, "/wire", "").Is(t, http.StatusMethodNotAllowed)
}

func TestCreateDatabase(t *testing.T) {
	t.Parallel()
	n := start(t)
	for target, name := range map[string]string{
		"/a?q=8&n=3&placement=x:1": "a", "/x%2F_replicator": "x/_replicator", "/_users/": "_users", "/_replicator": "_replicator",
		"/a_$()%2B-%2Fz9?partitioned=false": "a_$()+-/z9", "/" + strings.Repeat("n", 238): strings.Repeat("n", 238),
	} {
		got := n.Do(http.MethodPut, target, "").Is(t, http.StatusCreated)
		require.Equal(t, name, n.Get(strings.Split(target, "?")[0]).JSON(t)["db_name"])
		location := strings.TrimPrefix(got.Header.Get("Location"), "http://"+n.Address)
		require.Equal(t, name, n.Get(location).JSON(t)["db_name"])
	}
	proxied := n.Do(http.MethodPut, "/b", "", "X-Forwarded-Host", "db.example", "X-Forwarded-Proto", "https")
	require.Equal(t, "https://db.example/b", proxied.Header.Get("Location"))
	for _, name := range []string{"_nope", "A", "1a", "a%20b", "a.b", "%C3%BC", "_users2"} {
		got := n.Do(http.MethodPut, "/"+name, "").Is(t, http.StatusBadRequest)
		require.Equal(t, "illegal_database_name", got.JSON(t)["error"], name)
	}
	long := strings.Repeat("n", 239)
	webtest.Refused(t, n.Do(http.MethodPut, "/"+long, ""), http.StatusBadRequest, "database_name_too_long",
		"At least one path segment of `"+long+"` is too long.")
	webtest.Refused(t, n.Do(http.MethodPut, "/c?partitioned=true", ""), http.StatusNotImplemented, "not_implemented",
		"there are no partitioned databases on this server: create it without `partitioned`")
	require.Equal(t, http.StatusBadRequest, n.Do(http.MethodPut, "/c?partitioned=1", "").Status)
	require.Equal(t, http.StatusNotFound, n.Get("/c").Status)
}
