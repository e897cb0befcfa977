package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// breaking returns the URL of a server that forwards to another one, and hangs up once when a request for a path comes.
func breaking(t *testing.T, server string) (at string, next *atomic.Pointer[string]) {
	t.Helper()
	next = new(atomic.Pointer[string])
	forward := couchtest.Proxy(t, strings.TrimSuffix(withoutAdmin(server), "/")+"/x")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if suffix := next.Load(); suffix != nil && strings.HasSuffix(r.URL.Path, *suffix) {
			next.Store(nil)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(server)
	require.NoError(t, err)
	password, _ := u.User.Password()
	return couchtest.As(proxy.URL, u.User.Username(), password), next
}

// portions moves a database in portions, with a document that settee refuses for its size, and with interruptions. What
// is printed says what to do.
func (m *movedFrom) portions(t *testing.T) {
	couchURL, setteeURL := m.urls()
	put := func(id, more string) {
		t.Helper()
		m.couch.Do(t, http.MethodPut, "/_replicator/"+id,
			fmt.Appendf(nil, `{"source":"http://127.0.0.1:1/a","target":"http://127.0.0.1:1/%s"%s}`, id, more), http.StatusCreated)
	}
	for n := range 5 {
		put(fmt.Sprint("canary-", n), `,"_replication_state":"completed"`)
		put(fmt.Sprint("other-", n), `,"_replication_state":"completed"`)
	}
	put("large", `,"_replication_state":"completed","note":"`+strings.Repeat("x", 4_100_000)+`"`)
	couchURL, breakCouchDB := breaking(t, couchURL)
	setteeURL, breakSettee := breaking(t, setteeURL)
	run := func(wantStatus int, args ...string) (out, errs string) {
		t.Helper()
		out, errs, status := settee(t, append([]string{"import-couchdb", couchURL, "--to", setteeURL}, args...)...)
		require.Equal(t, wantStatus, status, "%v: %s%s", args, out, errs)
		assert.NotContains(t, out+errs, m.couch.Password)
		return out, errs
	}

	for _, mode := range [][]string{{}, {"--move"}, {"--back"}} {
		_, errs := run(exitUsage, append(mode, "team/_replicatr")...)
		assert.Contains(t, errs, `"team/_replicatr" is not the name of a replicator database`)
	}
	for _, mode := range [][]string{{}, {"--move"}} {
		_, errs := run(exitFailed, append(mode, "nope/_replicator")...)
		assert.Contains(t, errs, `has no database "nope/_replicator". Its replicator databases are: _replicator`)
	}
	m.node.ask(http.StatusNotFound, http.MethodGet, url.PathEscape("nope/_replicator"), "")
	for _, args := range [][]string{{"--limit", "0"}, {"--limit", "-1"}} {
		run(exitUsage, args...)
	}

	out, _ := run(exitFindings)
	summary := "_replicator: 11 jobs at CouchDB (11 completed), 1 of them would stay; 0 moved from there; 0 at settee\n"
	require.Contains(t, out, summary)
	assert.Less(t, strings.Index(out, summary), strings.Index(out, `"canary-0"`), "the summary is before the list")
	assert.Regexp(t, `"large".*: stays at CouchDB: settee refuses it: `, out)
	out, _ = run(0, "--match", "canary-*", "--limit", "2")
	assert.Contains(t, out, "_replicator: 2 jobs at CouchDB (2 completed), and 9 others that were not selected;")
	assert.Equal(t, 2, strings.Count(out, `: "canary-`))

	out, _ = run(0, "_replicator", "--move", "--match", "canary-*", "--limit", "3")
	assert.Contains(t, out, "_replicator: 3 documents moved to settee, 0 kept, 8 not selected\n")
	assert.Len(t, live(t, setteeURL, "_replicator"), 3)
	out, _ = run(0, "_replicator", "--move", "--match", "canary-*")
	assert.Contains(t, out, "_replicator: 2 documents moved to settee, 0 kept, 6 not selected\n")

	writes := "/_bulk_docs"
	breakSettee.Store(&writes)
	_, errs := run(exitFailed, "_replicator", "--move")
	assert.Contains(t, errs, "settee: warning: 5 jobs of _replicator run nowhere now: run the same command again\n")
	out, _ = run(exitFindings)
	assert.Contains(t, out, "5 jobs run nowhere, because a move was interrupted")
	out, _ = run(exitFindings, "_replicator", "--move")
	assert.Less(t, strings.Index(out, "_replicator: 5 documents moved to settee, 1 kept\n"), strings.Index(out, `"large" stays at CouchDB`))

	breakCouchDB.Store(&writes)
	_, errs = run(exitFailed, "_replicator", "--back", "--limit", "4")
	assert.Contains(t, errs, "settee: warning: the database _replicator is paused in settee: run the same command again\n")
	assert.Contains(t, errs, "settee: warning: 4 jobs of _replicator run nowhere now: run the same command again\n")
	out, _ = run(exitFindings)
	assert.Contains(t, out, "the database is paused in settee")
	run(0, "_replicator", "--back")
	assert.Len(t, live(t, couchURL, "_replicator"), 11)
	out, _ = run(exitFindings)
	assert.NotContains(t, out, "nowhere")
	assert.NotContains(t, out, "paused")
}

// Documents that have moved to one settee are not moved to another one, unless the store of the first one is lost.
func (m *movedFrom) elsewhere(t *testing.T) {
	couchURL, setteeURL := m.urls()
	another := serveNode(t, aStore(t), "couchdb/uuid="+m.uuid)
	const db = "elsewhere/_replicator"
	at := url.PathEscape(db)
	m.couch.Do(t, http.MethodPut, "/"+at, nil, http.StatusCreated)
	for _, id := range []string{"a", "b"} {
		m.couch.Do(t, http.MethodPut, "/"+at+"/"+id, []byte(`{"source":"http://127.0.0.1:1/a","target":"http://127.0.0.1:1/b","_replication_state":"completed"}`), http.StatusCreated)
	}
	run := func(wantStatus int, node string, args ...string) (out, errs string) {
		t.Helper()
		out, errs, status := settee(t, append([]string{"import-couchdb", couchURL, db, "--to", node}, args...)...)
		require.Equal(t, wantStatus, status, "%v: %s%s", args, out, errs)
		return out, errs
	}
	_, errs, status := settee(t, "import-couchdb", m.couch.URL, db, "--move", "--to", setteeURL)
	require.Equal(t, exitFailed, status)
	assert.NotContains(t, errs, "nowhere", "nothing was stopped")

	run(0, setteeURL, "--move")
	there := live(t, setteeURL, db)
	out, _ := run(exitFindings, another.url)
	const said = "2 documents of " + db + " moved to another server, "
	assert.Contains(t, out, "; no move is possible: "+said)
	assert.NotContains(t, out, "nowhere")
	for i, way := range []string{"--move", "--back"} {
		_, errs := run(exitFailed, another.url, way)
		assert.Contains(t, errs, said+strings.TrimSuffix(withoutAdmin(setteeURL), "/")+", ")
		assert.NotContains(t, errs, "nowhere")
		if i == 0 { // the refused move has made none
			another.ask(http.StatusCreated, http.MethodPut, at, "")
		}
	}
	assert.Empty(t, live(t, couchURL, db))
	assert.Empty(t, live(t, another.url, db))
	out, _ = run(0, setteeURL, "--move")
	assert.Contains(t, out, ": 0 documents moved to settee, 0 kept\n")

	m.node.ask(http.StatusOK, http.MethodDelete, at, "")
	run(0, another.url, "--move", "--take-over")
	assert.Equal(t, there, live(t, another.url, db))
	run(0, another.url, "--back")
	assert.Equal(t, there, live(t, couchURL, db))
}
