package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/jobs"
)

// A job whose run has failed is crashing for CouchDB until its next run, also while it waits for a slot after its wait.
func TestCrashingUntilTheNextRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		rev := b.put(repdb, "d", "", `"continuous": true`)
		id := b.jobID(repdb, "d")
		run := b.accept()
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		until := time.Now().Add(time.Minute)
		require.NoError(t, run.Crash(t.Context(), until, 1, replicator.TextFault("", "no")))
		is := func(shown replicator.ShownState, couch replicator.State) *jobs.Job {
			t.Helper()
			b.check()
			job := b.get(id)
			assert.Equal(t, []any{shown, couch}, []any{replicator.Explain(job.Facts(time.Now(), nil)).State, job.Condition()})
			if couch == replicator.StateCrashing {
				assert.Equal(t, "no", job.State.Info().Error)
			}
			counts, err := b.store.Lists.Counts(t.Context())
			require.NoError(t, err)
			assert.Equal(t, shown == replicator.ShownPending && couch == replicator.StateCrashing, counts.Again == 1)
			shares, err := b.store.Shares.List(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []int64{1, 1}, []int64{counts.Jobs[shown], shares[0].Jobs[shown]})
			return job
		}
		// promote lets another job be taken, and the job become due after it.
		promote := func() {
			t.Helper()
			time.Sleep(2 * time.Minute)
			other := b.replicate(`"doc_ids": ["x"]`)
			require.Equal(t, other.ID, b.accept().Job().ID)
			time.Sleep(time.Second)
			b.cancel(other.ID)
		}
		is(replicator.ShownCrashing, replicator.StateCrashing)
		promote()
		is(replicator.ShownPending, replicator.StateCrashing)
		counts, err := b.store.Lists.Counts(t.Context())
		require.NoError(t, err)
		assert.Equal(t, until.Unix(), counts.Due.Unix())

		set := func(weight float64) {
			require.NoError(t, b.store.Shares.SetWeights(t.Context(), map[string]float64{repdb: weight}))
		}
		set(0)
		is(replicator.ShownPaused, replicator.StatePending)
		set(1)
		rev = b.put(repdb, "d", rev, `"continuous": true`+pausedMember)
		is(replicator.ShownPaused, replicator.StatePending)
		b.put(repdb, "d", rev, `"continuous": true`)
		is(replicator.ShownPending, replicator.StateCrashing)

		run = b.accept()
		is(replicator.ShownRunning, replicator.StateRunning)
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 2, replicator.TextFault("", "no")))
		is(replicator.ShownCrashing, replicator.StateCrashing)
		_, err = b.store.Requests.RunNow(t.Context(), id)
		require.NoError(t, err)
		is(replicator.ShownPending, replicator.StateCrashing)
		run = b.accept()
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		require.NoError(t, run.Stop(t.Context(), "", "", nil))
		is(replicator.ShownPending, replicator.StatePending)
	})
}
