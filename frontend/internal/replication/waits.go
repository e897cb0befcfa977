package replication

import (
	"time"

	"settee/replicator"
	"settee/replicator/jobs"
)

// pauseOf says whether a job is paused, and by what. CouchDB has no paused jobs.
type pauseOf struct {
	Paused      bool          `json:"paused,omitempty"`
	PausedSince *string       `json:"paused_since,omitempty"`
	PausedBy    jobs.WaitWhat `json:"paused_by,omitempty"` // document or database
}

func pauseOfJob(job *jobs.Job) pauseOf {
	switch since := job.DocumentPaused(); {
	case !since.IsZero():
		return pauseOf{true, timeText(since), jobs.WaitDocument}
	case job.Paused:
		return pauseOf{true, timeText(job.PausedSince), jobs.WaitDatabase}
	}
	return pauseOf{}
}

// reason says why a paused job does not run at once, or "".
func (p pauseOf) reason() string {
	switch p.PausedBy {
	case jobs.WaitDocument:
		return "the document of this job is paused: the job runs as soon as `paused` is taken out of it"
	case jobs.WaitDatabase:
		return "the database of this job is paused: the job runs as soon as the database has shares again"
	}
	return ""
}

// waitsFor is what a job waits for that does not run and has not ended. CouchDB does not say that.
type waitsFor struct {
	What   jobs.WaitWhat `json:"what"`
	Since  *string       `json:"since,omitempty"`  // if it is known
	Until  *string       `json:"until,omitempty"`  // of a time
	Reason string        `json:"reason,omitempty"` // of a time: backoff or schedule
	// Of a slot, in the answer for one job: how many due jobs of the same database or user are before it, and whether
	// there are more than that.
	Before *int `json:"before,omitempty"`
	More   bool `json:"more,omitempty"`
}

// waiting returns what a job waits for, or nil.
func waiting(job *jobs.Job, now time.Time) *waitsFor {
	w := job.WaitsFor(now)
	if w == nil {
		return nil
	}
	out := &waitsFor{What: w.What, Since: timeText(w.Since), Until: timeText(w.Until)}
	switch {
	case w.What != jobs.WaitTime:
	case w.Schedule:
		out.Reason = "schedule"
	default:
		out.Reason = "backoff"
	}
	return out
}

// count adds how many jobs are before one that waits for a slot.
func (w *waitsFor) count(q *replicator.Queue) {
	if w != nil && q != nil {
		w.Before, w.More = &q.Before, q.More
	}
}
