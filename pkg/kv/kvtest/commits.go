package kvtest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// commitTurn is how long commits and syncs each run before the other's turn.
const commitTurn = 250 * time.Millisecond

// BenchmarkDurableCommits commits transactions that each write one small key, from 1 to 512 goroutines. open returns a
// database of the engine that is closed when b ends. commits/sync is the ratio to the rate at which one goroutine
// writes as much to a file and syncs it. The two take turns, as the disk may have other users. The file is in the
// directory for temporary files, and the store should be there too.
func BenchmarkDurableCommits(b *testing.B, open func(b *testing.B) kv.Database) {
	for _, goroutines := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("clients=%d", goroutines), func(b *testing.B) {
			db := open(b)
			file, err := os.Create(filepath.Join(b.TempDir(), "bare"))
			require.NoError(b, err)
			var keys atomic.Int64
			var committing, syncing time.Duration
			syncs := 0
			for b.Loop() {
				committing += commitFor(b, db, goroutines, commitTurn, &keys)
				n, took := syncFor(b, file, commitTurn)
				syncs, syncing = syncs+n, syncing+took
			}
			ours, theirs := float64(keys.Load())/committing.Seconds(), float64(syncs)/syncing.Seconds()
			b.ReportMetric(0, "ns/op") // it would include both turns
			b.ReportMetric(ours, "commits/s")
			b.ReportMetric(theirs, "syncs/s")
			b.ReportMetric(ours/theirs, "commits/sync")
			require.NoError(b, file.Close())
		})
	}
}

// commitFor commits from goroutines for a while, and returns how long that took. Each commit writes the key with the
// next number.
func commitFor(b *testing.B, db kv.Database, goroutines int, d time.Duration, keys *atomic.Int64) time.Duration {
	b.Helper()
	start := time.Now()
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for time.Since(start) < d {
				key := fmt.Appendf(nil, "key/%016d", keys.Add(1))
				err := db.Transact(b.Context(), func(tx kv.Transaction) error {
					tx.Set(key, key)
					return nil
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

// syncFor repeatedly appends a few bytes to a file and syncs it. It returns how often, and how long that took.
func syncFor(b *testing.B, file *os.File, d time.Duration) (n int, took time.Duration) {
	b.Helper()
	record := make([]byte, 100)
	for start := time.Now(); took < d; took = time.Since(start) {
		_, err := file.Write(record)
		require.NoError(b, err)
		require.NoError(b, file.Sync())
		n++
	}
	return n, took
}
