package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
)

// hosted creates a database of the node's own and returns its URL.
func (p *process) hosted(name string) string {
	p.t.Helper()
	status, answer := p.request(http.MethodPut, name, "")
	require.Equal(p.t, http.StatusCreated, status, answer)
	return p.url + name
}

// replicateOnce posts a replication and returns the response.
func (p *process) replicateOnce(members string, args ...any) replicated {
	p.t.Helper()
	status, answer := p.request(http.MethodPost, "_replicate", "{"+fmt.Sprintf(members, args...)+"}")
	require.Equal(p.t, http.StatusOK, status, answer)
	var result replicated
	require.NoError(p.t, json.Unmarshal([]byte(answer), &result))
	return result
}

// replicated is the response after a replication has ended.
type replicated struct {
	NoChanges bool   `json:"no_changes"`
	SessionID string `json:"session_id"`
	History   []struct {
		SessionID        string `json:"session_id"`
		DocsRead         int    `json:"docs_read"`
		DocsWritten      int    `json:"docs_written"`
		DocWriteFailures int    `json:"doc_write_failures"`
	}
}

// sizesToCouchDB has attachments of all kinds of sizes: empty, within one request, and larger.
var sizesToCouchDB = [][]int{{0}, {1, 4095, 4096}, {65_537}, {1 << 20, 3_000_001}}

// The largest attachment is larger than the largest document without attachments, and than a transaction of the store.
const (
	largest         = 16 << 20
	largestDocument = 8 << 20
)

