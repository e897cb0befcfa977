package replicator

import (
	"time"

	"settee/pkg/retry"
)

// Ending says how a run has ended, as far as the job's next run depends on it.
type Ending struct {
	// Outcome is RunCompleted, RunStopped, RunParked, RunRestarted, RunLost, RunFailed for a definition that the node's
	// settings forbid, or RunCrashed after any other error: Again decides which errors end the job.
	Outcome Outcome
	// Healthy reports that the run was well for longer than health_threshold. Errors of earlier runs no longer count.
	Healthy bool
	// RetryAfter is how long an endpoint asked the run to wait, or 0.
	RetryAfter time.Duration
	// Rival is the job that has the replication id, after RunCrashed because of a collision.
	Rival Rival
}

// Rival is a kind of job that has the replication id of another one (RFC 016, "Replication ID Collisions").
type Rival int

// The kinds of rivals.
const (
	NoRival       Rival = iota
	DocumentRival       // the job of a document
	PostedRival         // a job posted to _replicate
)

// Again says what becomes of a job after a run.
type Again struct {
	// Outcome is the outcome that is recorded for the run: RunFailed instead of RunCrashed if the job has failed.
	Outcome Outcome
	// State is the next state: pending, crashing, completed or failed.
	State State
	// At is when the job runs again, zero if State is completed or failed.
	At time.Time
	// ErrorCount is the number of crashes in a row.
	ErrorCount int
}

// Penalties are min_backoff_penalty_sec and max_backoff_penalty_sec. After n crashes in a row a job waits Min times 2^n, at most
// Max, less up to a quarter at random.
type Penalties struct{ Min, Max time.Duration }

const (
	// parkedFor is how long a parked job waits if nothing wakes it. A random part of parkedSpread is added.
	parkedFor    = 21 * time.Hour
	parkedSpread = 6 * time.Hour
	// mirroredTries is how often a database of a mirror is tried that is not continuous. Then the mirror ends without it.
	mirroredTries = 3
	// longestMirrorWait is the longest wait of a mirror that crashed: its databases go on, but no new ones are noticed.
	longestMirrorWait = 5 * time.Minute
)

// Again decides whether and when a job runs again after a run that ended at now. jitter, from 0 to below 1, shortens or
// spreads waits; draw it at random. It fails only if the time zone of a periodic replication is unknown.
//
//	the run                                      the job
//	completed                                    completed; pending until its next time if it is periodic
//	was stopped                                  pending at once; healthy runs clear the errors, others keep them
//	started anew with another replication id     pending at once
//	was lost with its process                    pending at once: the activity monitor queues it
//	parked                                       pending in about a day without errors, or when its source changes
//	has an invalid definition                    failed
//	failed; a client awaits its result           failed; crashing if an endpoint asked for a wait
//	failed before a posted job had an id         failed; crashing if an endpoint asked for a wait
//	failed otherwise                             crashing, with a wait that doubles (see [Penalties])
//	failed three times, and a mirror that is     failed
//	  not continuous waits for its end
//	is a mirror's, and failed                    crashing, with a wait of at most five minutes
//	collided, and was posted                     failed
//	collided, and a mirror has made it           failed: the mirror adds it again
//	collided with the job of a document          failed
//	collided with a posted job                   crashing, with the shortest wait
//
// A client awaits the result of a posted replication that is not continuous. A posted replication has no id before its
// filter function could be read: CouchDB answers such a POST with an error.
func (e Ending) Again(job *JobArgs, state *JobState, p Penalties, now time.Time, jitter float64) (Again, error) {
	errors := state.ErrorCount
	if e.Healthy {
		errors = 0
	}
	mirrored := job.MirroredDatabase != ""
	posted := job.Database == nil && !mirrored
	crashes := func(wait time.Duration) Again { return Again{RunCrashed, StateCrashing, now.Add(wait), errors + 1} }
	fails := Again{Outcome: RunFailed, State: StateFailed, ErrorCount: errors + 1}
	switch {
	case e.Outcome == RunCompleted && !job.Replication.Periodic():
		return Again{Outcome: RunCompleted, State: StateCompleted}, nil
	case e.Outcome == RunCompleted:
		next, err := job.Replication.NextRun(state.StartTime, now)
		return Again{Outcome: RunCompleted, State: StatePending, At: next}, err
	case e.Outcome == RunParked:
		return Again{Outcome: RunParked, State: StatePending, At: now.Add(parkedFor + time.Duration(jitter*float64(parkedSpread)))}, nil
	case e.Outcome == RunFailed:
		return fails, nil
	case e.Outcome != RunCrashed: // stopped, restarted or lost
		return Again{e.Outcome, StatePending, now, errors}, nil
	case e.Rival == PostedRival && !posted && !mirrored:
		return crashes(p.untilNextRun(false, 0, 0, jitter)), nil // it may be cancelled at any time
	case e.Rival != NoRival:
		return fails, nil
	}
	awaited := Awaited(job)
	unidentified := posted && job.ReplicationID == "" && state.ReplicationID == ""
	givenUp := mirrored && !job.Replication.Continuous && errors+1 >= mirroredTries
	if (awaited || unidentified) && e.RetryAfter == 0 || givenUp {
		return fails, nil
	}
	wait := p.untilNextRun(awaited, errors+1, e.RetryAfter, jitter)
	if job.Replication.Periodic() {
		// Its next time comes first, and is this try then.
		next, err := job.Replication.NextRun(now, now)
		if err != nil {
			return Again{}, err
		}
		wait = min(wait, max(next.Sub(now), p.untilNextRun(false, 1, e.RetryAfter, jitter)))
	}
	if job.Replication.Mirror != nil {
		wait = min(wait, longestMirrorWait)
	}
	return crashes(wait), nil
}

// Awaited reports whether a client waits for the result of a job: one posted to _replicate that is not continuous, and not
// one that a mirror has made.
func Awaited(job *JobArgs) bool {
	return job.Database == nil && job.MirroredDatabase == "" && !job.Replication.Continuous
}

// untilNextRun returns the wait after so many crashes in a row: see [Penalties]. It is longer, up to Max, if the endpoint asked for
// that. A job that a client awaits waits as long as the endpoint asked, and twice as long each time that the endpoint asks again.
func (p Penalties) untilNextRun(awaited bool, errors int, retryAfter time.Duration, jitter float64) time.Duration {
	if awaited && retryAfter > 0 {
		return retry.Backoff{First: retryAfter, Most: p.Max}.After(errors-1, 0)
	}
	return max(retry.Backoff{First: p.Min, Most: p.Max}.After(errors, jitter), min(retryAfter, p.Max))
}
