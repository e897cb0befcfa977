package replicator

import (
	"encoding/json"
	"settee/pkg/jsontext"
	"time"
)

// MaxFailures is the most failures listed for a replication job, the latest ones.
const MaxFailures = 1000

// Failure is a revision that the target refused, or that could not be copied for another reason of its own. The replication goes
// on without it. Its JSON
// form is the form of listings.
type Failure struct {
	ID  string `json:"id"`
	Rev string `json:"rev"` // "" for a row of the changes feed that is not understood
	// Status is the HTTP status of the refusal or the failure. For a row of a bulk response it is the status that belongs
	// to its code. It is 0 if there is none.
	Status int `json:"status"`
	// Code and Reason are the target's, such as "forbidden" and the text of a validation function. The reason of a failure
	// names the endpoint and the request.
	Code   string    `json:"error"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"timestamp"`
}

// MarshalJSON writes the time in UTC and whole seconds, masks credentials, and truncates each
// text to 1,000 bytes: a revision may be refused because its id is too long.
func (f Failure) MarshalJSON() ([]byte, error) {
	type plain Failure
	f.ID, f.Rev = jsontext.Cut(f.ID, maxReason), jsontext.Cut(f.Rev, maxReason)
	f.Code, f.Reason = cleanReason(f.Code), cleanReason(f.Reason)
	f.Time = wholeSeconds(f.Time)
	return json.Marshal(plain(f))
}
