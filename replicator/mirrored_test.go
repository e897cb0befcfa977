package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
)

// Each row of the decision, and what comes first.
func TestMirroredFacts(t *testing.T) {
	t.Parallel()
	all := replicator.MirroredFacts{
		Waits: true, Gone: true, Parked: true, Ended: true, Failed: true, Elsewhere: true, FirstRun: true, Failing: 1, Behind: 1,
	}
	for _, step := range []struct {
		is   replicator.MirroredState
		next func(*replicator.MirroredFacts)
	}{
		{replicator.MirroredWaiting, func(f *replicator.MirroredFacts) { f.Waits = false }},
		{replicator.MirroredGone, func(f *replicator.MirroredFacts) { f.Gone = false }},
		{replicator.MirroredElsewhere, func(f *replicator.MirroredFacts) { f.Elsewhere = false }},
		{replicator.MirroredFailed, func(f *replicator.MirroredFacts) { f.Failed = false }},
		{replicator.MirroredCurrent, func(f *replicator.MirroredFacts) { f.Ended = false }},
		{replicator.MirroredCurrent, func(f *replicator.MirroredFacts) { f.Parked = false }},
		{replicator.MirroredFailing, func(f *replicator.MirroredFacts) { f.Failing = 0 }},
		{replicator.MirroredStarting, func(f *replicator.MirroredFacts) { f.FirstRun = false }},
		{replicator.MirroredCopying, func(f *replicator.MirroredFacts) { f.Behind = 0 }},
		{replicator.MirroredCurrent, func(*replicator.MirroredFacts) {}},
	} {
		assert.Equal(t, step.is, all.State(), "%+v", all)
		step.next(&all)
	}
}

// How far a database is, over the states of its job, a minute apart: since when it fails, and since when the target may lack changes.
func TestFollowMirrored(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	does := func(doing replicator.Doing, waiting ...replicator.Wait) replicator.JobState {
		return replicator.JobState{State: replicator.StateRunning, Activity: &replicator.Activity{Doing: doing, Waiting: waiting}}
	}
	starts, stopped := replicator.JobState{State: replicator.StateRunning}, replicator.JobState{State: replicator.StatePending}
	crashed, failed := replicator.JobState{State: replicator.StateCrashing}, replicator.JobState{State: replicator.StateFailed}
	collided := replicator.JobState{State: replicator.StateFailed, Fault: &replicator.Fault{Code: replicator.FaultCollision}}
	completed := replicator.JobState{State: replicator.StateCompleted}
	parked := replicator.JobState{State: replicator.StatePending, Parked: &replicator.Parked{Since: began}}
	const no = -2 // the job is behind from minute -1 on
	for name, steps := range map[string][]struct {
		state           replicator.JobState
		first           bool
		failing, behind int
	}{
		"a first run": {
			{starts, true, no, -1}, {does(replicator.DoingCopying), true, no, -1}, {stopped, true, no, -1},
			{does(replicator.DoingFinishing), true, no, -1}, {does(replicator.DoingWaiting), false, no, no}, {parked, false, no, no},
		},
		"a run that is not the first": {
			{parked, false, no, no}, {starts, false, no, no}, {does(replicator.DoingStarting), false, no, no},
			{does(replicator.DoingCopying), false, no, 3}, {stopped, false, no, 3}, {completed, false, no, no},
		},
		"a failure, and one that goes on": {
			{crashed, false, 0, -1}, {starts, false, 0, -1}, {does(replicator.DoingStarting), false, 0, -1},
			{does(replicator.DoingCopying, replicator.Wait{}), false, 0, -1}, {crashed, false, 0, -1},
			{does(replicator.DoingCopying), false, no, -1}, {crashed, false, 6, -1}, {does(replicator.DoingWaiting), false, no, no},
		},
		"a failure while nothing is left": {{parked, false, no, no}, {crashed, false, 1, 1}, {failed, false, 1, 1}},
		"another job has its id":          {{collided, false, no, no}},
	} {
		state := replicator.JobState{Mirrored: &replicator.MirroredJob{FirstRun: true}, Behind: &replicator.Behind{Since: began.Add(-time.Minute)}}
		for i, step := range steps {
			next := step.state
			next.Mirrored, next.Behind = state.Mirrored, state.Behind
			next.FollowMirrored(began.Add(time.Duration(i) * time.Minute))
			state = next
			minutes := func(at time.Time) int {
				if at.IsZero() {
					return no
				}
				return int(at.Sub(began) / time.Minute)
			}
			behind := no
			if state.Behind != nil {
				behind = minutes(state.Behind.Since)
			}
			assert.Equal(t, []any{step.first, step.failing, step.behind},
				[]any{state.Mirrored.FirstRun, minutes(state.Mirrored.FailingSince), behind}, "%s, step %d", name, i)
		}
	}
	plain := crashed
	plain.FollowMirrored(began)
	assert.Nil(t, plain.Mirrored)
}
