package main

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mirror that is paused copies nothing, is asked for nothing and is not late. When it is resumed it copies what it has missed, new
// databases included.
func TestMirrorPauses(t *testing.T) {
	t.Parallel()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	a.create("films", "first")
	a.create("songs", "first")
	node.put("m", mirrorDocument(a, b, `{"verify":"24h"}`))
	node.awaitMirror("m", 2)
	job := node.mirror("m").JobID
	lag := "_scheduler/jobs/" + url.QueryEscape(job) + "/lag"
	assert.Regexp(t, `^\{"since":\d+,"step":300,"lag":\[\d+(,(\d+|null))*\]\}`, node.ask(http.StatusOK, http.MethodGet, lag, ""))
	command := func(args ...string) string {
		t.Helper()
		out, errs, status := setteeWith(t, []string{nodeVariable + "=" + node.url}, append([]string{"jobs"}, args...)...)
		require.Zero(t, status, out+errs)
		return out
	}
	assert.Contains(t, command("pause", "m"), "paused, with all its databases")
	require.Eventually(t, func() bool { return node.mirror("m").Info.Mirror.States["paused"] == 2 }, limit, 10*time.Millisecond)
	assert.Contains(t, command("show", "m"), "is paused by its document")
	list := node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs?condition=paused&mirror="+url.QueryEscape(job), "")
	assert.Contains(t, list, `"reason":"mirror","message":"is paused, because its mirror is"`)
	require.Eventually(t, func() bool { return node.jobsIn("_scheduler/jobs?condition=running") == 0 }, limit, 10*time.Millisecond)

	a.ask(http.StatusCreated, http.MethodPut, "films/second", `{}`)
	a.create("books", "first")
	for _, action := range []string{"_run", "_verify"} {
		assert.Contains(t, node.ask(http.StatusAccepted, http.MethodPost, "_scheduler/jobs/"+url.QueryEscape(job)+"/"+action, ""), `"state":"paused"`)
	}
	assert.Contains(t, command("run", "m"), "it runs as soon as it is resumed")
	assert.Zero(t, node.metric(`settee_mirror_lag_seconds{mirror="_replicator/m"}`))
	assert.Zero(t, node.metric(`settee_mirror_verify_overdue_seconds{mirror="_replicator/m"}`))
	assert.Equal(t, 0, node.jobsIn("_scheduler/jobs?condition=running,pending,parked,crashing"))
	found, _ := b.request(http.MethodGet, "films/second", "")
	assert.Equal(t, http.StatusNotFound, found)

	out, errs, status := setteeWith(t, []string{nodeVariable + "=" + node.url}, "failover", "m", "--yes")
	assert.Equal(t, exitFailed, status, out)
	assert.Contains(t, errs, "the mirror is paused by its document: resume it first")

	assert.Contains(t, command("resume", "m"), "resumed, with all its databases")
	for _, doc := range []string{"films/second", "books/first"} {
		require.Eventually(t, exists(t, b.url+doc), limit, 10*time.Millisecond)
	}
	node.awaitMirror("m", 3)
	assert.Contains(t, command("show", "m"), "3: 3 up to date")
}
