package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/console"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
)

// mirrored is what a node's list says of a mirror.
type mirrored struct {
	State replicator.State `json:"state"`
	JobID string           `json:"job_id"`
	Info  struct {
		Error  string `json:"error"`
		Mirror struct {
			By         string                 `json:"by"`
			Error      string                 `json:"error"`
			LastLook   time.Time              `json:"last_look"`
			TargetLook time.Time              `json:"target_look"`
			Lost       *replicator.MirrorLoss `json:"target_lost"`
			Known      int                    `json:"databases"`
			LeftOut    int                    `json:"left_out"`
			States     map[string]int         `json:"states"`
			Failures   []struct{ Database, Reason string }
			Written    int    `json:"docs_written"`
			Behind     string `json:"behind_since"`
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
	assert.Empty(t, m.Info.Mirror.Behind)
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
	admin := node.asUser(adminName, adminPassword)
	page, _ := node.jobsBy(t, admin, 0, "show", "m")
	assert.Regexp(t, `(?s)\nDatabases +5.*\nDATABASE +STATE .*\nfive .*\nfour .*\none .*\nthree\+plus.*\ntwo/with/slashes `, page)
	lines, _ := node.jobsBy(t, admin, 0, "list", "--state", strings.Join(console.States, ","))
	assert.Regexp(t, `(?s)^STATE [^\n]*\n\w+ +_replicator/m [^\n]*5 databases[^\n]*\n[^\n]*/five .*/four .*/one .*/three.*/two`, lines)
	lines, _ = node.jobsBy(t, admin, 0, "list", "--mirror", "m", "--json")
	assert.Len(t, jobLines(t, lines), 5)
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

// gate is a reverse proxy that can be closed, and that refuses some requests.
type gate struct {
	url    string
	closed atomic.Bool
	to     atomic.Pointer[url.URL]
	refuse atomic.Value // func(*http.Request) bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	user := target.User
	target.User = nil
	g := new(gate)
	g.to.Store(target)
	g.refuse.Store(func(*http.Request) bool { return false })
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(g.to.Load())
			r.Out.URL.Path, r.Out.URL.RawPath = r.In.URL.Path, r.In.URL.RawPath
		},
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	server := couchtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case g.closed.Load():
			panic(http.ErrAbortHandler)
		case g.refuse.Load().(func(*http.Request) bool)(r):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":"forbidden","reason":"not this database"}`)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	at.User = user
	g.url = at.String() + "/"
	return g
}

// turn makes the gate lead to another node.
func (g *gate) turn(to string) {
	target, _ := url.Parse(strings.TrimSuffix(to, "/"))
	target.User = nil
	g.to.Store(target)
}

// A mirror of a CouchDB waits while its source does not answer, tries again what its target refuses, deletes what was
// deleted, and may itself be the source of another mirror.
func TestMirrorOfCouchDB(t *testing.T) {
	t.Parallel()
	couch := couchtest.SharedCouchDB(t)
	source := newGate(t, couchtest.As(couch.URL, couch.Username, couch.Password))
	b, c := serveNode(t, "mem:"), serveNode(t, "mem:")
	target := newGate(t, strings.TrimSuffix(b.url, "/"))
	target.refuse.Store(func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "-bad/") || strings.HasSuffix(r.URL.Path, "-bad")
	})
	node := serveNode(t, "mem:", "replicator/min_backoff_penalty_sec=1", "replicator/mirror_delete_after_sec=1", "replicator/retries_per_request=1")

	group := "m" + strings.ToLower(rand.Text()) + "-"
	create := func(name string) string {
		t.Helper()
		database := group + name
		couch.Do(t, http.MethodPut, "/"+url.QueryEscape(database), nil, http.StatusCreated)
		couch.Do(t, http.MethodPut, "/"+url.QueryEscape(database)+"/first", []byte(`{}`), http.StatusCreated)
		return database
	}
	var names []string
	for _, name := range []string{"a", "b/c+d", "bad"} {
		names = append(names, create(name))
	}
	include := fmt.Sprintf(`"include":[%q]`, group+"*")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/m", fmt.Sprintf(
		`{"source":%q,"target":%q,"continuous":true,"mirror":{%s,"deleted":"delete"}}`, source.url, target.url, include))
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/chain", fmt.Sprintf(
		`{"source":%q,"target":%q,"continuous":true,"mirror":{%s,"prefix":"c-","chain":true}}`, b.url, c.url, include))
	require.Eventually(t, func() bool {
		m := node.mirror("m").Info.Mirror
		return m.States["up_to_date"] == 2 && m.States["failing"] == 1 && len(m.Failures) == 1
	}, limit, 10*time.Millisecond)
	failure := node.mirror("m").Info.Mirror.Failures[0]
	assert.Equal(t, names[2], failure.Database)
	assert.Contains(t, failure.Reason, "not this database")
	assert.Equal(t, 1, node.jobsIn("_scheduler/jobs?sort=failing&mirror="+url.QueryEscape(node.mirror("m").JobID)))
	target.refuse.Store(func(*http.Request) bool { return false })
	node.awaitMirror("m", 3)
	node.awaitMirror("chain", 3)
	for _, name := range names {
		require.True(t, exists(t, c.url+url.QueryEscape("c-"+name)+"/first")(), name)
	}

	source.closed.Store(true)
	node.ask(http.StatusOK, http.MethodPost, "_scheduler/jobs/"+url.QueryEscape(node.mirror("m").JobID)+"/_run", "")
	require.Eventually(t, func() bool { return node.mirror("m").Info.Mirror.Error != "" }, limit, 10*time.Millisecond)
	late := create("late")
	source.closed.Store(false)
	require.Eventually(t, exists(t, c.url+"c-"+late+"/first"), limit, 10*time.Millisecond)
	assert.Empty(t, node.awaitMirror("m", 4).Info.Mirror.Error)

	couch.Do(t, http.MethodDelete, "/"+names[0], nil, http.StatusOK)
	node.ask(http.StatusOK, http.MethodPost, "_scheduler/jobs/"+url.QueryEscape(node.mirror("m").JobID)+"/_run", "")
	require.Eventually(t, func() bool {
		status, _ := b.request(http.MethodGet, names[0], "")
		return status == http.StatusNotFound
	}, limit, 10*time.Millisecond)
	node.awaitMirror("m", 3)
	told := regexp.MustCompile(`(?m)^{"level":"warn".*"target_database":"` + names[0] + `".*"message":"a mirror has deleted a database at the target"`)
	require.Eventually(t, func() bool { return told.MatchString(node.logged()) }, limit, 10*time.Millisecond) // after it is done
	require.True(t, exists(t, c.url+"c-"+names[0]+"/first")(), "the second mirror keeps its databases")

	// The same, once: everything is there already.
	result := node.ask(http.StatusOK, http.MethodPost, "_replicate", fmt.Sprintf(
		`{"source":%q,"target":%q,"mirror":{%s,"prefix":"once-"}}`, source.url, target.url, include))
	assert.Contains(t, result, `"ok":true,"databases":3`)
	assert.Contains(t, result, `"docs_written":3`)
	for _, name := range append(names[1:], late) {
		require.True(t, exists(t, b.url+url.QueryEscape("once-"+name)+"/first")(), name)
	}
	for _, name := range append(names[1:], late) {
		couch.Do(t, http.MethodDelete, "/"+url.QueryEscape(name), nil, http.StatusOK)
	}
}

