package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/replicator"
)

// newDatabase makes a database.
func (n *node) newDatabase(name string) *docstore.Database {
	n.Helper()
	db, err := n.docs.Create(n.Context(), name)
	require.NoError(n, err)
	return db
}

// write writes documents, of which each edit is one, and returns their revisions.
func write(t testing.TB, db *docstore.Database, edits ...docstore.Edit) []docstore.Rev {
	t.Helper()
	return writeAs(t, db, docstore.WriteOptions{}, edits...)
}

// replicate writes revisions that were made elsewhere.
func replicate(t testing.TB, db *docstore.Database, edits ...docstore.Edit) []docstore.Rev {
	t.Helper()
	return writeAs(t, db, docstore.WriteOptions{Replicated: true}, edits...)
}

func writeAs(t testing.TB, db *docstore.Database, opts docstore.WriteOptions, edits ...docstore.Edit) []docstore.Rev {
	t.Helper()
	results, err := db.Write(t.Context(), edits, opts)
	require.NoError(t, err)
	revs := make([]docstore.Rev, len(results))
	for i, result := range results {
		require.NoError(t, result.Err)
		revs[i] = result.Rev
	}
	return revs
}

// doc is the first revision of a document.
func doc(id, body string) docstore.Edit { return docstore.Edit{ID: id, Body: docjson.Must(body)} }

// leaf is a revision, with its path, that was made elsewhere.
func leaf(id string, deleted bool, body string, pos int64, path ...string) docstore.Edit {
	return docstore.Edit{ID: id, Pos: pos, Path: path, Deleted: deleted, Body: docjson.Must(body)}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, number := range []int{3, 4} {
		e := recorded(t, number)
		n.requireSame(e, n.send(e), sameText)
	}
	e := recorded(t, 5)
	got := n.send(e)
	n.requireSame(e, got, sameText)
	for _, number := range []int{6, 7} {
		e := recorded(t, number)
		n.requireSame(e, n.send(e), sameText)
	}

	db, err := n.docs.Database(t.Context(), "wire")
	require.NoError(t, err)
	revs := write(t, db, doc("a", `{"x":1}`), doc("b", `{}`), doc("_design/c", `{}`))
	write(t, db, docstore.Edit{ID: "a", Rev: revs[0], Deleted: true})
	got = n.get("/wire")
	want := recorded(t, 34)
	n.requireSame(want, got, sameKeys)
	info := got.json(t)
	created := info["instance_start_time"].(string)
	require.Regexp(t, `^[0-9]{10}$`, created)
	require.Regexp(t, `^4-[0-9a-f]{24}$`, info["update_seq"])
	for name, value := range map[string]any{
		"db_name": "wire", "doc_count": 2., "doc_del_count": 1., "compact_running": false, "props": map[string]any{},
		"purge_seq": "0", "sizes": map[string]any{"file": 6., "external": 6., "active": 6.},
	} {
		require.Equal(t, value, info[name], name)
	}
	head := n.do(http.MethodHead, "/wire", "").is(t, http.StatusOK)
	require.Equal(t, got.header.Get("Content-Length"), head.header.Get("Content-Length"))

	e = recorded(t, 60)
	got = n.send(e)
	e.answer.body = regexp.MustCompile(`[0-9]{10}`).ReplaceAllString(e.answer.body, created)
	n.requireSame(e, got, sameText)
	require.Equal(t, http.StatusNotFound, n.do(http.MethodPost, "/nowhere/_ensure_full_commit", "").status)

	refused(t, n.do(http.MethodDelete, "/wire?rev=1-a", ""), http.StatusBadRequest, "bad_request",
		"You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?")
	require.Equal(t, "{\"ok\":true}\n", n.do(http.MethodDelete, "/wire", "").body)
	missing := recorded(t, 3)
	n.requireSame(missing, n.get("/wire"), sameText)
	n.requireSame(missing, n.do(http.MethodDelete, "/wire", ""), sameText)
	require.Equal(t, http.StatusNotFound, n.do(http.MethodHead, "/wire", "").status)
	n.do(http.MethodPatch, "/wire", "").is(t, http.StatusMethodNotAllowed)
}

