//go:build fdb && fire

package fire

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/netns"
	"settee/internal/servers"
	"settee/pkg/couch/couchtest"
	"settee/pkg/kv"
	_ "settee/pkg/kv/fdbkv"
	"settee/pkg/tuple"
	"settee/replicator/jobs"
)

const (
	// limit is how long the test waits for an expected event.
	limit = 2 * time.Minute
	// activityTimeout is the activity timeout of the jobs: see cmd/settee/fire.go.
	activityTimeout = 8 * time.Second
	// patience is how long a client waits for an immediate response.
	patience = 10 * time.Second

	prefix    = "fire"
	adminName = "admin"

	frontends, replicators, fdbservers = 2, 3, 3
)

// The peers with databases: two CouchDBs, and the frontends with the cluster's own databases.
const (
	couch0 = "couch0"
	couch1 = "couch1"
	hosted = "hosted"
)

// cluster has all running parts.
type cluster struct {
	*testing.T
	program  string // the path of the settee that nodes start with
	logs     string // the directory of the nodes' logs
	password string // of the nodes' administrator
	host     *netns.Namespace
	spaces   bool // whether each node is in a network namespace of its own
	fdb      *servers.FoundationDB
	couches  map[string]*couchtest.CouchDB
	nodes    []*node  // frontends first
	named    sync.Map // the names of the nodes' processes, by pid
	ports    map[string]int
	peers    map[string]*url.URL // for the test
	doors    []string            // the address of each frontend, for the test
	toPeers  *http.Transport
	recorder *recorder

	store kv.Database // for the test
	jobs  *jobs.Store
}

// newCluster starts everything. build returns the path of a settee.
func newCluster(t *testing.T, build func(c *cluster) string) *cluster {
	c := &cluster{T: t, host: netns.Host(t), password: rand.Text(), couches: map[string]*couchtest.CouchDB{}, ports: map[string]int{},
		peers: map[string]*url.URL{}, recorder: &recorder{cookies: map[string]bool{}},
		toPeers: &http.Transport{MaxIdleConnsPerHost: 200}}
	c.Cleanup(c.toPeers.CloseIdleConnections)
	c.logs = cmp.Or(*logs, t.TempDir())
	c.program = build(c)
	_, err := netns.New(t, "trial")
	c.spaces = err == nil
	if err != nil {
		t.Logf("nodes are frozen instead of cut off from the store: %v", err)
	}
	c.startServers()
	c.openDoor()
	for n := range frontends {
		node := c.newNode(fmt.Sprintf("frontend%d", n), "API_FRONTEND")
		port := freePort(t)
		node.address = "127.0.0.1:" + strconv.Itoa(port)
		node.args = append(node.args, "--set", "chttpd/port="+strconv.Itoa(port), "--set", "settee/drain_sec=1")
		c.nodes = append(c.nodes, node)
	}
	for n := range replicators {
		c.nodes = append(c.nodes, c.newNode(fmt.Sprintf("replication%d", n), "REPLICATION",
			"replicator/max_jobs="+strconv.Itoa(slots()), "replicator/idle_timeout_sec="+[]string{"3", "600"}[n/2], "replicator/max_acceptors=20", "replicator/http_connections=4", "replicator/worker_processes=1",
			"replicator/worker_batch_size=20", "replicator/checkpoint_interval=1000", "replicator/connection_timeout=10000",
			"replicator/min_backoff_penalty_sec=2", "replicator/max_backoff_penalty_sec=8"))
	}
	c.endpoints(c.nodes[frontends:]...)
	for _, node := range c.nodes {
		require.NoError(t, node.start())
	}
	c.openStore()
	return c
}

// slots returns how many slots a replication node has. All nodes together have fewer than there are continuous jobs, except in
// make rolling.
func slots() int { return max(32, *count*3/10) }

// build builds the settee of this commit.
func (c *cluster) build() string { return c.buildIn("") }

