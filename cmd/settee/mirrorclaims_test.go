package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mirrorDocument returns a continuous mirror.
func mirrorDocument(source, target *process, mirror string) string {
	return fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":%s}`, source.url, target.url, mirror)
}

// put writes a document of _replicator over the last revision of it.
func (p *process) put(doc, body string) {
	p.t.Helper()
	if status, text := p.request(http.MethodGet, "_replicator/"+doc, ""); status == http.StatusOK {
		_, rev, _ := strings.Cut(text, `"_rev":"`)
		rev, _, _ = strings.Cut(rev, `"`)
		doc += "?rev=" + rev
	}
	p.ask(http.StatusCreated, http.MethodPut, "_replicator/"+doc, body)
}

// failures waits until databases of a mirror fail, and returns their reasons.
func (p *process) failures(doc string, databases ...string) map[string]string {
	p.t.Helper()
	var reasons map[string]string
	require.Eventually(p.t, func() bool {
		reasons = map[string]string{}
		for _, f := range p.mirror(doc).Info.Mirror.Failures {
			reasons[f.Database] = f.Reason
		}
		for _, database := range databases {
			if reasons[database] == "" {
				return false
			}
		}
		return len(reasons) == len(databases)
	}, limit, 10*time.Millisecond)
	return reasons
}

// A mirror leaves alone what the target had before. When it may adopt that, it copies documents and nothing else.
func TestMirrorTakesNothingOver(t *testing.T) {
	t.Parallel()
	a, b := serveNode(t, "mem:"), serveNode(t, "mem:")
	node := serveNode(t, "mem:", "replicator/mirror_delete_after_sec=0", "replicator/min_backoff_penalty_sec=1")
	const own, foreign = `{"admins":{"names":["ann"]},"members":{"names":["ann"]}}`, `{"admins":{"names":["eve"]},"members":{"names":["eve"]}}`
	b.create("payroll", "salaries")
	b.ask(http.StatusOK, http.MethodPut, "payroll/_security", own)
	a.create("payroll", "of-eve")
	a.ask(http.StatusOK, http.MethodPut, "payroll/_security", foreign)
	a.create("films", "first")
	a.ask(http.StatusOK, http.MethodPut, "films/_security", foreign)

	node.put("m", mirrorDocument(a, b, `{"deleted":"delete"}`))
	assert.Contains(t, node.failures("m", "payroll")["payroll"], "no mirror has made")
	require.Eventually(t, exists(t, b.url+"films/first"), limit, 10*time.Millisecond)
	assert.JSONEq(t, foreign, b.ask(http.StatusOK, http.MethodGet, "films/_security", ""))
	assert.JSONEq(t, own, b.ask(http.StatusOK, http.MethodGet, "payroll/_security", ""))
	assert.False(t, exists(t, b.url+"payroll/of-eve")())

	// The mirror is deleted and written again: what it has made is known.
	node.ask(http.StatusOK, http.MethodDelete, "_replicator/m?rev="+node.revOf("m"), "")
	node.put("m", mirrorDocument(a, b, `{"deleted":"delete","adopt":true}`))
	node.awaitMirror("m", 2)
	require.True(t, exists(t, b.url+"payroll/of-eve")())
	require.True(t, exists(t, b.url+"payroll/salaries")())
	assert.JSONEq(t, own, b.ask(http.StatusOK, http.MethodGet, "payroll/_security", ""))

	a.ask(http.StatusOK, http.MethodDelete, "payroll", "")
	a.ask(http.StatusOK, http.MethodDelete, "films", "")
	require.Eventually(t, func() bool {
		status, _ := b.request(http.MethodGet, "films", "")
		m := node.mirror("m").Info.Mirror
		return status == http.StatusNotFound && m.Known == 0 && m.States["gone"] == 0
	}, limit, 10*time.Millisecond)
	require.True(t, exists(t, b.url+"payroll/salaries")(), "it was there before the mirror")
}

// mirroredJobs returns the list of the jobs of a mirror.
func (p *process) mirroredJobs(doc string) string {
	return p.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs?mirror="+url.QueryEscape(p.mirror(doc).JobID), "")
}

