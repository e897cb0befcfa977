package pebblekv_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
)

func BenchmarkDurableCommits(b *testing.B) {
	kvtest.BenchmarkDurableCommits(b, func(b *testing.B) kv.Database {
		db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		return db
	})
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
