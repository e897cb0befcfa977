package frontend_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
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
	if registry := n.registry.Load(); registry != nil {
		return registry.Nodes()
	}
	return append([]nodes.Seen{{
		Node: nodes.Node{
			Name: "node1.example", Instance: "A", Roles: []string{"api_frontend"}, Version: "1.2.3", Store: "mem", Level: 1,
			Started: at("2026-01-02T03:04:05.6+02:00"),
		},
		LastSeen: at("2026-01-02T03:05:06.7Z"), Live: true,
	}}, n.others...)
}

func (n *node) cordon(ctx context.Context, name, role string, cordon *nodes.Cordon) (int, error) {
	if registry := n.registry.Load(); registry != nil {
		return registry.SetCordon(ctx, name, role, cordon)
	}
	return 0, nodes.ErrNoNode
}

// dying is a replication node that has died, and living one that has its name and lives.
func dyingAndLiving() []nodes.Seen {
	dying := nodes.Seen{
		Node: nodes.Node{
			Name: "node0", Instance: "B", Roles: []string{"replication"}, Version: "1.2.2", Store: "mem",
			Started: at("2026-01-01T00:00:00Z"), Running: 3, MaxJobs: 500, MaxChurn: 100, Memory: 123_000_000, Level: 1,
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
	assert.JSONEq(t, `{"all_nodes":["node1.example"],"cluster_nodes":["node1.example"]}`, n.Get("/_membership").Is(t, http.StatusOK).Body)
	n.others = dyingAndLiving()
	assert.JSONEq(t, `{"all_nodes":["node0","node1.example"],"cluster_nodes":["node0","node1.example","node2"]}`,
		n.Get("/_membership").Is(t, http.StatusOK).Body)
}

func TestListNodes(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.others = dyingAndLiving()[:1]
	assert.JSONEq(t, `{"total_rows":2,"nodes":[
		{"name":"node1.example","instance":"A","roles":["api_frontend"],"version":"1.2.3","store":"mem","started":"2026-01-02T01:04:05Z",
		"last_seen":"2026-01-02T03:05:06Z","live":true,"running":0,"held":0,"max_jobs":0,"max_churn":0,"level":1},
		{"name":"node0","instance":"B","roles":["replication"],"version":"1.2.2","store":"mem","started":"2026-01-01T00:00:00Z",
		"last_seen":"2026-01-02T03:00:00Z","live":false,"running":3,"held":0,"max_jobs":500,"max_churn":100,"memory":123000000,"level":1}]}`,
		n.Get("/_scheduler/nodes").Is(t, http.StatusOK).Body)
}

// A frontend that knows no others is alone.
func TestAlone(t *testing.T) {
	t.Parallel()
	handler := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Node: "node1", Version: "1.2.3", Log: zerolog.Nop()})
	assert.JSONEq(t, `{"all_nodes":["node1"],"cluster_nodes":["node1"]}`, ask(handler, http.MethodGet, "/_membership", "").Body)
	listed := ask(handler, http.MethodGet, "/_scheduler/nodes", "").Is(t, http.StatusOK).JSON(t)["nodes"].([]any)[0]
	assert.Subset(t, listed, map[string]any{"name": "node1", "roles": []any{"api_frontend"}, "version": "1.2.3", "live": true})
	require.Equal(t, http.StatusNotFound, ask(handler, http.MethodGet, "/_node/_local/_stats", "").Status)
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
	webtest.Refused(t, ask(handler, http.MethodPost, path, ""), http.StatusConflict, "conflict",
		"the store cannot have level 2 yet, because live nodes do not know it: old (1.old)")
	require.NoError(t, old.Stop(context.Background()))
	assert.JSONEq(t, `{"ok":true,"level":2,"raised":true}`, ask(handler, http.MethodPost, path, "").Is(t, http.StatusOK).Body)
	assert.JSONEq(t, `{"ok":true,"level":2,"raised":false}`, ask(handler, http.MethodPost, path, "").Is(t, http.StatusOK).Body)
	assert.JSONEq(t, `{"level":2,"waits_for":[],"converting":false}`, ask(handler, http.MethodGet, path, "").Is(t, http.StatusOK).Body)
	assert.EqualValues(t, 2, ask(handler, http.MethodGet, "/_scheduler/nodes", "").Is(t, http.StatusOK).JSON(t)["level"])
}

