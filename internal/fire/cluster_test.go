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
	"testing"
	"time"

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
	// limit is how long the test waits for what must happen.
	limit = 2 * time.Minute
	// activityTimeout is that of the jobs.
	activityTimeout = 8 * time.Second
	// patience is how long a client of the cluster waits for an answer that it does not have to wait for.
	patience = 10 * time.Second

	prefix    = "fire"
	adminName = "admin"

	frontends, replicators, fdbservers = 2, 3, 3
)

// The peers with the databases: two CouchDBs, and the frontends with the cluster's own databases.
const (
	couch0 = "couch0"
	couch1 = "couch1"
	hosted = "hosted"
)

// cluster is all that runs.
type cluster struct {
	*testing.T
	program  string // settee
	logs     string // the directory of the nodes' logs
	password string // of the nodes' administrator
	spaces   bool   // whether each node is in a network namespace
	fdb      *servers.FoundationDB
	couches  map[string]*couchtest.CouchDB
	nodes    []*node  // the frontends first
	named    sync.Map // the names of all processes of nodes, by their pids
	door     string   // the address at which the test reaches whichever frontend is sound
	ports    map[string]int
	peers    map[string]*url.URL // as the test reaches them
	toPeers  *http.Transport
	recorder *recorder

	store kv.Database // as the test reaches it
	jobs  *jobs.Store
}

// newCluster starts everything.
func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, password: rand.Text(), couches: map[string]*couchtest.CouchDB{}, ports: map[string]int{},
		peers: map[string]*url.URL{}, recorder: &recorder{cookies: map[string]bool{}},
		toPeers: &http.Transport{MaxIdleConnsPerHost: 200}}
	c.Cleanup(c.toPeers.CloseIdleConnections)
	c.logs = cmp.Or(*logs, t.TempDir())
	c.build()
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
		node.args = append(node.args, "--set", "chttpd/port="+strconv.Itoa(port))
		c.nodes = append(c.nodes, node)
	}
	for n := range replicators {
		c.nodes = append(c.nodes, c.newNode(fmt.Sprintf("replication%d", n), "REPLICATION",
			"replicator/max_jobs=1000", "replicator/max_acceptors=20", "replicator/http_connections=4", "replicator/worker_processes=1",
			"replicator/worker_batch_size=20", "replicator/checkpoint_interval=1000", "replicator/connection_timeout=10000",
			"replicator/min_backoff_penalty_sec=2", "replicator/max_backoff_penalty_sec=8"))
	}
	c.endpoints(c.nodes[frontends:]...)
	for n, node := range c.nodes {
		if n == frontends {
			c.openStore() // the monitors of replication nodes are to know the timeout from the beginning
		}
		require.NoError(t, node.start())
	}
	return c
}

// build builds settee.
func (c *cluster) build() {
	c.program = filepath.Join(c.TempDir(), "settee")
	printed, err := exec.CommandContext(c.Context(), "go", "build", "-tags", "fdb", "-o", c.program, "settee/cmd/settee").CombinedOutput()
	require.NoError(c, err, "%s", printed)
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
			"cluster": {"q": "1"}, "couchdb": {"max_dbs_open": "2000"}, // there are many databases, and small ones
		})
		to, err := url.Parse(couch.URL)
		require.NoError(c, err)
		c.couches[name], c.peers[name], c.ports[name] = couch, to, freePort(c.T)
	}
	starting.Wait()
	require.NoError(c, failed)
	c.Cleanup(c.fdb.Stop)
}

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// openDoor listens for connections to the frontends, as what balances load in front of them would: each goes to a
// frontend that is sound, and stays with it.
func (c *cluster) openDoor() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c, err)
	c.door = listener.Addr().String()
	c.peers[hosted], c.ports[hosted] = &url.URL{Scheme: "http", Host: c.door}, freePort(c.T)
	var passing sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	passing.Go(func() {
		for turn := 0; ; turn++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[from] = true
			mu.Unlock()
			passing.Go(func() {
				c.pass(from, turn)
				mu.Lock()
				delete(open, from)
				mu.Unlock()
			})
		}
	})
	c.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		passing.Wait()
	})
}

