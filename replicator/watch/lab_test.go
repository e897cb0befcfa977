package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/watch"
	"settee/replicator/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

const server = "http://a.example/"

// lab is a store with parked jobs, a server with their sources, and nodes that watch it.
type lab struct {
	*testing.T
	source    *source
	target    *source // the server b.example
	db        kv.Database
	jobs      *jobs.Store
	timeout   time.Duration // the activity timeout of the stores that are opened next
	transport http.RoundTripper
	settings  atomic.Pointer[config.Config]
	mu        sync.Mutex
	changed   chan struct{}
	log       testkit.Journal
	user      *string // whose jobs are added
}

// inLab runs a test in a bubble. Its servers a.example and b.example are in memory.
func inLab(t *testing.T, test func(l *lab)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		source, target := newSource(t), newSource(t)
		l := newLab(t, source, couchtest.Pipe(t, map[string]http.Handler{"a.example": source, "b.example": target}))
		l.target = target
		test(l)
	})
}

// through is a proxy that answers all requests itself: as the server evil.example.
type through struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p through) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = "evil.example"
	return p.RoundTripper.RoundTrip(r)
}

func newLab(t *testing.T, source *source, transport http.RoundTripper) *lab {
	l := &lab{T: t, source: source, db: enginetest.Memory(t), transport: transport, changed: make(chan struct{})}
	l.jobs = l.store(l.db)
	l.set()
	return l
}

// store opens the jobs of a store.
func (l *lab) store(db kv.Database) *jobs.Store {
	l.Helper()
	layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Timeout: l.timeout, Derive: jobs.Derivations()})
	l.Cleanup(layer.Close)
	store, err := jobs.Open(l.Context(), db, layer, jobs.Options{Documents: []byte("docs"), UUID: "0123"})
	require.NoError(l, err)
	return store
}

// set changes settings.
func (l *lab) set(sets ...string) {
	l.Helper()
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(l, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settings.Store(cfg)
	close(l.changed)
	l.changed = make(chan struct{})
}

// node is a running watcher.
type node struct {
	*watch.Watcher
	kill func() // drops everything
	stop func() // hands everything over
}

// start starts a node on a store with faults.
func (l *lab) start() *node {
	l.Helper()
	faulty := faultkv.Wrap(l.db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
		faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.05,
	}})
	return l.startOn(faulty)
}

func (l *lab) startOn(db kv.Database) *node {
	l.Helper()
	cfg := worker.DefaultConfig()
	cfg.BasicAuth, cfg.Shared, cfg.RetryBase = true, new(worker.Shared), time.Millisecond
	cfg.Transport = func(e replicator.Endpoint, _ *sockopt.Options) http.RoundTripper {
		if e.Proxy != "" {
			return through{l.transport}
		}
		return l.transport
	}
	w := watch.New(watch.Options{
		Jobs: l.store(db), Config: l.settings.Load, Worker: func() worker.Config { return cfg },
		Changed: func() <-chan struct{} {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.changed
		},
		Log: zerolog.New(&l.log),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.ErrorIs(l, w.Run(ctx), ctx.Err()) })
	end := sync.OnceFunc(func() {
		defer cancel()
		err := w.Shutdown(context.Background())
		running.Wait()
		assert.NoError(l, err)
	})
	n := &node{Watcher: w, stop: end, kill: func() {
		cancel()
		running.Wait()
	}}
	l.Cleanup(func() {
		if ctx.Err() == nil {
			end()
		}
	})
	return n
}

// park adds a job whose source is a database of the server, with a user, and parks it. It returns the job's id.
func (l *lab) park(user, database string) string {
	l.Helper()
	return l.parkAt(server, user, database)
}

func (l *lab) parkAt(server, user, database string) string {
	l.Helper()
	login := user
	if user != "" {
		l.source.mu.Lock()
		password := l.source.admins[user] + l.source.readers[user]
		l.source.mu.Unlock()
		login = user + ":" + password + "@"
	}
	seq := `"0-x"`
	if _, ok := l.source.databases[database]; ok {
		seq = `"` + l.source.seq(database) + `"`
	}
	return l.parkSource(seq, fmt.Sprintf(`"source":%q,"target":"http://b.example/%s-%s"`,
		strings.Replace(server, "://", "://"+login, 1)+database, user, database))
}

// parkSource parks a job with some members of a definition, as its run would.
func (l *lab) parkSource(seq, members string) string {
	l.Helper()
	request, err := replicator.ParseRequest([]byte("{"+members+`,"continuous":true}`), replicator.ParseOptions{})
	require.NoError(l, err)
	_, err = l.jobs.Requests.Replicate(l.Context(), request.Replication, l.user)
	require.NoError(l, err)
	run := l.accept()
	key, database, ok := run.Job().Args.Replication.Source.Route()
	require.True(l, ok)
	l.parkRun(run, key, database, seq)
	return run.Job().ID
}

func (l *lab) parkRun(run *jobs.Run, server, database, seq string) {
	l.Helper()
	require.False(l, l.tryToPark(run, server, database, seq))
}

// tryToPark reports whether the source has changed, or been named again, while the job was being parked.
func (l *lab) tryToPark(run *jobs.Run, server, database, seq string) (woken bool) {
	l.Helper()
	require.NoError(l, run.Parking(l.Context(), replicator.Parked{Server: server, Database: database, UpdateSeq: seq}))
	woken, err := run.Park(l.Context(), func(state *replicator.JobState) { state.CheckpointedSourceSeq = []byte(seq) })
	require.NoError(l, err)
	return woken
}

// accept waits for a job that is due.
func (l *lab) accept() *jobs.Run {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 5*time.Hour)
	defer cancel()
	runs, err := l.jobs.Runs.Accept(ctx, 1, nil)
	require.NoError(l, err, "no job became due; the log: %s", &l.log)
	require.Len(l, runs, 1)
	return runs[0]
}

// woken waits until a job becomes due and takes it, and returns how long that took. The job must be the one with this id.
func (l *lab) woken(id string) (time.Duration, *jobs.Run) {
	l.Helper()
	began := time.Now()
	run := l.accept()
	require.Equal(l, id, run.Job().ID)
	took := time.Since(began)
	time.Sleep(time.Second) // until the watch has counted it
	synctest.Wait()
	return took, run
}

// sleeps checks that jobs stay parked for a time.
func (l *lab) sleeps(d time.Duration, ids ...string) {
	l.Helper()
	time.Sleep(d)
	synctest.Wait()
	for _, id := range ids {
		job, err := l.jobs.Lists.Get(l.Context(), id)
		require.NoError(l, err)
		require.NotZero(l, job.Parked(), id)
	}
}

// until lets time pass until something is so, at most ten minutes.
func (l *lab) until(what func() bool) time.Duration {
	l.Helper()
	began := time.Now()
	for time.Since(began) < 10*time.Minute {
		if synctest.Wait(); what() {
			return time.Since(began)
		}
		time.Sleep(100 * time.Millisecond)
	}
	l.Fatalf("it did not become so; the log: %s; requests: %q", l.log.String(), l.source.asked)
	return 0
}

func (n *node) follows(feeds int) func() bool {
	return func() bool { return n.Counts().Feeds == feeds }
}
func (n *node) asks(watches int) func() bool {
	return func() bool { return n.Counts().Questioned == watches }
}
