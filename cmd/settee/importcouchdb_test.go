package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/migrate"
	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
)

// movedFrom is a CouchDB and a node of settee with its uuid.
type movedFrom struct {
	couch *couchtest.CouchDB
	node  *process
	uuid  string // of both
}

func newMovedFrom(t *testing.T) *movedFrom {
	m := &movedFrom{couch: couchtest.StartCouchDB(t, map[string]map[string]string{
		"replicator": {"max_jobs": "77", "worker_processes": "3", "interval": "5000", "startup_jitter": "100", "cluster_start_period": "1"},
	})}
	var root struct{ UUID string }
	require.NoError(t, json.Unmarshal(m.couch.Do(t, http.MethodGet, "/", nil, http.StatusOK), &root))
	m.uuid = root.UUID
	m.node = serveNode(t, aStore(t), "couchdb/uuid="+m.uuid)
	return m
}

// urls returns the URLs of CouchDB and settee, with administrators.
func (m *movedFrom) urls() (couchDB, settee string) {
	return couchtest.As(m.couch.URL, m.couch.Username, m.couch.Password), m.node.url
}

// live returns the replication documents of a server at a URL, without revisions, and the states and stats of jobs.
func live(t *testing.T, server, db string) map[string]string {
	t.Helper()
	var answer struct {
		Rows []struct {
			ID  string
			Doc map[string]any
		}
	}
	status, text := request(t, http.MethodGet, strings.TrimSuffix(server, "/")+"/"+url.PathEscape(db)+"/_all_docs?include_docs=true", "")
	if status == http.StatusNotFound {
		return map[string]string{}
	}
	require.Equal(t, http.StatusOK, status, text)
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	docs := map[string]string{}
	for _, row := range answer.Rows {
		delete(row.Doc, "_rev")
		text, err := json.Marshal(row.Doc)
		require.NoError(t, err)
		docs[row.ID] = string(text)
	}
	return docs
}

// cut is a transport that stops working, as a command that is killed does: after its nth request that writes, whose answer
// is lost. After a request that reads, the servers are as they were before it.
type cut struct {
	mu   sync.Mutex
	left int
}

var errCut = errors.New("cut off")

func (c *cut) RoundTrip(r *http.Request) (*http.Response, error) {
	writes := r.Method == http.MethodPut || r.Method == http.MethodDelete || strings.HasSuffix(r.URL.Path, "/_bulk_docs")
	c.mu.Lock()
	off := c.left == 0
	if writes && !off {
		c.left--
	}
	last := c.left == 0
	c.mu.Unlock()
	if off {
		return nil, errCut
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if last && writes && err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return nil, errCut
	}
	return response, err
}

// TestImport moves documents of one CouchDB and back, in several ways.
func TestImport(t *testing.T) {
	t.Parallel()
	m := newMovedFrom(t)
	t.Run("portions", m.portions)
	t.Run("interrupted", m.interrupted)
	t.Run("elsewhere", m.elsewhere)
	t.Run("tokens", m.tokens)
}

