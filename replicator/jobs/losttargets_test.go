package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// parkAt parks a job that is accepted, with a target.
func (b *bundle) parkAt(target replicator.ParkedTarget) *jobs.Job {
	b.Helper()
	run := b.accept()
	at := atSource()
	at.Target = target
	require.NoError(b, run.Parking(b.Context(), at))
	woken, err := run.Park(b.Context(), nil)
	require.NoError(b, err)
	require.False(b, woken)
	return b.get(run.Job().ID)
}

// A parked job is woken whose target has lost what it had, if its row still has that target. Its next runs are behind since the
// target was last known to have everything, until one of them has copied everything again.
func TestWakeLost(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		target := replicator.ParkedTarget{Server: "http://b.example/", Database: "t", Identity: "one", Instance: "5"}
		b.replicate(`"continuous": true`)
		job := b.parkAt(target)
		rows := b.parkedRows()
		require.Len(b, rows, 1)
		require.Equal(b, target, rows[0].Target)
		require.Zero(b, rows[0].Lost)
		since := time.Now().Add(-time.Hour).Truncate(time.Second)
		wakeLost := func(row jobs.ParkedRow) int {
			row.Lost = since
			n, err := b.store.Watches.WakeLost(b.Context(), []jobs.ParkedRow{row})
			require.NoError(b, err)
			return n
		}
		other := rows[0]
		other.Target.Instance = "4"
		assert.Zero(b, wakeLost(other), "it has parked again meanwhile")
		other = rows[0]
		other.JobID += "x"
		assert.Zero(b, wakeLost(other), "it is gone")
		assert.Equal(b, 1, wakeLost(rows[0]))
		assert.Zero(b, wakeLost(rows[0]), "it is due")
		assert.True(b, b.parkedRows()[0].Woken)
		assert.Zero(b, b.wake(sourceDatabase))

		run := b.accept()
		assert.Empty(b, b.parkedRows())
		require.NoError(b, run.Crash(b.Context(), time.Now(), 1, replicator.TextFault("db_not_found", "no target")))
		state := b.get(job.ID).State
		require.Equal(b, since, state.Behind.Since.Local())
		require.Equal(b, replicator.EventStarted, state.History[1].Type)
		require.Contains(b, state.History[1].Reason, "the target has lost what it had")
		require.Equal(b, since, state.BehindSince.Local())
		run = b.accept()
		doing := func(doing replicator.Doing) *replicator.Behind {
			require.NoError(b, run.Update(b.Context(), func(s *replicator.JobState) {
				s.Activity = &replicator.Activity{Doing: doing, LastProgress: time.Now()}
			}))
			return b.get(job.ID).State.Behind
		}
		require.Equal(b, since, doing(replicator.DoingCopying).Since.Local())
		require.Nil(b, doing(replicator.DoingWaiting))
		require.WithinDuration(b, time.Now(), doing(replicator.DoingCopying).Since, time.Minute)
	})
}

// A run that is about to park hears of a loss, too, and one that copies at once is behind at once.
func TestWakeLostBeforeParked(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		b.replicate(`"continuous": true`)
		run := b.accept()
		at := atSource()
		at.Target = replicator.ParkedTarget{Server: "http://b.example/", Database: "t", Instance: "5"}
		require.NoError(b, run.Parking(b.Context(), at))
		row := b.parkedRows()[0]
		row.Lost = time.Now().Add(-time.Hour)
		n, err := b.store.Watches.WakeLost(b.Context(), []jobs.ParkedRow{row})
		require.NoError(b, err)
		require.Zero(b, n)
		woken, err := run.Park(b.Context(), nil)
		require.NoError(b, err)
		require.True(b, woken)
		run = b.accept()
		require.NoError(b, run.Update(b.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingReading} }))
		require.Equal(b, row.Lost.Unix(), b.get(run.Job().ID).State.Behind.Since.Unix())
	})
}

// More targets than one transaction takes are lost at once.
func TestWakeManyLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const count = 250
	for i := range count {
		b.replicate(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))
		b.parkAt(replicator.ParkedTarget{Server: "http://b.example/", Database: fmt.Sprint("t", i)})
	}
	rows, err := b.store.Watches.ParkedOf(b.Context(), sourceServer, jobs.ParkedRow{}, 2*count)
	require.NoError(t, err)
	n, err := b.store.Watches.WakeLost(t.Context(), rows)
	require.NoError(t, err)
	require.Equal(t, count, n)
}
