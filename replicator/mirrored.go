package replicator

import (
	"encoding/json"
	"time"
)

// MirroredJob is what the state of a job says that a mirror has made: how far its database is.
type MirroredJob struct {
	// Turn orders the databases that wait for their first run: lower numbers come first.
	Turn int64 `json:"turn,omitempty"`
	// FirstRun reports that no run has copied everything yet, and none has failed.
	FirstRun bool `json:"first_run,omitempty"`
	// FailingSince is since when the runs fail; zero if they do not.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// GoneAt is when a database is deleted at the target that was deleted at the source; zero for others.
	GoneAt time.Time `json:"gone_at,omitzero"`
	// Lost is the latest [JobArgs].Lost that a run has followed.
	Lost time.Time `json:"lost,omitzero"`
}

// MarshalJSON writes times in UTC and whole seconds.
func (m MirroredJob) MarshalJSON() ([]byte, error) {
	type plain MirroredJob
	m.FailingSince, m.GoneAt, m.Lost = wholeSeconds(m.FailingSince), wholeSeconds(m.GoneAt), wholeSeconds(m.Lost)
	return json.Marshal(plain(m))
}

// FollowMirrored brings how far the database of a mirror is in line with the rest of the state, which has come about at a time.
// Mirrored and Behind are those of the state before. It does nothing to the states of other jobs.
func (s *JobState) FollowMirrored(now time.Time) {
	if s.Mirrored == nil {
		return
	}
	next := s.Mirrored.after(s, now)
	s.Mirrored, s.Behind = &next, s.Behind.afterMirrored(&next, s, now)
}

// after returns what follows from the next state. A run after a failure has to show that it goes on.
func (m MirroredJob) after(state *JobState, now time.Time) MirroredJob {
	running, a := state.State == StateRunning && state.Activity != nil, state.Activity
	switch {
	case state.State == StateFailed && state.Fault.Is(FaultCollision),
		state.State == StateCompleted,
		state.State == StatePending && state.Parked != nil,
		running && a.Doing == DoingWaiting:
		m.FirstRun, m.FailingSince = false, time.Time{}
	case state.State == StateFailed, state.State == StateCrashing:
		m.FirstRun = false
		if m.FailingSince.IsZero() {
			m.FailingSince = now
		}
	case running && len(a.Waiting) == 0 && a.Doing != DoingStarting:
		m.FailingSince = time.Time{}
	}
	return m
}

// afterMirrored is [Behind.After] for a job that a mirror has made: the target lacks changes before the job has copied everything,
// and while its runs fail.
func (b *Behind) afterMirrored(m *MirroredJob, state *JobState, now time.Time) *Behind {
	next := b.After(state, now)
	switch {
	case next != nil || !m.FirstRun && m.FailingSince.IsZero():
		return next
	case b != nil:
		return b.unmarked()
	}
	return &Behind{Since: now}
}

// KeepMirrored keeps how far the database of a mirror is, for the first state with a new definition. The database has not failed
// with that, and the target may lack changes.
func (s *JobState) KeepMirrored(before *JobState) {
	if s.Mirrored == nil || before.Mirrored == nil {
		return
	}
	kept := *before.Mirrored
	kept.FailingSince, kept.GoneAt = time.Time{}, time.Time{}
	s.Mirrored = &kept
	if before.Behind != nil {
		s.Behind = before.Behind.unmarked()
	}
}

// MirroredFacts is what the state of a database of a mirror follows from. Times are in seconds since the Unix epoch, 0 for none.
type MirroredFacts struct {
	// Waits: the job waits for its turn. Gone: the database was deleted at the source. Paused: the job is paused. Parked: it is parked.
	Waits, Gone, Paused, Parked bool
	// Ended: the job has ended. Failed: as failed. Elsewhere: because another job has its replication id.
	Ended, Failed, Elsewhere bool
	// FirstRun and Failing are of the [MirroredJob]. Behind is since when the target may lack changes.
	FirstRun        bool
	Failing, Behind int64
}

// State returns the state of the database.
func (f *MirroredFacts) State() MirroredState {
	switch {
	case f.Waits:
		return MirroredWaiting
	case f.Gone:
		return MirroredGone
	case f.Paused:
		return MirroredPaused
	case f.Ended && f.Elsewhere:
		return MirroredElsewhere
	case f.Ended && f.Failed:
		return MirroredFailed
	case f.Ended, f.Parked:
		return MirroredCurrent
	case f.Failing != 0:
		return MirroredFailing
	case f.FirstRun:
		return MirroredStarting
	case f.Behind != 0:
		return MirroredCopying
	}
	return MirroredCurrent
}

// Fails reports whether the latest run of a database in a state failed.
func (s MirroredState) Fails() bool { return s == MirroredFailing || s == MirroredFailed }

// Ended reports whether the database's job has ended, and may be added again.
func (s MirroredState) Ended() bool { return s == MirroredFailed || s == MirroredElsewhere }

// NotCopied reports whether the replication of the database fails, has failed, or belongs to another job.
func (s MirroredState) NotCopied() bool { return s.Fails() || s == MirroredElsewhere }

// Lags reports whether the target may lack changes of a database in a state.
func (s MirroredState) Lags() bool {
	return s.Fails() || s == MirroredWaiting || s == MirroredStarting || s == MirroredCopying
}
