package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// A parked replication whose target has lost what it had runs again: it copies everything once more, or says what is missing.
func TestParkedReplicationsWhoseTargetsLoseThem(t *testing.T) {
	t.Parallel()
	a, b, other := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	target := newGate(t, strings.TrimSuffix(b.url, "/"))
	node := serveNode(t, "mem:", "replicator/idle_timeout_sec=1", "replicator/max_idle_sec=1", "replicator/min_backoff_penalty_sec=1", "replicator/retries_per_request=0")
	names := []string{"one", "three", "two"}
	for _, name := range names {
		a.create(name, "first", "second")
		b.create(name)
		node.put(name, fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"create_target":%t}`, a.url+name, target.url+name, name == "one"))
	}
	parked := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return node.metric(`settee_replicator_jobs{state="parked"}`) == float64(n) }, limit, 10*time.Millisecond)
	}
	whole := func(p *process, names ...string) {
		t.Helper()
		for _, name := range names {
			for _, doc := range []string{"/first", "/second"} {
				require.Eventually(t, exists(t, p.url+name+doc), limit, 10*time.Millisecond, name+doc)
			}
		}
	}
	parked(3)
	whole(b, names...)

	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // instance_start_time has whole seconds
	for _, name := range names {
		b.ask(http.StatusOK, http.MethodDelete, name, "")
	}
	b.create("two") // by somebody else
	whole(b, "one", "two")
	require.Eventually(t, func() bool {
		return strings.Contains(node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/three", ""), "db_not_found")
	}, limit, 10*time.Millisecond, "nobody may create it")
	parked(2)

	other.create("two")
	target.turn(other.url)
	whole(other, "one", "two")
}

// The same with other servers. A target that was deleted is found on each of them, and one that was created anew where the server
// says when that was.
func TestParkedReplicationsWhoseTargetsLoseThemElsewhere(t *testing.T) {
	t.Parallel()
	couchtest.EachWithAdmin(t, func(t *testing.T, peer couchtest.Peer) {
		node := serveNode(t, "mem:", "replicator/idle_timeout_sec=1", "replicator/max_idle_sec=1", "replicator/min_backoff_penalty_sec=1")
		source, targets := peer.DB(t, "source"), []string{peer.DB(t, "deleted"), peer.DB(t, "anew")}
		ask(t, http.StatusCreated, http.MethodPut, source+"/doc", `{}`)
		for i, target := range targets {
			node.put(fmt.Sprint(i), fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"create_target":true}`, source, target))
		}
		require.Eventually(t, func() bool { return node.metric(`settee_replicator_jobs{state="parked"}`) == 2 }, limit, 10*time.Millisecond)
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // instance_start_time has whole seconds
		_, isPouchDB := peer.(*couchtest.Server)
		for i, target := range targets {
			ask(t, http.StatusOK, http.MethodDelete, target, "")
			if i == 1 && !isPouchDB {
				status, _ := request(t, http.MethodPut, target, "")
				require.Contains(t, []int{http.StatusCreated, http.StatusPreconditionFailed}, status, "its job may have created it")
			}
		}
		for _, target := range targets {
			require.Eventually(t, exists(t, target+"/doc"), limit, 10*time.Millisecond)
		}
		require.InDelta(t, 2, node.metric(`settee_watch_wakes_total{cause="target"}`), 1, "one may be woken twice")
	})
}
