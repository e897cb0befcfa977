package memkv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

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
	mu  sync.Mutex
	now time.Time
}

func (db *clocked) Now() time.Time {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.now
}

func (db *clocked) Advance(d time.Duration) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.now = db.now.Add(d)
}

func open(t *testing.T) *clocked {
	t.Helper()
	db := &clocked{now: time.Unix(0, 0)}
	var err error
	db.Database, err = memkv.Open(memkv.Options{Now: db.Now})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := db.Close(); !errors.Is(err, kv.ErrClosed) {
			require.NoError(t, err)
		}
	})
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(t *testing.T) kv.Database { return open(t) })
}

func TestOpenByURL(t *testing.T) {
	t.Parallel()
	db, err := kv.Open(t.Context(), "mem:")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = kv.Open(t.Context(), "mem://somewhere")
	require.ErrorContains(t, err, "has no name")
}

// TestExactLimits: the last key, value and transaction that fit, and the first
// that does not.
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

	const own = 44 + 24 + 3*4 + 1 // of a write and its conflict range, beside the value
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
	// What is only read has no size, and what is read twice counts once.
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

// TestEmptyConflictRanges: a range without keys conflicts with nothing.
func TestEmptyConflictRanges(t *testing.T) {
	t.Parallel()
	db := open(t)
	runs := 0
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		runs++
		_, err := tx.Get([]byte("k")).Await()
		if err != nil {
			return err
		}
		tx.Set([]byte("out"), nil)
		return db.Transact(t.Context(), func(tx kv.Transaction) error {
			tx.AddWriteConflictRange(kv.KeyRange{Begin: []byte("a"), End: []byte("a")})
			return nil
		})
	}))
	require.Equal(t, 1, runs)
}

// TestNoGoroutines: a store runs nothing of its own, also while it is used. It
// counts the goroutines of the process, and so runs alone.
func TestNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
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
		require.LessOrEqual(t, runtime.NumGoroutine(), before)
		w.Cancel()
	}
	require.NoError(t, db.Close())
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// TestDeterminism: the same calls give the same versions and stamps.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	run := func() (trace []string) {
		db := open(t)
		for i := range 50 {
			var stamp kv.Future[kv.Versionstamp]
			var version int64
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) (err error) {
				tx.Atomic(kv.MutationAdd, []byte("n"), []byte{byte(i)})
				stamp = tx.Versionstamp()
				version, err = tx.ReadVersion().Await()
				return err
			}))
			got, err := stamp.Await()
			require.NoError(t, err)
			trace = append(trace, fmt.Sprintf("%d %x", version, got))
		}
		return trace
	}
	first := run()
	require.Equal(t, first, run())
}