// pass passes a connection on to a frontend.
func (c *cluster) pass(from net.Conn, turn int) {
	defer from.Close()
	for n := range frontends {
		node := c.nodes[(turn+n)%frontends]
		if _, isSound := node.now(); !isSound {
			continue
		}
		to, err := node.dial(context.Background())
		if err != nil {
			continue
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		}()
		_, _ = io.Copy(from, to)
		return
	}
}

// openStore opens the store as a node does, but takes no job.
func (c *cluster) openStore() {
	u := url.URL{Scheme: "fdb", Path: c.fdb.ClusterFile, RawQuery: url.Values{"prefix": {prefix}}.Encode()}
	var err error
	c.store, err = kv.Open(c.Context(), u.String())
	require.NoError(c, err)
	layer := fdbjobs.Open(c.store, tuple.NewSubspace("fdbjobs").Bytes())
	c.jobs, err = jobs.Open(c.Context(), c.store, layer, jobs.Options{Documents: tuple.NewSubspace("docs").Bytes()})
	require.NoError(c, err)
	require.NoError(c, c.jobs.SetTimeout(c.Context(), activityTimeout))
	c.Cleanup(func() {
		layer.Close()
		_ = c.store.Close()
	})
}

// forTest is the URL of a database as the test reaches it, forNodes as the nodes do. Both have credentials. The name of
// the database is escaped as paths are.
func (c *cluster) forTest(peer, database string) string {
	return c.at(peer, c.peers[peer].Host) + database
}

func (c *cluster) forNodes(peer, database string) string {
	return c.at(peer, "127.0.0.1:"+strconv.Itoa(c.ports[peer])) + database
}

// at is the root of a peer at an address.
func (c *cluster) at(peer, host string) string {
	user := url.UserPassword(adminName, c.password)
	if couch := c.couches[peer]; couch != nil {
		user = url.UserPassword(couch.Username, couch.Password)
	}
	return (&url.URL{Scheme: "http", User: user, Host: host, Path: "/"}).String()
}

// errNoAnswer says that nobody answered a request, or that who did could not do it now.
var errNoAnswer = errors.New("no answer")

// ask makes a request with a body of JSON, and reads the answer into into (nil: not at all). The error is errNoAnswer if
// there is none, be it that a gateway or the server says so.
func ask(ctx context.Context, wait time.Duration, method, target, body string, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errNoAnswer, err)
	case response.StatusCode == http.StatusBadGateway, response.StatusCode == http.StatusServiceUnavailable:
		return response.StatusCode, fmt.Errorf("%w: %d %s", errNoAnswer, response.StatusCode, text)
	case into == nil:
		return response.StatusCode, nil
	}
	if raw, ok := into.(*string); ok {
		*raw = string(text)
		return response.StatusCode, nil
	}
	return response.StatusCode, json.Unmarshal(text, into)
}

// must makes a request until there is an answer, whose status must be want.
func (c *cluster) must(method, target, body string, want int, into any) {
	c.Helper()
	for deadline := time.Now().Add(limit); ; {
		var text string
		status, err := ask(c.Context(), patience, method, target, body, &text)
		switch {
		case err == nil:
			require.Equal(c, want, status, text)
			if into != nil {
				require.NoError(c, json.Unmarshal([]byte(text), into))
			}
			return
		case time.Now().After(deadline):
			require.NoError(c, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// logged returns the paths of all logs of nodes.
func (c *cluster) logged() (paths []string) {
	entries, err := os.ReadDir(c.logs)
	require.NoError(c, err)
	for _, entry := range entries {
		paths = append(paths, filepath.Join(c.logs, entry.Name()))
	}
	return paths
}
