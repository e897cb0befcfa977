package replicator

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

// JobArgs is the args of a replication job. The job layer stores it in the form of
// [JobArgs.Stored]; only that form has credentials.
type JobArgs struct {
	Replication *Replication `json:"replication"`

	// Definition identifies this definition among all definitions of the job.
	Definition string `json:"definition,omitempty"`

	// Life identifies a transient job from when it is added until it has ended or is cancelled. A
	// job that is added after that has another Life. A job that gets a new definition, or another
	// request waiting for it, keeps its Life.
	Life string `json:"life,omitempty"`

	// Database and DocID are the replicator database and the document that the job was made from;
	// both are nil for a transient job. A job that a mirror has made has the Database of the mirror.
	Database *string `json:"database"`
	DocID    *string `json:"doc_id"`

	// MirroredDatabase is the name of the source database of a job that a mirror has made. Such a job has no document, even if
	// the mirror has one: DocID is nil. Its job id names the mirror, see [MirrorOf].
	MirroredDatabase string `json:"mirrored_database,omitempty"`

	// Lost is since when the target may have lost what a job that a mirror has made had copied there: a run begins anew then. It is
	// zero if the target has lost nothing, and in whole seconds.
	Lost time.Time `json:"lost,omitzero"`

	// Children is the Definition of the jobs that a mirror makes, if that is an earlier Definition of the mirror: those since
	// make the same jobs.
	Children string `json:"children,omitempty"`

	// MirrorServer is the key of who answers for a mirror's source (Endpoint.Route). Only what lists show of a job has it.
	MirrorServer string `json:"mirror_server,omitempty"`

	// User is the user that asked for the replication. nil means the anonymous user.
	User *string `json:"user"`

	// ReplicationID is empty if it depends on a filter function's text.
	ReplicationID string `json:"replication_id,omitempty"`

	// Added is when the job was added or its definition last changed.
	Added time.Time `json:"added"`

	// Paused is not nil while the job's document says `"paused": true`. The job of a mirror's database follows the mirror's document.
	Paused *Pause `json:"paused,omitempty"`
	// Acknowledged is the latest acknowledgement, nil if there is none. A new definition has none. It may cover nothing any more: see
	// [Acknowledgement.Covers].
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`
}

// Pause is a pause of a single job.
type Pause struct {
	Since time.Time `json:"since"`
	// Next is when the job would have run next, zero if it ran or was due. Crashing reports whether its last run had failed, and Turn
	// whether it waited for its turn in a mirror.
	Next     time.Time `json:"next,omitzero"`
	Crashing bool      `json:"crashing,omitempty"`
	Turn     bool      `json:"turn,omitempty"`
}

// MarshalJSON writes the times in UTC and whole seconds.
func (p Pause) MarshalJSON() ([]byte, error) {
	type plain Pause
	p.Since, p.Next = wholeSeconds(p.Since), wholeSeconds(p.Next)
	return json.Marshal(plain(p))
}

// MarshalJSON writes the args without credentials, and the time in UTC and whole seconds.
func (a JobArgs) MarshalJSON() ([]byte, error) {
	type plain JobArgs
	a.Added = wholeSeconds(a.Added)
	return json.Marshal(plain(a))
}

// JobState is the state of a replication job, as the job layer stores it.
type JobState struct {
	State State `json:"state"`

	// Definition is the Definition of the JobArgs that this state belongs to. Args may be
	// replaced at any time, but only the holder of the job writes its state. If the two differ,
	// the state belongs to an earlier definition.
	Definition string `json:"definition,omitempty"`

	// ReplicationID is the id of the latest run, empty before it is known.
	ReplicationID string `json:"replication_id,omitempty"`

	// Node and PID are the name of the node of the latest run, and the run's name on it.
	// StartTime is when that run started; zero if there was none.
	Node      string    `json:"node,omitempty"`
	PID       string    `json:"pid,omitempty"`
	StartTime time.Time `json:"start_time,omitzero"`

	LastUpdated time.Time `json:"last_updated,omitzero"`
	History     History   `json:"history"`

	// ErrorCount is the number of crashes in a row. CrashingSince is when the first of them was; zero if the job is not failing: see
	// FollowErrors.
	ErrorCount    int       `json:"error_count"`
	CrashingSince time.Time `json:"crashing_since,omitzero"`

	// NoProgressSince is the latest progress of the job, or the start of the first run without any, moved on by the time in which the
	// job did not run. It is zero if the job has nothing to do. StuckSince is since when the job makes no progress, zero unless it
	// is stuck. See progress.go.
	NoProgressSince time.Time `json:"no_progress_since,omitzero"`
	StuckSince      time.Time `json:"stuck_since,omitzero"`

	// Behind is what the runs of a continuous job know of the target's lag. BehindSince is its Since in whole seconds, from
	// when that is long ago or the run has ended; otherwise zero.
	Behind      *Behind   `json:"behind,omitempty"`
	BehindSince time.Time `json:"behind_since,omitzero"`
	// RefusedAt is when a report first had the revisions that the target has refused last; zero if it has refused none.
	RefusedAt time.Time `json:"refused_at,omitzero"`

	Stats Stats `json:"stats"`

	// Runs is the number of runs that have ended, of which the latest are recorded as EndedRun.
	Runs int64 `json:"runs,omitempty"`

	// LastRun are the counters of the latest run of a periodic replication that came to its end, without the counters
	// of the turns before it if it was interrupted. A nil LastRun means that there was none.
	LastRun *Stats `json:"last_run,omitempty"`

	// SourceSeq is the sequence up to which the changes feed was read, ThroughSeq that up to
	// which all changes were processed, CheckpointedSourceSeq the sequence of the latest checkpoint. They
	// are JSON values from the source, nil if not known. ChangesPending is the source's count of
	// the changes that are left.
	SourceSeq             json.RawMessage `json:"source_seq,omitempty"`
	CheckpointedSourceSeq json.RawMessage `json:"checkpointed_source_seq,omitempty"`
	ThroughSeq            json.RawMessage `json:"through_seq,omitempty"`
	ChangesPending        *int64          `json:"changes_pending,omitempty"`

	// Opened says that a run has opened both databases since the job got its ReplicationID. Of a mirror it says that the
	// source's databases were listed.
	Opened bool `json:"opened,omitempty"`

	// Parked is not nil if the job is parked, or its run is about to be. It is also left of a run that died.
	Parked *Parked `json:"parked,omitempty"`

	// Ends is what both ends said of themselves when the latest run opened them; nil if none has.
	Ends *Ends `json:"ends,omitempty"`

	// Lacking is what the latest run has learned about the target.
	Lacking Lacking `json:"lacking,omitzero"`

	// Mirror is what the runs of a mirror have seen, nil before the first one and for other jobs.
	Mirror *MirrorProgress `json:"mirror,omitempty"`

	// Security is a digest of the source's `_security` object that the latest run has found at the target or copied there. It
	// is empty if that is not known, and for jobs that do not copy the object.
	Security string `json:"security,omitempty"`

	// Mirrored is how far the database of a job is that a mirror has made. It is nil for other jobs.
	Mirrored *MirroredJob `json:"mirrored,omitempty"`

	// Target is what the job of a mirror's database knows of its target; otherwise zero.
	Target MirrorTarget `json:"target,omitzero"`

	// Activity is the last activity of the latest run, or nil.
	Activity *Activity `json:"activity,omitempty"`

	// Fault is why the latest run that has failed did so. Runs that are stopped keep it. It is nil after a run that has made
	// progress, has parked or has completed, and for a new definition.
	Fault *Fault `json:"fault,omitempty"`

	// Error is why the job is crashing or failed, ErrorCode its kind, such as db_not_found.
	// SetError sets both.
	Error     string `json:"error,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`

	// Result is the response body of POST /_replicate for a completed one-shot replication: a
	// JSON object with the checkpoint's history.
	Result json.RawMessage `json:"result,omitempty"`
}

