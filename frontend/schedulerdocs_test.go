package frontend_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// docsPage is an answer of _scheduler/docs, or of _scheduler/jobs.
type docsPage struct {
	Total   int              `json:"total_rows"`
	Offset  int              `json:"offset"`
	Docs    []map[string]any `json:"docs"`
	Jobs    []map[string]any `json:"jobs"`
	Next    string           `json:"next_start_key"`
	Scanned *int             `json:"scanned"`
}

func (n *node) page(target string) (page docsPage) {
	n.Helper()
	got := n.Get(target).Is(n.T, http.StatusOK)
	require.NoError(n, json.Unmarshal([]byte(got.Body), &page))
	return page
}

func (p docsPage) ids() (ids []string) {
	for _, doc := range append(p.Docs, p.Jobs...) {
		ids = append(ids, fmt.Sprint(doc["doc_id"]))
	}
	return ids
}

// The jobs of documents are listed by database, document and state, with CouchDB's members.
func TestListDocs(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"_replicator", "a/_replicator", "b"} {
		_, err := n.Documents.Create(t.Context(), name)
		require.NoError(t, err)
	}
	put := func(database, doc string) {
		t.Helper()
		body := definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%s"], "source_proxy": "http://u:%s@proxy:1/"`, database+doc, webtest.Secret))
		n.Do(http.MethodPut, "/"+url.PathEscape(database)+"/"+url.PathEscape(doc), body).Is(t, http.StatusCreated)
	}
	for _, doc := range []string{"completed", "crashing", "failed", "running", "pending"} {
		put("_replicator", doc)
		if doc == "pending" {
			continue
		}
		run := n.accept()
		require.Equal(t, doc, *run.Job().Args.DocID)
		switch doc {
		case "completed":
			require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) { s.Stats.DocsWritten = 7 }))
		case "crashing":
			require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("db_not_found", "could not open it")))
		case "failed":
			require.NoError(t, run.Fail(t.Context(), replicator.TextFault("bad_request", "it makes no sense")))
		}
	}
	put("a/_replicator", "x/y z")
	require.Equal(t, http.StatusAccepted, n.post(definition(`"continuous": true`)).Status)

	all := n.page("/_scheduler/docs")
	assert.Equal(t, 6, all.Total)
	assert.ElementsMatch(t, []string{"completed", "crashing", "failed", "pending", "running", "x/y z"}, all.ids())
	mine := n.page("/_scheduler/docs/_replicator")
	assert.Equal(t, 5, mine.Total)
	assert.Equal(t, []string{"completed", "crashing", "failed", "pending", "running"}, mine.ids())
	for i, doc := range mine.Docs {
		assert.Equal(t, mine.ids()[i], doc["state"])
		single := n.Get("/_scheduler/docs/_replicator/" + mine.ids()[i]).JSON(t)
		if doc["state"] == "pending" {
			delete(single["condition"].(map[string]any), "queue") // which lists do not have
		}
		assert.Equal(t, doc, single)
		want := []string{
			"condition", "database", "doc_id", "error_count", "id", "info", "job_id", "last_updated", "node", "source", "source_proxy", "start_time",
			"state", "target", "target_proxy",
		}
		if doc["state"] == "completed" || doc["state"] == "failed" {
			want = slices.DeleteFunc(want, func(name string) bool { return name == "node" || name == "source_proxy" || name == "target_proxy" })
			assert.Nil(t, doc["id"])
		}
		var names []string
		for name := range doc {
			names = append(names, name)
		}
		assert.ElementsMatch(t, want, names, doc["state"])
	}
	assert.Equal(t, map[string]any{"error": "db_not_found: could not open it"}, mine.Docs[1]["info"])
	assert.EqualValues(t, 1, mine.Docs[1]["error_count"])
	assert.Equal(t, "http://u:*****@proxy:1", mine.Docs[3]["source_proxy"])

	// The id depends on the code of the filter, which is not known yet.
	n.Do(http.MethodPut, "/b%2F_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/b%2F_replicator/filtered", definition(`"filter": "d/f"`)).Is(t, http.StatusCreated)
	assert.Nil(t, n.Get("/_scheduler/docs/b%2F_replicator/filtered").JSON(t)["id"])
	n.Do(http.MethodDelete, "/b%2F_replicator", "").Is(t, http.StatusOK)

	// The slash of a database's name may be encoded or not.
	for _, path := range []string{"a/_replicator", "a%2F_replicator"} {
		assert.Equal(t, []string{"x/y z"}, n.page("/_scheduler/docs/"+path).ids())
		assert.Equal(t, "x/y z", n.Get("/_scheduler/docs/" + path + "/x%2Fy%20z").JSON(t)["doc_id"])
	}
	for states, want := range map[string][]string{
		"running":                  {"running"},
		"crashing,pending":         {"crashing", "pending"},
		"error,initializing":       {"crashing", "pending"},
		"completed,failed,RUNNING": {"completed", "failed", "running"},
		"":                         nil,
		",":                        nil,
		"failed,":                  {"failed"},
	} {
		page := n.page("/_scheduler/docs/_replicator?states=" + states)
		assert.Equal(t, want, page.ids(), states)
		assert.Equal(t, 5, page.Total, "as in CouchDB the total is of all states")
	}
	assert.ElementsMatch(t, []string{"pending", "x/y z"}, n.page("/_scheduler/docs?states=pending").ids())
	assert.Len(t, n.page("/_scheduler/docs?states=pending&limit=1").Docs, 1)
	assert.Equal(t, []string{"crashing", "failed"}, n.page("/_scheduler/docs/_replicator?skip=1&limit=2").ids())

	var found []string
	for key, pages := "", 0; ; pages++ {
		page := n.page("/_scheduler/docs?limit=2&start_key=" + url.QueryEscape(key))
		found = append(found, page.ids()...)
		if key = page.Next; key == "" {
			break
		}
		require.Less(t, pages, 10)
	}
	assert.ElementsMatch(t, all.ids(), found)
	assert.Len(t, n.page("/_scheduler/jobs").Jobs, 5, "those that have not ended, and the transient one")

	webtest.Refused(t, n.Get("/_scheduler/docs/_replicator/nope"), http.StatusNotFound, "not_found", "missing")
	long := base64.RawURLEncoding.EncodeToString([]byte(`["` + strings.Repeat("a", jobs.MaxOwnerSize+1) + `",""]`))
	for _, key := range []string{"b", "W10x", long} {
		webtest.Refused(t, n.Get("/_scheduler/docs?start_key="+key), http.StatusBadRequest, "query_parse_error",
			"`start_key` must be the next_start_key of an earlier page")
	}
	for _, path := range []string{"none/_replicator", "none%2F_replicator/x"} {
		webtest.Refused(t, n.Get("/_scheduler/docs/"+path), http.StatusNotFound, "not_found", "Database does not exist.")
	}
	for _, path := range []string{"b", "x/y", "x%2Fy/z", "_replicators", "_replicator%2Fx"} {
		webtest.Refused(t, n.Get("/_scheduler/docs/"+path), http.StatusBadRequest, "bad_request", "Invalid path")
	}
	webtest.Refused(t, n.Get("/_scheduler/docs?states=running,odd"), http.StatusBadRequest, "query_parse_error",
		"States must be one or more of [initializing,error,running,pending,crashing,completed,failed]")
}

