package replicator

import (
	"encoding/json"
	"time"
)

// MaxFailures is how many of its latest failures are listed of a replication job.
const MaxFailures = 1000

// Failure is a revision that the target of a replication refused: the replication
// goes on without it. Its JSON form is that of listings.
type Failure struct {
	ID  string `json:"id"`
	Rev string `json:"rev"`
	// Status is the HTTP status of the refusal, or, of one among many in an answer
	// that went well, the status that goes with its code; 0 if there is none.
	Status int `json:"status"`
	// Code and Reason are the target's words, such as "forbidden" and what a
	// validation function said.
	Code   string    `json:"error"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"timestamp"`
}

// MarshalJSON writes the time in UTC and whole seconds, masks credentials in the
// texts, and cuts a long text to 1,000 bytes: what is refused may be refused for
// its long id.
func (f Failure) MarshalJSON() ([]byte, error) {
	type plain Failure
	f.ID, f.Rev = cut(f.ID, maxReason), cut(f.Rev, maxReason)
	f.Code, f.Reason = cleanReason(f.Code), cleanReason(f.Reason)
	f.Time = wholeSeconds(f.Time)
	return json.Marshal(plain(f))
}
