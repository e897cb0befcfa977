package frontend_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/levels"
	"settee/pkg/nodes"
)

var someStats = map[string]any{"couchdb": map[string]any{"httpd": map[string]any{"requests": map[string]any{
	"value": 7, "type": "counter", "desc": "number of HTTP requests",
}}}}

func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, clock)
	if err != nil {
		panic(err)
	}
	return t
}

// seen returns this node and the others.
func (n *node) seen() []nodes.Seen {
	return append([]nodes.Seen{{
		Node: nodes.Node{
			Name: "node1.example", Instance: "A", Roles: []string{"api_frontend"}, Version: "1.2.3", Store: "mem", Level: 1,
			Started: at("2026-01-02T03:04:05.6+02:00"),
		},
		LastSeen: at("2026-01-02T03:05:06.7Z"), Live: true,
	}}, n.others...)
}

// dying is a replication node that has died, and living one that has its name and lives.
func dyingAndLiving() []nodes.Seen {
	dying := nodes.Seen{
		Node: nodes.Node{
			Name: "node0", Instance: "B", Roles: []string{"replication"}, Version: "1.2.2", Store: "mem",
			Started: at("2026-01-01T00:00:00Z"), Running: 3, MaxJobs: 500, MaxChurn: 100, Level: 1,
		},
		LastSeen: at("2026-01-02T03:00:00Z"),
	}
	living := dying
	living.Instance, living.Live = "C", true
	gone := dying
	gone.Name, gone.Instance = "node2", "D"
	return []nodes.Seen{dying, living, gone}
}

func TestMembership(t *testing.T) {
	t.Parallel()
	n := start(t)
	assert.JSONEq(t, `{"all_nodes":["node1.example"],"cluster_nodes":["node1.example"]}`, n.get("/_membership").is(t, http.StatusOK).body)
	n.others = dyingAndLiving()
	assert.JSONEq(t, `{"all_nodes":["node0","node1.example"],"cluster_nodes":["node0","node1.example","node2"]}`,
		n.get("/_membership").is(t, http.StatusOK).body)
}

func TestListNodes(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.others = dyingAndLiving()[:1]
	assert.JSONEq(t, `{"total_rows":2,"nodes":[
		{"name":"node1.example","instance":"A","roles":["api_frontend"],"version":"1.2.3","store":"mem","started":"2026-01-02T01:04:05Z",
		"last_seen":"2026-01-02T03:05:06Z","live":true,"running":0,"max_jobs":0,"max_churn":0,"level":1},
		{"name":"node0","instance":"B","roles":["replication"],"version":"1.2.2","store":"mem","started":"2026-01-01T00:00:00Z",
		"last_seen":"2026-01-02T03:00:00Z","live":false,"running":3,"max_jobs":500,"max_churn":100,"level":1}]}`,
		n.get("/_scheduler/nodes").is(t, http.StatusOK).body)
}

// A frontend that knows no others is alone.
func TestAlone(t *testing.T) {
	t.Parallel()
	handler := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Node: "node1", Version: "1.2.3", Log: zerolog.Nop()})
	assert.JSONEq(t, `{"all_nodes":["node1"],"cluster_nodes":["node1"]}`, ask(handler, http.MethodGet, "/_membership", "").body)
	listed := ask(handler, http.MethodGet, "/_scheduler/nodes", "").is(t, http.StatusOK).json(t)["nodes"].([]any)[0]
	assert.Subset(t, listed, map[string]any{"name": "node1", "roles": []any{"api_frontend"}, "version": "1.2.3", "live": true})
	require.Equal(t, http.StatusNotFound, ask(handler, http.MethodGet, "/_node/_local/_stats", "").status)
}

