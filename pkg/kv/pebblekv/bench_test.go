package pebblekv_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// BenchmarkDurableCommits commits small transactions from a number of
// goroutines. The ratio is to the rate at which one goroutine can write as much
// to a file and sync it; the two take turns, as the disk may have other users.
func BenchmarkDurableCommits(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			const turn = 50 * time.Millisecond
			dir := b.TempDir()
			db, err := pebblekv.Open(dir, pebblekv.Options{})
			require.NoError(b, err)
			file, err := os.Create(filepath.Join(dir, "bare"))
			require.NoError(b, err)
			commits, syncs := 0, 0
			var bare time.Duration
			for b.ResetTimer(); commits < b.N; {
				commits += commitFor(b, db, goroutines, turn, commits)
				b.StopTimer()
				n, took := syncFor(b, file, turn)
				syncs, bare = syncs+n, bare+took
				b.StartTimer()
			}
			b.StopTimer()
			ours, theirs := float64(commits)/b.Elapsed().Seconds(), float64(syncs)/bare.Seconds()
			b.ReportMetric(0, "ns/op") // it is not of b.N commits
			b.ReportMetric(ours, "commits/s")
			b.ReportMetric(theirs, "syncs/s")
			b.ReportMetric(ours/theirs, "commits/sync")
			require.NoError(b, file.Close())
			require.NoError(b, db.Close())
		})
	}
}

// commitFor commits from goroutines for a while and returns how often. The keys
// are numbered from the given number on.
func commitFor(b *testing.B, db kv.Database, goroutines int, d time.Duration, from int) int {
	b.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	start := time.Now()
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for time.Since(start) < d {
				key := fmt.Appendf(nil, "key/%016d", next.Add(1))
				err := db.Transact(b.Context(), func(tx kv.Transaction) error {
					_, err := tx.Get(key).Await()
					tx.Set(key, key)
					return err
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return int(next.Load()) - from
}

// syncFor appends a few bytes to a file and syncs it, again and again, and
// returns how often and how long that took.
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

// The data of the read benchmarks.
const (
	benchKeys   = 100_000
	benchReads  = 1000
	benchPrefix = "settee/documents/0123456789/"
)

func benchKey(n int) []byte { return fmt.Appendf(nil, benchPrefix+"%08d", n) }

// beside holds the same data in a store and in a bare Pebble database.
type beside struct {
	db   kv.Database
	bare *pebble.DB
}

func openBeside(b *testing.B) beside {
	b.Helper()
	db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{})
	require.NoError(b, err)
	cache := pebble.NewCache(64 << 20)
	defer cache.Unref()
	bare, err := pebble.Open(b.TempDir(), &pebble.Options{
		Cache: cache, MemTableSize: 32 << 20, FormatMajorVersion: pebble.FormatNewest, Logger: silent{},
	})
	require.NoError(b, err)
	value := make([]byte, 100)
	for from := 0; from < benchKeys; from += 10_000 {
		batch := bare.NewBatch()
		require.NoError(b, db.Transact(b.Context(), func(tx kv.Transaction) error {
			for n := from; n < from+10_000; n++ {
				tx.Set(benchKey(n), value)
				require.NoError(b, batch.Set(benchKey(n), value, nil))
			}
			return nil
		}))
		require.NoError(b, batch.Commit(pebble.Sync))
	}
	b.Cleanup(func() {
		require.NoError(b, db.Close())
		require.NoError(b, bare.Close())
	})
	return beside{db, bare}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// compare runs both and reports how much longer the first takes.
func compare(b *testing.B, ours, bare func()) {
	b.Helper()
	var oursTook, bareTook time.Duration
	for b.Loop() {
		start := time.Now()
		ours()
		between := time.Now()
		bare()
		oursTook += between.Sub(start)
		bareTook += time.Since(between)
	}
	b.ReportMetric(float64(oursTook)/float64(bareTook), "times-bare")
	b.ReportMetric(float64(oursTook.Nanoseconds())/float64(b.N*benchReads), "ns/key")
}

// BenchmarkPointReads reads 1,000 keys in one transaction, and the same keys
// from a snapshot of bare Pebble.
func BenchmarkPointReads(b *testing.B) {
	stores := openBeside(b)
	keys := make([][]byte, benchReads)
	for i := range keys {
		keys[i] = benchKey(rand.IntN(benchKeys))
	}
	compare(b, func() {
		require.NoError(b, stores.db.Transact(b.Context(), func(tx kv.Transaction) error {
			for _, key := range keys {
				if _, err := tx.Get(key).Await(); err != nil {
					return err
				}
			}
			return nil
		}))
	}, func() {
		snapshot := stores.bare.NewSnapshot()
		for _, key := range keys {
			value, closer, err := snapshot.Get(key)
			if err != nil {
				b.Fatal(err)
			}
			_ = append([]byte(nil), value...)
			if err := closer.Close(); err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, snapshot.Close())
	})
}

// BenchmarkRangeRead reads a range of 1,000 keys in one transaction, and the
// same range from a snapshot of bare Pebble.
func BenchmarkRangeRead(b *testing.B) {
	stores := openBeside(b)
	for _, c := range []struct {
		name string
		read func(result kv.RangeResult) (n int, err error)
	}{
		{"Slice", func(result kv.RangeResult) (int, error) {
			pairs, err := result.Slice()
			return len(pairs), err
		}},
		{"All", func(result kv.RangeResult) (n int, err error) {
			for _, err := range result.All() {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			compare(b, func() {
				from := rand.IntN(benchKeys - benchReads)
				require.NoError(b, stores.db.Transact(b.Context(), func(tx kv.Transaction) error {
					r := kv.KeyRange{Begin: benchKey(from), End: benchKey(from + benchReads)}
					n, err := c.read(tx.GetRange(r, kv.RangeOptions{}))
					if n != benchReads {
						return fmt.Errorf("%d pairs: %w", n, err)
					}
					return err
				}))
			}, func() {
				from := rand.IntN(benchKeys - benchReads)
				snapshot := stores.bare.NewSnapshot()
				it, err := snapshot.NewIter(&pebble.IterOptions{LowerBound: benchKey(from), UpperBound: benchKey(from + benchReads)})
				require.NoError(b, err)
				var pairs []kv.KeyValue
				for ok := it.First(); ok; ok = it.Next() {
					value, err := it.ValueAndErr()
					if err != nil {
						b.Fatal(err)
					}
					pairs = append(pairs, kv.KeyValue{Key: append([]byte(nil), it.Key()...), Value: append([]byte(nil), value...)})
				}
				require.Len(b, pairs, benchReads)
				require.NoError(b, it.Close())
				require.NoError(b, snapshot.Close())
			})
		})
	}
}