// Lacking says how a run decides whether to ask the target which revisions it lacks, before it copies them.
type Lacking struct {
	// Lacked is the number of revisions in a row that the target turned out to lack when it was asked. It is negative after
	// the target had some: so many more it has to lack before they count.
	Lacked int `json:"lacked,omitempty"`
	// Unasked is the number of revisions that may be copied before the next question.
	Unasked int `json:"unasked,omitempty"`
}

// Parked says where the changes of a parked job come from: a continuous one that has copied everything, and waits for a
// change of its source without a run.
type Parked struct {
	// Since is when the job was parked. It is zero before the run has ended.
	Since time.Time `json:"since,omitzero"`
	// Server and Database are the source: who answers, and the name of the database, see [Endpoint.Route].
	Server   string `json:"server"`
	Database string `json:"database"`
	// UpdateSeq is the JSON text of the source's update_seq before the last look for changes. It is empty if it is not
	// known, and in a job's state, because it may be large.
	UpdateSeq string `json:"update_seq,omitempty"`
	// Target is the target with everything that the source had. It is zero in a job's state.
	Target ParkedTarget `json:"target,omitzero"`
}

// MarshalJSON writes the time in UTC and whole seconds.
func (p Parked) MarshalJSON() ([]byte, error) {
	type plain Parked
	p.Since = wholeSeconds(p.Since)
	return json.Marshal(plain(p))
}

