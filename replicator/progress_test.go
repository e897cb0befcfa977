package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// watched is a job whose state is checked each ten seconds, as runs report.
type watched struct {
	t     *testing.T
	now   time.Time
	state replicator.JobState
}

const stuckAfter = 2 * time.Minute

func watch(t *testing.T) *watched {
	t.Helper()
	return &watched{t: t, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
}

// write changes the state as Run.write does.
func (w *watched) write(change func(*replicator.JobState)) {
	was := w.state
	change(&w.state)
	w.state.CheckProgress(&was, stuckAfter, w.now)
	w.state.LastUpdated = w.now
}

func (w *watched) begin(scheduled time.Time) {
	w.write(func(s *replicator.JobState) {
		s.RunBegins(scheduled, w.now)
		s.State, s.StartTime, s.Activity = replicator.StateRunning, w.now, nil
	})
}

// runs reports for a time.
func (w *watched) runs(d time.Duration, a replicator.Activity) {
	if a.Since.IsZero() {
		a.Since = w.now
	}
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(10 * time.Second)
		w.write(func(s *replicator.JobState) { s.Activity = &a })
	}
}

func (w *watched) end(state replicator.State) {
	w.write(func(s *replicator.JobState) { s.State = state })
}

// stuckFor requires that the job has been stuck for some time, 0 for not at all.
func (w *watched) stuckFor(d time.Duration) {
	w.t.Helper()
	if d == 0 {
		require.Zero(w.t, w.state.StuckSince)
		return
	}
	require.Equal(w.t, w.now.Add(-d), w.state.StuckSince)
}

var (
	retrying = replicator.Activity{Doing: replicator.DoingRetrying}
	copying  = replicator.Activity{Doing: replicator.DoingCopying}
	idle     = replicator.Activity{Doing: replicator.DoingWaiting}
)

// A job is stuck from the start of its first run without progress on, whatever its runs do, crashes and stops between.
func TestStuckOverRuns(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.begin(time.Time{})
	w.runs(time.Minute, replicator.Activity{Doing: replicator.DoingStarting})
	w.runs(50*time.Second, retrying)
	w.stuckFor(0)
	w.runs(10*time.Second, copying)
	w.stuckFor(2 * time.Minute)
	w.runs(time.Minute, retrying)
	w.stuckFor(3 * time.Minute)

	w.end(replicator.StateCrashing)
	w.now = w.now.Add(30 * time.Second) // it waits after the crash, and then for a slot
	due := w.now
	w.now = w.now.Add(time.Hour)
	w.stuckFor(time.Hour + 3*time.Minute + 30*time.Second)
	w.begin(due)
	w.stuckFor(3*time.Minute + 30*time.Second)
	w.runs(time.Minute, retrying)
	w.stuckFor(4*time.Minute + 30*time.Second)
	w.end(replicator.StatePending)
	w.now = w.now.Add(time.Hour) // it is paused
	w.begin(w.now)
	w.stuckFor(4*time.Minute + 30*time.Second)
	w.runs(time.Minute, replicator.Activity{Doing: replicator.DoingCopying, LastMoved: w.now.Add(time.Minute)})
	w.stuckFor(5*time.Minute + 30*time.Second) // the same bytes, perhaps

	w.write(func(s *replicator.JobState) { s.Progressed(w.now) })
	w.stuckFor(0)
	require.Nil(t, w.state.Fault)
	w.runs(2*time.Minute, retrying)
	w.stuckFor(2 * time.Minute)
	w.runs(10*time.Second, idle)
	w.stuckFor(0)
	require.Zero(t, w.state.NoProgressSince)
}

// Only the time of runs makes a job stuck: one whose runs fail at once is crashing.
func TestShortRunsAreNotStuck(t *testing.T) {
	t.Parallel()
	w := watch(t)
	for range 11 {
		w.begin(w.now)
		w.runs(10*time.Second, retrying)
		w.stuckFor(0)
		w.end(replicator.StateCrashing)
		w.now = w.now.Add(time.Hour)
	}
	w.begin(w.now)
	w.runs(10*time.Second, retrying)
	w.stuckFor(2 * time.Minute)

	// Turns that end before a request is given up add up.
	w = watch(t)
	for range 2 {
		w.begin(w.now)
		w.runs(time.Minute, retrying)
		w.end(replicator.StatePending)
		w.now = w.now.Add(time.Hour)
	}
	require.False(t, w.state.StuckSince.IsZero())
	w.end(replicator.StateFailed)
	w.stuckFor(0)
}

// What a job waits for decides how long it may.
func TestLimitsOfStuckJobs(t *testing.T) {
	t.Parallel()
	many, none := int64(6000), int64(0)
	for name, c := range map[string]struct {
		a    replicator.Activity
		left *int64
		want time.Duration // from which on it is stuck, 0: never
	}{
		"a request is repeated":                 {retrying, nil, stuckAfter},
		"it stops":                              {replicator.Activity{Doing: replicator.DoingStopping}, nil, 0},
		"an endpoint asked it to wait":          {replicator.Activity{Doing: replicator.DoingRateLimited}, nil, 0},
		"a filter that is done":                 {replicator.Activity{Doing: replicator.DoingFiltering}, &none, 5 * time.Minute},
		"a filter with much to do":              {replicator.Activity{Doing: replicator.DoingFiltering}, &many, 15 * time.Minute},
		"a filter of which that is not known":   {replicator.Activity{Doing: replicator.DoingFiltering}, nil, 24 * time.Hour},
		"a large document, in its first run":    {replicator.Activity{Doing: replicator.DoingCopying, LastMoved: watch(t).now.Add(10 * time.Minute)}, nil, 12 * time.Minute},
		"it waits for changes":                  {idle, nil, 0},
		"it does what this version has no word": {replicator.Activity{Doing: "odd"}, nil, stuckAfter},
	} {
		w := watch(t)
		w.state.ChangesPending = c.left
		w.begin(time.Time{})
		began := w.now
		w.runs(max(c.want, time.Hour), c.a)
		if c.want == 0 {
			w.stuckFor(0)
			continue
		}
		require.False(t, w.state.StuckSince.IsZero(), name)
		w = watch(t)
		w.state.ChangesPending = c.left
		w.begin(time.Time{})
		w.runs(c.want-10*time.Second, c.a)
		require.Zero(t, w.state.StuckSince, name)
		w.runs(10*time.Second, c.a)
		if c.a.LastMoved.IsZero() {
			require.Equal(t, began, w.state.StuckSince, name)
		} else {
			require.Equal(t, c.a.LastMoved, w.state.StuckSince, name)
		}
	}

	// After a server has asked for waits, the time begins anew.
	w := watch(t)
	w.begin(time.Time{})
	w.runs(time.Hour, replicator.Activity{Doing: replicator.DoingRateLimited})
	w.runs(stuckAfter, retrying)
	w.stuckFor(0)
	w.runs(10*time.Second, retrying)
	w.stuckFor(stuckAfter)
}
