package memkv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// BenchmarkCommitsBesideWatches commits while as many watches are armed as may
// be, and while none is; watches cost memory, but no commit's time.
func BenchmarkCommitsBesideWatches(b *testing.B) {
	newStore := func() kv.Database {
		db, err := memkv.Open(memkv.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		return db
	}
	none, many := newStore(), newStore()
	for range kv.DefaultMaxWatches / 1000 {
		require.NoError(b, many.Transact(b.Context(), func(tx kv.Transaction) error {
			for i := range 1000 {
				tx.Watch(fmt.Appendf(nil, "watched/%d", i))
			}
			return nil
		}))
	}
	n := 0
	commit := func(db kv.Database) {
		for i := range 100 {
			require.NoError(b, db.Transact(b.Context(), func(tx kv.Transaction) error {
				tx.Set(fmt.Appendf(nil, "key/%d", n+i), nil)
				tx.ClearRange(kv.PrefixRange(fmt.Appendf(nil, "gone/%d", n+i)))
				return nil
			}))
		}
	}
	var withNone, withMany time.Duration
	for b.Loop() {
		n += 100
		start := time.Now()
		commit(none)
		between := time.Now()
		commit(many)
		withNone += between.Sub(start)
		withMany += time.Since(between)
	}
	b.ReportMetric(float64(withMany)/float64(withNone), "times-none")
}
