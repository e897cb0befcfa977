package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// idleNode is a node with continuous jobs between its databases, which wait for changes.
type idleNode struct {
	*process
	t    *testing.T
	host string // its name
}

// newIdleNode starts a node with the job "one".
func newIdleNode(t *testing.T) idleNode {
	t.Helper()
	host, err := os.Hostname()
	require.NoError(t, err)
	n := idleNode{serveNode(t, "mem:", "replicator/idle_timeout_sec=0"), t, host}
	n.hosted("source")
	n.add("one")
	n.shows("one", `"reason":"idle"`)
	return n
}

func (n idleNode) add(id string) {
	n.t.Helper()
	n.ask(http.StatusCreated, http.MethodPut, "_replicator/"+id, document(n.t, map[string]any{
		"source": n.url + "source", "target": n.url + id, "continuous": true, "create_target": true,
	}))
}

// shows waits until a job is shown with a text.
func (n idleNode) shows(id, text string) {
	n.t.Helper()
	require.Eventually(n.t, func() bool {
		return strings.Contains(n.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/"+id, ""), text)
	}, limit, 20*time.Millisecond)
}

// nodesCommand runs settee nodes, and returns what it prints.
func (n idleNode) nodesCommand(status int, args ...string) string {
	n.t.Helper()
	out, errs, got := setteeWith(n.t, n.asUser(adminName, adminPassword), append([]string{"nodes"}, args...)...)
	require.Equal(n.t, status, got, out+errs)
	return out + errs
}

// The only node is drained in a terminal, and says so.
func TestCordonedNode(t *testing.T) {
	t.Parallel()
	node := newIdleNode(t)
	assert.Equal(t, node.host+": takes no jobs\n", node.nodesCommand(0, "cordon", node.host))
	node.add("two")
	node.shows("two", `"reason":"cordoned"`)
	node.shows("one", `"reason":"idle"`)
	assert.Regexp(t, `(?m)^cordoned +`+node.host+` +api_frontend, replication +1 +500 `, node.nodesCommand(0))
	assert.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", ""), "\nsettee_nodes_cordoned 1\n")
	assert.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", ""), "\nsettee_replicator_max_jobs 0\n")
	assert.Contains(t, node.nodesCommand(1, "drain", "nope"), "nope: ")
	node.nodesCommand(0, "drain", node.host)
	node.shows("one", `"reason":"cordoned"`)
	require.Eventually(t, func() bool { return strings.HasPrefix(strings.Split(node.nodesCommand(0), "\n")[1], "drained ") }, limit, 100*time.Millisecond)
	out, _, _ := setteeWith(t, node.asUser(adminName, adminPassword), "audit")
	assert.Regexp(t, `drain +`+node.host, out)
}

// The only node is uncordoned and drained with the buttons of the page of nodes.
func TestDashboardCordonedNode(t *testing.T) {
	t.Parallel()
	node := newIdleNode(t)
	node.nodesCommand(0, "drain", node.host)
	node.add("two")
	node.shows("two", `"reason":"cordoned"`)
	node.shows("one", `"reason":"cordoned"`)

	d := openDashboard(t, node.process, adminName, adminPassword)
	d.WaitText(".verdict", "All nodes that replicate are cordoned: 2 jobs wait, the oldest for ")
	d.Accessible()
	d.press("All nodes that replicate are cordoned")
	d.WaitText("table", "drained by "+adminName+" for")
	d.Accessible()
	d.press("Uncordon")
	d.WaitText(".notices", "takes jobs again")
	node.shows("one", `"reason":"idle"`)
	node.shows("two", `"reason":"idle"`)
	d.WaitText("table", "2 of 500")
	d.press("Drain")
	d.WaitText("dialog", "takes no jobs until it is uncordoned or started again. Its 2 jobs write a checkpoint and wait: no other node takes jobs.")
	d.Accessible()
	d.press("Drain " + node.host)
	d.WaitText("table", "drained by "+adminName)
	node.shows("two", `"reason":"cordoned"`)
	d.broke(t)
}
