package frontend_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A document can be paused, also while its job waits after an error. Its job is pending for CouchDB's clients.
func TestPausedDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	path := "/_replicator/d"
	n.do(http.MethodPut, "/_replicator", "").is(t, http.StatusCreated)
	rev := n.do(http.MethodPut, path, definition("")).is(t, http.StatusCreated).json(t)["rev"].(string)
	require.NoError(t, n.accept().Crash(t.Context(), time.Now().Add(time.Hour), 1, "", "no"))
	require.Equal(t, "crashing", n.page("/_scheduler/jobs").Jobs[0]["state"])

	n.do(http.MethodPut, path, definition(`"paused": true, "_rev": "`+rev+`"`)).is(t, http.StatusCreated)
	for _, query := range []string{"?condition=paused", "?states=pending"} {
		require.Len(t, n.page("/_scheduler/jobs"+query).Jobs, 1)
	}
	job := n.page("/_scheduler/jobs").Jobs[0]
	require.Equal(t, "pending", job["state"])
	require.Empty(t, n.page("/_scheduler/jobs?states=crashing").Jobs)
	require.EqualValues(t, 1, n.get("/_scheduler/summary").json(t)["jobs"].(map[string]any)["paused"])
	require.EqualValues(t, 0, n.get("/_scheduler/summary").json(t)["jobs"].(map[string]any)["pending"])
	run := n.do(http.MethodPost, "/_scheduler/jobs/"+url.QueryEscape(job["job_id"].(string))+"/_run", "").is(t, http.StatusAccepted).json(t)
	require.Equal(t, "is paused by its document", conditionOf(run)["message"])

	require.Contains(t, n.do(http.MethodPost, "/_scheduler/check", definition(`"paused": true`)).is(t, http.StatusOK).body, "`paused` is true")
	refused(t, n.do(http.MethodPost, "/_replicate", definition(`"paused": true`)), http.StatusBadRequest, "bad_request",
		"parameter `paused` is only for replication documents")
	refused(t, n.do(http.MethodPut, "/_replicator/e", definition(`"paused": "yes"`)), http.StatusForbidden, "forbidden",
		"parameter `paused` must be a boolean")
}
