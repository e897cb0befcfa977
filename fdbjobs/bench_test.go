package fdbjobs_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// BenchmarkLifeCycle adds, accepts, updates and finishes jobs, each step a durable
// commit of its own, and compares that with plain commits of the same store, by as
// many writers: of-plain is commits per second over plain commits per second. More
// than 1 is possible, because jobs that are accepted together share a commit.
func BenchmarkLifeCycle(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("processors=%d", n), func(b *testing.B) {
			db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{})
			require.NoError(b, err)
			defer func() { require.NoError(b, db.Close()) }()
			layer := fdbjobs.Open(db, prefix)
			defer layer.Close()
			jobs := layer.Type("work")
			ctx := context.Background()

			plain := perSecond(b, n, func(i int64) error {
				key := fmt.Appendf(nil, "plain/%d", i)
				for range 4 {
					if err := db.Transact(ctx, func(tx kv.Transaction) error {
						tx.Set(key, key)
						return nil
					}); err != nil {
						return err
					}
				}
				return nil
			})
			b.ResetTimer()
			cycles := perSecond(b, n, func(i int64) error { return lifeCycle(ctx, db, jobs, i) })
			b.ReportMetric(cycles, "cycles/s")
			b.ReportMetric(cycles/plain, "of-plain")
		})
	}
}

func lifeCycle(ctx context.Context, db kv.Database, jobs *fdbjobs.Type, i int64) error {
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		return jobs.Add(tx, fdbjobs.Spec{
			ID: fmt.Sprint(i), Owner: fmt.Sprint("owner ", i%10), Args: text(`{"n":1}`), Token: fmt.Sprint(i),
		})
	})
	if err != nil {
		return err
	}
	held, err := jobs.Accept(ctx, fdbjobs.AcceptOptions{})
	if err != nil {
		return err
	}
	if err := held[0].Update(ctx, text(`{"s":1}`), nil); err != nil {
		return err
	}
	return held[0].Finish(ctx, text(`{"s":2}`), nil)
}

// perSecond runs b.N rounds in n goroutines and returns how many were done per second.
func perSecond(b *testing.B, n int, round func(i int64) error) float64 {
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := round(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(b.N) / time.Since(began).Seconds()
}
