package jobs

import (
	"time"

	"settee/replicator"
)

// The jobs of paused documents; pauses.go has the page.

// pausedFor is how long a job waits that is paused.
const pausedFor = 100 * 365 * 24 * time.Hour

// pausedAt returns the pause of a job that is paused now.
func (j *Job) pausedAt(now time.Time) *replicator.Pause {
	p := &replicator.Pause{Since: now, Crashing: j.Condition() == replicator.StateCrashing}
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
	case p.Next.IsZero() && j.State.StartTime.IsZero() && j.Args.Replication.Periodic(): // it was paused when it was added
		at, err = j.Args.Replication.NextRun(time.Time{}, now)
	default:
		at = p.Next
	}
	return at, waitingTag(at, now), err
}
