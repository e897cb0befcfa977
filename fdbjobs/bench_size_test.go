package fdbjobs_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
)

// BenchmarkQueueSize compares a queue of a million jobs with one of a thousand: times-1000
// is how much longer something takes with the million, in the median.
func BenchmarkQueueSize(b *testing.B) {
	const few, many, taken = 1_000, 1_000_000, 500_000
	for _, owners := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("owners=%d", owners), func(b *testing.B) {
			short, long := newQueue(b, owners, few), newQueue(b, owners, many)
			b.Run("fresh", func(b *testing.B) { compareQueues(b, short, long) })
			long.take(b, taken)
			b.Run("half-taken", func(b *testing.B) { compareQueues(b, short, long) })
		})
	}
}

func newQueue(b *testing.B, owners, jobs int) *queue {
	b.Helper()
	db := openDisk(b)
	q := &queue{db: db, jobs: openLayer(b, db).Type("work"), owners: owners}
	defer seldomCollect()()
	began := time.Now()
	q.add(b, jobs)
	b.Logf("%d jobs of %d owners were added in %v", jobs, owners, time.Since(began).Round(time.Millisecond))
	return q
}

// take takes the n jobs that have waited longest, and removes them.
func (q *queue) take(b *testing.B, n int) {
	b.Helper()
	defer seldomCollect()()
	// Jobs that are removed while they are held stay in memory for their timeout.
	q.setTimeout(b, time.Second)
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for left.Load() > 0 {
				removed, err := q.takeSome(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				left.Add(-int64(removed))
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	b.Logf("%d jobs were taken in %v", n, time.Since(began).Round(time.Millisecond))
	q.setTimeout(b, fdbjobs.DefaultTimeout)
}

// seldomCollect makes the garbage collector rare until the function that it returns is
// called: what is prepared is not measured, and takes minutes.
func seldomCollect() (restore func()) {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}

func (q *queue) takeSome(ctx context.Context) (removed int, err error) {
	held, err := q.jobs.Accept(ctx, fdbjobs.AcceptOptions{Count: fdbjobs.MaxClaim})
	if err != nil {
		return 0, err
	}
	return len(held), q.db.Transact(ctx, func(tx kv.Transaction) error {
		for _, h := range held {
			if _, err := q.jobs.Remove(tx, h.Job().ID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *queue) setTimeout(b *testing.B, timeout time.Duration) {
	b.Helper()
	require.NoError(b, q.db.Transact(b.Context(), func(tx kv.Transaction) error {
		return q.jobs.SetTimeout(tx, timeout)
	}))
}

func compareQueues(b *testing.B, short, long *queue) {
	for _, op := range []struct {
		name string
		run  func(b *testing.B, q *queue) time.Duration
	}{
		{"accept", func(b *testing.B, q *queue) time.Duration { return q.accept(b, q.jobs) }},
		// A process that has just started does not know yet where the queue begins.
		{"first-accept", func(b *testing.B, q *queue) time.Duration {
			layer := fdbjobs.Open(q.db, prefix)
			defer layer.Close()
			return q.accept(b, layer.Type("work"))
		}},
		{"count", func(b *testing.B, q *queue) time.Duration {
			return q.read(b, func(tx kv.ReadTransaction) error {
				_, err := q.jobs.Count(tx, fdbjobs.Parts(fdbjobs.Pending)...)
				return err
			})
		}},
		{"count-due", func(b *testing.B, q *queue) time.Duration {
			return q.read(b, func(tx kv.ReadTransaction) error {
				_, err := q.jobs.CountDue(tx, time.Now(), page)
				return err
			})
		}},
		{"list", func(b *testing.B, q *queue) time.Duration {
			return q.read(b, func(tx kv.ReadTransaction) error {
				jobs, err := q.jobs.List(tx, "", page, fdbjobs.Parts(fdbjobs.Pending)...)
				if len(jobs) != page && err == nil {
					err = fmt.Errorf("a page of %d jobs", len(jobs))
				}
				return err
			})
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			var few, many durations
			for b.Loop() {
				few.add(op.run(b, short))
				many.add(op.run(b, long))
			}
			b.ReportMetric(0, "ns/op") // it is of both
			b.ReportMetric(float64(many.median().Nanoseconds())/1e3, "µs")
			b.ReportMetric(float64(many.median())/float64(few.median()), "times-1000")
		})
	}
}

// page is how many jobs are listed.
const page = 100

// accept takes a job, and puts it back.
func (q *queue) accept(b *testing.B, jobs *fdbjobs.Type) time.Duration {
	b.Helper()
	began := time.Now()
	held, err := jobs.Accept(b.Context(), nobody)
	took := time.Since(began)
	require.NoError(b, err)
	require.Len(b, held, 1)
	require.NoError(b, held[0].Resubmit(b.Context(), began, nil, nil))
	return took
}

func (q *queue) read(b *testing.B, read func(kv.ReadTransaction) error) time.Duration {
	b.Helper()
	began := time.Now()
	require.NoError(b, q.db.Transact(b.Context(), func(tx kv.Transaction) error { return read(tx.Snapshot()) }))
	return time.Since(began)
}
