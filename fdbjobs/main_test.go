package fdbjobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/pebblekv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

var (
	prefix = []byte("jobs/")
	nobody = fdbjobs.AcceptOptions{Wait: -1} // does not wait
)

// bundle is a store with one process's job layer.
type bundle struct {
	db    kv.Database
	layer *fdbjobs.Layer
	jobs  *fdbjobs.Type
}

// newBundle closes the layer at the end of the test, and finds the store in order.
func newBundle(t *testing.T, db kv.Database) *bundle {
	b := &bundle{db: db, layer: fdbjobs.Open(db, prefix)}
	b.jobs = b.layer.Type("work")
	t.Cleanup(func() {
		b.layer.Close()
		b.check(t)
	})
	return b
}

func openMem(t *testing.T, opts memkv.Options) kv.Database {
	db, err := memkv.Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// onEngines runs a test that does not wait for anything, on every engine.
func onEngines(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Parallel()
	t.Run("memkv", func(t *testing.T) {
		t.Parallel()
		inBubble(t, test)
	})
	onCluster(t, test)
	t.Run("pebblekv", func(t *testing.T) {
		t.Parallel()
		db, err := pebblekv.Open("/store", pebblekv.Options{FS: vfs.NewMem()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, db)
	})
}

// onCluster runs a test on FoundationDB, if there is one.
func onCluster(t *testing.T, test func(t *testing.T, db kv.Database)) {
	db, ok := kvtest.Cluster(t)
	if !ok {
		return
	}
	t.Run("fdbkv", func(t *testing.T) {
		test(t, db)
	})
	require.NoError(t, db.Close())
}

// inBubble runs a test in memory, where time passes only while all wait.
func inBubble(t *testing.T, test func(t *testing.T, db kv.Database)) {
	synctest.Test(t, func(t *testing.T) { test(t, openMem(t, memkv.Options{})) })
}

// after lets time pass in a bubble.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bundle) check(t *testing.T) {
	t.Helper()
	require.NoError(t, b.db.Transact(context.Background(), func(tx kv.Transaction) error {
		return b.jobs.Check(tx.Snapshot())
	}))
}

func (b *bundle) transact(t *testing.T, fn func(tx kv.Transaction) error) {
	t.Helper()
	require.NoError(t, b.db.Transact(t.Context(), fn))
}

func (b *bundle) add(t *testing.T, specs ...fdbjobs.Spec) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		for i, spec := range specs {
			spec.Order = uint16(i)
			if err := b.jobs.Add(tx, spec); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bundle) remove(t *testing.T, id string) (was bool) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		there, err := b.jobs.Remove(tx, id)
		was = was || there
		return err
	})
	return was
}

func (b *bundle) read(t *testing.T, id string) (*fdbjobs.Job, error) {
	t.Helper()
	return kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (*fdbjobs.Job, error) {
		return b.jobs.Get(tx, id)
	})
}

func (b *bundle) get(t *testing.T, id string) *fdbjobs.Job {
	t.Helper()
	job, err := b.read(t, id)
	require.NoError(t, err)
	return job
}

func (b *bundle) count(t *testing.T, statuses ...fdbjobs.Status) int64 {
	t.Helper()
	n, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (int64, error) {
		return b.jobs.Count(tx, fdbjobs.Parts(statuses...)...)
	})
	require.NoError(t, err)
	return n
}

// take accepts what there is, up to n jobs.
func (b *bundle) take(t *testing.T, n int) []*fdbjobs.Held {
	t.Helper()
	held, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{Count: n, Wait: -1})
	require.NoError(t, err)
	return held
}

// accept takes a job that is there.
func (b *bundle) accept(t *testing.T) *fdbjobs.Held {
	t.Helper()
	held := b.take(t, 1)
	require.Len(t, held, 1)
	return held[0]
}

func (b *bundle) setTimeout(t *testing.T, timeout time.Duration) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error { return b.jobs.SetTimeout(tx, timeout) })
}

// monitor runs a monitor until the test ends or stop is called. What it requeued
// arrives in the channel, which has room for some.
func (b *bundle) monitor(t *testing.T) (requeued <-chan []string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	told, ended := make(chan []string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		err := b.jobs.RunMonitor(ctx, fdbjobs.MonitorOptions{
			Requeued: func(ids []string) { told <- ids },
			Failed:   func(err error) { t.Errorf("monitor: %v", err) },
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("monitor: %v", err)
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-ended }) }
	t.Cleanup(stop)
	return told, stop
}

func text(s string) json.RawMessage { return json.RawMessage(s) }

// counted counts what is asked of a store.
type counted struct {
	kv.Database
	runs    atomic.Int64 // of transactions' functions
	watches atomic.Int64
}

func (c *counted) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return c.Database.Transact(ctx, func(tx kv.Transaction) error {
		c.runs.Add(1)
		return fn(countedTx{tx, c})
	})
}

type countedTx struct {
	kv.Transaction
	c *counted
}

func (t countedTx) Watch(key []byte) kv.Watch {
	t.c.watches.Add(1)
	return t.Transaction.Watch(key)
}

// gated holds transactions back while it is shut: before they begin, or after they
// have been committed.
type gated struct {
	kv.Database
	mu     sync.Mutex
	before chan struct{} // nil: open
	after  chan struct{}
	err    error // instead of the transaction
}

// shut returns what opens the gate again.
func (g *gated) shut(gate *chan struct{}) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	*gate = c
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		*gate = nil
		close(c)
	}
}

func (g *gated) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

func (g *gated) pass(ctx context.Context, gate *chan struct{}) error {
	g.mu.Lock()
	c := *gate
	g.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if err := g.pass(ctx, &g.before); err != nil {
		return err
	}
	g.mu.Lock()
	err := g.err
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if err := g.Database.Transact(ctx, fn); err != nil {
		return err
	}
	return g.pass(context.Background(), &g.after)
}

// unknownOnce makes each of a store's commits be reported unknown once.
func unknownOnce(db kv.Database) kv.Database {
	return faultkv.Wrap(db, faultkv.Options{Script: faultkv.UnknownOnce})
}

func inBubbleParallel(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Parallel()
	inBubble(t, test)
}

// delay adds a job that waits for a time that has passed, as a process does whose
// clock is behind.
func (b *bundle) delay(t *testing.T, id string, scheduled time.Time) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error { return b.jobs.Delay(tx, id, scheduled) })
}