// A frontend says which live nodes the next level of the store waits for, and raises it when there are none.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	db := struct{ kv.Database }{enginetest.Memory(t)} // other processes can have it open
	process := func(name string, level int64) (*levels.Guard, *nodes.Registry) {
		guard, err := levels.Open(t.Context(), db, levels.Options{Key: []byte("level"), Own: level, Release: name})
		require.NoError(t, err)
		registry := nodes.New(nodes.Options{Store: guard, Prefix: []byte("nodes"), Describe: func() nodes.Node {
			return nodes.Node{Name: name, Version: "1." + name, Level: level}
		}})
		return guard, registry
	}
	_, old := process("old", 1)
	guard, registry := process("new", 2)
	for _, r := range []*nodes.Registry{old, registry} {
		r.Start()
	}
	defer func() { require.NoError(t, registry.Stop(context.Background())) }()
	upgrade := nodes.NewUpgrade(guard, registry)
	handler := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Nodes: registry.Nodes, Upgrade: upgrade, Log: zerolog.Nop()})
	require.Eventually(t, func() bool {
		rows, err := kv.TransactValue(t.Context(), guard, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.GetRange(kv.PrefixRange([]byte("nodes")), kv.RangeOptions{}).Slice()
		})
		return err == nil && len(rows) == 2
	}, time.Minute, time.Millisecond)
	const path = "/_node/_local/_upgrade"
	refused(t, ask(handler, http.MethodPost, path, ""), http.StatusConflict, "conflict",
		"the store cannot have level 2 yet, because live nodes do not know it: old (1.old)")
	require.NoError(t, old.Stop(context.Background()))
	assert.JSONEq(t, `{"ok":true,"level":2,"raised":true}`, ask(handler, http.MethodPost, path, "").is(t, http.StatusOK).body)
	assert.JSONEq(t, `{"ok":true,"level":2,"raised":false}`, ask(handler, http.MethodPost, path, "").is(t, http.StatusOK).body)
	assert.JSONEq(t, `{"level":2,"waits_for":[],"converting":false}`, ask(handler, http.MethodGet, path, "").is(t, http.StatusOK).body)
	assert.EqualValues(t, 2, ask(handler, http.MethodGet, "/_scheduler/nodes", "").is(t, http.StatusOK).json(t)["level"])
}

// A node does not answer for another one.
func TestRequestsForOtherNodes(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.others = dyingAndLiving()
	for _, path := range []string{"", "/_stats", "/_stats/couchdb", "/_system", "/_versions", "/_config", "/_config/log/level"} {
		for _, name := range []string{"node0", "node2"} {
			refused(t, n.get("/_node/"+name+path), http.StatusNotImplemented, "not_implemented",
				"nodes do not ask one another: send the request to "+name+" itself")
		}
		refused(t, n.get("/_node/nope"+path), http.StatusNotFound, "not_found", "no such node: nope")
	}
	const level = "/_config/log/level"
	says(t, n.do(http.MethodPut, "/_node/node0"+level, `"debug"`), "info") // for all nodes
	says(t, n.get("/_node/_local"+level), "debug")
	says(t, n.do(http.MethodDelete, "/_node/node2"+level, ""), "debug")
	refused(t, n.do(http.MethodPut, "/_node/nope"+level, `"debug"`), http.StatusNotFound, "not_found", "no such node: nope")
}

