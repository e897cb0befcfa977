package replicator

import "time"

// Without progress, on one page. A job makes progress when a batch of changes is dealt with, when a document is written or refused,
// and when a run comes to the end of the changes. [JobState.Progressed] is told of that.
//
// NoProgressSince counts the time of runs alone: what passes between two runs is added to it. When it is [replicator]
// stuck_after_sec ago, a report of the run sets StuckSince, and the job is stuck: its mark, the list of such jobs, the metric and
// the alert read that time. A job that is stuck stays so between its runs, also after crashes and on other nodes. While it waits
// after a crash the time goes on, but not while it is paused or waits for a slot. So a job whose runs fail at once is
// crashing, and not stuck, and a server that accepts requests and never answers is found however short the runs are.

const (
	// filterTime is the longest time that a filter is expected to need for one change. CouchDB's filters need a
	// hundredth of that.
	filterTime = 100 * time.Millisecond
	// longestSilence bounds the silence of a filter, however many changes the source says are left.
	longestSilence = 24 * time.Hour
)

// FilterMayTake returns how long a filter may pass no change. left is the number of changes that are left, nil if it is not known.
func FilterMayTake(left *int64) time.Duration {
	if left == nil {
		return longestSilence
	}
	return FilterQuiet + filterTime*time.Duration(min(max(*left, 0), int64((longestSilence-FilterQuiet)/filterTime)))
}

// FilterQuiet is how long any filter may pass no change.
const FilterQuiet = 5 * time.Minute

// Progressed records that the job has made progress at a time. The fault of an earlier run is over then.
func (s *JobState) Progressed(at time.Time) {
	s.Fault = nil
	if at.After(s.NoProgressSince) {
		s.NoProgressSince, s.StuckSince = at, time.Time{}
	}
}

// RunBegins moves the times of a job without progress over the time since its last run. The state is that before the run, and
// scheduled is for when the run was due.
func (s *JobState) RunBegins(scheduled, now time.Time) {
	if s.NoProgressSince.IsZero() {
		return
	}
	if s.StuckSince.IsZero() && s.NoProgressSince.After(s.StartTime) { // the last run has made some
		s.NoProgressSince = now
		return
	}
	s.NoProgressSince = s.NoProgressSince.Add(max(0, now.Sub(s.LastUpdated)))
	if s.StuckSince.IsZero() {
		return
	}
	waits := s.LastUpdated
	if s.State == StateCrashing && scheduled.After(waits) {
		waits = scheduled
	}
	s.StuckSince = wholeSeconds(s.StuckSince.Add(max(0, now.Sub(waits))))
}

// CheckProgress sets NoProgressSince and StuckSince of a state that is written at now. was is the state before, and after is
// [replicator] stuck_after_sec. A run that has nothing to do, that parks or that ends the job is not without progress. One that an
// endpoint asks to wait is not stuck for it.
func (s *JobState) CheckProgress(was *JobState, after time.Duration, now time.Time) {
	a := s.Activity
	runs := s.State == StateRunning && a != nil
	switch {
	case s.State.Terminal(), s.State == StatePending && s.Parked != nil, runs && a.Doing == DoingWaiting:
		s.NoProgressSince, s.StuckSince = time.Time{}, time.Time{}
		return
	case !runs || a.Doing == DoingStopping:
		return
	case s.NoProgressSince.IsZero() && was.Activity == nil:
		s.NoProgressSince = s.StartTime
	case s.NoProgressSince.IsZero():
		s.NoProgressSince = a.Since
	}
	if a.Doing.heldBack() {
		s.StuckSince = time.Time{}
		return
	}
	if was.Activity != nil && was.Activity.Doing.heldBack() && s.NoProgressSince.Equal(was.NoProgressSince) {
		s.NoProgressSince = now
	}
	if first := !s.NoProgressSince.Before(s.StartTime); first || s.StuckSince.IsZero() {
		s.StuckSince = s.stuckSince(first, after, now)
	}
}

// stuckSince returns since when the running job is stuck, zero if it is not. In the first run without progress, bytes of a document
// that come or go count as some: it may be large. Later runs may move the same bytes again.
func (s *JobState) stuckSince(first bool, after time.Duration, now time.Time) time.Time {
	since, a := s.NoProgressSince, s.Activity
	if first && a.Doing == DoingCopying && a.LastMoved.After(since) {
		since = a.LastMoved
	}
	if a.Doing == DoingFiltering {
		after = max(after, FilterMayTake(s.ChangesPending))
	}
	if now.Sub(since) < after {
		return time.Time{}
	}
	return wholeSeconds(since)
}
