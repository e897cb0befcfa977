package jobs

import (
	"time"

	"settee/fdbjobs"
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