// A document may ask for more than a run has, or for credentials that are not known. Its rows say so, also in lists.
func TestWarningsOfDocs(t *testing.T) {
	t.Parallel()
	n := start(t)
	_, err := n.Documents.Create(t.Context(), "_replicator")
	require.NoError(t, err)
	n.Do(http.MethodPut, "/_replicator/large", definition(`"worker_batch_size": 1000000, "worker_processes": 4,
		"source": {"url": "http://a.example/db", "auth": {"plugin": {"key": "s3cret"}}}`)).Is(t, http.StatusCreated)
	list, _ := n.Get("/_scheduler/docs/_replicator/large").JSON(t)["warnings"].([]any)
	require.Len(t, list, 2)
	require.Equal(t, "`worker_batch_size` is 10000, which is the most", list[0])
	require.Contains(t, list[1], "`source.auth.plugin` is not used")
	require.Equal(t, any(list), n.page("/_scheduler/docs").Docs[0]["warnings"])
	require.Equal(t, any(list), n.page("/_scheduler/jobs").Jobs[0]["warnings"])
}

// What the target of a replication refused is listed beside the job.
// The definition of a job, which a list does not have, is what was posted, without secrets.
func TestGetDefinition(t *testing.T) {
	t.Parallel()
	n := start(t)
	const posted = `{"source": "http://ann:s3cret@a.example/a", "target": {"url": "http://b.example/b/", "headers": {"X-Token": "s3cret"}},
		"continuous": true, "doc_ids": ["x"]}`
	n.post(posted).Is(t, http.StatusAccepted)
	id := n.page("/_scheduler/jobs").Jobs[0]["job_id"].(string)
	require.JSONEq(t, `{"source": {"url": "http://a.example/a/", "auth": {"basic": {"username": "ann", "password": "*****"}}},
		"target": {"url": "http://b.example/b/", "headers": {"X-Token": "*****"}}, "continuous": true, "doc_ids": ["x"]}`,
		n.Get("/_scheduler/jobs/"+id+"/definition").Is(t, http.StatusOK).Body)
	webtest.Refused(t, n.Get("/_scheduler/jobs/none/definition"), http.StatusNotFound, "not_found", "missing")
}

func TestListFailures(t *testing.T) {
	t.Parallel()
	n := start(t)
	id := n.post(definition(`"continuous": true`)).LocalID(t)
	require.Equal(t, `{"total":0,"failures":[]}`+"\n", n.Get("/_scheduler/jobs/"+id+"/failures").Body)
	run := n.accept()
	require.NoError(t, run.ListRefused(t.Context(), []replicator.Failure{
		{ID: "a", Rev: "1-x", Status: 403, Code: "forbidden", Reason: "at http://u:" + webtest.Secret + "@h/", Time: time.Unix(1, 0)},
		{ID: "b", Rev: "2-y", Status: 413, Code: "too_large", Reason: "b", Time: time.Unix(2, 0)},
	}, 2))
	got := n.Get("/_scheduler/jobs/" + id + "/failures").JSON(t)
	require.EqualValues(t, 2, got["total"])
	require.Equal(t, []any{
		map[string]any{"id": "b", "rev": "2-y", "status": 413.0, "error": "too_large", "reason": "b", "timestamp": "1970-01-01T00:00:02Z"},
		map[string]any{
			"id": "a", "rev": "1-x", "status": 403.0, "error": "forbidden", "reason": "at http://u:*****@h/", "timestamp": "1970-01-01T00:00:01Z",
		},
	}, got["failures"])
	webtest.Refused(t, n.Get("/_scheduler/jobs/none/failures"), http.StatusNotFound, "not_found", "missing")
}
