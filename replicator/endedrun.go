package replicator

import (
	"encoding/json"
	"time"
)

// Outcome says how a run ended.
type Outcome string

// The outcomes of runs.
const (
	RunCompleted Outcome = "completed" // it copied everything
	RunStopped   Outcome = "stopped"   // it made room for another job, or its node was shut down
	RunParked    Outcome = "parked"    // it had nothing left to copy
	RunRestarted Outcome = "restarted" // the replication id has changed
	RunCrashed   Outcome = "crashed"   // it failed, and is repeated
	RunFailed    Outcome = "failed"    // it failed for good
	RunLost      Outcome = "lost"      // its node died
)

// EndedRun is a run of a job that has ended.
type EndedRun struct {
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"` // of a lost run, the latest time when it was known to run
	Outcome Outcome   `json:"outcome"`
	Node    string    `json:"node"`
	// What the run alone has copied. It is not known of a lost run.
	DocCounts
	// Reason is why it crashed or failed, or was stopped.
	Reason string `json:"reason,omitempty"`
	// Code is the same, for programs. It is empty for a run that an older version has recorded.
	Code EndCode `json:"code,omitempty"`
}

// EndCode says why a run ended: one of the values below, or the [FaultCode] of a run that failed.
type EndCode string

// Why runs end without a fault.
const (
	EndCopied    EndCode = "copied_all"    // nothing is left to copy
	EndParked    EndCode = "parked"        // nothing is left to copy until the source changes
	EndMadeRoom  EndCode = "made_room"     // another job is due
	EndTooMany   EndCode = "too_many_jobs" // more jobs ran than the node may run
	EndNodeStops EndCode = "node_stops"    // the node is shut down
	EndPaused    EndCode = "paused"        // the document or the database is paused
	EndNewID     EndCode = "new_id"        // the replication id has changed
	EndNodeLost  EndCode = "node_lost"     // the node has stopped keeping the job alive
)

// endTexts are the reasons of runs that ended by themselves, without an error.
var endTexts = map[EndCode]string{
	EndCopied: "it had copied everything",
	EndParked: "it had copied everything, and waits for changes without a slot",
}

// EndCode returns why the run ended that failed with f.
func (f *Fault) EndCode() EndCode { return EndCode(f.Code) }

// MarshalJSON writes times in UTC and whole seconds, masks credentials, and truncates the reason.
func (r EndedRun) MarshalJSON() ([]byte, error) {
	type plain EndedRun
	r.Start, r.End = wholeSeconds(r.Start), wholeSeconds(r.End)
	r.Reason = cleanReason(r.Reason)
	return json.Marshal(plain(r))
}
