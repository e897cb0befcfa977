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

// The only node is drained, says so, and is uncordoned: in a terminal, and with the buttons of the page of nodes.
func TestCordonedNode(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "replicator/idle_timeout_sec=0")
	node.hosted("source")
	put := func(id string) {
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/"+id, document(t, map[string]any{
			"source": node.url + "source", "target": node.url + id, "continuous": true, "create_target": true,
		}))
	}
	is := func(id, text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/"+id, ""), text)
		}, limit, 20*time.Millisecond)
	}
	put("one")
	is("one", `"reason":"idle"`)
	env := node.asUser(adminName, adminPassword)
	nodes := func(status int, args ...string) string {
		t.Helper()
		out, errs, got := setteeWith(t, env, append([]string{"nodes"}, args...)...)
		require.Equal(t, status, got, out+errs)
		return out + errs
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, host+": takes no jobs\n", nodes(0, "cordon", host))
	put("two")
	is("two", `"reason":"cordoned"`)
	is("one", `"reason":"idle"`)
	assert.Regexp(t, `(?m)^cordoned +`+host+` +api_frontend, replication +1 +500 `, nodes(0))
	assert.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", ""), "\nsettee_nodes_cordoned 1\n")
	assert.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", ""), "\nsettee_replicator_max_jobs 0\n")
	assert.Contains(t, nodes(1, "drain", "nope"), "nope: ")
	nodes(0, "drain", host)
	is("one", `"reason":"cordoned"`)
	require.Eventually(t, func() bool { return strings.HasPrefix(strings.Split(nodes(0), "\n")[1], "drained ") }, limit, 100*time.Millisecond)
	out, _, _ := setteeWith(t, env, "audit")
	assert.Regexp(t, `drain +`+host, out)

	d := openDashboard(t, node, adminName, adminPassword)
	d.WaitText(".verdict", "All nodes that replicate are cordoned: 2 jobs wait, the oldest for ")
	d.Accessible()
	d.press("All nodes that replicate are cordoned")
	d.WaitText("table", "drained by "+adminName+" for")
	d.Accessible()
	d.press("Uncordon")
	d.WaitText(".notices", "takes jobs again")
	is("one", `"reason":"idle"`)
	is("two", `"reason":"idle"`)
	d.WaitText("table", "live")
	d.press("Drain")
	d.WaitText("dialog", "takes no jobs until it is uncordoned or started again. Its 2 jobs write a checkpoint")
	d.Accessible()
	d.press("Drain " + host)
	d.WaitText("table", "drained by "+adminName)
	is("two", `"reason":"cordoned"`)
	d.broke(t)
}
