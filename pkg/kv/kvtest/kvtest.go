// Package kvtest is the conformance suite of package kv: what every engine must
// do, as tests against an empty database.
package kvtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// Run runs the suite. open returns an empty database of the engine that is
// closed when t ends.
func Run(t *testing.T, open func(t *testing.T) kv.Database) {
	for _, group := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"Reads", testReads},
		{"Writes", testWrites},
		{"Atomic", testAtomic},
		{"ReadYourWrites", testReadYourWrites},
		{"Model", testModel},
		{"Selectors", testSelectors},
		{"Isolation", testIsolation},
		{"Versionstamps", testVersionstamps},
		{"Watches", testWatches},
		{"Limits", testLimits},
		{"Transact", testTransact},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			group.test(t, &bench{t: t, db: open(t)})
		})
	}
}

// bench is a database under test.
type bench struct {
	t  *testing.T
	db kv.Database
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// do runs fn in a transaction that must succeed.
func (b *bench) do(fn func(tx kv.Transaction)) {
	b.t.Helper()
	require.NoError(b.t, b.db.Transact(b.ctx(), func(tx kv.Transaction) error {
		fn(tx)
		return nil
	}))
}

// fails runs fn in a transaction and returns the error of the only attempt.
func (b *bench) fails(fn func(tx kv.Transaction) error) error {
	b.t.Helper()
	ctx, cancel := context.WithCancelCause(b.ctx())
	err := b.db.Transact(ctx, func(tx kv.Transaction) error {
		err := fn(tx)
		if kv.Retryable(err) {
			cancel(err)
		}
		return err
	})
	require.Error(b.t, err)
	return err
}

// set writes pairs, given in turn as key and value.
func (b *bench) set(pairs ...string) {
	b.t.Helper()
	b.do(func(tx kv.Transaction) {
		for i := 0; i < len(pairs); i += 2 {
			tx.Set([]byte(pairs[i]), []byte(pairs[i+1]))
		}
	})
}

// value reads one key in a transaction of its own, "<none>" for no value.
func (b *bench) value(key string) string {
	b.t.Helper()
	var value string
	b.do(func(tx kv.Transaction) { value = b.get(tx, key) })
	return value
}

func (b *bench) get(tx kv.ReadTransaction, key string) string {
	b.t.Helper()
	value, err := tx.Get([]byte(key)).Await()
	require.NoError(b.t, err)
	if value == nil {
		return "<none>"
	}
	return string(value)
}

// keys reads the keys of a range.
func (b *bench) keys(tx kv.ReadTransaction, begin, end string, opts kv.RangeOptions) []string {
	b.t.Helper()
	pairs, err := tx.GetRange(between(begin, end), opts).Slice()
	require.NoError(b.t, err)
	keys := []string{}
	for _, pair := range pairs {
		keys = append(keys, string(pair.Key))
	}
	return keys
}

func between(begin, end string) kv.KeyRange {
	return kv.KeyRange{Begin: []byte(begin), End: []byte(end)}
}

// errSecondRun ends a transaction whose first attempt did not commit.
var errSecondRun = errors.New("ran again")

// committedBeside runs first in a transaction, commits other in another one
// before the first commits, and returns kv.ErrNotCommitted when the first
// attempt conflicted.
func (b *bench) committedBeside(first, other func(tx kv.Transaction)) error {
	b.t.Helper()
	ran := false
	err := b.db.Transact(b.ctx(), func(tx kv.Transaction) error {
		if ran {
			return errSecondRun
		}
		ran = true
		first(tx)
		b.do(other)
		return nil
	})
	if errors.Is(err, errSecondRun) {
		return kv.ErrNotCommitted
	}
	return err
}
