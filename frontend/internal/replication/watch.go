package replication

import "settee/replicator/jobs"

// watch says how a parked job learns that its source has changed. CouchDB has no parked jobs.
type watch struct {
	Server       string  `json:"server"`
	Database     string  `json:"database"`
	By           string  `json:"by,omitempty"`
	NextQuestion *string `json:"next_question,omitempty"`
	Reason       string  `json:"reason,omitempty"` // why there are questions
}

// watchOf returns the watch of a parked job, or nil. seeError says whether it has the reason.
func watchOf(w *jobs.Waking, seeError bool) *watch {
	if w == nil {
		return nil
	}
	out := &watch{Server: w.Server, Database: w.Database, By: w.By, NextQuestion: timeText(w.NextQuestion)}
	if seeError {
		out.Reason = w.Why
	}
	return out
}