func TestCreateDatabase(t *testing.T) {
	t.Parallel()
	n := start(t)
	for target, name := range map[string]string{
		"/a?q=8&n=3&placement=x:1": "a", "/x%2F_replicator": "x/_replicator", "/_users/": "_users", "/_replicator": "_replicator",
		"/a_$()%2B-%2Fz9?partitioned=false": "a_$()+-/z9", "/" + strings.Repeat("n", 238): strings.Repeat("n", 238),
	} {
		got := n.do(http.MethodPut, target, "").is(t, http.StatusCreated)
		require.Equal(t, name, n.get(strings.Split(target, "?")[0]).json(t)["db_name"])
		location := strings.TrimPrefix(got.header.Get("Location"), "http://"+n.address)
		require.Equal(t, name, n.get(location).json(t)["db_name"])
	}
	proxied := n.do(http.MethodPut, "/b", "", "X-Forwarded-Host", "db.example", "X-Forwarded-Proto", "https")
	require.Equal(t, "https://db.example/b", proxied.header.Get("Location"))
	for _, name := range []string{"_nope", "A", "1a", "a%20b", "a.b", "%C3%BC", "_users2"} {
		got := n.do(http.MethodPut, "/"+name, "").is(t, http.StatusBadRequest)
		require.Equal(t, "illegal_database_name", got.json(t)["error"], name)
	}
	long := strings.Repeat("n", 239)
	refused(t, n.do(http.MethodPut, "/"+long, ""), http.StatusBadRequest, "database_name_too_long",
		"At least one path segment of `"+long+"` is too long.")
	refused(t, n.do(http.MethodPut, "/c?partitioned=true", ""), http.StatusNotImplemented, "not_implemented",
		"there are no partitioned databases on this server: create it without `partitioned`")
	require.Equal(t, http.StatusBadRequest, n.do(http.MethodPut, "/c?partitioned=1", "").status)
	require.Equal(t, http.StatusNotFound, n.get("/c").status)
}

