package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
)

// How long the target may lack changes, over the states of a job, a minute apart.
func TestBehind(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	running := func(doing replicator.Doing, pending, checked int64, batches int) replicator.JobState {
		return replicator.JobState{
			State: replicator.StateRunning, Activity: &replicator.Activity{Doing: doing, BatchesInFlight: batches},
			ChangesPending: &pending, Stats: replicator.Stats{RevisionsChecked: checked},
		}
	}
	starts := replicator.JobState{State: replicator.StateRunning}
	crashed := replicator.JobState{State: replicator.StateCrashing}
	unknown := running(replicator.DoingCopying, 0, 0, 1)
	unknown.ChangesPending = nil
	const none = -1
	for name, steps := range map[string][]struct {
		state replicator.JobState
		since int // in minutes after the first step
	}{
		"a first copy": {
			{starts, none}, {running(replicator.DoingStarting, 0, 0, 0), none}, {running(replicator.DoingCopying, 100, 0, 1), 2},
			{running(replicator.DoingReading, 50, 50, 0), 2}, {running(replicator.DoingWaiting, 0, 100, 0), none},
		},
		"a crash does not end it, and one while nothing is left does not begin it": {
			{running(replicator.DoingCopying, 9, 0, 1), 0}, {crashed, 0}, {starts, 0}, {running(replicator.DoingRetrying, 9, 0, 0), 0},
			{running(replicator.DoingWaiting, 0, 9, 0), none}, {crashed, none}, {starts, none},
		},
		"a feed that is opened again": {
			{running(replicator.DoingWaiting, 0, 9, 0), none}, {running(replicator.DoingRetrying, 0, 9, 0), none},
			{running(replicator.DoingRateLimited, 0, 9, 1), 2},
		},
		"a source that changes all the time": {
			{running(replicator.DoingCopying, 10, 0, 1), 0}, {running(replicator.DoingCopying, 10, 5, 1), 0}, // marked: what it had is copied at 15
			{running(replicator.DoingCopying, 20, 14, 1), 0}, {running(replicator.DoingCopying, 20, 15, 1), 1}, // marked: at 35
			{running(replicator.DoingCopying, 1, 34, 1), 1}, {running(replicator.DoingCopying, 1, 40, 1), 3},
		},
		"a mark of another run is forgotten": {
			{running(replicator.DoingCopying, 10, 0, 1), 0}, {running(replicator.DoingCopying, 10, 5, 1), 0}, {crashed, 0},
			{running(replicator.DoingCopying, 10, 20, 1), 0}, {running(replicator.DoingCopying, 10, 30, 1), 3},
		},
		"a source that does not count":   {{unknown, 0}, {unknown, 0}, {running(replicator.DoingFinishing, 0, 0, 0), none}},
		"it is parked":                   {{unknown, 0}, {replicator.JobState{State: replicator.StatePending, Parked: &replicator.Parked{}}, none}},
		"it is stopped, and goes on":     {{unknown, 0}, {replicator.JobState{State: replicator.StatePending}, 0}, {unknown, 0}},
		"it fails":                       {{unknown, 0}, {replicator.JobState{State: replicator.StateFailed}, none}},
		"its target refuses everything":  {{running(replicator.DoingRefused, 3, 0, 1), 0}},
		"it stops, to let others run":    {{unknown, 0}, {running(replicator.DoingStopping, 1, 0, 1), 0}},
		"the source has more, filtered":  {{running(replicator.DoingFiltering, 3, 0, 0), 0}},
		"it waits with what is left: no": {{running(replicator.DoingWaiting, 1, 0, 0), none}},
	} {
		var behind *replicator.Behind
		for i, step := range steps {
			behind = behind.After(&step.state, began.Add(time.Duration(i)*time.Minute))
			if step.since == none {
				assert.Nil(t, behind, "%s, step %d", name, i)
			} else if assert.NotNil(t, behind, "%s, step %d", name, i) {
				assert.Equal(t, began.Add(time.Duration(step.since)*time.Minute), behind.Since, "%s, step %d", name, i)
			}
		}
	}
}
