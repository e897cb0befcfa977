package main

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/pkg/kv/kvtest"
)

// listedNode is a node in the answer to _scheduler/nodes.
type listedNode struct {
	Name    string
	Roles   []string
	Store   string
	Live    bool
	MaxJobs int `json:"max_jobs"`
}

func (p *process) nodes() []listedNode {
	p.t.Helper()
	var out struct{ Nodes []listedNode }
	require.NoError(p.t, json.Unmarshal([]byte(p.ask(http.StatusOK, http.MethodGet, "_scheduler/nodes", "")), &out))
	return out.Nodes
}

// A node names itself in the same way everywhere.
func TestNodeIsListed(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "replicator/max_jobs=7")
	host, err := os.Hostname()
	require.NoError(t, err)
	listed := node.nodes()
	require.Len(t, listed, 1)
	assert.Equal(t, host, listed[0].Name)
	assert.Equal(t, []string{"api_frontend", "replication"}, listed[0].Roles)
	assert.Equal(t, "mem", listed[0].Store)
	assert.Equal(t, 7, listed[0].MaxJobs)
	assert.True(t, listed[0].Live)
	names, err := json.Marshal([]string{host})
	require.NoError(t, err)
	assert.JSONEq(t, `{"all_nodes":`+string(names)+`,"cluster_nodes":`+string(names)+`}`, node.ask(http.StatusOK, http.MethodGet, "_membership", ""))
	assert.JSONEq(t, `{"state":"single_node_enabled"}`, node.ask(http.StatusOK, http.MethodGet, "_cluster_setup", ""))
	assert.JSONEq(t, `{"name":"`+host+`"}`, node.ask(http.StatusOK, http.MethodGet, "_node/"+host, ""))
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// Nodes of one store know each other, and a replication node is one of them. A node that is stopped is no longer listed,
// and one that is killed is listed until it is forgotten.
func TestNodesOfAStore(t *testing.T) {
	t.Parallel()
	store, ok := kvtest.ClusterURL(t)
	if !ok {
		t.Skip("only FoundationDB has several nodes")
	}
	node := serveNode(t, store)
	other := func() *process {
		return begin(t, "settee is running", []string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"}, "serve", "--store", store)
	}
	// lives waits until as many nodes are live, and as many known.
	lives := func(live, known int) {
		require.Eventually(t, func() bool {
			all := node.nodes()
			dead := slices.DeleteFunc(slices.Clone(all), func(n listedNode) bool { return n.Live })
			return len(all) == known && len(all)-len(dead) == live
		}, limit, 100*time.Millisecond)
	}
	stopped, killed := other(), other()
	lives(3, 3)
	assert.True(t, slices.ContainsFunc(node.nodes(), func(n listedNode) bool {
		return slices.Equal(n.Roles, []string{"replication"}) && n.Store == "fdb"
	}))
	assert.Zero(t, stopped.end(syscall.SIGTERM))
	lives(2, 2)
	killed.end(syscall.SIGKILL)
	lives(1, 2)
}

// leaves returns the types of the statistics in a tree, by path.
func leaves(tree map[string]any, path string, into map[string]any) map[string]any {
	for name, value := range tree {
		members := value.(map[string]any)
		if _, isLeaf := members["desc"]; isLeaf {
			into[path+"/"+name] = members["type"]
		} else {
			leaves(members, path+"/"+name, into)
		}
	}
	return into
}

func object(t *testing.T, text string) (members map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &members))
	return members
}

// What settee measures is at the paths of CouchDB, and has the same type.
func TestStatisticsOfCouchDB(t *testing.T) {
	t.Parallel()
	couchdb := couchtest.SharedCouchDB(t)
	at := strings.Replace(couchdb.URL, "://", "://"+couchdb.Username+":"+couchdb.Password+"@", 1)
	node := serveNode(t, "mem:")
	theirs := leaves(object(t, ask(t, http.StatusOK, http.MethodGet, at+"/_node/_local/_stats", "")), "", map[string]any{})
	ours := leaves(object(t, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_stats", "")), "", map[string]any{})
	assert.Subset(t, theirs, ours)
	assert.Len(t, ours, len(countedMethods)+len(countedStatuses)+len(statsPaths)-2)

	their, our := object(t, ask(t, http.StatusOK, http.MethodGet, at+"/_node/_local/_system", "")), object(t, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_system", ""))
	for name := range our {
		assert.Contains(t, their, name)
	}
	for name := range our["memory"].(map[string]any) {
		assert.Contains(t, their["memory"], name)
	}
	node.ask(http.StatusOK, http.MethodPost, "_replicate", `{"source":"`+node.url+`_users","target":"`+node.url+`copy","create_target":true}`)
	for path, want := range map[string]string{
		"couch_replicator/jobs/starts/value":       "1\n",
		"couchdb/httpd_request_methods/HEAD/value": "0\n", "couchdb/httpd_status_codes/507/value": "0\n", "couchdb/nothing": "null\n",
	} {
		assert.Equal(t, want, node.ask(http.StatusOK, http.MethodGet, "_node/_local/_stats/"+path, ""), path)
	}
}
