package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/pkg/jsontext"
)

// A `_security` object that changes while its job is parked is copied within max_idle_sec. No changes feed tells of it.
func TestMirrorFollowsSecurity(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server, database, prefix string) {
		node := serveNode(t, "mem:", "replicator/idle_timeout_sec=1", "replicator/max_idle_sec=2", "replicator/interval_sec=1")
		m := node.mirrorSecurity(t, server, database, prefix)
		for _, name := range []string{"ann", "bob"} {
			node.awaitParked(1)
			m.change(name)
			m.arrives(name)
		}
	})
}

// Somebody who runs a mirror at once gets a `_security` object that has changed, whether the job of its database is parked or
// runs.
func TestRunMirrorCopiesSecurity(t *testing.T) {
	t.Parallel()
	for _, idle := range []string{"1", "600"} {
		t.Run("idle_timeout_sec="+idle, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, server, database, prefix string) {
				node := serveNode(t, "mem:", "replicator/idle_timeout_sec="+idle, "replicator/interval_sec=1")
				m := node.mirrorSecurity(t, server, database, prefix)
				for _, name := range []string{"ann", "bob"} {
					node.awaitMirror("m", 1)
					if idle == "1" {
						node.awaitParked(1)
					}
					m.change(name)
					node.ask(http.StatusOK, http.MethodPost, "_scheduler/jobs/"+url.QueryEscape(node.mirror("m").JobID)+"/_run", "")
					m.arrives(name)
				}
			})
		})
	}
}

// A mirror between two settees sees in its look at the target that the `_security` objects differ, also if it was changed there: both
// tell digests in _dbs_info. A database that was adopted keeps its own.
func TestMirrorLooksAtSecurity(t *testing.T) {
	t.Parallel()
	store := "pebble:" + t.TempDir()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, store, "replicator/idle_timeout_sec=1", "replicator/interval_sec=1")
	a.create("films", "first")
	a.create("songs", "first")
	b.create("songs")
	const own = `{"admins":{"names":["own"]}}`
	b.ask(http.StatusOK, http.MethodPut, "songs/_security", own)
	node.put("m", mirrorDocument(a, b, `{"adopt":true}`))
	node.awaitMirror("m", 2)
	node.awaitParked(2)
	of := func(p *process, database string) string {
		return p.ask(http.StatusOK, http.MethodGet, database+"/_security", "")
	}
	infos := a.ask(http.StatusOK, http.MethodPost, "_dbs_info", `{"keys":["films"]}`)
	assert.Contains(t, infos, `"security_digest":"`+jsontext.Digest([]byte(of(a, "films")))+`"`)
	was := of(b, "films")
	b.ask(http.StatusOK, http.MethodPut, "films/_security", `{"admins":{"names":["eve"]}}`)
	node.end(syscall.SIGTERM)
	serveNode(t, store) // its mirror looks at once, and the jobs stay parked
	require.Eventually(t, func() bool { return of(b, "films") == was }, limit, 100*time.Millisecond)
	assert.JSONEq(t, own, of(b, "songs"))
}

// mirroredSecurity is a database with a mirror on its own server.
type mirroredSecurity struct {
	t              *testing.T
	source, copied string // URLs
}

// mirrorSecurity makes the mirror m of a database.
func (p *process) mirrorSecurity(t *testing.T, server, database, prefix string) mirroredSecurity {
	t.Helper()
	p.ask(http.StatusCreated, http.MethodPut, "_replicator/m", fmt.Sprintf(
		`{"source":%q,"target":%q,"continuous":true,"mirror":{"include":[%q],"prefix":%q}}`, server, server, database, prefix))
	copied := server + "/" + url.QueryEscape(prefix+database)
	return mirroredSecurity{t, server + "/" + url.QueryEscape(database), copied}
}

func (p *process) awaitParked(jobs int) {
	require.Eventually(p.t, func() bool {
		return strings.Contains(p.ask(http.StatusOK, http.MethodGet, "_scheduler/summary", ""), fmt.Sprintf(`"parked":%d,`, jobs))
	}, limit, 100*time.Millisecond)
}

func (m mirroredSecurity) change(name string) {
	ask(m.t, http.StatusOK, http.MethodPut, m.source+"/_security", fmt.Sprintf(`{"admins":{"names":[%q]}}`, name))
}

func (m mirroredSecurity) arrives(name string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		_, object := request(m.t, http.MethodGet, m.copied+"/_security", "")
		return strings.Contains(object, name)
	}, limit, 100*time.Millisecond)
}

// onServers calls do with a server that has a database, and with a prefix for copies of it. The server is a CouchDB, and then a settee.
func onServers(t *testing.T, do func(t *testing.T, server, database, prefix string)) {
	t.Helper()
	t.Run("CouchDB", func(t *testing.T) {
		t.Parallel()
		peer := couchtest.SharedCouchDB(t)
		name := nameIn(t, peer.DB(t, "secured"))
		server, prefix := couchtest.As(peer.URL, peer.Username, peer.Password), name+"-to-"
		t.Cleanup(func() { peer.Remove(t, server+"/"+prefix+name) })
		do(t, server, name, prefix)
	})
	t.Run("settee", func(t *testing.T) {
		t.Parallel()
		server := serveNode(t, "mem:")
		server.create("secured")
		do(t, strings.TrimSuffix(server.url, "/"), "secured", "copy-")
	})
}