// revOf returns the revision of a document of _replicator.
func (p *process) revOf(doc string) string {
	_, rev, _ := strings.Cut(p.ask(http.StatusOK, http.MethodGet, "_replicator/"+doc, ""), `"_rev":"`)
	rev, _, _ = strings.Cut(rev, `"`)
	return rev
}

// A mirror whose document is turned round goes on in the other direction, `_security` included, and back again.
func TestMirrorTurnsRound(t *testing.T) {
	t.Parallel()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:", "replicator/max_idle_sec=1")
	a.create("films", "first")
	node.put("m", mirrorDocument(a, b, `{}`))
	node.awaitMirror("m", 1)

	node.put("m", mirrorDocument(b, a, `{}`))
	b.ask(http.StatusCreated, http.MethodPut, "films/second", `{}`)
	b.create("songs", "first")
	const changed = `{"admins":{"names":["ann"]},"members":{"names":["ann"]}}`
	b.ask(http.StatusOK, http.MethodPut, "films/_security", changed)
	for _, doc := range []string{"films/second", "songs/first"} {
		require.Eventually(t, exists(t, a.url+doc), limit, 10*time.Millisecond, doc)
	}
	node.awaitMirror("m", 2)
	require.Eventually(t, func() bool {
		return strings.Contains(a.ask(http.StatusOK, http.MethodGet, "films/_security", ""), "ann")
	}, limit, 10*time.Millisecond)

	node.put("m", mirrorDocument(a, b, `{}`))
	a.ask(http.StatusCreated, http.MethodPut, "songs/second", `{}`)
	require.Eventually(t, exists(t, b.url+"songs/second"), limit, 10*time.Millisecond)
	node.awaitMirror("m", 2)
}