// A move and the way back can be interrupted at each request that writes, and continue. No document is ever live on both
// servers.
func (m *movedFrom) interrupted(t *testing.T) {
	source, target := m.couch.DB(t, "source"), m.couch.DB(t, "target")
	couchURL, setteeURL := m.urls()
	mover := func(transport http.RoundTripper) *migrate.Mover {
		couch, err := remote.Connect("CouchDB", couchURL, transport)
		require.NoError(t, err)
		node, err := remote.Connect("settee", setteeURL, transport)
		require.NoError(t, err)
		return &migrate.Mover{CouchDB: &migrate.Server{Server: couch}, Settee: &migrate.Server{Server: node}, Tell: func(migrate.Event) error { return nil }}
	}
	const whole = 1 << 30
	ways := []struct {
		name     string
		transfer func(*migrate.Mover, string) error
		from, to string
	}{
		{"move", func(m *migrate.Mover, db string) error {
			_, err := m.Move(t.Context(), db, migrate.Portion{})
			return err
		}, couchURL, setteeURL},
		{"back", func(m *migrate.Mover, db string) error {
			_, err := m.Back(t.Context(), db, migrate.Portion{})
			return err
		}, setteeURL, couchURL},
	}
	done := map[string]bool{}
	for n := 1; len(done) < len(ways); n++ {
		db := fmt.Sprintf("n%d/_replicator", n)
		m.couch.Do(t, http.MethodPut, "/"+url.PathEscape(db), nil, http.StatusCreated)
		for id, members := range map[string]string{
			"live":   fmt.Sprintf(`"continuous":true,"doc_ids":["%d"]`, n),
			"ended":  `"_replication_state":"completed","_replication_state_time":"2026-01-01T00:00:00Z"`,
			"failed": `"_replication_state":"failed","_replication_state_reason":"no","worker_processes":{}`,
		} {
			m.couch.Do(t, http.MethodPut, "/"+url.PathEscape(db)+"/"+id, fmt.Appendf(nil, `{"source":%q,"target":%q,%s}`, source, target, members), http.StatusCreated)
		}
		want := live(t, couchURL, db)
		for _, way := range ways {
			err := way.transfer(mover(&cut{left: n}), db)
			if err == nil {
				done[way.name] = true
			} else {
				require.ErrorIs(t, err, errCut)
			}
			there, here := live(t, way.to, db), live(t, way.from, db)
			for id := range there {
				assert.NotContains(t, here, id, "%s, write %d", way.name, n)
			}
			require.NoError(t, way.transfer(mover(&cut{left: whole}), db), "%s, write %d", way.name, n)
			assert.Equal(t, want, live(t, way.to, db), "%s, write %d", way.name, n)
			assert.Empty(t, live(t, way.from, db), "%s, write %d", way.name, n)
		}
		// The other way begins before the interrupted one has ended.
		_ = ways[0].transfer(mover(&cut{left: n}), db)
		require.NoError(t, ways[1].transfer(mover(&cut{left: whole}), db))
		assert.Equal(t, want, live(t, couchURL, db), "back instead of move, write %d", n)
		require.NoError(t, ways[0].transfer(mover(&cut{left: whole}), db))
		_ = ways[1].transfer(mover(&cut{left: n}), db)
		require.NoError(t, ways[0].transfer(mover(&cut{left: whole}), db))
		assert.Equal(t, want, live(t, setteeURL, db), "move instead of back, write %d", n)
		assert.Empty(t, live(t, couchURL, db))
		m.node.ask(http.StatusOK, http.MethodDelete, url.PathEscape(db), "")
		m.couch.Do(t, http.MethodDelete, "/"+url.PathEscape(db), nil, http.StatusOK)
	}
}

// wire is a proxy in front of the endpoints, which records what the replicators of CouchDB and settee ask.
type wire struct {
	forward http.Handler
	hold    string // CouchDB's writes of documents to this database wait after the first one, until it hangs up

	mu       sync.Mutex
	held     chan struct{} // closed when one waits
	writes   int           // of CouchDB to the database hold
	requests []asked
}

type asked struct {
	settee           bool // CouchDB otherwise
	method, db, path string
	since            string
	ids              []string // of documents in the body
}

func (w *wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	agent := r.UserAgent()
	if !strings.HasPrefix(agent, "CouchDB-Replicator/") {
		w.forward.ServeHTTP(out, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	db, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	one := asked{settee: strings.Contains(agent, "settee/"), method: r.Method, db: db, path: path, since: r.URL.Query().Get("since")}
	var content struct {
		Docs []struct {
			Asked   string `json:"id"`
			Written string `json:"_id"`
		}
	}
	_ = json.Unmarshal(body, &content) // most requests have no such body
	for _, d := range content.Docs {
		one.ids = append(one.ids, d.Asked+d.Written)
	}
	w.mu.Lock()
	w.requests = append(w.requests, one)
	wait := false
	if !one.settee && db == w.hold && path == "_bulk_docs" {
		w.writes++
		if wait = w.writes > 1; wait && w.writes == 2 {
			close(w.held)
		}
	}
	w.mu.Unlock()
	if wait {
		<-r.Context().Done()
		return
	}
	w.forward.ServeHTTP(out, r)
}

// since returns the requests after the first n.
func (w *wire) since(n int) []asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests[n:])
}