// Scripts for one CouchDB name it as it is called without a name of its own.
func TestNamesOfCouchDB(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"nonode@nohost", "couchdb@127.0.0.1"} {
		n.others = dyingAndLiving()[:1] // it has died
		says(t, n.get("/_node/"+name+"/_config/log/level"), "info")
		assert.Equal(t, map[string]any{"name": "node1.example"}, n.get("/_node/"+name).is(t, http.StatusOK).json(t))
		n.others = dyingAndLiving()
		refused(t, n.get("/_node/"+name+"/_stats"), http.StatusNotFound, "not_found", "no such node: "+name)
		refused(t, n.do(http.MethodPut, "/_node/"+name+"/_config/log/level", `"info"`), http.StatusNotFound, "not_found", "no such node: "+name)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	n := start(t)
	const requests = `{"value":7,"type":"counter","desc":"number of HTTP requests"}`
	for path, want := range map[string]string{
		"":                                   `{"couchdb":{"httpd":{"requests":` + requests + `}}}`,
		"/":                                  `{"couchdb":{"httpd":{"requests":` + requests + `}}}`,
		"/couchdb/httpd":                     `{"requests":` + requests + `}`,
		"/couchdb/httpd/requests":            requests,
		"/couchdb/httpd/requests/value":      `7`,
		"/couchdb/httpd/requests/value/more": `null`,
		"/couchdb/nothing/more":              `null`,
		"/nothing":                           `null`,
	} {
		for _, name := range []string{"_local", "node1.example"} {
			assert.JSONEq(t, want, n.get("/_node/"+name+"/_stats"+path).is(t, http.StatusOK).body, path)
		}
	}
	assert.Equal(t, http.StatusMethodNotAllowed, n.do(http.MethodPut, "/_node/_local/_stats", "{}").status)
}

func TestSystem(t *testing.T) {
	t.Parallel()
	n := start(t)
	var system struct {
		Uptime       *int64           `json:"uptime"`
		Memory       map[string]int64 `json:"memory"`
		ProcessCount int64            `json:"process_count"`
	}
	a := n.get("/_node/_local/_system").is(t, http.StatusOK)
	require.NoError(t, json.Unmarshal([]byte(a.body), &system))
	require.NotNil(t, system.Uptime)
	assert.Less(t, *system.Uptime, int64(3600))
	assert.Positive(t, system.ProcessCount)
	for _, part := range []string{"other", "processes", "processes_used"} {
		assert.Positive(t, system.Memory[part], part)
		assert.Less(t, system.Memory[part], int64(64<<30), part)
	}
	members := slices.Sorted(func(yield func(string) bool) {
		for name := range a.json(t) {
			if !yield(name) {
				return
			}
		}
	})
	assert.Equal(t, []string{"garbage_collection_count", "memory", "process_count", "run_queue", "uptime", "words_reclaimed"}, members)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	got := start(t).get("/_node/_local/_versions").is(t, http.StatusOK).json(t)
	assert.Equal(t, "quickjs", got["javascript_engine"].(map[string]any)["name"])
	assert.Equal(t, "1.2.3", got["settee"])
	assert.Contains(t, got["go"], "go1.")
}

const jsonType = "application/json"

// setUp posts an action, with more members of the body.
func (n *node) setUp(action, members string) answer {
	n.Helper()
	return n.do(http.MethodPost, "/_cluster_setup", `{"action":"`+action+`"`+members+`}`, "Content-Type", jsonType)
}

func (n *node) setupState(query string) any {
	n.Helper()
	return n.get("/_cluster_setup"+query).is(n.T, http.StatusOK).json(n.T)["state"]
}

