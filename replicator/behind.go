package replicator

import (
	"encoding/json"
	"time"
)

// Behind says since when the target of a continuous job may lack changes. A nil Behind means that it lacks none, as far as
// the job's runs have seen.
type Behind struct {
	// Since is a time: the target has all changes that the source had before. For the first copy, and for a job that had
	// copied everything, it is when a run noticed that there was something to copy.
	Since time.Time `json:"since"`
	// Mark is a later time, or zero. When RevisionsChecked has reached Goal, the target has what the source had at Mark.
	Mark time.Time `json:"mark,omitzero"`
	Goal int64     `json:"goal,omitempty"`
}

// MarshalJSON writes times in UTC and whole seconds.
func (b Behind) MarshalJSON() ([]byte, error) {
	type plain Behind
	b.Since, b.Mark = wholeSeconds(b.Since), wholeSeconds(b.Mark)
	return json.Marshal(plain(b))
}

// After returns what follows from a state of a continuous job, at a time. It does not change b, which is what followed from
// the state before.
func (b *Behind) After(state *JobState, now time.Time) *Behind {
	switch {
	case state.State.Terminal(), state.State == StatePending && state.Parked != nil:
		return nil
	case state.State != StateRunning || state.Activity == nil:
		return b.unmarked()
	}
	switch a := state.Activity; a.Doing {
	case DoingWaiting, DoingFinishing:
		return nil
	case DoingCopying, DoingFiltering, DoingReading, DoingRefused:
	case DoingRetrying, DoingRateLimited, DoingBudget:
		if a.BatchesInFlight == 0 && (state.ChangesPending == nil || *state.ChangesPending == 0) {
			return b // it may be the feed that is opened again
		}
	default:
		return b.unmarked()
	}
	if b == nil {
		return &Behind{Since: now}
	}
	return b.Advanced(state, now)
}

// unmarked returns b without a mark: the next run may count from another checkpoint.
func (b *Behind) unmarked() *Behind {
	if b == nil || b.Mark.IsZero() {
		return b
	}
	return &Behind{Since: b.Since}
}

// Advanced returns b with a later Since while a run copies without ever coming to the end of the changes: when all changes
// are checked that the source had at the mark, the target is not behind by more than the time since then. It does not
// change b.
func (b *Behind) Advanced(state *JobState, now time.Time) *Behind {
	if state.ChangesPending == nil {
		return b
	}
	next, checked := *b, state.Stats.RevisionsChecked
	if !next.Mark.IsZero() && checked >= next.Goal {
		next.Since, next.Mark = next.Mark, time.Time{}
	}
	if next.Mark.IsZero() {
		next.Mark, next.Goal = now, checked+max(*state.ChangesPending, 1)
	}
	return &next
}
