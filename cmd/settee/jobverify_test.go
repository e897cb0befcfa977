package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filmsNode is a node with the job "one", which copies two documents and ends.
func filmsNode(t *testing.T) *process {
	t.Helper()
	node := serveNode(t, "mem:")
	node.hosted("films")
	node.ask(http.StatusCreated, http.MethodPost, "films/_bulk_docs", `{"docs":[{"_id":"alien"},{"_id":"heat"}]}`)
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/one", document(t, map[string]any{
		"source": node.url + "films", "target": node.url + "copy", "create_target": true,
	}))
	return node
}

// Both ends of a job that has ended are compared by a replication node, as often as somebody asks. The job has what was found, and
// what both ends said of themselves.
func TestVerifyJob(t *testing.T) {
	t.Parallel()
	node := filmsNode(t)
	var job struct {
		JobID string `json:"job_id"`
		State string
		Ends  struct {
			Source, Target struct{ Docs int }
		}
		Verified *struct {
			Began     time.Time
			Node      string
			Revisions int `json:"revisions_checked"`
			Missing   int `json:"missing_at_target"`
			Error     string
		}
		VerifyingSince string `json:"verifying_since"`
	}
	path := "_scheduler/docs/_replicator/one"
	until := func(is func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			job.Verified, job.VerifyingSince = nil, ""
			require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, path, "")), &job))
			return is()
		}, limit, 50*time.Millisecond)
	}
	until(func() bool { return job.State == "completed" })
	path = "_scheduler/jobs/" + url.PathEscape(job.JobID)
	until(func() bool { return true })
	assert.Equal(t, 2, job.Ends.Source.Docs)
	assert.Zero(t, job.Ends.Target.Docs, "before the run")

	node.ask(http.StatusAccepted, http.MethodPost, path+"/_verify", "")
	until(func() bool { return job.Verified != nil })
	assert.Equal(t, 2, job.Verified.Revisions)
	assert.Zero(t, job.Verified.Missing)
	assert.Empty(t, job.Verified.Error)
	assert.NotEmpty(t, job.Verified.Node)
	assert.Equal(t, 2, job.Ends.Target.Docs)

	node.ask(http.StatusCreated, http.MethodPut, "films/ran", "{}")
	out, errs, status := setteeWith(t, node.asUser(adminName, adminPassword), "jobs", "verify", "one")
	require.Zero(t, status, errs)
	assert.Equal(t, "one: a node compares both ends\n", out)
	until(func() bool { return job.Verified != nil && job.Verified.Missing == 1 })
	assert.Equal(t, 3, job.Ends.Source.Docs)
	out, _, _ = setteeWith(t, node.asUser(adminName, adminPassword), "jobs", "show", "one")
	assert.Contains(t, out, "the target lacks 1 of 3 revisions")
}

// The page of a job has what a comparison has found, and a button for the next one.
func TestDashboardVerifiesJob(t *testing.T) {
	t.Parallel()
	node := filmsNode(t)
	require.Eventually(t, func() bool { return node.hasEnded("one") }, limit, 20*time.Millisecond)
	node.ask(http.StatusCreated, http.MethodPut, "films/ran", "{}")
	_, errs, status := setteeWith(t, node.asUser(adminName, adminPassword), "jobs", "verify", "one")
	require.Zero(t, status, errs)

	d := openDashboard(t, node, adminName, adminPassword)
	d.show("documents/_replicator/one")
	d.WaitText("main", "the target lacks 1 of 3 revisions")
	node.ask(http.StatusOK, http.MethodDelete, "copy", "")
	d.press("Verify")
	d.WaitText(".notices", "_replicator / one: a node compares both ends")
	d.WaitText("main", "not compared: ")
	d.Accessible()
	d.broke(t)
}