// A cluster has a name if somebody has given it one.
func TestClusterName(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.NotContains(t, n.Get("/").JSON(t), "cluster_name")
	n.setConfig("settee/cluster_name", "Köln").Is(t, http.StatusOK)
	require.Equal(t, "Köln", n.Get("/").JSON(t)["cluster_name"])
	for _, name := range []string{strings.Repeat("x", 101), "a\u0007b"} {
		n.setConfig("settee/cluster_name", name).Is(t, http.StatusBadRequest)
	}
}

// Any frontend cordons and drains the nodes that replicate. Only an administrator may, and each change is recorded.
func TestCordonNode(t *testing.T) {
	t.Parallel()
	n := start(t)
	registry := nodes.New(nodes.Options{Store: n.DB, Prefix: []byte("nodes"), Describe: func() nodes.Node {
		return nodes.Node{Name: "n/1", Roles: []string{"api_frontend", "replication"}, MaxJobs: 5, Held: 1}
	}})
	registry.Start()
	defer func() { require.NoError(t, registry.Stop(context.Background())) }()
	n.registry.Store(registry)
	cordon := func() any {
		for _, node := range registry.Nodes() {
			if node.Cordon != nil {
				return n.Get("/_scheduler/nodes").Is(t, http.StatusOK).JSON(t)["nodes"].([]any)[0].(map[string]any)["cordon"]
			}
		}
		return nil
	}
	const path = "/_scheduler/nodes/n%2F1"
	require.Eventually(t, func() bool { return n.Do(http.MethodPost, path+"/_cordon", "").Status == http.StatusOK }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return cordon() != nil }, time.Minute, time.Millisecond) // without a renewal it would take five seconds
	assert.Subset(t, cordon(), map[string]any{"by": webtest.AdminName, "drain": false, "drained": false})
	assert.JSONEq(t, `{"ok":true,"nodes":1}`, n.Do(http.MethodPost, path+"/_drain", "").Is(t, http.StatusOK).Body)
	webtest.Refused(t, n.Do(http.MethodPost, "/_scheduler/nodes/nope/_drain", ""), http.StatusNotFound, "not_found", nodes.ErrNoNode.Error())
	n.As(n.NewUser("ann"), http.MethodPost, path+"/_drain", "").Is(t, http.StatusUnauthorized)

	n.post(definition(`"continuous": true`)).Is(t, http.StatusAccepted)
	require.Eventually(t, func() bool {
		return n.page("/_scheduler/jobs").Jobs[0]["condition"].(map[string]any)["reason"] == "cordoned"
	}, time.Minute, time.Millisecond)
	summary := n.Get("/_scheduler/summary").Is(t, http.StatusOK).JSON(t)
	assert.Equal(t, map[string]any{"used": 0., "total": 0.}, summary["slots"])
	assert.Equal(t, map[string]any{"reason": "cordoned", "message": "waits because all nodes with the role replication are cordoned"}, summary["waiting"])
	n.Do(http.MethodDelete, path+"/_cordon", "").Is(t, http.StatusOK)
	require.Eventually(t, func() bool { return cordon() == nil }, time.Minute, time.Millisecond)
	assert.Equal(t, []map[string]any{
		{"action": "cordon", "node": "n/1"}, {"action": "drain", "node": "n/1"}, {"action": "uncordon", "node": "n/1"},
	}, n.audited(""))
}

