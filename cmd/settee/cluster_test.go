package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"settee/cmd/settee/internal/lifecycle"
	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/sealed"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

// cluster is a store with one listening api_frontend node, and with replication nodes that come and go, all in this
// process. The replicated databases are the frontend's.
type cluster struct {
	*testing.T
	db     kv.Database
	ledger *ledger
	config *config.Config // of the replication nodes
	url    string         // of the frontend, with administrator and final slash
	jobs   *jobs.Store
	docs   *docstore.Store
	feeds  atomic.Int64 // being served now
	log    *logCounts
	end    func() // of the frontend

	mu      sync.Mutex
	nodes   []*runner // running
	started int
}

// clusterTimeout is the activity timeout of jobs.
const clusterTimeout = 6 * time.Second

func newCluster(t *testing.T, sets ...string) *cluster {
	db := enginetest.ClusterOr(t, enginetest.Memory)
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(t, err)
	c := &cluster{T: t, db: db, ledger: newLedger(jobsPrefix), config: cfg, log: &logCounts{counts: map[string]int{}}}
	c.listen()
	require.NoError(t, c.jobs.SetTimeout(t.Context(), clusterTimeout))
	return c
}

// faulty returns a process's view of the store, with faults of its own.
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
	n := &node{cfg: cfg, db: c.faulty(1 << 32), keys: new(sealed.Keys)}
	stop := runParts(c.T, n,
		lifecycle.Part{Start: n.openConfiguration}, n.jobsPart(), n.documentsPart(),
		lifecycle.Part{Start: n.createDatabases}, lifecycle.Part{Start: n.openAccounts},
		n.frontendPart(),
		lifecycle.Part{Start: func(ctx context.Context) error {
			n.frontend.Handler = c.countFeeds(n.frontend.Handler)
			address, err := n.frontend.listen(ctx, netip.MustParseAddrPort("127.0.0.1:0"), n.frontend.Serve, n.fail)
			c.url = withAdmin("http://" + address + "/")
			return err
		}},
		lifecycle.Worker(n.runUpkeep))
	c.jobs, c.docs = n.jobs, n.docs
	c.end = stop
}

// countFeeds counts the waiting changes feeds, one per job.
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
	db     *enginetest.Controlled
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
	w.db = enginetest.Control(c.ledger.record(c.faulty(uint64(c.started))))
	layer := fdbjobs.Open(w.db, jobsPrefix, fdbjobs.Options{})
	store, err := jobs.Open(c.Context(), w.db, layer, jobs.Options{Documents: docsPrefix})
	if err != nil {
		panic(err) // not caused by the store's faults
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

// take removes a random running node from nodes, unless it is the last one.
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

// disturb drops nodes at random moments, the given number of times, and starts others, or cuts a node off from the
// store for some time. Moments are counted in states written by the nodes, with at most pause states from one to the
// next. At the end there are at least three nodes.
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

// cut cuts a node off from the store, for less or more than the time after which other nodes take its jobs.
func (c *cluster) cut(ctx context.Context, w *runner, length time.Duration) {
	reach := w.db.HoldBefore()
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
	reach()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, w)
}

// stop stops the replication nodes, which put their jobs back.
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

// leftBehind returns the number of jobs that the nodes did not put back, or may not have put back.
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
