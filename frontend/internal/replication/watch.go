package replication

import "settee/replicator/jobs"

// watch says how a parked job learns that its source has changed. CouchDB has no parked jobs.
type watch struct {
	Server       string  `json:"server"`
	Database     string  `json:"database"`
	By           string  `json:"by,omitempty"`
	NextQuestion *string `json:"next_question,omitempty"`
	Reason       string  `json:"reason,omitempty"` // why there are questions, for administrators of the server
}

func watchOf(w *jobs.Waking, admin bool) *watch {
	if w == nil {
		return nil
	}
	out := &watch{Server: w.Server, Database: w.Database, By: w.By, NextQuestion: timeText(w.NextQuestion)}
	if admin {
		out.Reason = w.Why
	}
	return out
}