// A node does not answer for another one.
func TestRequestsForOtherNodes(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.others = dyingAndLiving()
	for _, path := range []string{"", "/_stats", "/_stats/couchdb", "/_system", "/_versions", "/_config", "/_config/log/level"} {
		for _, name := range []string{"node0", "node2"} {
			webtest.Refused(t, n.Get("/_node/"+name+path), http.StatusNotImplemented, "not_implemented",
				"nodes do not ask one another: send the request to "+name+" itself")
		}
		webtest.Refused(t, n.Get("/_node/nope"+path), http.StatusNotFound, "not_found", "no such node: nope")
	}
	const level = "/_config/log/level"
	says(t, n.Do(http.MethodPut, "/_node/node0"+level, `"debug"`), "info") // for all nodes
	says(t, n.Get("/_node/_local"+level), "debug")
	says(t, n.Do(http.MethodDelete, "/_node/node2"+level, ""), "debug")
	webtest.Refused(t, n.Do(http.MethodPut, "/_node/nope"+level, `"debug"`), http.StatusNotFound, "not_found", "no such node: nope")
}

// Scripts for one CouchDB name it as it is called without a name of its own.
func TestNamesOfCouchDB(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"nonode@nohost", "couchdb@127.0.0.1"} {
		n.others = dyingAndLiving()[:1] // it has died
		says(t, n.Get("/_node/"+name+"/_config/log/level"), "info")
		assert.Equal(t, map[string]any{"name": "node1.example"}, n.Get("/_node/"+name).Is(t, http.StatusOK).JSON(t))
		n.others = dyingAndLiving()
		webtest.Refused(t, n.Get("/_node/"+name+"/_stats"), http.StatusNotFound, "not_found", "no such node: "+name)
		webtest.Refused(t, n.Do(http.MethodPut, "/_node/"+name+"/_config/log/level", `"info"`), http.StatusNotFound, "not_found", "no such node: "+name)
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
			assert.JSONEq(t, want, n.Get("/_node/"+name+"/_stats"+path).Is(t, http.StatusOK).Body, path)
		}
	}
	assert.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodPut, "/_node/_local/_stats", "{}").Status)
}

func TestSystem(t *testing.T) {
	t.Parallel()
	n := start(t)
	var system struct {
		Uptime       *int64           `json:"uptime"`
		Memory       map[string]int64 `json:"memory"`
		ProcessCount int64            `json:"process_count"`
	}
	a := n.Get("/_node/_local/_system").Is(t, http.StatusOK)
	require.NoError(t, json.Unmarshal([]byte(a.Body), &system))
	require.NotNil(t, system.Uptime)
	assert.Less(t, *system.Uptime, int64(3600))
	assert.Positive(t, system.ProcessCount)
	for _, part := range []string{"other", "processes", "processes_used"} {
		assert.Positive(t, system.Memory[part], part)
		assert.Less(t, system.Memory[part], int64(64<<30), part)
	}
	members := slices.Sorted(func(yield func(string) bool) {
		for name := range a.JSON(t) {
			if !yield(name) {
				return
			}
		}
	})
	assert.Equal(t, []string{"garbage_collection_count", "memory", "process_count", "run_queue", "uptime", "words_reclaimed"}, members)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	got := start(t).Get("/_node/_local/_versions").Is(t, http.StatusOK).JSON(t)
	assert.Equal(t, "quickjs", got["javascript_engine"].(map[string]any)["name"])
	assert.Equal(t, "1.2.3", got["settee"])
	assert.Contains(t, got["go"], "go1.")
}

const jsonType = "application/json"

// setUp posts an action, with more members of the body.
func (n *node) setUp(action, members string) webtest.Answer {
	n.Helper()
	return n.Do(http.MethodPost, "/_cluster_setup", `{"action":"`+action+`"`+members+`}`, "Content-Type", jsonType)
}

func (n *node) setupState(query string) any {
	n.Helper()
	return n.Get("/_cluster_setup"+query).Is(n.T, http.StatusOK).JSON(n.T)["state"]
}

