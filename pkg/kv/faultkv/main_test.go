package faultkv_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a store with faults, and the same store without.
type bundle struct {
	plain kv.Database
	db    *faultkv.DB

	mu     sync.Mutex
	events []faultkv.Event
}

// inBubble runs a test on a new store in memory, on the clock of a bubble.
func inBubble(t *testing.T, opts faultkv.Options, test func(t *testing.T, b *bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := wrap(t, opts)
		test(t, b)
		if err := b.db.Close(); err != nil {
			require.ErrorIs(t, err, kv.ErrClosed, "only a test may have closed it")
		}
	})
}

func wrap(t *testing.T, opts faultkv.Options) *bundle {
	plain, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	b := &bundle{plain: plain}
	opts.Observe = func(e faultkv.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}
	b.db = faultkv.Wrap(plain, opts)
	return b
}

// trace returns the observed events as lines.
func (b *bundle) trace() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := []string{}
	for _, e := range b.events {
		lines = append(lines, e.String())
	}
	return lines
}

// set writes keys, as their own values, without a fault.
func (b *bundle) set(t *testing.T, keys ...string) {
	t.Helper()
	require.NoError(t, b.plain.Transact(t.Context(), func(tx kv.Transaction) error {
		for _, key := range keys {
			tx.Set([]byte(key), []byte(key))
		}
		return nil
	}))
}

// value reads a key without a fault, "<none>" for no value.
func (b *bundle) value(t *testing.T, key string) string {
	t.Helper()
	value, err := kv.TransactValue(context.Background(), b.plain, func(tx kv.Transaction) (string, error) {
		value, err := tx.Get([]byte(key)).Await()
		if value == nil {
			return "<none>", err
		}
		return string(value), err
	})
	require.NoError(t, err)
	return value
}

// number reads a counter without a fault.
func (b *bundle) number(t *testing.T, key string) int {
	t.Helper()
	value := b.value(t, key)
	if value == "<none>" {
		return 0
	}
	return int(binary.LittleEndian.Uint64([]byte(value)))
}

// write reads one key and writes another: a commit that every fault can hit.
func write(key string) func(kv.Transaction) error {
	return func(tx kv.Transaction) error {
		if _, err := tx.Get([]byte("read")).Await(); err != nil {
			return err
		}
		tx.Set([]byte(key), []byte("written"))
		return nil
	}
}

func between(begin, end string) kv.KeyRange {
	return kv.KeyRange{Begin: []byte(begin), End: []byte(end)}
}
