package console

import (
	"encoding/json"
	"time"
)

// Job is a job in the answers of _scheduler/jobs. A list has no Runs.
type Job struct {
	Database  *string   `json:"database"` // nil for a job that was posted to _replicate
	DocID     *string   `json:"doc_id"`
	User      *string   `json:"user"`
	ID        string    `json:"id"` // the replication id, or the job id while that is not known
	JobID     string    `json:"job_id"`
	Source    string    `json:"source"`
	Target    string    `json:"target"`
	State     string    `json:"state"`
	Node      string    `json:"node"`
	Info      *Info     `json:"info"`
	History   []Event   `json:"history"` // the newest first
	StartTime time.Time `json:"start_time"`
	Activity  *Activity `json:"activity"` // nil unless it runs
	Condition Condition `json:"condition"`
	Runs      []Run     `json:"runs"`
	// Verified is what the latest comparison of both ends has found, nil if there was none, and VerifyingSince is when somebody has asked for
	// the one that is under way. A mirror has them in Info.
	Verified       *JobVerified `json:"verified"`
	VerifyingSince time.Time    `json:"verifying_since"`
	// Mirror is the job id of the mirror that has made the job for MirroredDatabase, empty for other jobs.
	Mirror           string `json:"mirror"`
	MirroredDatabase string `json:"mirrored_database"`

	// Raw is the job as the node wrote it.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON also keeps the text, as Raw.
func (j *Job) UnmarshalJSON(text []byte) error {
	type plain Job
	if err := json.Unmarshal(text, (*plain)(j)); err != nil {
		return err
	}
	j.Raw = append(json.RawMessage(nil), text...)
	return nil
}

// Condition is what a node tells people about a job. A list has no Queue and no Watch.
type Condition struct {
	State   string    `json:"state"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Marks   []Mark    `json:"marks"`
	Fault   *Fault    `json:"fault"`
	Advice  *Advice   `json:"advice"`
	Queue   *Queue    `json:"queue"`
	Watch   *Watch    `json:"watch"`

	Acknowledged *Acknowledgement `json:"acknowledged"`
}

// Acknowledgement says that somebody knows of the trouble of a job.
type Acknowledgement struct {
	Until time.Time `json:"until"` // zero if it has no end
	By    string    `json:"by"`
	Note  string    `json:"note"`
}

// Fault is why a request or a run has failed.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Text    string `json:"text"` // CouchDB's
}

// Advice is what helps.
type Advice struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Mark is what is true of a job beside the reason of its state.
type Mark struct {
	Type  string    `json:"type"`
	Since time.Time `json:"since"`
	Count int64     `json:"count"`
}

// Queue says how many due jobs of the same database or user are before a job.
type Queue struct {
	Before int  `json:"before"`
	More   bool `json:"more"`
}

// Info is the progress of a job, or its error.
type Info struct {
	Error            string `json:"error"`
	DocsRead         *int64 `json:"docs_read"` // nil if the job has an error, or has not run
	DocsWritten      int64  `json:"docs_written"`
	DocWriteFailures int64  `json:"doc_write_failures"`
	ChangesPending   *int64 `json:"changes_pending"` // nil if it is not known
	// Mirror sums up the databases of a mirror. It is nil for other jobs.
	Mirror *Mirror `json:"mirror"`
}

// Activity says what a run does.
type Activity struct {
	LastProgress time.Time `json:"last_progress"`
	Batches      int       `json:"batches_in_flight"`
	Waiting      []Wait    `json:"waiting"`
	Refusing     *struct {
		Count  int64   `json:"count"`
		Latest Failure `json:"latest"`
	} `json:"refusing"`
}

// Wait is a request that is repeated or held back.
type Wait struct {
	Endpoint string    `json:"endpoint"` // source or target
	Fault    Fault     `json:"fault"`
	Attempt  int       `json:"attempt"`
	Attempts int       `json:"attempts"` // 0 for no limit
	Until    time.Time `json:"until"`
}

// Event is an entry of a job's history.
type Event struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
}

// Watch says what wakes a parked job.
type Watch struct {
	Server       string    `json:"server"`
	Database     string    `json:"database"`
	By           string    `json:"by"` // feed, questions, or "" while the watch begins
	NextQuestion time.Time `json:"next_question"`
}

// Run is a run that has ended.
type Run struct {
	Start            time.Time `json:"start"`
	End              time.Time `json:"end"`
	Outcome          string    `json:"outcome"`
	DocsWritten      *int64    `json:"docs_written"` // nil if it is not known
	DocWriteFailures *int64    `json:"doc_write_failures"`
	Reason           string    `json:"reason"`
}

// Failure is a revision that the target refused.
type Failure struct {
	ID        string    `json:"id"`
	Rev       string    `json:"rev"`
	Status    int       `json:"status"`
	Reason    string    `json:"reason"`
	Timestamp time.Time `json:"timestamp"`
}

// Summary counts the jobs of all nodes by state.
type Summary struct {
	Jobs      map[string]int64 `json:"jobs"`       // by one of [States]
	OldestDue time.Time        `json:"oldest_due"` // when the job became due that waits longest, zero if none is due
}

// Rates are numbers of steps. Since is in seconds since the Unix epoch, Step in seconds.
type Rates struct {
	Since            int64   `json:"since"`
	Step             int64   `json:"step"`
	DocsWritten      []int64 `json:"docs_written"`
	DocWriteFailures []int64 `json:"doc_write_failures"`
	BytesReceived    []int64 `json:"bytes_received"`
	BytesSent        []int64 `json:"bytes_sent"`
}

// page is a page of a list of jobs.
type page struct {
	Total *int64 `json:"total_rows"`
	Jobs  []Job  `json:"jobs"`
	Next  string `json:"next_start_key"`
}
