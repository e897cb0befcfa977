package memkv_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clocked is a database with a clock of its own.
type clocked struct {
	kv.Database
	*kvtest.Clock
}

func open(t *testing.T) kv.Database {
	t.Helper()
	clock := &kvtest.Clock{}
	db, err := memkv.Open(memkv.Options{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return clocked{db, clock}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, open)
}

func TestOpenByURL(t *testing.T) {
	t.Parallel()
	db, err := kv.Open(t.Context(), "mem:", kv.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = kv.Open(t.Context(), "mem://somewhere", kv.Options{})
	require.ErrorContains(t, err, "has no name")
}

// TestExactLimits: the largest key, value and transaction fit, and the next larger ones do not.
func TestExactLimits(t *testing.T) {
	t.Parallel()
	db := open(t)
	write := func(fn func(tx kv.Transaction)) error {
		return db.Transact(t.Context(), func(tx kv.Transaction) error {
			fn(tx)
			return nil
		})
	}
	key, value := bytes.Repeat([]byte("k"), kv.MaxKeySize), make([]byte, kv.MaxValueSize)
	require.NoError(t, write(func(tx kv.Transaction) { tx.Set(key, value) }))
	require.NoError(t, write(func(tx kv.Transaction) { tx.ClearRange(kv.KeyRange{Begin: key, End: kv.KeyAfter(key)}) }))
	require.ErrorIs(t, write(func(tx kv.Transaction) { tx.Set(kv.KeyAfter(key), nil) }), kv.ErrKeyTooLarge)
	require.ErrorIs(t, write(func(tx kv.Transaction) { tx.Set(key, make([]byte, kv.MaxValueSize+1)) }), kv.ErrValueTooLarge)

	const own = 44 + 24 + 3*4 + 1 // of a write and its conflict range, without the value
	const pair = kv.MaxValueSize + own
	fill := func(tx kv.Transaction, size int) {
		for i := 0; size >= pair; i++ {
			tx.Set(fmt.Appendf(nil, "%04d", i), value)
			size -= pair
		}
		tx.Set([]byte("last"), value[:size-own])
	}
	require.NoError(t, write(func(tx kv.Transaction) { fill(tx, kv.MaxTransactionSize) }))
	require.ErrorIs(t, write(func(tx kv.Transaction) { fill(tx, kv.MaxTransactionSize+1) }), kv.ErrTransactionTooLarge)
	require.ErrorIs(t, write(func(tx kv.Transaction) {
		tx.AddReadConflictKey([]byte("x"))
		fill(tx, kv.MaxTransactionSize)
	}), kv.ErrTransactionTooLarge)
	// Reads have no size, and what is read twice counts once.
	require.NoError(t, write(func(tx kv.Transaction) {
		for i := range 3000 {
			tx.Get(append(key[:kv.MaxKeySize-8:kv.MaxKeySize-8], fmt.Sprintf("%08d", i)...))
		}
	}))
	require.NoError(t, write(func(tx kv.Transaction) {
		for range 3000 {
			tx.Get(key)
		}
		tx.Set([]byte("x"), nil)
	}))
}

// TestNoGoroutines: a store starts no goroutines, even while it is used. The test is not parallel, because it would
// find the goroutines of other tests.
func TestNoGoroutines(t *testing.T) {
	others := goleak.IgnoreCurrent()
	db := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range 100 {
		var w kv.Watch
		require.NoError(t, db.Transact(ctx, func(tx kv.Transaction) error {
			w = tx.Watch([]byte("k"))
			_, err := tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).Slice()
			tx.Set(fmt.Append(nil, i), nil)
			return err
		}))
		require.NoError(t, goleak.Find(others))
		w.Cancel()
	}
}

// TestDeterminism: the same calls give the same versions and stamps.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	run := func() (trace []string) {
		db := open(t)
		for i := range 50 {
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				tx.Add([]byte("n"), int64(i))
				tx.SetVersionstampedKey(make([]byte, len(kv.Versionstamp{})+4), nil)
				version, err := tx.ReadVersion().Await()
				trace = append(trace, fmt.Sprint(version))
				return err
			}))
		}
		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			for pair, err := range tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).All() {
				if err != nil {
					return err
				}
				trace = append(trace, fmt.Sprintf("%x %x", pair.Key, pair.Value))
			}
			return nil
		}))
		return trace
	}
	first := run()
	require.Equal(t, first, run())
}