func TestClusterSetup(t *testing.T) {
	t.Parallel()
	n := start(t)
	assert.Equal(t, "single_node_disabled", n.setupState(""), "the databases are missing")
	n.setUp("finish_cluster", "").Is(t, http.StatusCreated)
	assert.Equal(t, "single_node_enabled", n.setupState(""))
	for _, database := range []string{"/_users", "/_replicator"} {
		n.Get(database).Is(t, http.StatusOK)
	}
	webtest.Refused(t, n.setUp("finish_cluster", ""), http.StatusBadRequest, "bad_request", "Cluster is already finished")

	const more = "?ensure_dbs_exist=%5B%22_users%22%2C%22more%22%5D"
	assert.Equal(t, "single_node_disabled", n.setupState(more))
	n.others = dyingAndLiving()[1:2]
	assert.Equal(t, "cluster_enabled", n.setupState(more))
	assert.Equal(t, "cluster_finished", n.setupState(""))
	n.setUp("finish_cluster", `,"ensure_dbs_exist":["more"]`).Is(t, http.StatusCreated)
	assert.Equal(t, "cluster_finished", n.setupState(more))

	for _, action := range []string{"enable_cluster", "add_node", "remove_node", "receive_cookie"} {
		assert.Equal(t, http.StatusNotImplemented, n.setUp(action, `,"host":"x"`).Status, action)
	}
	webtest.Refused(t, n.setUp("nope", ""), http.StatusBadRequest, "bad_request", "Invalid Action")
	webtest.Refused(t, n.setUp("finish_cluster", `,"ensure_dbs_exist":["Capital"]`), http.StatusBadRequest, "illegal_database_name",
		`illegal database name: "Capital"`)
	for _, body := range []string{"", "x", "[]", "7", `{"action":7}`, `{"action":"finish_cluster","ensure_dbs_exist":"a"}`, `{}`} {
		got := n.Do(http.MethodPost, "/_cluster_setup", body, "Content-Type", jsonType)
		assert.Equal(t, http.StatusBadRequest, got.Status, body)
	}
	assert.Equal(t, http.StatusUnsupportedMediaType, n.Do(http.MethodPost, "/_cluster_setup", `{}`, "Content-Type", "text/plain").Status)
	assert.Equal(t, http.StatusUnsupportedMediaType, n.Do(http.MethodPost, "/_cluster_setup", `{}`).Status)
	assert.Equal(t, http.StatusBadRequest, n.Get("/_cluster_setup?ensure_dbs_exist=x").Status)
	assert.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodPut, "/_cluster_setup", "").Status)
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
			assert.Equal(t, want, got.Status == http.StatusCreated, "%s at %s: %s", address, own, got.Body)
		}
	}
}

func TestEnableSingleNode(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/bind_address=127.0.0.1", "chttpd/port=5984")
	n.setUp("enable_single_node", `,"bind_address":"127.0.0.1","port":5984,"username":"root","password":"new-`+webtest.Secret+`"`).Is(t, http.StatusCreated)
	n.Get("/_users").Is(t, http.StatusOK)
	n.As("root:new-"+webtest.Secret, http.MethodGet, "/_all_dbs", "").Is(t, http.StatusOK)
	n.setUp("enable_single_node", `,"port":"5984","ensure_dbs_exist":["_users","more"]`).Is(t, http.StatusCreated)
	n.Get("/more").Is(t, http.StatusOK)

	webtest.Refused(t, n.setUp("enable_single_node", `,"bind_address":"0.0.0.0"`), http.StatusBadRequest, "bad_request",
		"`bind_address` is 127.0.0.1, and a node reads it only when it starts: set [chttpd] bind_address in its files")
	webtest.Refused(t, n.setUp("enable_single_node", `,"port":80`), http.StatusBadRequest, "bad_request",
		"`port` is 5984, and a node reads it only when it starts: set [chttpd] port in its files")
	for _, members := range []string{`,"username":"root"`, `,"password":"x"`, `,"username":"r","password":"x","password_hash":"y"`} {
		webtest.Refused(t, n.setUp("enable_single_node", members), http.StatusBadRequest, "bad_request",
			"`username` needs either `password` or `password_hash`")
	}
	webtest.Refused(t, n.setUp("enable_single_node", `,"username":"a:b","password":"x"`), http.StatusBadRequest, "bad_request",
		"[admins]: a name has no colon, at which basic authentication ends it")
}