// TestCouchDBInAllDirections replicates all kinds of documents between CouchDBs, and from and to a database of the
// node.
func TestCouchDBInAllDirections(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, aStore(t), fmt.Sprintf("replicator/max_document_size=%d", largestDocument))
	for name, ends := range map[string]func(name string) (source, target string){
		"between CouchDBs": func(name string) (string, string) { return peer.DB(t, name), peer.DB(t, name) },
		"to the node":      func(name string) (string, string) { return peer.DB(t, name), node.hosted(name) },
		"from the node":    func(name string) (string, string) { return node.hosted(name), peer.DB(t, name) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := ends(strings.ReplaceAll(name, " ", "-") + "-once")
			couchtest.Populate(t, source, couchtest.Population{Seed: 31, Docs: 300, Conflicted: 40, Deleted: 40, Attachments: sizesToCouchDB})
			putLargest(t, source)
			first := node.replicateOnce(`"source":%q,"target":%q`, source, target)
			require.Zero(t, first.History[0].DocWriteFailures)
			couchtest.SameTrees(t, source, target)
			assert.True(t, node.replicateOnce(`"source":%q,"target":%q`, source, target).NoChanges)
			couchtest.Populate(t, source, couchtest.Population{Seed: 32, Docs: 301})
			assert.Positive(t, node.replicateOnce(`"source":%q,"target":%q`, source, target).History[0].DocsWritten)
			couchtest.SameTrees(t, source, target)
		})
		t.Run(name+", continuous", func(t *testing.T) {
			t.Parallel()
			source, target := ends(strings.ReplaceAll(name, " ", "-") + "-live")
			couchtest.Populate(t, source, couchtest.Population{Seed: 33, Docs: 60, Conflicted: 10, Deleted: 10, Attachments: sizesToCouchDB})
			body := fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true}`, source, target)
			node.ask(http.StatusAccepted, http.MethodPost, "_replicate", body)
			couchtest.AwaitSameTrees(t, source, target, limit)
			couchtest.Populate(t, source, couchtest.Population{Seed: 34, Docs: 70, Conflicted: 20, Deleted: 20})
			couchtest.AwaitSameTrees(t, source, target, limit)
			node.ask(http.StatusOK, http.MethodPost, "_replicate", strings.Replace(body, "{", `{"cancel":true,`, 1))
		})
	}
}

// TestCouchDBOddRevisions replicates revisions with ids that are empty, long, or no hexadecimal digits. One that the node
// does not take does not keep the others back.
func TestCouchDBOddRevisions(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, aStore(t))
	const attachments = `"_attachments":{"z":{"data":"eg=="},"a":{"data":"YQ=="}}`
	odd := `{"new_edits":false,"docs":[{"_id":"empty","_rev":"1-"},{"_id":"empty","_revisions":{"start":3,"ids":["","","x"]},` + attachments + `},
		{"_id":"leaf","_rev":"1-",` + attachments + `},{"_id":"deleted","_rev":"2-","_deleted":true},{"_id":"bytes","_rev":"1-abcdefghijklmnop"},
		{"_id":"upper","_rev":"1-ABCDEFABCDEFABCDEFABCDEFABCDEFAB"},{"_id":"text","_rev":"1-é \"x\" 1-"},{"_id":"long","_rev":"1-` + strings.Repeat("x", 200) + `"}]}`
	for name, ends := range map[string]func() (source, target string){
		"between CouchDBs": func() (string, string) { return peer.DB(t, "odd-source"), peer.DB(t, "odd-target") },
		"to the node":      func() (string, string) { return peer.DB(t, "odd-source"), node.hosted("odd-target") },
		"from the node":    func() (string, string) { return node.hosted("odd-source"), peer.DB(t, "odd-target") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := ends()
			ask(t, http.StatusCreated, http.MethodPost, source+"/_bulk_docs", odd)
			first := node.replicateOnce(`"source":%q,"target":%q`, source, target)
			require.Zero(t, first.History[0].DocWriteFailures)
			couchtest.SameTrees(t, source, target)
			// The same edit is the same revision.
			for _, at := range []string{source, target} {
				ask(t, http.StatusCreated, http.MethodPut, at+"/leaf?rev=1-", `{"v":2}`)
			}
			couchtest.SameTrees(t, source, target)
		})
	}

	source, target := peer.DB(t, "odd-source"), node.hosted("odd-refused")
	for i, rev := range []string{"1-a", "1-" + strings.Repeat("x", 201), "0-a", "1-"} {
		ask(t, http.StatusCreated, http.MethodPost, source+"/_bulk_docs", fmt.Sprintf(`{"new_edits":false,"docs":[{"_id":"d%d","_rev":%q}]}`, i, rev))
	}
	result := node.replicateOnce(`"source":%q,"target":%q`, source, target)
	require.Equal(t, 2, result.History[0].DocWriteFailures)
	require.Equal(t, 2, result.History[0].DocsWritten)
	for _, id := range []string{"d0", "d3"} {
		ask(t, http.StatusOK, http.MethodGet, target+"/"+id, "")
	}
}

// putLargest writes a document with the largest attachment.
func putLargest(t *testing.T, dbURL string) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789abcdef"), largest/16)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, dbURL+"/largest/file", bytes.NewReader(content))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)
}

// TestCouchDBFilterChangesWhileItRuns changes the filter of a continuous replication. The replication continues with
// the new filter, under another replication id.
func TestCouchDBFilterChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, "mem:", "replicator/checkpoint_interval=500")
	source, target := peer.DB(t, "filter-source"), peer.DB(t, "filter-target")
	filter := func(rev, wanted string) string {
		design := `{"filters":{"wanted":"function(doc, req) { return doc.kind === '` + wanted + `' && req.query.all === 'yes'; }"}` + rev + `}`
		answer := ask(t, http.StatusCreated, http.MethodPut, source+"/_design/d", design)
		var written struct{ Rev string }
		require.NoError(t, json.Unmarshal([]byte(answer), &written))
		return fmt.Sprintf(`,"_rev":%q`, written.Rev)
	}
	rev := filter("", "a")
	request(t, http.MethodPut, source+"/a1", `{"kind":"a"}`)
	request(t, http.MethodPut, source+"/b1", `{"kind":"b"}`)
	status, answer := node.request(http.MethodPut, "_replicator/filtered",
		fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"filter":"d/wanted","query_params":{"all":"yes"}}`, source, target))
	require.Equal(t, http.StatusCreated, status, answer)
	require.Eventually(t, exists(t, target+"/a1"), limit, 20*time.Millisecond)
	before := node.replicationID("filtered")
	require.NotEmpty(t, before)

	filter(rev, "b")
	request(t, http.MethodPut, source+"/b2", `{"kind":"b"}`)
	require.Eventually(t, exists(t, target+"/b2"), limit, 20*time.Millisecond)
	require.Eventually(t, exists(t, target+"/b1"), limit, 20*time.Millisecond, "the new replication begins at the beginning")
	require.NotEqual(t, before, node.replicationID("filtered"))
}