// What one mirror notes at a database outlasts what another one notes there at the same moment.
func TestMirrorsNoteApart(t *testing.T) {
	t.Parallel()
	a, b, c := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	copies, chain := newGate(t, strings.TrimSuffix(b.url, "/")), newGate(t, strings.TrimSuffix(b.url, "/"))
	node := serveNode(t, "mem:", "replicator/mirror_delete_after_sec=0")
	a.create("films", "first")

	// The copy of films is the source of a second mirror, which reads the marks before the first one writes its own, and writes after it.
	read, written := make(chan struct{}), make(chan struct{})
	marks := func(then func()) func(*http.Request) bool {
		return func(r *http.Request) bool {
			if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/films/_local/settee-mirror") {
				then()
			}
			return false
		}
	}
	wait := func(c chan struct{}) {
		select {
		case <-c:
		case <-t.Context().Done():
		}
	}
	copies.refuse.Store(marks(func() { wait(read) }))
	chain.refuse.Store(marks(sync.OnceFunc(func() {
		close(read)
		wait(written)
	})))
	node.put("m", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":{"deleted":"delete"}}`, a.url, copies.url))
	node.put("chain", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":{"chain":true}}`, chain.url, c.url))
	require.Eventually(t, exists(t, b.url+"films/_local/settee-mirror"), limit, 10*time.Millisecond)
	close(written)
	node.awaitMirror("m", 1)
	node.awaitMirror("chain", 1)

	a.ask(http.StatusOK, http.MethodDelete, "films", "")
	require.Eventually(t, func() bool {
		status, _ := b.request(http.MethodGet, "films", "")
		return status == http.StatusNotFound
	}, limit, 10*time.Millisecond, "the mirror knows that it has made the copy")
}

// A request of an earlier run may create the database at the moment that the next run does. It is the mirror's nevertheless.
func TestMirrorMeetsItsOwnRequest(t *testing.T) {
	t.Parallel()
	a, b := serveNode(t, "mem:"), serveNode(t, "mem:")
	target := newGate(t, strings.TrimSuffix(b.url, "/"))
	node := serveNode(t, "mem:", "replicator/min_backoff_penalty_sec=1")
	a.create("films", "first")
	var puts atomic.Int32
	target.refuse.Store(func(r *http.Request) bool {
		if r.Method != http.MethodPut || r.URL.Path != "/films" && r.URL.Path != "/films/" {
			return false
		}
		n := puts.Add(1)
		if n == 2 {
			b.ask(http.StatusCreated, http.MethodPut, "films", "")
		}
		return n == 1
	})
	node.put("m", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":{"deleted":"delete"}}`, a.url, target.url))
	node.awaitMirror("m", 1)
	require.True(t, exists(t, b.url+"films/_local/settee-mirror")())
	require.EqualValues(t, 2, puts.Load())
}

// One server under two spellings is one server, and mirrors in a circle do not copy each other's copies.
func TestMirrorsMultiplyNothing(t *testing.T) {
	t.Parallel()
	a, b := serveNode(t, "mem:"), serveNode(t, "mem:")
	node := serveNode(t, "mem:", "replicator/min_backoff_penalty_sec=1")
	other := func(p *process) *process {
		spelled, err := url.Parse(p.url)
		require.NoError(t, err)
		spelled.Host = "localhost:" + spelled.Port()
		return &process{t: t, url: spelled.String()}
	}
	a.create("one", "first")
	a.create("two", "first")
	node.put("self", mirrorDocument(a, other(a), `{}`))
	require.Eventually(t, func() bool {
		return strings.Contains(node.mirror("self").Info.Error, "both URLs lead to servers with one uuid")
	}, limit, 10*time.Millisecond)
	node.put("self", mirrorDocument(a, other(a), `{"prefix":"copy-"}`))
	node.awaitMirror("self", 2)
	assert.JSONEq(t, `["_replicator","_users","copy-one","copy-two","one","two"]`, a.ask(http.StatusOK, http.MethodGet, "_all_dbs", ""))

	node.put("there", mirrorDocument(a, b, `{"prefix":"x-","exclude":["copy-*"]}`))
	node.awaitMirror("there", 2)
	node.put("back", mirrorDocument(b, a, `{"prefix":"y-"}`))
	assert.Contains(t, node.failures("back", "x-one", "x-two")["x-one"], `needs "chain": true`)
	node.put("back", mirrorDocument(b, a, `{"prefix":"y-","chain":true,"include":["x-one"]}`))
	node.awaitMirror("back", 1)
	require.Eventually(t, func() bool { return len(node.failures("there", "y-x-one")) == 1 }, limit, 10*time.Millisecond)
	assert.JSONEq(t, `["_replicator","_users","x-one","x-two"]`, b.ask(http.StatusOK, http.MethodGet, "_all_dbs", ""))
}

// A mirror notices what its target has lost, tells it, and copies it again.
func TestMirrorFindsWhatTheTargetHasLost(t *testing.T) {
	t.Parallel()
	a, b := serveNode(t, "mem:"), serveNode(t, "mem:")
	target := newGate(t, strings.TrimSuffix(b.url, "/"))
	node := serveNode(t, "mem:", "replicator/idle_timeout_sec=1", "replicator/retries_per_request=0", "replicator/min_backoff_penalty_sec=1",
		"replicator/session_min_update_interval=0") // the other server does not know the session of the first one
	names := []string{"p-one", "p-three", "p-two"}
	for _, name := range names {
		a.create(strings.TrimPrefix(name, "p-"), "first", "second")
	}
	node.put("m", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":{"prefix":"p-"}}`, a.url, target.url))
	look := func() { // as it does each minute
		node.ask(http.StatusOK, http.MethodPost, "_scheduler/jobs/"+url.QueryEscape(node.mirror("m").JobID)+"/_run", "")
	}
	looked := func() bool { return !node.mirror("m").Info.Mirror.TargetLook.IsZero() }
	whole := func() {
		t.Helper()
		for _, name := range names {
			for _, doc := range []string{"/first", "/second"} {
				require.Eventually(t, exists(t, b.url+name+doc), limit, 10*time.Millisecond, name+doc)
			}
		}
		node.awaitMirror("m", 3)
	}
	whole()
	require.Eventually(t, looked, limit, 10*time.Millisecond)
	parked := func(starts int) func() bool {
		return func() bool { // then nothing else looks at the target
			list := node.mirroredJobs("m")
			return strings.Count(list, `"type":"started"`) >= starts && strings.Count(list, `"state":"parked"`) == 3
		}
	}
	require.Eventually(t, parked(3), limit, 10*time.Millisecond)

	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // instance_start_time has whole seconds
	for _, name := range names {
		b.ask(http.StatusOK, http.MethodDelete, name, "")
	}
	b.create("p-one") // by somebody else
	look()
	require.Eventually(t, func() bool {
		m := node.mirror("m").Info.Mirror
		return m.Lost != nil && m.Lost.Databases == 3 && strings.Contains(m.Error, "the target has lost 3 databases")
	}, limit, 10*time.Millisecond)
	assert.Contains(t, node.failures("m", "one")["one"], "no mirror has made", "what somebody else has made is left alone")
	b.ask(http.StatusOK, http.MethodDelete, "p-one", "")
	whole()
	starts := strings.Count(node.mirroredJobs("m"), `"type":"started"`)
	look()
	require.Eventually(t, func() bool { return node.mirror("m").Info.Mirror.Error == "" }, limit, 10*time.Millisecond)
	require.Eventually(t, parked(starts+3), limit, 10*time.Millisecond) // they have compared everything
	assert.Nil(t, node.mirror("m").Info.Mirror.Lost)

	target.closed.Store(true)
	look()
	require.Eventually(t, func() bool {
		m := node.mirror("m").Info.Mirror
		return strings.Contains(m.Error, "the target") && m.States["up_to_date"] == 3
	}, limit, 10*time.Millisecond)

	other := serveNode(t, "mem:")
	target.turn(other.url)
	target.closed.Store(false)
	look()
	b = other
	require.Eventually(t, func() bool {
		m := node.mirror("m").Info.Mirror
		return m.Lost != nil && m.Lost.Rebuilt && m.Lost.Databases == 3 && strings.Contains(m.Error, "another server than before")
	}, limit, 10*time.Millisecond)
	whole()
}

// hostileList is a server that lists some databases and answers like a CouchDB otherwise.
func hostileList(t *testing.T, names ...string) (server string, asked func() []string) {
	var mu sync.Mutex
	var paths []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.Method+" "+r.URL.EscapedPath())
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/_all_dbs":
			_ = json.NewEncoder(w).Encode(names)
		case "/":
			_, _ = io.WriteString(w, `{"couchdb":"Welcome","uuid":"hostile"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"not_found","reason":"missing"}`)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL + "/", func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(paths)
	}
}

// Names that a source makes up do not stop a mirror, and are no paths. A mirror has a bound of databases.
func TestMirrorLeavesOutWhatItCannotMirror(t *testing.T) {
	t.Parallel()
	source, asked := hostileList(t, ".", "..", "a/../b", "good", "more", strings.Repeat("x", 20_000))
	b := serveNode(t, "mem:")
	node := serveNode(t, "mem:", "replicator/mirror_databases=1", "replicator/retries_per_request=0")
	node.put("m", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":{}}`, source, b.url))
	var m mirrored
	require.Eventually(t, func() bool {
		m = node.mirror("m")
		return m.Info.Mirror.LeftOut == 5
	}, limit, 10*time.Millisecond)
	assert.Equal(t, 1, m.Info.Mirror.Known)
	reasons := map[string]string{}
	for _, f := range m.Info.Mirror.Failures {
		reasons[f.Database] = f.Reason
	}
	for name, reason := range map[string]string{
		".": "a step in a path", "..": "a step in a path", "a/../b": "a step in a path", "more": "mirror_databases",
		strings.Repeat("x", 100) + "…": "20000 bytes",
	} {
		assert.Contains(t, reasons[name], reason, name)
	}
	out, _, status := settee(t, "replicate", "--mirror", "--json", source, b.url)
	assert.NotZero(t, status)
	assert.Equal(t, 4, strings.Count(out, "mirror_refused"), out)
	for _, path := range asked() {
		assert.NotRegexp(t, `^[A-Z]+ (.*/)?(\.|%2E)+(/|$)`, path)
	}
}
