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
	"settee/pkg/kv/enginetest"
)

// BenchmarkQueueSize compares a queue of a million jobs with one of a thousand: times-1000 is the median time with a
// million over that with a thousand.
func BenchmarkQueueSize(b *testing.B) {
	const few, many, taken = 1_000, 1_000_000, 500_000
	for _, owners := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("owners=%d", owners), func(b *testing.B) {
			short, long := newBacklog(b, owners, few), newBacklog(b, owners, many)
			b.Run("fresh", func(b *testing.B) { compareBacklogs(b, short, long) })
			long.take(b, taken)
			b.Run("half-taken", func(b *testing.B) { compareBacklogs(b, short, long) })
		})
	}
}

func newBacklog(b *testing.B, owners, jobs int) *backlog {
	b.Helper()
	db := enginetest.Disk(b)
	l := &backlog{db: db, jobs: openLayer(b, db).Queue("work"), owners: owners}
	defer seldomCollect()()
	began := time.Now()
	l.add(b, jobs)
	b.Logf("%d jobs of %d owners were added in %v", jobs, owners, time.Since(began).Round(time.Millisecond))
	return l
}

// take takes the n jobs that have waited longest, and removes them.
func (l *backlog) take(b *testing.B, n int) {
	b.Helper()
	defer seldomCollect()()
	// Jobs that are removed while they are held stay in memory for their timeout.
	layer := fdbjobs.Open(l.db, prefix, fdbjobs.Options{Timeout: time.Second})
	defer layer.Close()
	jobs := layer.Queue("work")
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for left.Load() > 0 {
				removed, err := l.takeSome(b.Context(), jobs)
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
}

// seldomCollect makes garbage collections rare until the returned function is called. The set-up is not measured, and
// would take minutes.
func seldomCollect() (restore func()) {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}

func (l *backlog) takeSome(ctx context.Context, jobs *fdbjobs.Queue) (removed int, err error) {
	held, err := jobs.Accept(ctx, fdbjobs.AcceptOptions{Count: fdbjobs.MaxClaim})
	if err != nil {
		return 0, err
	}
	return len(held), l.db.Transact(ctx, func(tx kv.Transaction) error {
		for _, h := range held {
			if _, err := jobs.Remove(tx, h.Job().ID); err != nil {
				return err
			}
		}
		return nil
	})
}

func compareBacklogs(b *testing.B, short, long *backlog) {
	for _, op := range []struct {
		name string
		run  func(b *testing.B, l *backlog) time.Duration
	}{
		{"accept", func(b *testing.B, l *backlog) time.Duration { return l.accept(b, l.jobs) }},
		// A new process does not know yet where the ready jobs begin.
		{"first-accept", func(b *testing.B, l *backlog) time.Duration {
			layer := fdbjobs.Open(l.db, prefix, fdbjobs.Options{})
			defer layer.Close()
			return l.accept(b, layer.Queue("work"))
		}},
		{"count", func(b *testing.B, l *backlog) time.Duration {
			return l.read(b, func(tx kv.ReadTransaction) error {
				_, err := l.jobs.Count(tx, fdbjobs.Selection{Parts: fdbjobs.Parts(fdbjobs.Pending)})
				return err
			})
		}},
		{"list", func(b *testing.B, l *backlog) time.Duration {
			return l.read(b, func(tx kv.ReadTransaction) error {
				jobs, err := l.jobs.List(tx, fdbjobs.Selection{Parts: fdbjobs.Parts(fdbjobs.Pending)}, fdbjobs.Position{}, page)
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
			b.ReportMetric(0, "ns/op") // it would include both
			b.ReportMetric(float64(many.median().Nanoseconds())/1e3, "µs")
			b.ReportMetric(float64(many.median())/float64(few.median()), "times-1000")
		})
	}
}

// page is the number of jobs that are listed.
const page = 100

// accept takes a job and resubmits it.
func (l *backlog) accept(b *testing.B, jobs *fdbjobs.Queue) time.Duration {
	b.Helper()
	began := time.Now()
	held, err := jobs.Accept(b.Context(), doesNotWait)
	took := time.Since(began)
	require.NoError(b, err)
	require.Len(b, held, 1)
	require.NoError(b, held[0].Resubmit(b.Context(), began, nil, nil))
	return took
}

func (l *backlog) read(b *testing.B, read func(kv.ReadTransaction) error) time.Duration {
	b.Helper()
	began := time.Now()
	require.NoError(b, l.db.Transact(b.Context(), func(tx kv.Transaction) error { return read(tx.Snapshot()) }))
	return time.Since(began)
}
