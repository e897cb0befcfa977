package jobs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// What processes did is added up in steps, counted once whatever commits fail, and kept for a day.
func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		began := time.Now().Truncate(jobs.CoarseSlot)
		other, err := jobs.Open(b.Context(), b.db, b.layer, jobs.Options{})
		require.NoError(t, err)
		one, two := b.store.Rates, other.Rates
		written := func(length, step time.Duration, since time.Time, n int) []int64 {
			t.Helper()
			steps, err := b.store.Rates.Read(b.Context(), length, since, step, n)
			require.NoError(t, err)
			out := make([]int64, n)
			for i, w := range steps {
				out[i] = w.DocsWritten
				require.Equal(t, w.DocsWritten, w.Failed)
			}
			return out
		}
		record := func(r *jobs.Rates, after time.Duration, n int64) error {
			return r.Record(b.Context(), began.Add(after), jobs.Work{DocCounts: replicator.DocCounts{DocsWritten: n}, Failed: n})
		}
		require.NoError(t, record(one, 0, 0))
		require.Empty(t, b.rates(), "a node that did nothing writes nothing")
		b.db.on.Store(true) // the result of each commit is lost once
		require.NoError(t, record(one, time.Second, 3))
		require.NoError(t, record(one, 2*time.Second, 4))
		require.NoError(t, record(two, 9*time.Second, 10))
		require.NoError(t, record(two, 20*time.Second, 100))
		b.db.broken.Store(true)
		require.ErrorIs(t, record(one, 25*time.Second, 1_000), errBroken)
		b.db.broken.Store(false)
		b.db.mute.Store(true) // committed, and reported as unknown
		require.Error(t, record(one, 31*time.Second, 0))
		b.db.mute.Store(false)
		require.NoError(t, record(one, 125*time.Second, 10_000))
		require.NoError(t, record(one, time.Second, 100_000), "of a clock that went back")
		require.NoError(t, record(two, 40*time.Second, 0))

		fine, coarse := jobs.FineSlot, jobs.CoarseSlot
		assert.Equal(t, []int64{17, 0, 1_100, 0}, written(fine, fine, began, 4))
		assert.Equal(t, []int64{17, 1_100}, written(fine, 2*fine, began, 2))
		assert.Equal(t, []int64{1_100}, written(fine, fine, began.Add(2*fine), 1))
		assert.Equal(t, []int64{1_117, 110_000, 0}, written(coarse, coarse, began, 3))
		assert.Equal(t, []int64{111_117}, written(coarse, 2*coarse, began, 1))

		require.NoError(t, record(two, jobs.SlotsKept*jobs.FineSlot+jobs.CoarseSlot, 1))
		assert.Equal(t, []int64{0, 0, 0, 0}, written(fine, fine, began, 4), "removed")
		assert.Equal(t, []int64{1_117, 110_000, 0}, written(coarse, coarse, began, 3))
		require.NoError(t, record(two, 2*jobs.SlotsKept*jobs.CoarseSlot, 1))
		assert.Len(t, b.rates(), 2, "a row of each length")
	})
}