// Two mirrors keep servers on one target, told apart by their prefixes. A database that is made again is not deleted there.
func TestMirrorsToOneTarget(t *testing.T) {
	t.Parallel()
	a, b, target := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	node := serveNode(t, "mem:", "replicator/mirror_delete_after_sec=3600")
	for name, source := range map[string]*process{"a": a, "b": b} {
		source.create("shared", "of-"+name)
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/"+name, fmt.Sprintf(
			`{"source":%q,"target":%q,"continuous":true,"mirror":{"prefix":%q,"deleted":"delete"}}`, source.url, target.url, name+"/"))
	}
	for _, name := range []string{"a", "b"} {
		node.awaitMirror(name, 1)
		require.True(t, exists(t, target.url+url.QueryEscape(name+"/shared")+"/of-"+name)(), name)
	}
	status, _ := target.request(http.MethodGet, "a%2Fshared/of-b", "")
	assert.Equal(t, http.StatusNotFound, status)

	a.ask(http.StatusOK, http.MethodDelete, "shared", "")
	require.Eventually(t, func() bool { return node.mirror("a").Info.Mirror.States["gone"] == 1 }, limit, 10*time.Millisecond)
	a.create("shared", "again")
	require.Eventually(t, exists(t, target.url+"a%2Fshared/again"), limit, 10*time.Millisecond)
	assert.Zero(t, node.awaitMirror("a", 1).Info.Mirror.States["gone"])
	require.True(t, exists(t, target.url+"a%2Fshared/of-a")(), "it was not deleted")
}

// A mirror says in plain words which right its user lacks.
func TestMirrorWithoutRights(t *testing.T) {
	t.Parallel()
	a, node := serveNode(t, "mem:"), serveNode(t, "mem:")
	a.ask(http.StatusCreated, http.MethodPut, "one", "")
	plain := withoutAdmin(a.url)
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/m", fmt.Sprintf(
		`{"source":%q,"target":%q,"continuous":true,"mirror":{}}`, plain, node.url))
	require.Eventually(t, func() bool { return node.mirror("m").State == replicator.StateCrashing }, limit, 10*time.Millisecond)
	assert.Contains(t, node.mirror("m").Info.Error, "does not let requests without a user list its databases")
	status, text := node.request(http.MethodPost, "_replicate", fmt.Sprintf(`{"source":%q,"target":%q,"mirror":{}}`, plain, node.url))
	assert.Equal(t, http.StatusUnauthorized, status, text)
	status, text = node.request(http.MethodPut, "_replicator/n", `{"source":"http://a/","target":"http://b/","mirror":{"included":[]}}`)
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, text, "mirror.included")
}
