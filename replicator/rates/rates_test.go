package rates_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/rates"
)

// store can lose the result of each commit once, so that the transaction runs again, and can be broken.
type store struct {
	*faultkv.DB
	losing bool
	fails  error // of every transaction
	lost   error // of every transaction that was committed
}

var errBroken = errors.New("the store is broken")

func (s *store) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if s.fails != nil {
		return s.fails
	}
	if err := s.DB.Transact(ctx, fn); err != nil {
		return err
	}
	return s.lost
}

// rows returns the rows of what processes did.
func (s *store) rows(t *testing.T) []kv.KeyValue {
	t.Helper()
	pairs, err := kv.TransactValue(t.Context(), s.DB, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(rows.Range(tuple.NewSubspace("replicator", "rates")), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	return pairs
}

// What processes did is added up in steps, counted once whatever commits fail, and kept for a day.
func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := new(store)
		db.DB = faultkv.Wrap(enginetest.Memory(t), faultkv.Options{Script: func(call faultkv.Call) faultkv.Fault {
			if db.losing {
				return faultkv.UnknownOnce(call)
			}
			return faultkv.None
		}})
		began := time.Now().Truncate(rates.CoarseSlot)
		one, two := rates.Open(db), rates.Open(db)
		written := func(length, step time.Duration, since time.Time, n int) []int64 {
			t.Helper()
			steps, err := one.Read(t.Context(), length, since, step, n)
			require.NoError(t, err)
			out := make([]int64, n)
			for i, w := range steps {
				out[i] = w.DocsWritten
				require.Equal(t, w.DocsWritten, w.Failed)
			}
			return out
		}
		record := func(r *rates.Rates, after time.Duration, n int64) error {
			return r.Record(t.Context(), began.Add(after), rates.Work{DocCounts: replicator.DocCounts{DocsWritten: n}, Failed: n})
		}
		require.NoError(t, record(one, 0, 0))
		require.Empty(t, db.rows(t), "a node that did nothing writes nothing")
		db.losing = true // the result of each commit is lost once
		require.NoError(t, record(one, time.Second, 3))
		require.NoError(t, record(one, 2*time.Second, 4))
		require.NoError(t, record(two, 9*time.Second, 10))
		require.NoError(t, record(two, 20*time.Second, 100))
		db.fails = errBroken
		require.ErrorIs(t, record(one, 25*time.Second, 1_000), errBroken)
		db.fails = nil
		db.lost = kv.ErrCommitUnknown // committed, and reported as unknown
		require.Error(t, record(one, 31*time.Second, 0))
		db.lost = nil
		require.NoError(t, record(one, 125*time.Second, 10_000))
		require.NoError(t, record(one, time.Second, 100_000), "of a clock that went back")
		require.NoError(t, record(two, 40*time.Second, 0))

		fine, coarse := rates.FineSlot, rates.CoarseSlot
		assert.Equal(t, []int64{17, 0, 1_100, 0}, written(fine, fine, began, 4))
		assert.Equal(t, []int64{17, 1_100}, written(fine, 2*fine, began, 2))
		assert.Equal(t, []int64{1_100}, written(fine, fine, began.Add(2*fine), 1))
		assert.Equal(t, []int64{1_117, 110_000, 0}, written(coarse, coarse, began, 3))
		assert.Equal(t, []int64{111_117}, written(coarse, 2*coarse, began, 1))

		require.NoError(t, record(two, rates.SlotsKept*rates.FineSlot+rates.CoarseSlot, 1))
		assert.Equal(t, []int64{0, 0, 0, 0}, written(fine, fine, began, 4), "removed")
		assert.Equal(t, []int64{1_117, 110_000, 0}, written(coarse, coarse, began, 3))
		require.NoError(t, record(two, 2*rates.SlotsKept*rates.CoarseSlot, 1))
		assert.Len(t, db.rows(t), 2, "a row of each length")
	})
}
