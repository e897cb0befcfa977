package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// PouchDB syncs with a database of a node in both directions.
func TestPouchDB(t *testing.T) {
	t.Parallel()
	node := serveNode(t, aStore(t))
	couchtest.Script(t, "testdata/clients/pouchdb.js", node.url, t.TempDir())
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// nano creates, queries and cancels replications.
func TestNano(t *testing.T) {
	t.Parallel()
	node := serveNode(t, aStore(t))
	couchtest.Script(t, "testdata/clients/nano.js", node.url)
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// PouchDB Server replicates from a node's database and to another one, and the node replicates from one to the other
// through PouchDB Server.
func TestPouchDBServer(t *testing.T) {
	t.Parallel()
	peer := couchtest.Shared(t)
	node := serveNode(t, aStore(t))
	source := node.url + "source"
	node.ask(http.StatusCreated, http.MethodPut, "source", "")
	couchtest.Populate(t, source, couchtest.Population{
		Seed: 3, Docs: 150, Conflicted: 20, Deleted: 20, Attachments: couchtest.Sizes(3, 10, 1<<20),
	})
	by := func(server, source, target string) {
		t.Helper()
		body := fmt.Sprintf(`{"source":%q,"target":%q,"create_target":true}`, source, target)
		ask(t, http.StatusOK, http.MethodPost, server+"/_replicate", body)
		couchtest.SameTrees(t, source, target)
	}
	server := strings.TrimSuffix(node.url, "/")
	by(peer.URL, source, peer.URL+"/pulled")
	by(peer.URL, peer.URL+"/pulled", node.url+"pushed")
	by(server, source, peer.URL+"/over")
	by(server, peer.URL+"/over", node.url+"back")
	by(server, source, node.url+"local")
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// since_seq may be a time. A replication goes on from there as from a sequence.
func TestReplicationSinceATime(t *testing.T) {
	t.Parallel()
	node := serveNode(t, aStore(t))
	node.ask(http.StatusCreated, http.MethodPut, "source", "")
	node.ask(http.StatusCreated, http.MethodPut, "source/a", "{}")
	replicate := func(status int, target, since string) string {
		t.Helper()
		return node.ask(status, http.MethodPost, "_replicate",
			fmt.Sprintf(`{"source":%q,"target":%q,"create_target":true,"since_seq":%q}`, node.url+"source", node.url+target, since))
	}
	assert.Contains(t, replicate(http.StatusOK, "none", "2099-01-01T00:00:00Z"), `"no_changes":true`)
	answer := replicate(http.StatusOK, "all", "2000-01-01T00:00:00Z")
	assert.Contains(t, answer, `"start_last_seq":"2000-01-01T00:00:00Z"`)
	assert.Contains(t, answer, `"docs_written":1`)
	node.ask(http.StatusCreated, http.MethodPut, "source/b", "{}")
	answer = replicate(http.StatusOK, "all", "2000-01-01T00:00:00Z")
	assert.Regexp(t, `"history":\[\{[^}]*"start_last_seq":"1-[^}]*"docs_read":2,`, answer, "the counts are those of both runs")
	couchtest.SameTrees(t, node.url+"source", node.url+"all")
	assert.Contains(t, replicate(http.StatusInternalServerError, "none", "2026-13-01T00:00:00Z"), "invalid_time_format")
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// A run between databases of its own node writes its checkpoint when the node is stopped.
func TestStopWithReplicationOfItself(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	node := serveNode(t, store, "settee/grace_period_sec=120")
	for _, path := range []string{"from", "to"} {
		node.ask(http.StatusCreated, http.MethodPut, path, "")
	}
	body := fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true}`, node.url+"from", node.url+"to")
	answer := node.ask(http.StatusAccepted, http.MethodPost, "_replicate", body)
	var accepted struct {
		LocalID string `json:"_local_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &accepted))
	node.ask(http.StatusCreated, http.MethodPut, "from/one", `{"n":1}`)
	require.Eventually(t, func() bool { // the run knows that it has written it
		return strings.Contains(node.ask(http.StatusOK, http.MethodGet, "_active_tasks", ""), `"docs_written":1`)
	}, limit, 5*time.Millisecond)
	assert.Zero(t, node.end(syscall.SIGTERM))
	<-node.read
	assert.NotContains(t, node.logged(), "checkpoint")
	assert.NotContains(t, node.logged(), "grace period")

	node = serveNode(t, store)
	answer = node.ask(http.StatusOK, http.MethodGet, "to/_local/"+strings.TrimSuffix(accepted.LocalID, "+continuous"), "")
	assert.Contains(t, answer, `"docs_written":1`)
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// The replication documents of one node are replicated to another one, and run there as well.
func TestReplicatorDatabaseIsReplicated(t *testing.T) {
	t.Parallel()
	first, second := serveNode(t, aStore(t)), serveNode(t, aStore(t))
	first.ask(http.StatusCreated, http.MethodPut, "a", "")
	for n := range 5 {
		body := fmt.Sprintf(`{"source":%q,"target":%q,"create_target":true,"continuous":true,"tag":"mine"}`,
			first.url+"a", fmt.Sprintf("%sb%d", second.url, n))
		first.ask(http.StatusCreated, http.MethodPut, fmt.Sprintf("_replicator/job-%d", n), body)
	}
	body := fmt.Sprintf(`{"source":%q,"target":%q}`, first.url+"_replicator", second.url+"_replicator")
	first.ask(http.StatusOK, http.MethodPost, "_replicate", body)
	couchtest.SameTrees(t, first.url+"_replicator", second.url+"_replicator")

	jobs := func() (ids []string) {
		answer := second.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", "")
		var list struct {
			Jobs []struct {
				DocID    string `json:"doc_id"`
				Database string `json:"database"`
			} `json:"jobs"`
		}
		require.NoError(t, json.Unmarshal([]byte(answer), &list))
		for _, job := range list.Jobs {
			assert.Equal(t, "_replicator", job.Database)
			ids = append(ids, job.DocID)
		}
		return ids
	}
	assert.ElementsMatch(t, []string{"job-0", "job-1", "job-2", "job-3", "job-4"}, jobs())
	// Both nodes run the replications.
	first.ask(http.StatusCreated, http.MethodPut, "a/late", "{}")
	for n := range 5 {
		require.Eventually(t, exists(t, fmt.Sprintf("%sb%d/late", second.url, n)), limit, 20*time.Millisecond)
	}
	// A deletion is replicated as well.
	answer := first.ask(http.StatusOK, http.MethodGet, "_replicator/job-3", "")
	var doc struct {
		Rev string `json:"_rev"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &doc))
	first.ask(http.StatusOK, http.MethodDelete, "_replicator/job-3?rev="+doc.Rev, "")
	first.ask(http.StatusOK, http.MethodPost, "_replicate", body)
	assert.ElementsMatch(t, []string{"job-0", "job-1", "job-2", "job-4"}, jobs())
	assert.Zero(t, first.end(syscall.SIGTERM))
	assert.Zero(t, second.end(syscall.SIGTERM))
}

func TestDemo(t *testing.T) {
	t.Parallel()
	out, errs, status := settee(t, "demo", "--documents", "1234")
	require.Zero(t, status, "%s%s", out, errs)
	assert.Contains(t, out, "GET  /animals-copy: 1234 documents")
	assert.Contains(t, out, "The node has stopped")
	_, errs, status = settee(t, "demo", "--documents", "0")
	assert.Equal(t, exitUsage, status)
	assert.Contains(t, errs, "--documents must be at least 1")
}
