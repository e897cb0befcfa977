package frontend_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"

	"settee/frontend/internal/webtest"
)

// A document can be paused, also while its job waits after an error. Its job is pending for CouchDB's clients.
func TestPausedDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	path := "/_replicator/d"
	n.Do(http.MethodPut, "/_replicator", "").Is(t, http.StatusCreated)
	rev := n.Do(http.MethodPut, path, definition("")).Is(t, http.StatusCreated).JSON(t)["rev"].(string)
	require.NoError(t, n.accept().Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "no")))
	require.Equal(t, "crashing", n.page("/_scheduler/jobs").Jobs[0]["state"])

	n.Do(http.MethodPut, path, definition(`"paused": true, "_rev": "`+rev+`"`)).Is(t, http.StatusCreated)
	for _, query := range []string{"?condition=paused", "?states=pending"} {
		require.Len(t, n.page("/_scheduler/jobs"+query).Jobs, 1)
	}
	job := n.page("/_scheduler/jobs").Jobs[0]
	require.Equal(t, "pending", job["state"])
	require.Empty(t, n.page("/_scheduler/jobs?states=crashing").Jobs)
	require.EqualValues(t, 1, n.Get("/_scheduler/summary").JSON(t)["jobs"].(map[string]any)["paused"])
	require.EqualValues(t, 0, n.Get("/_scheduler/summary").JSON(t)["jobs"].(map[string]any)["pending"])
	run := n.Do(http.MethodPost, "/_scheduler/jobs/"+url.QueryEscape(job["job_id"].(string))+"/_run", "").Is(t, http.StatusAccepted).JSON(t)
	require.Equal(t, "is paused by its document", conditionOf(run)["message"])

	require.Contains(t, n.Do(http.MethodPost, "/_scheduler/check", definition(`"paused": true`)).Is(t, http.StatusOK).Body, "`paused` is true")
	webtest.Refused(t, n.Do(http.MethodPost, "/_replicate", definition(`"paused": true`)), http.StatusBadRequest, "bad_request",
		"parameter `paused` is only for replication documents")
	webtest.Refused(t, n.Do(http.MethodPut, "/_replicator/e", definition(`"paused": "yes"`)), http.StatusForbidden, "forbidden",
		"parameter `paused` must be a boolean")
}
