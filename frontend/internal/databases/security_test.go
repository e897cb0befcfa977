package databases_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestSecurity(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("wire")
	e := webtest.Recorded(t, 62)
	n.RequireSame(e, n.Send(e), webtest.SameText)

	for _, object := range []string{
		strings.TrimSpace(e.Answer.Body),
		`{}`,
		`{"admins":{"names":["a"],"roles":[]},"members":{"names":[],"roles":["ü"]},"other":[1,{"x":null}]}`,
		`{"admins":{},"readers":{"roles":["r"]}}`,
	} {
		put := n.Do(http.MethodPut, "/wire/_security", object).Is(t, http.StatusOK)
		require.Equal(t, "{\"ok\":true}\n", put.Body)
		require.Equal(t, object+"\n", n.Get("/wire/_security").Body)
	}
	const form = "application/x-www-form-urlencoded" // says curl
	require.Equal(t, http.StatusOK, n.Do(http.MethodPut, "/wire/_security", `{"x":1}`, "Content-Type", form).Status)
	before := n.Get("/wire/_security").Body
	for object, reason := range map[string]string{
		`[]`:                            "Request body must be a JSON object",
		`{"admins":1}`:                  "`admins` must be an object with `names` and `roles`",
		`{"members":null}`:              "`members` must be an object with `names` and `roles`",
		`{"members":["a"]}`:             "`members` must be an object with `names` and `roles`",
		`{"admins":{"names":"a"}}`:      "`admins.names` must be a JSON list of strings",
		`{"admins":{"names":null}}`:     "`admins.names` must be a JSON list of strings",
		`{"members":{"roles":["a",1]}}`: "`members.roles` must be a JSON list of strings",
		`{"members":{"roles":[null]}}`:  "`members.roles` must be a JSON list of strings",
		`{"readers":{"names":{}}}`:      "`readers.names` must be a JSON list of strings",
		`{`:                             "invalid UTF-8 JSON",
		``:                              "invalid UTF-8 JSON",
	} {
		webtest.Refused(t, n.Do(http.MethodPut, "/wire/_security", object), http.StatusBadRequest, "bad_request", reason)
	}
	webtest.Refused(t, n.Do(http.MethodPut, "/wire/_security", `{"x":"`+strings.Repeat("x", 90_000)+`"}`),
		http.StatusRequestEntityTooLarge, "too_large", "the security object has more than 90000 bytes, which is the limit")
	require.Equal(t, before, n.Get("/wire/_security").Body)
	require.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodDelete, "/wire/_security", "").Status)
	require.Equal(t, http.StatusNotFound, n.Get("/nope/_security").Status)
}

func TestRevsLimit(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	require.Equal(t, "1000\n", n.Get("/db/_revs_limit").Body)
	for _, limit := range []string{"1", "10000", " 20\n"} {
		require.Equal(t, "{\"ok\":true}\n", n.Do(http.MethodPut, "/db/_revs_limit", limit).Body)
		require.Equal(t, strings.TrimSpace(limit)+"\n", n.Get("/db/_revs_limit").Body)
	}
	for _, limit := range []string{"0", "-1", "10001", "1.5", `"7"`, "null", "", "x"} {
		webtest.Refused(t, n.Do(http.MethodPut, "/db/_revs_limit", limit), http.StatusBadRequest, "bad_request",
			"the revs_limit must be a whole number from 1 to 10000")
	}
	require.Equal(t, "20\n", n.Get("/db/_revs_limit").Body)
	require.Equal(t, http.StatusOK, n.Do(http.MethodPut, "/db/_revs_limit", "30", "Content-Type", "application/x-www-form-urlencoded").Status)
	require.Equal(t, "30\n", n.Get("/db/_revs_limit").Body)
}

func TestMaintenance(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	for _, path := range []string{"_compact", "_view_cleanup"} {
		got := n.Do(http.MethodPost, "/db/"+path, "", "Content-Type", "application/json").Is(t, http.StatusAccepted)
		require.Equal(t, "{\"ok\":true}\n", got.Body)
		require.Equal(t, http.StatusNotFound, n.Do(http.MethodPost, "/nope/"+path, "").Status)
		require.Equal(t, http.StatusMethodNotAllowed, n.Get("/db/"+path).Status)
	}
}

func TestWhatIsNotServed(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	for path, reason := range map[string]string{
		"_design/d/_view/v": "views", "_design/d/_list/l/v": "views", "_design/d/_show/s/doc": "views", "_design/d/_update/u": "views",
		"_design/d/_rewrite/a/b": "views", "_design/d/_info": "views", "_design/d/_search/i": "views", "_design%2Fd/_view/v": "views",
		"_design/d/_view/v/queries": "views", "_temp_view": "views",
		"_find": "queries by selector", "_explain": "queries by selector", "_index": "queries by selector",
		"_index/_design/d/json/i": "queries by selector",
		"_partition/p/_all_docs":  "partitioned", "_purge": "purged", "_purged_infos_limit": "purged", "_purged_infos": "purged",
		"_shards": "shards", "_shards/doc": "shards", "_sync_shards": "shards",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			got := n.Do(method, "/db/"+path, "{}").Is(t, http.StatusNotImplemented)
			require.Equal(t, "not_implemented", got.JSON(t)["error"])
			require.Contains(t, got.JSON(t)["reason"], reason, path)
		}
		require.Equal(t, http.StatusNotFound, n.Get("/nope/"+path).Status, path)
	}
}
