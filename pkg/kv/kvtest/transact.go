package kvtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func testTransact(t *testing.T, b *bench) {
	err := b.runErr(func(tx kv.Transaction) error {
		tx.Set(b.key("x"), []byte("1"))
		return errRollback
	})
	require.ErrorIs(t, err, errRollback)
	require.Equal(t, none, b.value("x"), "a function that fails commits nothing")
	b.testRetries()
	b.testContext()

	got, err := kv.TransactValue(b.ctx(), b.db, func(kv.Transaction) (string, error) { return "result", nil })
	require.NoError(t, err)
	require.Equal(t, "result", got)

	var after kv.Transaction
	b.read(func(tx kv.Transaction) { after = tx })
	_, err = after.Get(b.key("x")).Await()
	require.ErrorIs(t, err, kv.ErrUsedAfterEnd)
	after.Set(b.key("x"), nil)
	require.Equal(t, none, b.value("x"), "a write after the end has no effect")
}

// testRetries: a retryable error runs the function again, and nothing of the failed run remains.
func (b *bench) testRetries() {
	for _, cause := range []error{kv.ErrNotCommitted, kv.ErrTransactionTooOld, kv.ErrCommitUnknown} {
		b.reset()
		failures := 0
		b.read(func(tx kv.Transaction) {
			require.Empty(b.t, b.pairs(tx, b.all(), kv.RangeOptions{}), "an attempt that failed leaves nothing")
			if failures < 3 {
				failures++
				tx.Set(b.key(fmt.Sprint("run ", failures)), nil)
				panic(aborted{fmt.Errorf("wrapped: %w", cause)})
			}
		})
		require.Equal(b.t, 3, failures)
	}
}

// testContext: Transact ends with its context, and its error says what is known.
func (b *bench) testContext() {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	err := b.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set(b.key("x"), nil)
		cancel(gone)
		return kv.ErrNotCommitted
	})
	require.ErrorIs(b.t, err, gone)
	require.NotErrorIs(b.t, err, kv.ErrCommitUnknown)
	require.Equal(b.t, none, b.value("x"))

	ran := false
	err = b.db.Transact(ctx, func(kv.Transaction) error {
		ran = true
		return nil
	})
	require.ErrorIs(b.t, err, gone)
	require.False(b.t, ran)

	ctx, cancel = context.WithCancelCause(context.Background())
	err = b.db.Transact(ctx, func(kv.Transaction) error {
		cancel(gone)
		return kv.ErrCommitUnknown
	})
	require.ErrorIs(b.t, err, gone)
	require.ErrorIs(b.t, err, kv.ErrCommitUnknown)
}