func TestClusterSetup(t *testing.T) {
	t.Parallel()
	n := start(t)
	assert.Equal(t, "single_node_disabled", n.setupState(""), "the databases are missing")
	n.setUp("finish_cluster", "").is(t, http.StatusCreated)
	assert.Equal(t, "single_node_enabled", n.setupState(""))
	for _, database := range []string{"/_users", "/_replicator"} {
		n.get(database).is(t, http.StatusOK)
	}
	refused(t, n.setUp("finish_cluster", ""), http.StatusBadRequest, "bad_request", "Cluster is already finished")

	const more = "?ensure_dbs_exist=%5B%22_users%22%2C%22more%22%5D"
	assert.Equal(t, "single_node_disabled", n.setupState(more))
	n.others = dyingAndLiving()[1:2]
	assert.Equal(t, "cluster_enabled", n.setupState(more))
	assert.Equal(t, "cluster_finished", n.setupState(""))
	n.setUp("finish_cluster", `,"ensure_dbs_exist":["more"]`).is(t, http.StatusCreated)
	assert.Equal(t, "cluster_finished", n.setupState(more))

	for _, action := range []string{"enable_cluster", "add_node", "remove_node", "receive_cookie"} {
		assert.Equal(t, http.StatusNotImplemented, n.setUp(action, `,"host":"x"`).status, action)
	}
	refused(t, n.setUp("nope", ""), http.StatusBadRequest, "bad_request", "Invalid Action")
	refused(t, n.setUp("finish_cluster", `,"ensure_dbs_exist":["Capital"]`), http.StatusBadRequest, "illegal_database_name",
		`illegal database name: "Capital"`)
	for _, body := range []string{"", "x", "[]", "7", `{"action":7}`, `{"action":"finish_cluster","ensure_dbs_exist":"a"}`, `{}`} {
		got := n.do(http.MethodPost, "/_cluster_setup", body, "Content-Type", jsonType)
		assert.Equal(t, http.StatusBadRequest, got.status, body)
	}
	assert.Equal(t, http.StatusUnsupportedMediaType, n.do(http.MethodPost, "/_cluster_setup", `{}`, "Content-Type", "text/plain").status)
	assert.Equal(t, http.StatusUnsupportedMediaType, n.do(http.MethodPost, "/_cluster_setup", `{}`).status)
	assert.Equal(t, http.StatusBadRequest, n.get("/_cluster_setup?ensure_dbs_exist=x").status)
	assert.Equal(t, http.StatusMethodNotAllowed, n.do(http.MethodPut, "/_cluster_setup", "").status)
}

func TestAddressOfASingleNode(t *testing.T) {
	t.Parallel()
	for own, asked := range map[string]map[string]bool{
		"any":       {"any": true, "0.0.0.0": true, "::": true, "0::0": true, "": true, "127.0.0.1": false, "::1": false, "x": false},
		"::":        {"any": true, "0.0.0.0": true},
		"0.0.0.0":   {"any": false, "0.0.0.0": true, "::": false, "127.0.0.1": false},
		"127.0.0.1": {"any": false, "0.0.0.0": false, "127.0.0.1": true},
		"::1":       {"0:0::1": true, "127.0.0.1": false},
	} {
		n := start(t, "chttpd/bind_address="+own)
		for address, want := range asked {
			got := n.setUp("enable_single_node", `,"bind_address":"`+address+`"`)
			assert.Equal(t, want, got.status == http.StatusCreated, "%s at %s: %s", address, own, got.body)
		}
	}
}

func TestEnableSingleNode(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/bind_address=127.0.0.1", "chttpd/port=5984")
	n.setUp("enable_single_node", `,"bind_address":"127.0.0.1","port":5984,"username":"root","password":"new-`+secret+`"`).is(t, http.StatusCreated)
	n.get("/_users").is(t, http.StatusOK)
	n.as("root:new-"+secret, http.MethodGet, "/_all_dbs", "").is(t, http.StatusOK)
	n.setUp("enable_single_node", `,"port":"5984","ensure_dbs_exist":["_users","more"]`).is(t, http.StatusCreated)
	n.get("/more").is(t, http.StatusOK)

	refused(t, n.setUp("enable_single_node", `,"bind_address":"0.0.0.0"`), http.StatusBadRequest, "bad_request",
		"`bind_address` is 127.0.0.1, and a node reads it only when it starts: set [chttpd] bind_address in its files")
	refused(t, n.setUp("enable_single_node", `,"port":80`), http.StatusBadRequest, "bad_request",
		"`port` is 5984, and a node reads it only when it starts: set [chttpd] port in its files")
	for _, members := range []string{`,"username":"root"`, `,"password":"x"`, `,"username":"r","password":"x","password_hash":"y"`} {
		refused(t, n.setUp("enable_single_node", members), http.StatusBadRequest, "bad_request",
			"`username` needs either `password` or `password_hash`")
	}
	refused(t, n.setUp("enable_single_node", `,"username":"a:b","password":"x"`), http.StatusBadRequest, "bad_request",
		"[admins]: a name has no colon, at which basic authentication ends it")
}
