package jobs

import (
	"time"

	"settee/replicator"
)

// behind returns the lag of the target of a continuous job in a state, and the time of its row in the index of such jobs. The
// time is zero while a run has been behind for less than StuckAfter: most runs catch up before, and have no row.
func (r *Run) behind(state *replicator.JobState) (*replicator.Behind, time.Time) {
	if r.job.IsMirror() || !r.job.Args.Replication.Continuous {
		return nil, time.Time{}
	}
	now, was := time.Now(), state.Behind
	if was == nil && !r.lost.IsZero() {
		was = &replicator.Behind{Since: r.lost}
	}
	behind := was.After(state, now)
	if behind == nil || state.State == replicator.StateRunning && now.Sub(behind.Since) < r.store.settings().StuckAfter {
		return behind, time.Time{}
	}
	return behind, behind.Since.UTC().Truncate(time.Second)
}
