package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/jsontext"
	"settee/replicator"
)

func TestListDatabases(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, "[]\n", n.Get("/_all_dbs").Body)
	require.Equal(t, "[]\n", n.Get("/_dbs_info").Body)
	for _, name := range []string{"b", "a", "d", "_users", "c/d"} {
		n.NewDatabase(name)
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
		got := n.Get("/_all_dbs"+query).Is(t, http.StatusOK)
		require.Equal(t, want+"\n", got.Body, query)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))

		var infos []struct {
			Key  string
			Info struct {
				Name string `json:"db_name"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(n.Get("/_dbs_info"+query).Body), &infos))
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
		got := n.Get("/_all_dbs"+query).Is(t, http.StatusBadRequest)
		require.Equal(t, "query_parse_error", got.JSON(t)["error"], query)
		require.Equal(t, http.StatusBadRequest, n.Get("/_dbs_info"+query).Status, query)
	}
	require.Empty(t, n.Do(http.MethodHead, "/_all_dbs", "").Body)
	require.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodPost, "/_all_dbs", "{}").Status)
}

func TestManyDatabases(t *testing.T) {
	t.Parallel()
	n := start(t)
	var want []string
	for i := range 1_201 { // several transactions
		name := fmt.Sprintf("db%06d", i)
		n.NewDatabase(name)
		want = append(want, name)
	}
	var names []string
	require.NoError(t, json.Unmarshal([]byte(n.Get("/_all_dbs").Body), &names))
	require.Equal(t, want, names)
	require.NoError(t, json.Unmarshal([]byte(n.Get("/_all_dbs?skip=600&limit=500").Body), &names))
	require.Equal(t, want[600:1100], names)
}

func TestDatabaseInfos(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_db_number_for_dbs_info_req=3")
	n.NewDatabase("a")
	got := n.Do(http.MethodPost, "/_dbs_info", `{"keys": ["a", "no", "No!"]}`, "Content-Type", "application/json").Is(t, http.StatusOK)
	digest := `,"security_digest":"` + jsontext.Digest([]byte(n.Get("/a/_security").Body)) + `"}` // as in no other answer
	require.Equal(t, `[{"key":"a","info":`+strings.TrimSuffix(strings.TrimSpace(n.Get("/a").Body), "}")+digest+
		`},{"key":"no","error":"not_found"},{"key":"No!","error":"not_found"}]`+"\n", got.Body)
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
		webtest.Refused(t, n.Do(http.MethodPost, "/_dbs_info", body), http.StatusBadRequest, "bad_request", reason)
	}
	require.Equal(t, http.StatusUnsupportedMediaType,
		n.Do(http.MethodPost, "/_dbs_info", `{}`, "Content-Type", "text/plain").Status)
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	n := start(t, "uuids/max_count=50")
	seen := map[string]bool{}
	for query, want := range map[string]int{"": 1, "?count=1": 1, "?count=0": 0, "?count=50": 50} {
		got := n.Get("/_uuids"+query).Is(t, http.StatusOK)
		require.Equal(t, "no-cache", got.Header.Get("Cache-Control"))
		require.Equal(t, "no-cache", got.Header.Get("Pragma"))
		expires, err := http.ParseTime(got.Header.Get("Expires"))
		require.NoError(t, err)
		require.True(t, expires.Before(time.Now()))
		require.NotEmpty(t, got.Header.Get("ETag"))
		var answer struct{ UUIDs []string }
		require.NoError(t, json.Unmarshal([]byte(got.Body), &answer))
		require.NotNil(t, answer.UUIDs)
		require.Len(t, answer.UUIDs, want)
		for _, id := range answer.UUIDs {
			require.Regexp(t, "^[0-9a-f]{32}$", id)
			assert.False(t, seen[id])
			seen[id] = true
		}
	}
	webtest.Refused(t, n.Get("/_uuids?count=51"), http.StatusBadRequest, "bad_request",
		"count parameter too large: the most is 50 ([uuids] max_count)")
	for _, query := range []string{"?count=-1", "?count=x", "?count="} {
		require.Equal(t, http.StatusBadRequest, n.Get("/_uuids"+query).Status, query)
	}
}

func TestActiveTasks(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, "[]\n", n.Get("/_active_tasks").Body)
	waiting := n.post(definition(`"continuous": true, "checkpoint_interval": 5000`)).LocalID(t)
	require.Equal(t, "[]\n", n.Get("/_active_tasks").Body, "it does not run")
	run := n.accept()

	want := webtest.Recorded(t, 80) // of a job that has just started
	got := n.Get("/_active_tasks")
	n.RequireSame(want, got, webtest.SameHead)
	require.Equal(t, webtest.Keys(t, want.Answer.Body), webtest.Keys(t, got.Body))
	require.Contains(t, got.Body, `"source_seq":"0"`)

	require.NoError(t, run.Update(t.Context(), progressed))
	got = n.Get("/_active_tasks")
	expected := []string{}
	for _, key := range webtest.Keys(t, want.Answer.Body) {
		if key == "[].type" {
			expected = append(expected, "[].through_seq")
		}
		expected = append(expected, key)
	}
	require.Equal(t, expected, webtest.Keys(t, got.Body))
	var tasks []map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.Body), &tasks))
	require.Len(t, tasks, 1)
	for name, value := range map[string]any{
		"replication_id": waiting, "type": "replication", "node": "node1", "pid": "<0.1.0>", "continuous": true,
		"process_status":      "waiting",
		"checkpoint_interval": 5000., "source": "http://a.example/db/", "target": "http://b.example/db/",
		"database": nil, "doc_id": nil, "user": webtest.AdminName,
		"docs_read": 3., "docs_written": 2., "doc_write_failures": 1., "revisions_checked": 9., "missing_revisions_found": 4.,
		"bulk_get_attempts": 5., "bulk_get_docs": 6., "changes_pending": 7.,
		"source_seq": "12-x", "through_seq": "11", "checkpointed_source_seq": "10-x",
	} {
		require.Equal(t, value, tasks[0][name], name)
	}
	for _, name := range []string{"started_on", "updated_on"} {
		require.InDelta(t, time.Now().Unix(), tasks[0][name], 3600, name)
	}

	require.NoError(t, run.Stop(t.Context(), "", "", nil))
	require.Equal(t, "[]\n", n.Get("/_active_tasks").Body)
}

// The three lists show the same progress.
func TestListsAgree(t *testing.T) {
	t.Parallel()
	n := start(t)
	_, err := n.Documents.Create(t.Context(), "_replicator")
	require.NoError(t, err)
	n.Do(http.MethodPut, "/_replicator/one", definition(`"continuous": true`)).Is(t, http.StatusCreated)
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
		require.NoError(t, json.Unmarshal([]byte(n.Get("/_active_tasks").Body), &tasks))
		require.Len(t, tasks, 1)
		row := n.Get("/_scheduler/docs/_replicator/one").JSON(t)
		info := row["info"].(map[string]any)
		require.Equal(t, info, n.Get("/_scheduler/jobs/" + url.PathEscape(row["id"].(string))).JSON(t)["info"])
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
