package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// The jobs of paused documents; pauses.go has the page.

// pausedFor is how long a job waits that is paused.
const pausedFor = 100 * 365 * 24 * time.Hour

// DocumentPaused returns since when the document of the job is paused, or zero.
func (j *Job) DocumentPaused() time.Time {
	if j.Args.Paused == nil || j.Status == fdbjobs.Finished {
		return time.Time{}
	}
	return j.Args.Paused.Since
}

// putAside queues a job again that is paused, and returns fdbjobs.ErrHalt. A paused job is taken only if its run
// has died, or has stopped with an unknown result.
func (s *Runs) putAside(ctx context.Context, held *fdbjobs.Held) error {
	held.Tag = tagPaused
	if err := held.Resubmit(ctx, time.Now().Add(pausedFor), nil, nil); err != nil {
		return err
	}
	return fdbjobs.ErrHalt
}

// setPaused pauses or resumes a job whose definition stays.
func (s *Documents) setPaused(tx kv.Transaction, existing *Job, paused bool, order uint16) error {
	job, args, now := *existing, *existing.Args, time.Now()
	job.Args = &args
	spec := fdbjobs.Spec{Order: order}
	if paused {
		args.Paused = existing.pausedAt(now)
		spec.Scheduled, spec.Tag = now.Add(pausedFor), tagPaused
	} else {
		var err error
		if spec.Scheduled, spec.Tag, err = existing.resumedAt(now); err != nil {
			return err
		}
		args.Paused = nil
	}
	return s.writer.put(tx, existing, &job, spec) // the next run looks for changes
}

// pausedAt returns the pause of a job that is paused now.
func (j *Job) pausedAt(now time.Time) *replicator.Pause {
	p := &replicator.Pause{Since: now, Crashing: j.Status == fdbjobs.Pending && j.tag == tagCrashing}
	if next := j.NextRun(); next.After(now) {
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
	case p.Next.IsZero() && j.State.StartTime.IsZero() && j.Args.Replication.Periodic(): // it was paused when it was added
		at, err = j.Args.Replication.NextRun(time.Time{}, now)
	default:
		at = p.Next
	}
	return at, waitingTag(at, now), err
}

// Last says what the last progress of a run is that has lost its job, and what it has copied, for the case that the job
// was paused.
func (r *Run) Last(copied replicator.Stats, change func(*replicator.JobState)) {
	r.copied, r.last = copied.DocCounts, change
}

// left writes the end of this run into the state of a job that has been paused or resumed while it ran, and tags a job
// that is paused. Other jobs stay as they are.
func (r *Run) left(ctx context.Context) error {
	return r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		raw, err := r.store.jobs.Get(tx, r.job.ID)
		if errors.Is(err, fdbjobs.ErrNotFound) || errors.Is(err, fdbjobs.ErrSealed) {
			return nil
		}
		// A run that stops with an unknown result may still hold the job.
		held := err == nil && raw.Status == fdbjobs.Running && raw.Lock == r.job.held.lock
		if err != nil || raw.Status != fdbjobs.Pending && !held {
			return err
		}
		var was replicator.JobState
		job, err := r.store.parse(raw)
		if err != nil || json.Unmarshal(raw.State, &was) != nil {
			return nil //nolint:nilerr // the next run fails, and says why
		}
		mine := r.started && !job.redefined && was.State == replicator.StateRunning && was.PID == r.job.State.PID &&
			was.StartTime.Equal(r.job.State.StartTime.UTC().Truncate(time.Second))
		spec := fdbjobs.Spec{Scheduled: raw.Scheduled, Tag: raw.Tag}
		switch {
		case job.Args.Paused != nil && held:
			spec.Scheduled, spec.Tag = time.Now().Add(pausedFor), tagPaused
		case job.Args.Paused != nil && raw.Tag == "":
			spec.Tag = tagPaused
		case held || !mine:
			return nil
		}
		next, state := *job, *job.State
		if next.State = &state; mine {
			if err := r.recordLeft(tx, &next); err != nil {
				return err
			}
		}
		job.Status, job.held = fdbjobs.Pending, holding{} // this run has ended
		return r.store.writer.put(tx, job, &next, spec)
	})
}

// recordLeft sets the state of a job after this run, and records its end.
func (r *Run) recordLeft(tx kv.Transaction, job *Job) error {
	next := job.State
	next.History = slices.Clone(next.History)
	if r.last != nil {
		r.last(next)
	}
	reason := "the document was paused and resumed"
	if job.Args.Paused != nil {
		reason = "the document is paused"
	}
	next.State, next.StuckSince, next.Parked, next.LastUpdated = replicator.StatePending, time.Time{}, nil, time.Now()
	next.SetError("", "")
	next.Runs++
	if next.ErrorCount == 0 {
		next.CrashingSince = time.Time{}
	}
	r.event(next, next.LastUpdated, replicator.EventStopped, reason)
	next.Redact(r.secrets)
	if err := r.recordEnd(tx, replicator.RunStopped, next); err != nil {
		return err
	}
	return r.store.parking.unparkExcept(tx, job.ID, source{}, r.parkedAt...)
}
