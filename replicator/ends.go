package replicator

import (
	"encoding/json"
	"time"

	"settee/pkg/jsontext"
)

// Ends is what both ends of a job said of themselves when a node opened them.
type Ends struct {
	// At is when they were asked.
	At     time.Time `json:"at"`
	Source End       `json:"source"`
	Target End       `json:"target"`
}

// End is what a database says of itself.
type End struct {
	// Docs is the number of its documents, and Deleted the number of those that were deleted.
	Docs    int64 `json:"docs"`
	Deleted int64 `json:"docs_deleted"`
	// UpdateSeq is the sequence of its last change, as a text that is cut.
	UpdateSeq string `json:"update_seq"`
}

// maxEndSeq is the most bytes of End.UpdateSeq. What tells sequences of a CouchDB apart is in front.
const maxEndSeq = 60

// NewEnd returns an End. updateSeq is the JSON text that the server gave.
func NewEnd(docs, deleted int64, updateSeq json.RawMessage) End {
	var text string
	if json.Unmarshal(updateSeq, &text) != nil {
		text = string(updateSeq)
	}
	if len(text) > maxEndSeq {
		text = jsontext.Cut(text, maxEndSeq) + "…"
	}
	return End{docs, deleted, text}
}

// JobVerified is what a comparison of both ends of a job has found.
type JobVerified struct {
	// Began and Ended are when it began and ended, and Node is where.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	Node  string    `json:"node"`
	// Revisions is the number of leaf revisions that were looked for, and Missing the number of those that the target lacks.
	Revisions int64 `json:"revisions_checked"`
	Missing   int64 `json:"missing_at_target"`
	// Error is why they could not be compared; empty if they were.
	Error string `json:"error,omitempty"`
	// Ends is what both ends said before; nil if they were not opened.
	Ends *Ends `json:"ends,omitempty"`
}

// MarshalJSON writes times in UTC and whole seconds.
func (v JobVerified) MarshalJSON() ([]byte, error) {
	type plain JobVerified
	v.Began, v.Ended = wholeSeconds(v.Began), wholeSeconds(v.Ended)
	return json.Marshal(plain(v))
}
