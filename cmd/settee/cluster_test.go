package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"settee/fdbjobs"
	"settee/frontend"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

// cluster is a store with one api_frontend node, which listens, and replication nodes that
// come and go, all in this process. The databases that are replicated are the frontend's.
type cluster struct {
	*testing.T
	db     kv.Database
	ledger *ledger
	config *config.Config // of the replication nodes
	url    string         // of the frontend, with its administrator and a slash at its end
	jobs   *jobs.Store
	docs   *docstore.Store
	feeds  atomic.Int64 // that are being served now
	log    *logCounts
	end    func() // of the frontend

	mu      sync.Mutex
	nodes   []*runner // those that run
	started int
}

var (
	jobsPrefix = []byte("jobs")
	docsPrefix = []byte("docs")
)

// clusterTimeout is how long a job may go without a sign of life.
const clusterTimeout = 6 * time.Second

func newCluster(t *testing.T, sets ...string) *cluster {
	db, ok := kvtest.Cluster(t)
	if !ok {
		var err error
		db, err = memkv.Open(memkv.Options{})
		require.NoError(t, err)
	}
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(t, err)
	c := &cluster{T: t, db: db, ledger: newLedger(jobsPrefix), config: cfg, log: &logCounts{counts: map[string]int{}}}
	c.listen()
	require.NoError(t, c.jobs.SetTimeout(t.Context(), clusterTimeout))
	return c
}

// faulty returns the store as one process sees it, with faults of its own.
func (c *cluster) faulty(seed uint64) kv.Database {
	return faultkv.Wrap(c.db, faultkv.Options{Seed: seed, MaxLag: 2 * time.Second, Rates: faultkv.Rates{
		faultkv.Conflict: 0.03, faultkv.UnknownCommitted: 0.05, faultkv.UnknownNotCommitted: 0.03,
		faultkv.TooOld: 0.002, faultkv.Delay: 0.01, faultkv.LateWatch: 0.02, faultkv.SpuriousWatch: 0.05,
	}})
}

// listen starts the frontend.
func (c *cluster) listen() {
	cfg, _, err := config.Load(config.Options{Environ: adminEnvironment, Flags: []string{"chttpd_auth/iterations=10"}})
	require.NoError(c, err)
	db := c.faulty(1 << 32)
	layer := fdbjobs.Open(db, jobsPrefix)
	c.jobs, err = jobs.Open(c.Context(), db, layer, jobs.Options{Documents: docsPrefix})
	require.NoError(c, err)
	live, err := config.OpenLive(c.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config/")})
	require.NoError(c, err)
	c.docs = openDocuments(db, docsPrefix, c.jobs, live.Current)
	require.NoError(c, createDatabases(c.Context(), c.docs))
	known, err := openAccounts(c.Context(), db, nil, c.docs, live, nil, zerolog.Nop())
	require.NoError(c, err)
	n := node{live: live, log: zerolog.Nop(), jobs: c.jobs, docs: c.docs}
	n.keepUp(layer)
	handler := frontend.New(frontend.Options{
		Jobs: c.jobs, Documents: c.docs, Accounts: known, Config: live, Version: "test", Log: zerolog.Nop(),
	})
	n.frontend, n.drain = frontend.NewServer(handler), handler.Drain
	n.frontend.Handler = c.countFeeds(n.frontend.Handler)
	listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", "127.0.0.1:0")
	require.NoError(c, err)
	c.url = withAdmin("http://" + listener.Addr().String() + "/")
	var serving sync.WaitGroup
	serving.Go(func() { assert.ErrorIs(c, n.frontend.Serve(listener), http.ErrServerClosed) })
	c.end = func() {
		err := n.shutdown()
		serving.Wait()
		c.docs.Close()
		layer.Close()
		require.NoError(c, errors.Join(err, c.db.Close()))
	}
}

// countFeeds counts the changes feeds that wait for changes: jobs have one each.
func (c *cluster) countFeeds(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_changes") && r.URL.Query().Get("feed") == "continuous" {
			c.feeds.Add(1)
			defer c.feeds.Add(-1)
		}
		next.ServeHTTP(w, r)
	})
}

// runner is a replication node.
type runner struct {
	name   string
	db     *gatedDB
	server *scheduler.Server
	drop   context.CancelFunc
	ended  chan struct{}
	close  func()
}

