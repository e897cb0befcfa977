package replicator

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"settee/pkg/redact"
)

// JobArgs is what the job layer stores as the args of a replication job, in the form
// of [JobArgs.Stored]. No other has credentials.
type JobArgs struct {
	Replication *Replication `json:"replication"`

	// Definition names this definition among those that the job has had and will have.
	Definition string `json:"definition,omitempty"`

	// Life names the life of a transient job, which lasts until it has ended or was cancelled:
	// one that is added after that has another, one that is joined or given a new definition
	// has not.
	Life string `json:"life,omitempty"`

	// Database and DocID are the replicator database and the document that the job
	// was made from; both are nil for a transient job.
	Database *string `json:"database"`
	DocID    *string `json:"doc_id"`

	// User is who asked for the replication, nil for an anonymous one.
	User *string `json:"user"`

	// ReplicationID is empty if it needs a filter function's text.
	ReplicationID string `json:"replication_id,omitempty"`

	// Added is when the job was added, or its definition last changed.
	Added time.Time `json:"added"`
}

// MarshalJSON writes the args as they may be printed, and the time in UTC and whole
// seconds.
func (a JobArgs) MarshalJSON() ([]byte, error) {
	type plain JobArgs
	a.Added = wholeSeconds(a.Added)
	return json.Marshal(plain(a))
}

// JobState is what the job layer stores as the state of a replication job.
type JobState struct {
	State State `json:"state"`

	// Definition is that of the JobArgs that this is the state of. The args can be
	// replaced at any time, the state only by who holds the job: where the two differ,
	// the state is that of an earlier definition.
	Definition string `json:"definition,omitempty"`

	// ReplicationID is that of the latest run, empty before it is known.
	ReplicationID string `json:"replication_id,omitempty"`

	// Node and PID say where the latest run is, or was: the node's name, and the
	// run's name on it. StartTime is when it started; zero if there was none.
	Node      string    `json:"node,omitempty"`
	PID       string    `json:"pid,omitempty"`
	StartTime time.Time `json:"start_time,omitzero"`

	LastUpdated time.Time `json:"last_updated,omitzero"`
	History     History   `json:"history"`

	// ErrorCount is the number of crashes in a row.
	ErrorCount int `json:"error_count"`

	Stats Stats `json:"stats"`

	// SourceSeq is how far the changes feed was read, ThroughSeq up to where all of
	// it was dealt with, CheckpointedSourceSeq what of that a checkpoint recorded:
	// JSON values of the source's making; nil if not known. ChangesPending is how
	// many changes the source says are left.
	SourceSeq             json.RawMessage `json:"source_seq,omitempty"`
	CheckpointedSourceSeq json.RawMessage `json:"checkpointed_source_seq,omitempty"`
	ThroughSeq            json.RawMessage `json:"through_seq,omitempty"`
	ChangesPending        *int64          `json:"changes_pending,omitempty"`

	// Activity is what the latest run was last doing, or nil.
	Activity *Activity `json:"activity,omitempty"`

	// Error says why the job is crashing or failed, ErrorCode its kind, such as
	// db_not_found. SetError sets both.
	Error     string `json:"error,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`

	// Result is what POST /_replicate answers with when a one-shot replication has
	// completed: the checkpoint's history, a JSON object.
	Result json.RawMessage `json:"result,omitempty"`
}

// MarshalJSON writes times in UTC and whole seconds, and masks credentials in the
// error, so that none is stored whoever set it.
func (s JobState) MarshalJSON() ([]byte, error) {
	type plain JobState
	s.StartTime = wholeSeconds(s.StartTime)
	s.LastUpdated = wholeSeconds(s.LastUpdated)
	s.Error = cleanReason(s.Error)
	if s.History == nil {
		s.History = History{}
	}
	return json.Marshal(plain(s))
}

// plainErrorCode is what CouchDB calls an error that it has no other word for.
const plainErrorCode = "error"

// SetError records why the job is crashing or failed. The code is CouchDB's word
// for the kind of error, such as db_not_found or replication_auth_error, or empty.
// Error becomes "code: reason", as listings and documents show it, or the reason
// alone where there is no code. Credentials are masked; a long reason is cut.
// Two empty strings say that there is no error any more.
func (s *JobState) SetError(code, reason string) {
	s.ErrorCode, s.Error = code, cleanReason(reason)
	if code != "" && code != plainErrorCode {
		s.Error = cleanReason(code + ": " + reason)
	}
}

// ErrorBody returns the "error" and the "reason" of the body that POST /_replicate
// answers with when the job has failed.
func (s *JobState) ErrorBody() (code, reason string) {
	if s.ErrorCode == "" {
		return plainErrorCode, s.Error
	}
	return s.ErrorCode, strings.TrimPrefix(s.Error, s.ErrorCode+": ")
}

// The types of events in a job's history.
const (
	EventAdded   = "added"
	EventStarted = "started"
	EventStopped = "stopped" // to let others run
	EventPending = "pending" // back in the queue, as when its filter changed
	EventCrashed = "crashed" // with a reason
)

// Event is one entry of a job's history, in the form that listings have it in.
type Event struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason,omitempty"`
}

// MarshalJSON writes the time in UTC and whole seconds, and masks credentials in
// the reason.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	e.Timestamp = wholeSeconds(e.Timestamp)
	e.Reason = cleanReason(e.Reason)
	return json.Marshal(plain(e))
}

// History is a list of events, the newest first.
type History []Event

// Push puts an event in front and keeps the latest limit events. Credentials in
// its reason are masked, and its time is kept in UTC and whole seconds.
func (h *History) Push(event Event, limit int) {
	event.Timestamp = wholeSeconds(event.Timestamp)
	event.Reason = cleanReason(event.Reason)
	events := append(History{event}, *h...)
	*h = events[:min(len(events), max(limit, 0))]
}

// maxReason is the most bytes that are kept of a reason, so that a history of them
// fits into a job's state, which may have 100,000 bytes.
const maxReason = 1000

// cleanReason makes the text of an error fit to be stored and shown.
func cleanReason(text string) string {
	return cut(redact.Text(text), maxReason)
}

// cut returns at most most bytes of text, in whole characters.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := most
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func wholeSeconds(t time.Time) time.Time {
	return t.UTC().Truncate(time.Second)
}