// changing reports whether a request of a replicator changes a database.
func (a asked) changing() bool {
	return a.method == http.MethodPut || a.method == http.MethodPost && a.path == "_bulk_docs"
}

// assertOneAfterTheOther checks that each target was written by one replicator, and from then on only by the other.
func assertOneAfterTheOther(t *testing.T, requests []asked, first bool) {
	t.Helper()
	turned := map[string]bool{}
	for _, a := range requests {
		if !a.changing() {
			continue
		}
		if a.settee != first {
			turned[a.db] = true
		}
		assert.Equal(t, turned[a.db], a.settee != first, "%s %s/%s after the other replicator", a.method, a.db, a.path)
	}
}

// planned has the lines of a plan by document.
func planned(t *testing.T, args ...string) (docs map[string]migrate.Planned, out string, status int) {
	t.Helper()
	out, errs, status := settee(t, append([]string{"import-couchdb", "--json"}, args...)...)
	for line := range strings.Lines(errs) {
		if strings.Contains(line, ": looked at ") {
			continue // a plan that takes long says how far it is
		}
		require.Contains(t, line, "settee: warning: every local user can read the password") // args have some
	}
	docs = map[string]migrate.Planned{}
	for line := range strings.Lines(out) {
		require.True(t, json.Valid([]byte(line)), line)
		var p migrate.Planned
		if strings.HasPrefix(line, `{"document":`) {
			require.NoError(t, json.Unmarshal([]byte(line), &p))
			if string(p.Checkpoint) == "null" {
				p.Checkpoint = nil
			}
			docs[p.Database+" "+p.Document] = p
		}
	}
	return docs, out, status
}