// start adds a replication node.
func (c *cluster) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	w := &runner{name: fmt.Sprint("node", c.started), ended: make(chan struct{})}
	w.db = newGatedDB(c.ledger.record(c.faulty(uint64(c.started))))
	layer := fdbjobs.Open(w.db, jobsPrefix)
	store, err := jobs.Open(c.Context(), w.db, layer, jobs.Options{Documents: docsPrefix})
	if err != nil {
		panic(err) // of no fault that the store has
	}
	w.server = scheduler.New(scheduler.Options{Jobs: store, Config: func() *config.Config { return c.config }, Node: w.name, Log: zerolog.New(c.log)})
	var ctx context.Context
	ctx, w.drop = context.WithCancel(context.Background())
	go func() {
		defer close(w.ended)
		_ = w.server.Run(ctx)
	}()
	w.close = func() {
		<-w.ended
		w.drop()
		layer.Close()
	}
	c.nodes = append(c.nodes, w)
}

// take takes a random node out of those that run, unless it is the last one.
func (c *cluster) take(random *rand.Rand) *runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nodes) < 2 {
		return nil
	}
	i := random.IntN(len(c.nodes))
	w := c.nodes[i]
	c.nodes = append(c.nodes[:i:i], c.nodes[i+1:]...)
	return w
}

func (c *cluster) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.nodes)
}

// disturb drops nodes at random moments, so many times, and starts others; or cuts one off
// from the store for a time, with all that it is doing. Moments are counted in states that
// the nodes write, about as many as pause at most from one to the next. At the end there are three nodes, or
// more.
func (c *cluster) disturb(ctx context.Context, random *rand.Rand, times, pause int) {
	for range times {
		if !c.ledger.await(ctx, pause/10+random.IntN(pause)) {
			break
		}
		w := c.take(random)
		switch {
		case w == nil:
		case random.IntN(3) == 0:
			c.cut(ctx, w, time.Duration(90+random.IntN(60))*clusterTimeout/100)
		default:
			w.drop()
			w.close()
			if random.IntN(2) == 0 {
				c.ledger.await(ctx, random.IntN(pause))
			}
		}
		for c.running() < 2+random.IntN(2) {
			c.start()
		}
	}
	for c.running() < 3 {
		c.start()
	}
}

// cut cuts a node off from the store, for less or more than the time after which others take
// its jobs.
func (c *cluster) cut(ctx context.Context, w *runner, length time.Duration) {
	w.db.shut()
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
	w.db.open()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, w)
}

// stop ends the replication nodes: they put their jobs back.
func (c *cluster) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stopping errgroup.Group
	for _, w := range c.nodes {
		stopping.Go(func() error {
			defer w.close()
			return w.server.Shutdown(ctx)
		})
	}
	c.nodes = nil
	require.NoError(c, stopping.Wait())
}

// logCounts counts the messages that the nodes log.
type logCounts struct {
	mu     sync.Mutex
	counts map[string]int
}

func (l *logCounts) Write(line []byte) (int, error) {
	_, message, _ := strings.Cut(string(line), `"message":"`)
	message, _, _ = strings.Cut(message, `"`)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[cmp.Or(message, string(line))]++
	return len(line), nil
}

// leftBehind is how many jobs the nodes did not put back, or do not know of whether they did.
func (l *logCounts) leftBehind() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts["a job could not be put back; it will be taken up again"] +
		l.counts["the end of a run could not be recorded; the job will be taken up again"]
}

func (l *logCounts) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out strings.Builder
	for message, count := range l.counts {
		fmt.Fprintf(&out, "%6d %s\n", count, message)
	}
	return out.String()
}

// gatedDB is a store that a process can be cut off from.
type gatedDB struct {
	kv.Database
	mu   sync.Mutex
	gate chan struct{} // closed while the store can be reached
}

func newGatedDB(db kv.Database) *gatedDB {
	g := &gatedDB{Database: db, gate: make(chan struct{})}
	close(g.gate)
	return g
}

func (g *gatedDB) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = make(chan struct{})
}

func (g *gatedDB) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.gate)
}

func (g *gatedDB) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.Database.Transact(ctx, fn)
}
