package frontend_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Listings say that a document is paused, and what other jobs wait for.
func TestPausedDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	path := "/_replicator/d"
	waits := func() (job, waits map[string]any) {
		t.Helper()
		list := n.page("/_scheduler/jobs")
		require.Len(t, list.Jobs, 1)
		job = n.get("/_scheduler/jobs/" + url.QueryEscape(list.Jobs[0]["job_id"].(string))).json(t)
		waits = job["waits_for"].(map[string]any)
		delete(waits, "before")
		require.Equal(t, waits, list.Jobs[0]["waits_for"])
		require.Equal(t, waits, n.page("/_scheduler/docs").Docs[0]["waits_for"])
		return job, waits
	}
	n.do(http.MethodPut, "/_replicator", "").is(t, http.StatusCreated)
	rev := n.do(http.MethodPut, path, definition("")).is(t, http.StatusCreated).json(t)["rev"].(string)
	job, w := waits()
	require.NotContains(t, job, "paused")
	require.Equal(t, "slot", w["what"])
	require.NotEmpty(t, w["since"])
	single := n.get("/_scheduler/jobs/" + url.QueryEscape(job["job_id"].(string))).json(t)["waits_for"]
	require.EqualValues(t, 0, single.(map[string]any)["before"])

	at := time.Now().Add(time.Hour)
	require.NoError(t, n.accept().Crash(t.Context(), at, 1, "", "no"))
	_, w = waits()
	require.Equal(t, map[string]any{"what": "time", "until": at.UTC().Format(time.RFC3339), "reason": "backoff"}, w)

	n.do(http.MethodPut, path, definition(`"paused": true, "_rev": "`+rev+`"`)).is(t, http.StatusCreated)
	job, w = waits()
	require.Equal(t, []any{"pending", true, "document"}, []any{job["state"], job["paused"], job["paused_by"]})
	require.Equal(t, map[string]any{"what": "document", "since": job["paused_since"]}, w)
	require.EqualValues(t, 1, n.get("/_scheduler/summary").json(t)["jobs"].(map[string]any)["paused"])
	require.EqualValues(t, 0, n.get("/_scheduler/summary").json(t)["jobs"].(map[string]any)["pending"])
	run := n.do(http.MethodPost, "/_scheduler/jobs/"+url.QueryEscape(job["job_id"].(string))+"/_run", "").is(t, http.StatusAccepted).json(t)
	require.Equal(t, []any{true, "document"}, []any{run["paused"], run["paused_by"]})
	require.Contains(t, run["reason"], "`paused`")

	require.Contains(t, n.do(http.MethodPost, "/_scheduler/check", definition(`"paused": true`)).is(t, http.StatusOK).body, "`paused` is true")
	refused(t, n.do(http.MethodPost, "/_replicate", definition(`"paused": true`)), http.StatusBadRequest, "bad_request",
		"parameter `paused` is only for replication documents")
	refused(t, n.do(http.MethodPut, "/_replicator/e", definition(`"paused": "yes"`)), http.StatusForbidden, "forbidden",
		"parameter `paused` must be a boolean")
}
