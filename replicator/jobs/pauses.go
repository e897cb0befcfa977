package jobs

import (
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// Pauses, on one page. A database or a document can be paused, and a job does not run while either is.
//
// A database is paused while it has no shares (package shares). Its jobs stay as they are: lists and counts read its pause.
//
// A document is paused while it says `"paused": true`. Its job is pending with the tag "paused", and scheduled for a time
// that does not come. Its args say since when, and when it would have run. Its definition is the same one, so its state
// stays: a job that is resumed goes on with its errors, its wait and its progress.
//
// A mirror is paused as other documents are, and its run adds and starts no jobs from that commit on. The jobs of its databases follow
// in the next transactions: there may be 100,000 of them. Upkeep brings each in line with the mirror, some at a time
// (mirrorpauses.go). Then they are paused like other jobs, so that what is listed and counted of them follows from their rows.
//
// A run whose document is paused has lost its job, as if the definition had changed: it writes what it has read and its last
// checkpoint, and [Run.Release] writes its end into the state.

// setPause sets the pause of the job's database, nil if there is none.
func (j *Job) setPause(p *replicator.Pause) {
	if j.Status != fdbjobs.Finished {
		j.Paused = p
	}
}

// IsPaused reports whether the job has not ended and its document, its mirror or its database is paused. The pause of its
// database must have been read. Such a job needs no attention.
func (j *Job) IsPaused() bool {
	return j.Status != fdbjobs.Finished && (j.Args.Paused != nil || j.Paused != nil)
}

// pausedFor is how long a job waits that is paused.
const pausedFor = 100 * 365 * 24 * time.Hour

// setPaused pauses or resumes a job whose definition stays.
func (s *writer) setPaused(tx kv.Transaction, existing *Job, paused bool) error {
	job, args, now := *existing, *existing.Args, time.Now()
	job.Args = &args
	var spec fdbjobs.Spec
	if paused {
		args.Paused = existing.pausedAt(now)
		spec.Scheduled, spec.Tag = now.Add(pausedFor), tagPaused
	} else {
		var err error
		if spec.Scheduled, spec.Tag, err = existing.resumedAt(now); err != nil {
			return err
		}
		args.Paused, job.State = nil, existing.resumedState()
	}
	return s.put(tx, existing, &job, spec) // the next run looks for changes
}

// resumedState returns the state of a job that is resumed. Of a mirror's database nothing is known since the pause, so its target may
// lack changes since then.
func (j *Job) resumedState() *replicator.JobState {
	if j.State.Mirrored == nil || j.Status != fdbjobs.Pending || j.State.Behind != nil {
		return j.State
	}
	next := *j.State
	next.Behind = &replicator.Behind{Since: j.Args.Paused.Since}
	return &next
}

// pausedAt returns the pause of a job that is paused now.
func (j *Job) pausedAt(now time.Time) *replicator.Pause {
	p := &replicator.Pause{Since: now, Crashing: j.Condition() == replicator.StateCrashing, Turn: j.tag == tagTurn}
	if next := j.nextRun(); next.After(now) {
		p.Next = next
	}
	return p
}

// resumedAt returns when a paused job runs that is resumed now, and its tag until then.
func (j *Job) resumedAt(now time.Time) (at time.Time, tag string, err error) {
	p := j.Args.Paused
	switch {
	case p.Crashing:
		return p.Next, tagCrashing, nil
	case p.Turn:
		return now.Add(pausedFor), tagTurn, nil
	case p.Next.IsZero() && j.State.StartTime.IsZero() && j.Args.Replication.Periodic(): // it was paused when it was added
		at, err = j.Args.Replication.NextRun(time.Time{}, now)
	default:
		at = p.Next
	}
	return at, waitingTag(at, now), err
}
