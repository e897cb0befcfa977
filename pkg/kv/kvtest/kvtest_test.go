package kvtest

import (
	"context"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// broken is a database that changes the transactions of another one.
type broken struct {
	kv.Database
	change func(kv.Transaction) kv.Transaction
}

func (db broken) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return db.Database.Transact(ctx, func(tx kv.Transaction) error { return fn(db.change(tx)) })
}

// unserializable reads without conflicts.
type unserializable struct{ kv.Transaction }

func (tx unserializable) Get(key []byte) kv.Future[[]byte] { return tx.Snapshot().Get(key) }

func (tx unserializable) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return tx.Snapshot().GetRange(r, opts)
}

// forgetful returns the values of keys as they were when they were first read.
type forgetful struct {
	kv.Transaction
	mu     *sync.Mutex
	values map[string][]byte
}

func (tx forgetful) Get(key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	value, ok := tx.values[string(key)]
	if !ok {
		value, _ = tx.Transaction.Get(key).Await()
		tx.values[string(key)] = value
	}
	return known(value)
}

type known []byte

func (f known) Await() ([]byte, error) { return f, nil }

// TestCheckerSeesWeakIsolation: the checker finds a history that no order explains.
func TestCheckerSeesWeakIsolation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(kv.Transaction) kv.Transaction
		want   porcupine.CheckResult
	}{
		"as it is":          {func(tx kv.Transaction) kv.Transaction { return tx }, porcupine.Ok},
		"without conflicts": {func(tx kv.Transaction) kv.Transaction { return unserializable{tx} }, porcupine.Illegal},
		"old values": {func() func(tx kv.Transaction) kv.Transaction {
			var mu sync.Mutex
			values := map[string][]byte{}
			return func(tx kv.Transaction) kv.Transaction { return forgetful{tx, &mu, values} }
		}(), porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := memkv.Open(memkv.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			b := newBench(t, broken{db, c.change})
			result := porcupine.Ok
			for seed := uint64(0); seed < 20 && result == porcupine.Ok; seed++ {
				b.reset()
				history, err := b.record(seed)
				require.NoError(t, err)
				result = checkHistory(history)
			}
			require.Equal(t, c.want, result)
		})
	}
}