// buildIn builds the settee of a module in a directory, with more build tags than those of the store and of the activity
// timeout. Packages that two modules have in common are compiled once.
func (c *cluster) buildIn(module string, tags ...string) string {
	program := filepath.Join(c.TempDir(), "settee")
	require.NoError(c, servers.BuildSettee(c.Context(), module, strings.Join(append(tags, "fdb", "fire"), ","), program))
	return program
}

// startServers starts FoundationDB and the CouchDBs.
func (c *cluster) startServers() {
	var starting sync.WaitGroup
	defer starting.Wait()
	var failed error
	starting.Go(func() {
		c.fdb, failed = servers.StartFoundationDB(c.Context(), servers.FoundationDBOptions{Dir: c.TempDir(), Processes: fdbservers, Disk: true})
	})
	for _, name := range []string{couch0, couch1} {
		couch := couchtest.StartCouchDB(c, map[string]map[string]string{
			"cluster": {"q": "1"}, "couchdb": {"max_dbs_open": "2000"}, // there are many small databases
		})
		to, err := url.Parse(couch.URL)
		require.NoError(c, err)
		c.couches[name], c.peers[name], c.ports[name] = couch, to, freePort(c.T)
	}
	starting.Wait()
	require.NoError(c, failed)
	c.Cleanup(c.fdb.Stop)
}

// freePort returns a free port.
func freePort(t *testing.T) int {
	ports, err := servers.FreePorts(1)
	require.NoError(t, err)
	return ports[0]
}

// openDoor listens for connections to the frontends, like a load balancer: each goes to a healthy
// frontend and stays with it.
func (c *cluster) openDoor() {
	door := "127.0.0.1:" + strconv.Itoa(freePort(c.T))
	c.peers[hosted], c.ports[hosted] = &url.URL{Scheme: "http", Host: door}, freePort(c.T)
	var turn atomic.Int64
	c.host.Relay(door, func(ctx context.Context) (conn net.Conn, err error) {
		first := int(turn.Add(1))
		err = errNoAnswer
		for n := range frontends {
			node := c.nodes[(first+n)%frontends]
			if _, healthy := node.now(); healthy {
				if conn, err = node.space.Dial(ctx, "tcp", node.address); err == nil {
					return conn, nil
				}
			}
		}
		return nil, err
	})
	for n := range frontends {
		door := "127.0.0.1:" + strconv.Itoa(freePort(c.T))
		c.doors = append(c.doors, door)
		c.host.Relay(door, func(ctx context.Context) (net.Conn, error) {
			return c.nodes[n].space.Dial(ctx, "tcp", c.nodes[n].address)
		})
	}
}

// storeURL returns the URL of the nodes' store.
func (c *cluster) storeURL() string {
	u := url.URL{Scheme: "fdb", Path: c.fdb.ClusterFile, RawQuery: url.Values{"prefix": {prefix}}.Encode()}
	return u.String()
}

// openStore opens the store as a node does, without accepting jobs.
func (c *cluster) openStore() {
	var err error
	c.store, err = kv.Open(c.Context(), c.storeURL(), kv.Options{})
	require.NoError(c, err)
	layer := fdbjobs.Open(c.store, tuple.NewSubspace("fdbjobs").Bytes(), fdbjobs.Options{Derive: jobs.Derivations(), Timeout: activityTimeout})
	c.jobs, err = jobs.Open(c.Context(), c.store, layer, jobs.Options{Documents: tuple.NewSubspace("docs").Bytes()})
	require.NoError(c, err)
	c.Cleanup(func() {
		layer.Close()
		_ = c.store.Close()
	})
}

// checkStore checks that all rows of the store agree. No node runs.
func (c *cluster) checkStore() {
	require.NoError(c, c.store.Transact(c.Context(), func(tx kv.Transaction) error {
		tx.Clear([]byte(probe))
		return nil
	}))
	printed, err := exec.CommandContext(c.Context(), c.program, "check", "--store", c.storeURL()).CombinedOutput()
	assert.NoError(c, err, "%s", printed)
}