// MarshalJSON writes times in UTC and whole seconds, and masks credentials in the error.
func (s JobState) MarshalJSON() ([]byte, error) {
	type plain JobState
	s.StartTime = wholeSeconds(s.StartTime)
	s.LastUpdated = wholeSeconds(s.LastUpdated)
	s.CrashingSince, s.StuckSince, s.RefusedAt = wholeSeconds(s.CrashingSince), wholeSeconds(s.StuckSince), wholeSeconds(s.RefusedAt)
	s.NoProgressSince, s.BehindSince = wholeSeconds(s.NoProgressSince), wholeSeconds(s.BehindSince)
	s.Error = cleanReason(s.Error)
	if s.History == nil {
		s.History = History{}
	}
	return json.Marshal(plain(s))
}

// plainErrorCode is CouchDB's code for errors without a code of their own.
const plainErrorCode = "error"

// SetError records why the job is crashing or failed. code is CouchDB's code for the kind of
// error, such as db_not_found or replication_auth_error, or empty. Error becomes "code: reason",
// or the reason alone if there is no code. Credentials are masked and a long reason is truncated.
// Two empty strings clear the error.
func (s *JobState) SetError(code, reason string) {
	s.ErrorCode, s.Error = code, cleanReason(reason)
	if code != "" && code != plainErrorCode {
		s.Error = cleanReason(code + ": " + reason)
	}
}

// SetFault records why the job is crashing or failed: the fault, and CouchDB's texts of it as SetError does. nil clears both.
func (s *JobState) SetFault(f *Fault) {
	s.Fault = f
	if f == nil {
		s.SetError("", "")
		return
	}
	s.SetError(f.CouchText())
}

// FollowErrors brings CrashingSince in line with State and ErrorCount, which have changed at a time. A job is failing, and has the
// mark of that name, from the first crash in a row until ErrorCount is 0 in another state, or the job ends.
func (s *JobState) FollowErrors(now time.Time) {
	switch {
	case s.State == StateCrashing && s.CrashingSince.IsZero():
		s.CrashingSince = now
	case s.State.Terminal() || s.State != StateCrashing && s.ErrorCount == 0:
		s.CrashingSince = time.Time{}
	}
}

// ErrorBody returns the "error" and the "reason" in the response body of POST /_replicate for a
// failed job.
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
	EventStopped = "stopped" // its run ended without a failure, see Event.Code
	EventPending = "pending" // back in the queue, as when its filter changed
	EventCrashed = "crashed" // with a reason
)

// Event is one entry of a job's history, in the form of listings.
type Event struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason,omitempty"`
	// Code says why, after an event that ends a run. It is empty if that is not known.
	Code EndCode `json:"code,omitempty"`
}

// MarshalJSON writes the time in UTC and whole seconds, and masks credentials.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	e.Timestamp = wholeSeconds(e.Timestamp)
	e.Reason = cleanReason(e.Reason)
	return json.Marshal(plain(e))
}

// History is a list of events, the newest first.
type History []Event

// Push adds an event in front and keeps the latest limit events. It masks credentials and rounds
// the time to whole seconds in UTC. The event of a run that ended by itself gets a reason.
func (h *History) Push(event Event, limit int) {
	event.Timestamp = wholeSeconds(event.Timestamp)
	event.Reason = cleanReason(cmp.Or(event.Reason, endTexts[event.Code]))
	events := append(History{event}, *h...)
	*h = events[:min(len(events), max(limit, 0))]
}

// maxReason is the most bytes kept of a reason, so that a history of them fits into a job's state
// of at most 100,000 bytes.
const maxReason = 1000

// cleanReason masks and truncates an error text for storing and showing.
func cleanReason(text string) string {
	return jsontext.Cut(redact.Text(text), maxReason)
}

func wholeSeconds(t time.Time) time.Time {
	return t.UTC().Truncate(time.Second)
}
