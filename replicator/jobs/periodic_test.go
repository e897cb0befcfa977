package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// A job that waits for its next time is pending in listings and counts, but not for fair share. It keeps its
// replication id, and its document has no state.
func TestPeriodicJob(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		b.put(repdb, "nightly", "", `"schedule": "0 3 29 2 *"`)
		b.put(repdb, "hourly", "", `"every": "1h", "doc_ids": []`)
		nightly, hourly := b.jobID(repdb, "nightly"), b.jobID(repdb, "hourly")
		want, err := b.definition("").ID(b.store.ServerUUID, "")
		require.NoError(b, err)
		assert.Equal(b, want.String(), b.get(nightly).ReplicationID())
		run := b.accept()
		require.Equal(b, hourly, run.Job().ID)
		assert.Zero(b, b.get(hourly).NextRun())
		require.NoError(b, run.Complete(b.Context(), func(s *replicator.JobState) {
			s.LastRun = &replicator.Stats{DocCounts: replicator.DocCounts{DocsWritten: 7}}
		}))

		list, err := b.store.Lists.List(b.Context(), jobs.Filter{Documents: true, Database: repdb, States: jobs.States{Shown: []replicator.ShownState{replicator.ShownScheduled}}}, jobs.ListOptions{Limit: 10})
		require.NoError(b, err)
		require.Len(b, list.Jobs, 2)
		assert.EqualValues(b, 2, list.Total)
		for _, job := range list.Jobs {
			assert.Equal(b, b.get(job.ID).NextRun(), job.NextRun())
			assert.True(b, job.NextRun().After(time.Now()))
			assert.NotContains(b, b.document(repdb, *job.Args.DocID), "_replication_state")
		}
		assert.EqualValues(b, 7, list.Jobs[0].State.Info().LastRun.DocsWritten)
		assert.LessOrEqual(b, time.Until(list.Jobs[0].NextRun()), time.Hour)
		counts, err := b.store.Lists.Counts(b.Context())
		require.NoError(b, err)
		assert.Equal(b, map[replicator.ShownState]int64{replicator.ShownScheduled: 2}, jobsIn(counts))

		// Its replication id remains taken.
		_, err = b.store.Requests.Replicate(b.Context(), b.definition(""), nil)
		var collision *jobs.Collision
		require.ErrorAs(b, err, &collision)
		assert.Equal(b, nightly, collision.JobID)
	})
}

// With UpdateDocs the document says that its job has run or crashed, and never that it has completed.
func TestPeriodicJobUpdatesDocuments(t *testing.T) {
	t.Parallel()
	b := setup(t, jobs.Options{UpdateDocs: true})
	b.create(repdb)
	b.put(repdb, "d", "", `"every": "1s"`)
	run := b.accept()
	require.NoError(t, run.Crash(t.Context(), time.Now(), 1, replicator.TextFault("error", "why")))
	assert.Equal(t, "error", b.document(repdb, "d")["_replication_state"])
	run = b.accept()
	require.NoError(t, run.Identify(t.Context(), parsedID(run.Job().ReplicationID())))
	require.NoError(t, run.Complete(t.Context(), nil))
	assert.Equal(t, "triggered", b.document(repdb, "d")["_replication_state"])
	assert.Equal(t, replicator.StatePending, b.get(run.Job().ID).Condition())
	assert.Nil(t, b.document(repdb, "d")["_replication_state_reason"])
	assert.Equal(t, replicator.StateRunning, b.accept().Job().State.State)
}