// forTest returns the URL of a database for the test, forNodes that for the nodes, both with
// credentials. The name of the database is path-escaped.
func (c *cluster) forTest(peer, database string) string {
	return c.at(peer, c.peers[peer].Host) + database
}

func (c *cluster) forNodes(peer, database string) string {
	return c.at(peer, "127.0.0.1:"+strconv.Itoa(c.ports[peer])) + database
}

// at returns the root URL of a peer at an address.
func (c *cluster) at(peer, host string) string {
	user := url.UserPassword(adminName, c.password)
	if couch := c.couches[peer]; couch != nil {
		user = url.UserPassword(couch.Username, couch.Password)
	}
	return (&url.URL{Scheme: "http", User: user, Host: host, Path: "/"}).String()
}

// serverErrors are the answers with a status from 500 on, by host, without those of nodes that go away, and without those of
// replications that failed, which are about their endpoints.
var serverErrors struct {
	mu  sync.Mutex
	all map[string][]string
}

func noteServerError(r *http.Request, status int, text string) {
	switch {
	case status < http.StatusInternalServerError:
		return
	case status == http.StatusServiceUnavailable && strings.Contains(text, "this node is going away"):
		return
	case status == http.StatusInternalServerError && strings.HasSuffix(r.URL.Path, "/_replicate"):
		return
	}
	serverErrors.mu.Lock()
	defer serverErrors.mu.Unlock()
	if serverErrors.all == nil {
		serverErrors.all = map[string][]string{}
	}
	serverErrors.all[r.URL.Host] = append(serverErrors.all[r.URL.Host], fmt.Sprintf("%s %s: %d %s", r.Method, r.URL.Path, status, text))
}

// serverErrors returns those of the frontends.
func (c *cluster) serverErrors() (all []string) {
	serverErrors.mu.Lock()
	defer serverErrors.mu.Unlock()
	for _, host := range append([]string{c.peers[hosted].Host}, c.doors...) {
		all = append(all, serverErrors.all[host]...)
	}
	return all
}

// errNoAnswer is the error of a request without a response, or with a 502 or 503.
var errNoAnswer = errors.New("no answer")

// ask makes a request with a JSON body, and returns the response if it arrives in time.
func ask(ctx context.Context, wait time.Duration, method, target, body string) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	noteServerError(request, response.StatusCode, string(text))
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("%w: %w", errNoAnswer, err)
	case response.StatusCode == http.StatusBadGateway, response.StatusCode == http.StatusServiceUnavailable:
		return 0, "", fmt.Errorf("%w: %d %s", errNoAnswer, response.StatusCode, text)
	}
	return response.StatusCode, string(text), nil
}

// askAgain repeats ask until there is a response, at most for limit. retry reports whether to
// ignore a response with a status.
func askAgain(ctx context.Context, wait time.Duration, method, target, body string, retry func(status int) bool) (status int, answer string, err error) {
	for deadline := time.Now().Add(limit + wait); ; {
		status, answer, err = ask(ctx, wait, method, target, body)
		again := errors.Is(err, errNoAnswer) || err == nil && retry(status)
		if !again || time.Now().After(deadline) {
			return status, answer, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// anyAnswer makes askAgain accept any response.
func anyAnswer(int) bool { return false }

// must repeats a request until there is a response, whose status must be want.
func (c *cluster) must(method, target, body string, want int, into any) {
	c.Helper()
	status, answer, err := askAgain(c.Context(), patience, method, target, body, anyAnswer)
	require.NoError(c, err)
	require.Equal(c, want, status, answer)
	if into != nil {
		require.NoError(c, json.Unmarshal([]byte(answer), into))
	}
}

// logged returns the paths of all logs of the nodes.
func (c *cluster) logged() (paths []string) {
	entries, err := os.ReadDir(c.logs)
	require.NoError(c, err)
	for _, entry := range entries {
		paths = append(paths, filepath.Join(c.logs, entry.Name()))
	}
	return paths
}
