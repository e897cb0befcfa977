package fdbjobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

var (
	prefix      = []byte("jobs/")
	doesNotWait = fdbjobs.AcceptOptions{Wait: -1}
)

// bundle is a store with one process's job layer.
type bundle struct {
	db    kv.Database
	layer *fdbjobs.Layer
	jobs  *fdbjobs.Queue
}

// newBundle closes the layer at the end of the test, and checks the store's invariants.
func newBundle(t *testing.T, db kv.Database) *bundle { return newBundleWith(t, db, fdbjobs.Options{}) }

func newBundleWith(t *testing.T, db kv.Database, opts fdbjobs.Options) *bundle {
	b := &bundle{db: db, layer: fdbjobs.Open(db, prefix, opts)}
	b.jobs = b.layer.Queue("work")
	t.Cleanup(func() {
		b.layer.Close()
		b.check(t)
	})
	return b
}

// after lets time pass in a bubble.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bundle) check(t *testing.T) {
	t.Helper()
	require.NoError(t, check.Sound(context.Background(), b.db, b.layer.Check))
}

func (b *bundle) transact(t *testing.T, fn func(tx kv.Transaction) error) {
	t.Helper()
	require.NoError(t, b.db.Transact(t.Context(), fn))
}

func (b *bundle) add(t *testing.T, specs ...fdbjobs.Spec) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
}

func (b *bundle) remove(t *testing.T, id string) (was bool) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		removed, err := b.jobs.Remove(tx, id)
		was = was || len(removed) > 0
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
		return b.jobs.Count(tx, fdbjobs.Selection{Parts: fdbjobs.Parts(statuses...)})
	})
	require.NoError(t, err)
	return n
}

// removeExpired removes some expired jobs. It reports how many, and whether there may be more.
func removeExpired(ctx context.Context, db kv.Database, queue *fdbjobs.Queue) (removed int, more bool, err error) {
	const atOnce = 100
	jobs, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
		return queue.RemoveExpired(tx, atOnce)
	})
	return len(jobs), len(jobs) == atOnce, err
}

// take accepts what is available, up to n jobs.
func (b *bundle) take(t *testing.T, n int) []*fdbjobs.Held {
	t.Helper()
	return b.acceptBy(t, fdbjobs.AcceptOptions{Count: n, Wait: -1})
}

func (b *bundle) acceptBy(t *testing.T, opts fdbjobs.AcceptOptions) []*fdbjobs.Held {
	t.Helper()
	held, err := b.jobs.Accept(t.Context(), opts)
	require.NoError(t, err)
	return held
}

// accept takes a job that is available.
func (b *bundle) accept(t *testing.T) *fdbjobs.Held {
	t.Helper()
	held := b.take(t, 1)
	require.Len(t, held, 1)
	return held[0]
}

// monitor runs a monitor until the test ends or stop is called. The ids that it requeued arrive in the channel, which
// has room for some.
func (b *bundle) monitor(t *testing.T) (requeued <-chan []string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	told, ended := make(chan []string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		err := b.jobs.RunMonitor(ctx, func(ids []string, _ time.Duration, err error) {
			if len(ids) > 0 {
				told <- ids
			}
			if err != nil {
				t.Errorf("monitor: %v", err)
			}
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

// delay adds a job that waits for a past time, as a process whose clock is behind does.
func (b *bundle) delay(t *testing.T, id string, scheduled time.Time) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error { return b.jobs.Delay(tx, id, scheduled) })
}