// TestImportCouchDB moves jobs of every kind in the middle of their work, and takes them back.
func TestImportCouchDB(t *testing.T) {
	t.Parallel()
	m := newMovedFrom(t)
	couchURL, setteeURL := m.urls()
	m.couch.Do(t, http.MethodPut, "/"+url.PathEscape("team/_replicator"), nil, http.StatusCreated)

	// The endpoints are databases of the same CouchDB, behind a proxy.
	const docs = 60
	source, target := map[string]string{}, map[string]string{}
	names := []string{"once", "live", "filter", "selector", "ids", "url", "object", "header", "done", "team-once", "team-live"}
	for _, name := range names {
		source[name], target[name] = m.couch.DB(t, "source-"+name), m.couch.DB(t, "target-"+name)
		couchtest.Populate(t, source[name], couchtest.Population{Seed: 7, Docs: docs, Conflicted: 10, Deleted: 10})
	}
	ask(t, http.StatusCreated, http.MethodPut, source["filter"]+"/_design/f", `{"filters":{"all":"function(doc, req) {return true;}"}}`)
	databaseOf := func(u string) string { return u[strings.LastIndex(u, "/")+1:] }
	w := &wire{forward: couchtest.Proxy(t, m.couch.URL+"/x"), hold: databaseOf(target["once"]), held: make(chan struct{})}
	server := couchtest.Serve(t, w)
	via := func(u string) string { return server.URL + "/" + databaseOf(u) }
	as := func(u string) string { return couchtest.As(via(u), m.couch.Username, m.couch.Password) }
	put := func(db, id, source, target, more string) {
		t.Helper()
		m.couch.Do(t, http.MethodPut, "/"+url.PathEscape(db)+"/"+id, fmt.Appendf(nil, `{"source":%s,"target":%s%s}`, source, target, more), http.StatusCreated)
	}
	quote := func(u string) string { return fmt.Sprintf("%q", u) }
	const small = `,"worker_batch_size":50,"worker_processes":1,"checkpoint_interval":300`
	run := func(db, id, more string) {
		t.Helper()
		put(db, id, quote(as(source[id])), quote(as(target[id])), more+small)
	}
	basic := func(u string) string { // the auth object
		return fmt.Sprintf(`{"url":%q,"auth":{"basic":{"username":%q,"password":%q}}}`, via(u), m.couch.Username, m.couch.Password)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	request.SetBasicAuth(m.couch.Username, m.couch.Password)
	header := func(u string) string {
		return fmt.Sprintf(`{"url":%q,"headers":{"Authorization":%q}}`, via(u), request.Header.Get("Authorization"))
	}
	run("_replicator", "once", "")
	run("_replicator", "live", `,"continuous":true`)
	run("_replicator", "filter", `,"continuous":true,"filter":"f/all"`)
	run("_replicator", "selector", `,"continuous":true,"selector":{"_id":{"$gt":"doc-000040"}}`)
	run("_replicator", "ids", `,"continuous":true,"doc_ids":["doc-000001","doc-000002"]`)
	run("_replicator", "url", `,"continuous":true,"mine":{"kept":[1.0]}`)
	put("_replicator", "object", basic(source["object"]), basic(target["object"]), `,"continuous":true`+small)
	put("_replicator", "header", header(source["header"]), header(target["header"]), `,"continuous":true`+small)
	run("_replicator", "done", "")
	put("_replicator", "down", quote(as(source["done"])), `"http://127.0.0.1:1/x"`, "")
	put("_replicator", "failed", `"`+server.URL+`"`, "7", `,"_replication_state":"failed","_replication_state_reason":"wrong"`)
	put("_replicator", "refused", quote(as(source["done"])), `"http://127.0.0.1:1/y"`, `,"worker_processes":0`)
	run("team/_replicator", "team-once", "")
	run("team/_replicator", "team-live", `,"continuous":true`)
	m.couch.Do(t, http.MethodPut, "/_replicator/_design/v", []byte(`{"validate_doc_update":"function(doc) {if (doc.forbidden) throw({forbidden: 'no'});}"}`), http.StatusCreated)
	m.couch.Do(t, http.MethodPut, "/"+url.PathEscape("team/_replicator")+"/_security", []byte(`{"admins":{"names":["ann"],"roles":[]},"members":{"names":[],"roles":["team"]}}`), http.StatusOK)

	continuous := []string{"live", "filter", "url", "object", "header", "team-live"}
	for _, name := range continuous {
		couchtest.AwaitSameTrees(t, source[name], target[name], limit)
	}
	<-w.held // the job "once" is in the middle
	var docsPlanned map[string]migrate.Planned
	plan := []string{couchURL, "--to", setteeURL}
	for ready := false; !ready; time.Sleep(100 * time.Millisecond) { // each look starts a program
		docsPlanned, _, _ = planned(t, plan...)
		ready = docsPlanned["_replicator done"].State == "completed" && docsPlanned["team/_replicator team-once"].State == "completed"
		for _, name := range []string{"_replicator once", "_replicator live", "_replicator selector", "team/_replicator team-live"} {
			ready = ready && docsPlanned[name].Checkpoint != nil
		}
		require.NoError(t, t.Context().Err())
	}

	t.Run("command line", func(t *testing.T) {
		for _, args := range [][]string{
			{}, {"_replicator", "--to", setteeURL}, {couchURL}, {couchURL, "--move", "--to", setteeURL}, {couchURL, "--move", "--all"},
			{couchURL, "_replicator", "--move", "--all", "--to", setteeURL}, {couchURL, "_replicator", "--move", "--back", "--to", setteeURL},
		} {
			out, _, status := settee(t, append([]string{"import-couchdb"}, args...)...)
			assert.Equal(t, exitUsage, status, "%v: %s", args, out)
		}
		_, errs, status := settee(t, "import-couchdb", setteeURL, "_replicator", "--move", "--to", couchURL)
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, errs, `is not CouchDB: its vendor is "settee"`)
		assert.NotContains(t, errs, m.couch.Password)
	})
	t.Run("plan", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "settee.ini")
		docs, out, status := planned(t, append(plan, "--ini", file)...)
		assert.Equal(t, exitFindings, status)
		assert.NotContains(t, out, m.couch.Password)
		assert.NotContains(t, out, strings.TrimPrefix(request.Header.Get("Authorization"), "Basic "))
		assert.Contains(t, docs["_replicator refused"].Refused, "worker_processes")
		assert.Contains(t, docs["_replicator down"].Start, "its checkpoint is not known: ")
		assert.Equal(t, "failed", docs["_replicator failed"].State)
		assert.Contains(t, docs["_replicator failed"].Warnings, "CouchDB says: wrong")
		for name, doc := range docs {
			for _, w := range doc.Warnings {
				assert.NotContains(t, w, "replication id", name)
			}
		}
		for _, want := range []string{
			`{"setting":"[replicator] max_jobs","value":"77","default":"500"}`, `"setting":"[replicator] startup_jitter"`,
			`{"database":"team/_replicator","couchdb":2,"states":{"completed":1,"running":1},"refused":0,"moved":0,"settee":0,"nowhere":0,"elsewhere":0,"left":0,"paused":false}`,
		} {
			assert.Contains(t, out, want)
		}
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
		cfg, warnings, err := config.Load(config.Options{Files: []string{file}})
		require.NoError(t, err)
		assert.Empty(t, warnings)
		assert.Equal(t, 77, config.MaxJobs.Get(cfg))
		assert.Equal(t, 5*time.Second, config.Interval.Get(cfg))
		assert.Len(t, config.UUID.Get(cfg), 26)
		_, errs, status := settee(t, append([]string{"import-couchdb", "--ini", file}, plan...)...)
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, errs, file+" exists")
	})

	before := w.since(0)
	read := map[string]bool{} // what CouchDB has copied of "once"
	for _, a := range before {
		if a.db == w.hold && a.path == "_bulk_docs" && len(read) == 0 {
			for _, id := range a.ids {
				read[id] = true
			}
		}
	}
	require.NotEmpty(t, read)
	want := live(t, couchURL, "_replicator")
	kept := want["refused"]
	delete(want, "refused")

	out, errs, status := settee(t, "import-couchdb", couchURL, "_replicator", "--move", "--to", setteeURL)
	require.Equal(t, exitFindings, status, errs)
	assert.Contains(t, out, `"refused" stays at CouchDB: settee refuses it: `)
	assert.Contains(t, out, "_replicator: 11 documents moved to settee, 1 kept\n")
	assert.Equal(t, map[string]string{"refused": kept, "_design/v": want["_design/v"]}, live(t, couchURL, "_replicator"))
	assert.Len(t, live(t, couchURL, "team/_replicator"), 2, "the other database")
	couchtest.AwaitSameTrees(t, source["once"], target["once"], limit)

	out, errs, status = settee(t, "import-couchdb", couchURL, "--all", "--move", "--to", setteeURL)
	require.Equal(t, exitFindings, status, errs)
	assert.Contains(t, out, "_replicator: 0 documents moved to settee, 1 kept\n_replicator: \"refused\" stays at CouchDB: ")
	assert.Contains(t, out, "\nteam/_replicator: 2 documents moved to settee, 0 kept\n")
	assert.JSONEq(t, `{"admins":{"names":["ann"],"roles":[]},"members":{"names":[],"roles":["team"]}}`,
		m.node.ask(http.StatusOK, http.MethodGet, url.PathEscape("team/_replicator")+"/_security", ""))
	ours := live(t, setteeURL, "_replicator")
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if id != "once" { // it may have ended
			assert.JSONEq(t, want[id], ours[id], id)
		}
	}

	grow := func(seed uint64, count int) {
		t.Helper()
		for _, name := range continuous {
			couchtest.Populate(t, source[name], couchtest.Population{Seed: seed, Docs: count, Conflicted: 5, Deleted: 5})
		}
		for _, name := range continuous {
			couchtest.AwaitSameTrees(t, source[name], target[name], limit)
		}
	}
	grow(8, docs+20)
	requests := w.since(len(before))
	assertOneAfterTheOther(t, requests, false)
	begins := map[string]string{}
	for _, a := range requests {
		switch {
		case a.settee && a.path == "_changes" && begins[a.db] == "":
			begins[a.db] = a.since
		case a.settee && a.path == "_bulk_get" && a.db == databaseOf(source["once"]):
			for _, id := range a.ids {
				assert.False(t, read[id], "%s was read again", id)
			}
		}
	}
	var checkpoint string
	require.NoError(t, json.Unmarshal(docsPlanned["_replicator once"].Checkpoint, &checkpoint))
	assert.Equal(t, checkpoint, begins[databaseOf(source["once"])])
	for name, doc := range docsPlanned {
		_, id, _ := strings.Cut(name, " ")
		if doc.Checkpoint != nil {
			assert.NotContains(t, []string{"", "0"}, begins[databaseOf(source[id])], "%s begins at its checkpoint", id)
		}
	}

	// CouchDB starts nothing again.
	m.couch.Process.Kill()
	require.NoError(t, m.couch.Process.Start(t.Context()))
	_, out, _ = planned(t, plan...)
	assert.Contains(t, out, `{"database":"_replicator","couchdb":1,"states":{`)
	assert.Contains(t, out, `"refused":1,"moved":11,"settee":11,"nowhere":0,"elsewhere":0,"left":0,"paused":false}`)

	// Back: one document is changed, one is deleted, one is new, and one cannot run in CouchDB.
	mine := strings.Replace(live(t, setteeURL, "_replicator")["down"], "127.0.0.1:1/x", "127.0.0.1:1/z", 1)
	var rev struct {
		Rev string `json:"_rev"`
	}
	edit := func(id string) string {
		require.NoError(t, json.Unmarshal([]byte(m.node.ask(http.StatusOK, http.MethodGet, "_replicator/"+id, "")), &rev))
		return "_replicator/" + id + "?rev=" + rev.Rev
	}
	m.node.ask(http.StatusCreated, http.MethodPut, edit("down"), mine)
	m.node.ask(http.StatusOK, http.MethodDelete, edit("ids"), "")
	m.node.ask(http.StatusCreated, http.MethodPut, "_replicator/new", fmt.Sprintf(`{"source":%q,"target":"http://127.0.0.1:1/new"}`, as(source["done"])))
	m.node.ask(http.StatusCreated, http.MethodPut, "_replicator/nightly", fmt.Sprintf(`{"source":%q,"target":"http://127.0.0.1:1/n","schedule":"0 3 * * *"}`, as(source["done"])))
	ours = live(t, setteeURL, "_replicator")
	away := len(w.since(0))
	out, errs, status = settee(t, "import-couchdb", couchURL, "--all", "--back", "--to", setteeURL)
	require.Equal(t, exitFindings, status, errs)
	assert.Contains(t, out, `"nightly" stays at settee: CouchDB has no periodic replications`)
	theirs := live(t, couchURL, "_replicator")
	assert.Equal(t, []string{"_design/v", "done", "down", "failed", "filter", "header", "live", "new", "object", "once", "refused", "selector", "url"},
		slices.Sorted(maps.Keys(theirs)))
	for _, id := range []string{"done", "down", "failed", "live", "new", "object", "header"} {
		assert.JSONEq(t, ours[id], theirs[id], id)
	}
	assert.Equal(t, []string{"_design/v", "nightly"}, slices.Sorted(maps.Keys(live(t, setteeURL, "_replicator"))))
	grow(9, docs+40)
	assertOneAfterTheOther(t, w.since(away), true)

	for _, name := range append(continuous, "once", "done", "team-once") {
		couchtest.SameTrees(t, source[name], target[name])
	}
}
