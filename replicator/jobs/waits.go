package jobs

import (
	"context"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// WaitsFor says for what a job that is pending or crashing waits.
type WaitsFor struct {
	What WaitWhat
	// Since is since when, zero if it is not known or What is WaitTime. Until is the time of a WaitTime.
	Since, Until time.Time
	// Schedule reports that Until is the next time of a periodic replication, and not the end of a wait after an error.
	Schedule bool
}

// WaitWhat is what a job waits for.
type WaitWhat string

// What jobs wait for.
const (
	WaitSlot     WaitWhat = "slot"     // it is due
	WaitTime     WaitWhat = "time"     // of its schedule, or after an error
	WaitSource   WaitWhat = "source"   // it is parked
	WaitDatabase WaitWhat = "database" // its database is paused
	WaitDocument WaitWhat = "document" // its document is paused
)

// WaitsFor returns for what a job waits, or nil if it runs or has ended. A job whose document or database is paused waits for
// that, whatever else it would wait for. now is the time.
func (j *Job) WaitsFor(now time.Time) *WaitsFor {
	switch {
	case j.Status != fdbjobs.Pending:
		return nil
	case j.Args.Paused != nil:
		return &WaitsFor{What: WaitDocument, Since: j.Args.Paused.Since}
	case j.Paused:
		return &WaitsFor{What: WaitDatabase, Since: j.PausedSince}
	case !j.Parked().IsZero():
		return &WaitsFor{What: WaitSource, Since: j.Parked()}
	case j.scheduled.After(now):
		return &WaitsFor{What: WaitTime, Until: j.scheduled, Schedule: j.Condition() != replicator.StateCrashing}
	}
	return &WaitsFor{What: WaitSlot, Since: j.scheduled}
}

// MaxBefore is the most jobs that [Store.Before] counts.
const MaxBefore = 1_000

// Before returns how many jobs of the same database or user have been due for longer than a job that waits for a slot, up
// to MaxBefore, and whether there are more.
func (s *Store) Before(ctx context.Context, job *Job) (n int, more bool, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		n, more, err = s.jobs.Index().DueBefore(tx.Snapshot(), job.ID, MaxBefore)
		return err
	})
	return n, more, err
}
