package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// mirrored is what a node's list says of a mirror.
type mirrored struct {
	State replicator.State `json:"state"`
	JobID string           `json:"job_id"`
	Info  struct {
		Error  string `json:"error"`
		Mirror struct {
			By       string         `json:"by"`
			Error    string         `json:"error"`
			LastLook time.Time      `json:"last_look"`
			Known    int            `json:"databases"`
			States   map[string]int `json:"states"`
			Failures []struct{ Database, Reason string }
			Written  int    `json:"docs_written"`
			Behind   string `json:"behind_since"`
			Lag      int    `json:"lag_sec"`
		}
	}
}

// mirror returns what the list says of a mirror's document.
func (p *process) mirror(doc string) (m mirrored) {
	p.t.Helper()
	text := p.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/"+doc, "")
	require.NoError(p.t, json.Unmarshal([]byte(text), &m), text)
	return m
}

// awaitMirror waits until a mirror has a number of databases, all of them up to date.
func (p *process) awaitMirror(doc string, databases int) (m mirrored) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		status, text := p.request(http.MethodGet, "_scheduler/docs/_replicator/"+doc, "")
		m = mirrored{}
		if status != http.StatusOK || json.Unmarshal([]byte(text), &m) != nil {
			return false
		}
		return !m.Info.Mirror.LastLook.IsZero() && m.Info.Mirror.Known == databases &&
			m.Info.Mirror.States["up_to_date"] == databases
	}, limit, 10*time.Millisecond)
	return m
}

// create creates a database with some documents.
func (p *process) create(database string, docs ...string) {
	p.t.Helper()
	p.ask(http.StatusCreated, http.MethodPut, url.QueryEscape(database), "")
	for _, doc := range docs {
		p.ask(http.StatusCreated, http.MethodPut, url.QueryEscape(database)+"/"+doc, `{}`)
	}
}

// A mirror keeps the databases of a node on another one: those that it finds, and those that are created later. It goes on
// after its node was killed, follows its document, and ends with it.
func TestMirror(t *testing.T) {
	t.Parallel()
	a, b := serveNode(t, "mem:"), serveNode(t, "mem:")
	store := "pebble:" + filepath.Join(t.TempDir(), "data")
	serve := func() *process { return serveNode(t, store, "replicator/interval_sec=3600", "replicator/max_jobs=3") }
	node := serve()
	names := []string{"one", "two/with/slashes", "three+plus$(x)", "left-out"}
	for _, name := range names {
		a.create(name, "first")
	}
	document := func(rev, mirror string) string {
		return fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":%s%s}`, a.url, b.url, mirror, rev)
	}
	var put struct{ Rev string }
	text := node.ask(http.StatusCreated, http.MethodPut, "_replicator/m", document("", `{"exclude":["left-*"],"prefix":"p-"}`))
	require.NoError(t, json.Unmarshal([]byte(text), &put))
	m := node.awaitMirror("m", 3)
	assert.Equal(t, replicator.StateRunning, m.State)
	assert.Equal(t, 3, m.Info.Mirror.Written)
	assert.Zero(t, m.Info.Mirror.Lag)
	arrives := func(database, doc string) {
		t.Helper()
		require.Eventually(t, exists(t, b.url+url.QueryEscape(database)+"/"+doc), limit, 10*time.Millisecond)
	}
	for _, name := range names[:3] {
		arrives("p-"+name, "first")
	}
	status, _ := b.request(http.MethodGet, "p-left-out", "")
	assert.Equal(t, http.StatusNotFound, status)

	a.create("four", "first") // the feed tells
	arrives("p-four", "first")
	node.awaitMirror("m", 4)

	node.end(syscall.SIGKILL)
	a.create("five", "first")
	node = serve()
	arrives("p-five", "first")
	for _, name := range names[:3] {
		a.ask(http.StatusCreated, http.MethodPut, url.QueryEscape(name)+"/second", `{}`)
		arrives("p-"+name, "second")
	}
	node.awaitMirror("m", 5)

	var list struct {
		Jobs []struct {
			Database string
			DocID    *string `json:"doc_id"`
			Mirror   string
			Name     string `json:"mirrored_database"`
			State    string
		}
	}
	text = node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs?mirror="+url.QueryEscape(m.JobID), "")
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.Len(t, list.Jobs, 5)
	for i, name := range []string{"five", "four", "one", "three+plus$(x)", "two/with/slashes"} {
		assert.Equal(t, name, list.Jobs[i].Name)
		assert.Equal(t, m.JobID, list.Jobs[i].Mirror)
		assert.Nil(t, list.Jobs[i].DocID)
	}
	docs := node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs", "")
	assert.Contains(t, docs, `"total_rows":1`)

	a.ask(http.StatusOK, http.MethodDelete, "four", "")
	node.awaitMirror("m", 4)
	require.True(t, exists(t, b.url+"p-four/first")(), "it stays at the target")

	// The document selects other databases.
	rev := fmt.Sprintf(`,"_rev":%q`, put.Rev)
	text = node.ask(http.StatusCreated, http.MethodPut, "_replicator/m", document(rev, `{"include":["left-*","one"],"prefix":"p-"}`))
	require.NoError(t, json.Unmarshal([]byte(text), &put))
	arrives("p-left-out", "first")
	node.awaitMirror("m", 2)

	node.ask(http.StatusOK, http.MethodDelete, "_replicator/m?rev="+put.Rev, "")
	require.Eventually(t, func() bool {
		return node.jobsIn("_scheduler/jobs") == 0
	}, limit, 10*time.Millisecond)
	require.True(t, exists(t, b.url+"p-one/second")(), "deleting the document deletes nothing at the target")
	assert.Zero(t, node.end(syscall.SIGTERM))
	assert.NotContains(t, node.logged(), `"level":"error"`)
	out, errs, code := settee(t, "check", "--store", store)
	assert.Zero(t, code, "%s%s", out, errs)
}

// jobsIn returns the number of jobs of a list.
func (p *process) jobsIn(list string) int {
	p.t.Helper()
	var answer struct{ Jobs []json.RawMessage }
	require.NoError(p.t, json.Unmarshal([]byte(p.ask(http.StatusOK, http.MethodGet, list, "")), &answer))
	return len(answer.Jobs)
}
