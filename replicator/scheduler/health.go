package scheduler

import (
	"time"

	"settee/replicator"
	"settee/replicator/worker"
)

// health tracks the health of a run. A run that was well without interruption for longer than the threshold is healthy
// until its end, and the errors of earlier runs no longer count. A run is well after it has opened its databases, while
// no request is repeated. It does so for three minutes by default when an endpoint does not answer.
type health struct {
	threshold time.Duration
	since     time.Time        // since when the run is well; zero if it is not
	healthy   bool             // it was well for longer than threshold
	failing   *replicator.Wait // the failed request that was being repeated at the last report
}

// observe records what the run is doing at now.
func (h *health) observe(a *replicator.Activity, now time.Time) {
	if h.failing = nil; a == nil {
		return
	}
	until := now
	for i, w := range a.Waiting {
		if !w.RateLimited && (h.failing == nil || w.Since.Before(h.failing.Since)) {
			h.failing = &a.Waiting[i]
		}
	}
	if h.failing != nil && h.failing.Since.Before(until) {
		until = h.failing.Since
	}
	if !h.since.IsZero() && until.Sub(h.since) > h.threshold {
		h.healthy = true
	}
	switch {
	case h.failing != nil, a.Doing == replicator.DoingStarting:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = now
	}
}

// stuckAfter is how long a request must fail to count as the reason for the end of a run.
const stuckAfter = 10 * time.Second

// stuck reports whether a run with these statistics has made no progress because a request has been failing for at least
// stuckAfter.
func (h *health) stuck(copied replicator.Stats) bool {
	return h.failing != nil && time.Since(h.failing.Since) >= stuckAfter && !copied.Attempted()
}

// failure returns the error of a run that is stuck: the one of the request that it repeats.
func (h *health) failure() error { return worker.Failed(h.failing.Fault) }

// heal returns a function that changes a job's state like change, and also forgets its errors if the run is healthy.
func (h *health) heal(change func(*replicator.JobState)) func(*replicator.JobState) {
	return func(state *replicator.JobState) {
		change(state)
		if h.healthy {
			state.ErrorCount = 0
		}
	}
}