// replicationID returns the replication id of a document of _replicator.
func (p *process) replicationID(doc string) string {
	p.t.Helper()
	status, answer := p.request(http.MethodGet, "_scheduler/docs/_replicator/"+doc, "")
	require.Equal(p.t, http.StatusOK, status, answer)
	var row struct{ ID string }
	require.NoError(p.t, json.Unmarshal([]byte(answer), &row))
	return row.ID
}

// TestCouchDBRefusesDocuments has a target whose validation functions refuse some documents.
func TestCouchDBRefusesDocuments(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, "mem:")
	source, target := peer.DB(t, "refused-source"), peer.DB(t, "refused-target")
	status, answer := request(t, http.MethodPut, target+"/_design/v",
		`{"validate_doc_update":"function(doc) { if (doc.bad) throw({forbidden: 'no bad documents'}); }"}`)
	require.Equal(t, http.StatusCreated, status, answer)
	for i := range 10 {
		request(t, http.MethodPut, fmt.Sprintf("%s/doc%d", source, i), fmt.Sprintf(`{"bad":%t}`, i%2 == 0))
	}
	answer = node.ask(http.StatusOK, http.MethodPost, "_replicate", fmt.Sprintf(`{"source":%q,"target":%q}`, source, target))
	var result struct {
		replicated
		LocalID string `json:"_local_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &result))
	assert.Equal(t, 5, result.History[0].DocWriteFailures)
	assert.Equal(t, 5, result.History[0].DocsWritten)
	answer = node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs/"+result.LocalID+"/failures", "")
	assert.Equal(t, 5, strings.Count(answer, "no bad documents"), answer)
}

// TestCouchDBCreatesTargets creates targets with parameters, for example a partitioned one.
func TestCouchDBCreatesTargets(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, "mem:")
	source := peer.DB(t, "created-source")
	for i := range 20 {
		request(t, http.MethodPut, fmt.Sprintf("%s/part%d:doc", source, i%3), `{}`)
	}
	request(t, http.MethodPut, source+"/_design/d", `{"views":{}}`)
	target := source + "-made"
	t.Cleanup(func() { peer.Remove(t, target) })
	result := node.replicateOnce(`"source":%q,"target":%q,"create_target":true,"create_target_params":{"q":3,"partitioned":true}`, source, target)
	assert.Zero(t, result.History[0].DocWriteFailures)
	couchtest.SameTrees(t, source, target)
	_, answer := request(t, http.MethodGet, target, "")
	assert.Contains(t, answer, `"partitioned":true`)
	assert.Contains(t, answer, `"q":3`)

	// Documents without a partition are refused there, and listed.
	request(t, http.MethodPut, source+"/nowhere", `{}`)
	result = node.replicateOnce(`"source":%q,"target":%q,"create_target":true,"create_target_params":{"q":3,"partitioned":true}`, source, target)
	assert.Equal(t, 1, result.History[0].DocWriteFailures)
}

// sessionTimeout is the time of sessions that expire. A fresh cookie must not expire before a busy machine has used it.
const sessionTimeout = 5 * time.Second

// TestOwnCouchDB has a CouchDB of its own, with other settings. The last test kills it.
func TestOwnCouchDB(t *testing.T) {
	t.Parallel()
	server := couchtest.StartCouchDB(t, map[string]map[string]string{
		"chttpd_auth":         {"timeout": fmt.Sprint(sessionTimeout.Seconds()), "iterations": "10"},
		"chttpd_auth_lockout": {"mode": "enforce", "threshold": "3", "max_lifetime": "3000"},
	})
	t.Run("sessions expire", func(t *testing.T) { sessionsExpire(t, server) })
	t.Run("accounts are locked", func(t *testing.T) { accountsAreLocked(t, server) })
	t.Run("users are synchronized", func(t *testing.T) { usersAreSynchronized(t, server) })
	t.Run("is killed", func(t *testing.T) { serverIsKilled(t, server) })
}

// Sessions last a few seconds. The run logs in again and continues.
func sessionsExpire(t *testing.T, server *couchtest.CouchDB) {
	node := serveNode(t, "mem:")
	source, target := server.DB(t, "session-source"), server.DB(t, "session-target")
	answer := node.ask(http.StatusAccepted, http.MethodPost, "_replicate", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true}`, source, target))
	var accepted struct {
		LocalID string `json:"_local_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &accepted))
	loggedIn := func() bool {
		log, err := server.Process.Log()
		require.NoError(t, err)
		return strings.Count(log, "POST /_session 200") >= 3
	}
	for n := 0; !loggedIn(); n++ {
		require.Less(t, n, 20)
		doc := fmt.Sprintf("/doc%d", n)
		request(t, http.MethodPut, source+doc, `{}`)
		require.Eventually(t, exists(t, target+doc), limit, 5*time.Millisecond)
		// CouchDB renews the sessions of clients that are not idle.
		for began := time.Now(); time.Since(began) < sessionTimeout+time.Second && !loggedIn(); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	_, answer = node.request(http.MethodGet, "_scheduler/jobs/"+accepted.LocalID, "")
	assert.NotContains(t, answer, "crashed")
}

// Wrong passwords are sent until CouchDB locks the account.
func accountsAreLocked(t *testing.T, server *couchtest.CouchDB) {
	const user, right, wrong = "locked", "r1ght-word", "wr0ng-word"
	server.Do(t, http.MethodPut, "/_node/_local/_config/admins/"+user, []byte(`"`+right+`"`), http.StatusOK)
	node := serveNode(t, "mem:", "log/level=debug", "replicator/retries_per_request=0", "replicator/session_min_update_interval=0")
	source, target := server.DB(t, "lock-source"), server.DB(t, "lock-target")
	request(t, http.MethodPut, source+"/doc", `{}`)
	replicate := func(password string) (int, string) {
		return node.request(http.MethodPost, "_replicate",
			fmt.Sprintf(`{"source":%q,"target":%q}`, couchtest.As(source, user, password), couchtest.As(target, user, password)))
	}
	var failure struct{ Error, Reason string }
	for range 4 {
		status, answer := replicate(wrong)
		require.Equal(t, http.StatusInternalServerError, status, answer)
		require.NoError(t, json.Unmarshal([]byte(answer), &failure))
		assert.Equal(t, "replication_auth_error", failure.Error)
		assert.NotContains(t, answer, wrong)
	}
	assert.NotContains(t, node.logged(), wrong)
	// The right password is accepted again after the lock.
	require.Eventually(t, func() bool {
		status, _ := replicate(right)
		return status == http.StatusOK
	}, limit, 500*time.Millisecond)
	couchtest.SameTrees(t, source, target)
	assert.NotContains(t, node.logged(), right)
}

// Both endpoints are killed in the middle of a replication and started again.
func serverIsKilled(t *testing.T, server *couchtest.CouchDB) {
	kills := seeds.Rounds(t, 5)
	node := serveNode(t, "mem:", "replicator/min_backoff_penalty_sec=1", "replicator/checkpoint_interval=500",
		"replicator/max_backoff_penalty_sec=1", "replicator/retries_per_request=1", "replicator/worker_batch_size=50")
	source, target := server.DB(t, "killed-source"), server.DB(t, "killed-target")
	couchtest.Populate(t, source, couchtest.Population{
		Seed: 41, Docs: 400 * kills, Conflicted: 10 * kills, Deleted: 10 * kills, Attachments: couchtest.Sizes(41, 8*kills, 1<<20),
	})
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/killed", fmt.Sprintf(`{"source":%q,"target":%q}`, source, target))
	copied := func() int { return docCount(t, ask(t, http.StatusOK, http.MethodGet, target, "")) }
	for range kills {
		had := copied()
		require.Eventually(t, func() bool { return copied() > had || node.hasEnded("killed") }, limit, 5*time.Millisecond)
		server.Process.Kill()
		require.NoError(t, server.Process.Start(t.Context()))
	}
	require.Eventually(t, func() bool { return node.hasEnded("killed") }, limit, 20*time.Millisecond)
	_, answer := node.request(http.MethodGet, "_replicator/killed", "")
	assert.Contains(t, answer, `"_replication_state":"completed"`)
	couchtest.SameTrees(t, source, target)
}

// hasEnded reports whether the replication of a document of _replicator has ended.
func (p *process) hasEnded(doc string) bool {
	p.t.Helper()
	status, answer := p.request(http.MethodGet, "_replicator/"+doc, "")
	require.Equal(p.t, http.StatusOK, status, answer)
	return strings.Contains(answer, `"_replication_state"`)
}

// serverOf returns the URL of a database's server.
func serverOf(database string) string { return database[:strings.LastIndex(database, "/")+1] }

// replicateBy lets a server run a replication once, and returns its answer. CouchDB's comes before its scheduler has noticed the end.
// Until then it would take the next request for one that waits for the same run, and not answer it.
func replicateBy(t *testing.T, server, source, target string) string {
	t.Helper()
	answer := ask(t, http.StatusOK, http.MethodPost, server+"_replicate", fmt.Sprintf(`{"source":%q,"target":%q}`, source, target))
	require.Eventually(t, func() bool {
		return !strings.Contains(ask(t, http.StatusOK, http.MethodGet, server+"_scheduler/jobs", ""), path.Base(source))
	}, limit, 10*time.Millisecond)
	return answer
}

// TestCouchDBsCheckpoints hands a replication over from CouchDB's replicator, and back.
func TestCouchDBsCheckpoints(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	var root struct{ UUID string }
	require.NoError(t, json.Unmarshal(peer.Do(t, http.MethodGet, "/", nil, http.StatusOK), &root))
	node := serveNode(t, "mem:", "couchdb/uuid="+root.UUID)
	source, target := peer.DB(t, "handed-source"), peer.DB(t, "handed-target")
	couchtest.Populate(t, source, couchtest.Population{Seed: 51, Docs: 200, Conflicted: 20, Deleted: 20})
	byCouchDB := func() (result replicated) {
		require.NoError(t, json.Unmarshal([]byte(replicateBy(t, serverOf(source), source, target)), &result))
		return result
	}
	first := byCouchDB()
	require.False(t, first.NoChanges)
	couchtest.SameTrees(t, source, target)

	took := node.replicateOnce(`"source":%q,"target":%q`, source, target)
	assert.True(t, took.NoChanges)
	assert.Equal(t, first.SessionID, took.SessionID)
	couchtest.Populate(t, source, couchtest.Population{Seed: 52, Docs: 20})
	second := node.replicateOnce(`"source":%q,"target":%q`, source, target)
	require.Len(t, second.History, 2, "that of CouchDB's run is kept")
	assert.Equal(t, first.History[0].DocsRead+20, second.History[0].DocsRead, "statistics continue from CouchDB's")

	back := byCouchDB()
	assert.True(t, back.NoChanges, "CouchDB finds settee's checkpoint")
	assert.Equal(t, second.SessionID, back.SessionID)
	couchtest.Populate(t, source, couchtest.Population{Seed: 53, Docs: 30})
	third := byCouchDB()
	require.Len(t, third.History, 3)
	assert.Equal(t, second.History[0].DocsRead+30, third.History[0].DocsRead, "and CouchDB's from settee's")
	couchtest.SameTrees(t, source, target)
}

// TestCouchDBsStatistics runs the same replications in CouchDB and in the node, and compares what both count.
func TestCouchDBsStatistics(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	node := serveNode(t, "mem:")
	theirSource, ourSource := peer.DB(t, "counted-source"), peer.DB(t, "counted-source")
	server := serverOf(theirSource)
	request(t, http.MethodPut, server+"_replicator", "")
	want := statisticsOf(t, server, theirSource, peer.DB(t, "counted-target"))
	require.Equal(t, []int64{3, 4, 5, 5, 7, 9}, want.written)
	got := statisticsOf(t, node.url, ourSource, peer.DB(t, "counted-target"))
	require.Equal(t, want, got)
}

// statistics are what a series of replications counts.
type statistics struct {
	written   []int64 // after each of them
	histories [][]replicator.CheckpointStats
	locals    []replicator.CheckpointStats // of the checkpoint at the target
	document  replicator.Progress
	live      replicator.Progress
}

// number returns the part of a sequence before the first hyphen, which CouchDB makes of the number of changes.
func number(seq json.RawMessage) json.RawMessage {
	before, _, _ := bytes.Cut(seq, []byte("-"))
	return before
}

// statisticsOf lets a server run one-shot replications after 3, 1, 1 and no new documents, that of a document after
// two more, and a continuous one after another two.
func statisticsOf(t *testing.T, server, source, target string) (s statistics) {
	t.Helper()
	added := 0
	add := func(n int) {
		for range n {
			added++
			ask(t, http.StatusCreated, http.MethodPut, fmt.Sprintf("%s/doc%d", source, added), `{}`)
		}
	}
	read := func(value any, url string) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(ask(t, http.StatusOK, http.MethodGet, url, "")), value))
	}
	var checkpoint struct{ History []replicator.CheckpointStats }
	for _, more := range []int{3, 1, 1, 0} {
		add(more)
		answer := replicateBy(t, server, source, target)
		checkpoint.History = nil
		require.NoError(t, json.Unmarshal([]byte(answer), &checkpoint))
		require.Equal(t, more == 0, strings.Contains(answer, `"no_changes":true`))
		s.histories = append(s.histories, checkpoint.History)
		s.written = append(s.written, checkpoint.History[0].DocsWritten)
	}
	var locals struct{ Rows []struct{ ID string } }
	read(&locals, target+"/_local_docs")
	require.Len(t, locals.Rows, 1)
	checkpoint.History = nil
	read(&checkpoint, target+"/"+locals.Rows[0].ID)
	s.locals = checkpoint.History

	add(2)
	name := strings.ReplaceAll(source[strings.LastIndex(source, "/")+1:], "/", "-")
	ask(t, http.StatusCreated, http.MethodPut, server+"_replicator/"+name, fmt.Sprintf(`{"source":%q,"target":%q}`, source, target))
	var document struct {
		Rev   string              `json:"_rev"`
		State string              `json:"_replication_state"`
		Stats replicator.Progress `json:"_replication_stats"`
	}
	require.Eventually(t, func() bool {
		read(&document, server+"_replicator/"+name)
		return document.State == "completed"
	}, limit, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		var listed struct{ Info replicator.Progress }
		status, text := request(t, http.MethodGet, server+"_scheduler/docs/_replicator/"+name, "")
		if status == http.StatusInternalServerError { // CouchDB's, for a moment after the end of a job (function_clause)
			return false
		}
		return json.Unmarshal([]byte(text), &listed) == nil && reflect.DeepEqual(document.Stats, listed.Info)
	}, limit, 50*time.Millisecond)
	s.document = document.Stats
	s.written = append(s.written, s.document.DocsWritten)
	ask(t, http.StatusOK, http.MethodDelete, server+"_replicator/"+name+"?rev="+document.Rev, "")

	add(2)
	continuous := fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"checkpoint_interval":600000}`, source, target)
	var accepted struct {
		ID string `json:"_local_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(ask(t, http.StatusAccepted, http.MethodPost, server+"_replicate", continuous)), &accepted))
	type task struct {
		ID string `json:"replication_id"`
		replicator.Progress
	}
	require.Eventually(t, func() bool {
		var listed struct{ Info replicator.Progress }
		var tasks []task
		read(&listed, server+"_scheduler/jobs/"+url.PathEscape(accepted.ID))
		read(&tasks, server+"_active_tasks")
		i := slices.IndexFunc(tasks, func(task task) bool { return task.ID == accepted.ID })
		s.live = listed.Info
		return s.live.DocsWritten == int64(added) && bytes.Equal(number(s.live.ThroughSeq), number(s.live.SourceSeq)) &&
			i >= 0 && reflect.DeepEqual(s.live, tasks[i].Progress)
	}, limit, 50*time.Millisecond)
	s.written = append(s.written, s.live.DocsWritten)
	ask(t, http.StatusOK, http.MethodPost, server+"_replicate", strings.Replace(continuous, "{", `{"cancel":true,`, 1))

	// Sequences are opaque, and CouchDB rarely knows what is pending.
	for _, p := range []*replicator.Progress{&s.document, &s.live} {
		for _, seq := range []*json.RawMessage{&p.CheckpointedSourceSeq, &p.SourceSeq, &p.ThroughSeq} {
			if *seq != nil {
				require.Regexp(t, `^"\d+-`, string(*seq))
				*seq = number(*seq)
			}
		}
		p.ChangesPending = nil
	}
	return s
}