func TestListDatabases(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, "[]\n", n.get("/_all_dbs").body)
	require.Equal(t, "[]\n", n.get("/_dbs_info").body)
	for _, name := range []string{"b", "a", "d", "_users", "c/d"} {
		n.newDatabase(name)
	}
	for query, want := range map[string]string{
		"":                                  `["_users","a","b","c/d","d"]`,
		"?descending=true":                  `["d","c/d","b","a","_users"]`,
		"?limit=2&skip=1":                   `["a","b"]`,
		"?limit=0":                          `[]`,
		"?skip=5":                           `[]`,
		`?start_key="b"`:                    `["b","c/d","d"]`,
		`?startkey="aa"&endkey="d"`:         `["b","c/d","d"]`,
		`?end_key="b"`:                      `["_users","a","b"]`,
		`?end_key="b"&inclusive_end=false`:  `["_users","a"]`,
		`?end_key="bb"&inclusive_end=false`: `["_users","a","b"]`,
		`?endkey=""`:                        `[]`,
		`?startkey=""`:                      `["_users","a","b","c/d","d"]`,
		`?startkey="c/d"&descending=true&limit=2`: `["c/d","b"]`,
		`?startkey=""&descending=true`:            `[]`,
		`?startkey="d"&endkey="b"`:                `[]`,
	} {
		got := n.get("/_all_dbs"+query).is(t, http.StatusOK)
		require.Equal(t, want+"\n", got.body, query)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))

		var infos []struct {
			Key  string
			Info struct {
				Name string `json:"db_name"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(n.get("/_dbs_info"+query).body), &infos))
		names := []string{}
		for _, info := range infos {
			require.Equal(t, info.Key, info.Info.Name)
			names = append(names, info.Key)
		}
		text, err := json.Marshal(names)
		require.NoError(t, err)
		require.Equal(t, want, string(text), query)
	}
	for _, query := range []string{"?limit=x", "?skip=-1", "?startkey=a", "?end_key=1", "?descending=1", "?limit=%zz"} {
		got := n.get("/_all_dbs"+query).is(t, http.StatusBadRequest)
		require.Equal(t, "query_parse_error", got.json(t)["error"], query)
		require.Equal(t, http.StatusBadRequest, n.get("/_dbs_info"+query).status, query)
	}
	require.Empty(t, n.do(http.MethodHead, "/_all_dbs", "").body)
	require.Equal(t, http.StatusMethodNotAllowed, n.do(http.MethodPost, "/_all_dbs", "{}").status)
}

func TestManyDatabases(t *testing.T) {
	t.Parallel()
	n := start(t)
	var want []string
	for i := range 1_201 { // several transactions
		name := fmt.Sprintf("db%06d", i)
		n.newDatabase(name)
		want = append(want, name)
	}
	var names []string
	require.NoError(t, json.Unmarshal([]byte(n.get("/_all_dbs").body), &names))
	require.Equal(t, want, names)
	require.NoError(t, json.Unmarshal([]byte(n.get("/_all_dbs?skip=600&limit=500").body), &names))
	require.Equal(t, want[600:1100], names)
}

func TestDatabaseInfos(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_db_number_for_dbs_info_req=3")
	n.newDatabase("a")
	got := n.do(http.MethodPost, "/_dbs_info", `{"keys": ["a", "no", "No!"]}`, "Content-Type", "application/json").is(t, http.StatusOK)
	require.Equal(t, `[{"key":"a","info":`+strings.TrimSpace(n.get("/a").body)+
		`},{"key":"no","error":"not_found"},{"key":"No!","error":"not_found"}]`+"\n", got.body)
	for body, reason := range map[string]string{
		`{"keys": ["a", "a", "a", "a"]}`: "`keys` has 4 names; the most is 3 ([chttpd] max_db_number_for_dbs_info_req)",
		`{}`:                             "`keys` member must exist.",
		`{"keys": "a"}`:                  "`keys` must be a list of names of databases, as strings",
		`{"keys": [1]}`:                  "`keys` must be a list of names of databases, as strings",
		`{"keys": null}`:                 "`keys` must be a list of names of databases, as strings",
		`[]`:                             "Request body must be a JSON object",
		`{"keys": ["a"`:                  "invalid UTF-8 JSON",
		"{\"keys\": [\"\xff\"]}":         "invalid UTF-8 JSON",
		"":                               "invalid UTF-8 JSON",
	} {
		refused(t, n.do(http.MethodPost, "/_dbs_info", body), http.StatusBadRequest, "bad_request", reason)
	}
	require.Equal(t, http.StatusUnsupportedMediaType,
		n.do(http.MethodPost, "/_dbs_info", `{}`, "Content-Type", "text/plain").status)
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	n := start(t, "uuids/max_count=50")
	seen := map[string]bool{}
	for query, want := range map[string]int{"": 1, "?count=1": 1, "?count=0": 0, "?count=50": 50} {
		got := n.get("/_uuids"+query).is(t, http.StatusOK)
		require.Equal(t, "no-cache", got.header.Get("Cache-Control"))
		require.Equal(t, "no-cache", got.header.Get("Pragma"))
		expires, err := http.ParseTime(got.header.Get("Expires"))
		require.NoError(t, err)
		require.True(t, expires.Before(time.Now()))
		require.NotEmpty(t, got.header.Get("ETag"))
		var answer struct{ UUIDs []string }
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		require.NotNil(t, answer.UUIDs)
		require.Len(t, answer.UUIDs, want)
		for _, id := range answer.UUIDs {
			require.Regexp(t, "^[0-9a-f]{32}$", id)
			assert.False(t, seen[id])
			seen[id] = true
		}
	}
	refused(t, n.get("/_uuids?count=51"), http.StatusBadRequest, "bad_request",
		"count parameter too large: the most is 50 ([uuids] max_count)")
	for _, query := range []string{"?count=-1", "?count=x", "?count="} {
		require.Equal(t, http.StatusBadRequest, n.get("/_uuids"+query).status, query)
	}
}

func TestActiveTasks(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, "[]\n", n.get("/_active_tasks").body)
	waiting := n.post(definition(`"continuous": true, "checkpoint_interval": 5000`)).localID(t)
	require.Equal(t, "[]\n", n.get("/_active_tasks").body, "it does not run")
	run := n.accept()

	want := recorded(t, 80) // of a job that has just started
	got := n.get("/_active_tasks")
	n.requireSame(want, got, sameHead)
	require.Equal(t, keys(t, want.answer.body), keys(t, got.body))
	require.Contains(t, got.body, `"source_seq":"0"`)

	require.NoError(t, run.Update(t.Context(), progressed))
	got = n.get("/_active_tasks")
	expected := []string{}
	for _, key := range keys(t, want.answer.body) {
		if key == "[].type" {
			expected = append(expected, "[].through_seq")
		}
		expected = append(expected, key)
	}
	require.Equal(t, expected, keys(t, got.body))
	var tasks []map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.body), &tasks))
	require.Len(t, tasks, 1)
	for name, value := range map[string]any{
		"replication_id": waiting, "type": "replication", "node": "node1", "pid": "<0.1.0>", "continuous": true,
		"process_status":      "waiting",
		"checkpoint_interval": 5000., "source": "http://a.example/db/", "target": "http://b.example/db/",
		"database": nil, "doc_id": nil, "user": adminName,
		"docs_read": 3., "docs_written": 2., "doc_write_failures": 1., "revisions_checked": 9., "missing_revisions_found": 4.,
		"bulk_get_attempts": 5., "bulk_get_docs": 6., "changes_pending": 7.,
		"source_seq": "12-x", "through_seq": "11", "checkpointed_source_seq": "10-x",
	} {
		require.Equal(t, value, tasks[0][name], name)
	}
	for _, name := range []string{"started_on", "updated_on"} {
		require.InDelta(t, time.Now().Unix(), tasks[0][name], 3600, name)
	}

	require.NoError(t, run.Stop(t.Context(), nil))
	require.Equal(t, "[]\n", n.get("/_active_tasks").body)
}

// The three lists show the same progress.
func TestListsAgree(t *testing.T) {
	t.Parallel()
	n := start(t)
	_, err := n.docs.Create(t.Context(), "_replicator")
	require.NoError(t, err)
	n.do(http.MethodPut, "/_replicator/one", definition(`"continuous": true`)).is(t, http.StatusCreated)
	run := n.accept()
	for i, change := range []func(*replicator.JobState){
		func(*replicator.JobState) {}, // it has just started
		progressed,
		func(s *replicator.JobState) {
			s.SourceSeq, s.CheckpointedSourceSeq = json.RawMessage(`[13,"y"]`), json.RawMessage(`0`)
		},
	} {
		require.NoError(t, run.Update(t.Context(), change))
		var tasks []map[string]any
		require.NoError(t, json.Unmarshal([]byte(n.get("/_active_tasks").body), &tasks))
		require.Len(t, tasks, 1)
		row := n.get("/_scheduler/docs/_replicator/one").json(t)
		info := row["info"].(map[string]any)
		require.Equal(t, info, n.get("/_scheduler/jobs/" + url.PathEscape(row["id"].(string))).json(t)["info"])
		require.IsType(t, "", info["checkpointed_source_seq"], "never a number")
		_, moved := info["through_seq"]
		require.Equal(t, i > 0, moved, "left out until it is known")
		for name, value := range info {
			require.Equal(t, value, tasks[0][name], name)
		}
	}
}

// progressed is what a run has done so far.
func progressed(s *replicator.JobState) {
	s.Stats = replicator.Stats{
		RevisionsChecked: 9, MissingRevisionsFound: 4, DocCounts: replicator.DocCounts{DocsRead: 3, DocsWritten: 2, DocWriteFailures: 1},
		BulkGetAttempts: 5, BulkGetDocs: 6,
	}
	s.ChangesPending = new(int64(7))
	s.SourceSeq, s.ThroughSeq, s.CheckpointedSourceSeq = json.RawMessage(`"12-x"`), json.RawMessage(`11`), json.RawMessage(`"10-x"`)
}
