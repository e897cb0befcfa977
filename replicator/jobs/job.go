package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/shares"
)

// Job is a replication job.
type Job struct {
	ID     string
	Status fdbjobs.Status
	Args   *replicator.JobArgs
	State  *replicator.JobState

	// Paused is not nil if the job's database has no shares, so that the job does not run. Its Since is zero if that is not known.
	// Jobs of lists, and those that Get and Document return, have it until they end.
	Paused *replicator.Pause

	// Sealed reports that this node cannot open the definition of a job that was read alone: then Args are as lists have them.
	Sealed bool

	// Summary sums up the databases of a mirror, in jobs of lists and in those that Get and Document return. It is nil for
	// other jobs.
	Summary *replicator.MirrorSummary

	scheduled time.Time // from when it may run
	tag       string    // of the job layer
	redefined bool      // got a new definition while running, and has not run with it yet
	parkedAt  source    // that the stored state names; zero if there is none
	held      holding   // by its run
}

// encodeArgs returns the args of a job as the job layer stores them.
func (j *Job) encodeArgs() (json.RawMessage, error) {
	args, err := j.Args.Stored()
	if err != nil {
		return nil, fmt.Errorf("writing the args of the replication job %q: %w", j.ID, err)
	}
	return args, nil
}

// Transient reports whether the job was added by POST /_replicate, or by a mirror that was.
func (j *Job) Transient() bool { return j.Args.Database == nil }

// posted reports whether the job was added by POST /_replicate.
func (j *Job) posted() bool { return j.Transient() && j.Mirror() == "" }

// hasDocument reports whether the job was made from a document.
func (j *Job) hasDocument() bool { return j.Args.DocID != nil }

// Document returns the replicator database and the document of the job, or of the mirror that has made it. ok is false for
// a transient job.
func (j *Job) Document() (database, docID string, ok bool) {
	if j.Transient() {
		return "", "", false
	}
	if j.hasDocument() {
		return *j.Args.Database, *j.Args.DocID, true
	}
	_, docID, ok = strings.Cut(j.Mirror(), "|")
	return *j.Args.Database, docID, ok
}

// Condition returns the state in which CouchDB would show the job. State.State may be out of date: the state of a run
// whose node has died, or that before a run that has just been accepted. A paused job is pending, if its pause is known.
func (j *Job) Condition() replicator.State {
	switch {
	case j.Status == fdbjobs.Running:
		return replicator.StateRunning
	case j.Status == fdbjobs.Pending && (j.Paused != nil || j.State.State != replicator.StateCrashing):
		return replicator.StatePending
	}
	return j.State.State
}

// states returns the states of the job. Its pause is known.
func (j *Job) states() inStates {
	return statesIn(fdbjobs.Part{Status: j.Status, Tag: j.tag}, j.Paused != nil)
}

// Facts returns what replicator.Explain needs to know of the job. cluster may be nil.
func (j *Job) Facts(now time.Time, cluster *replicator.Cluster) *replicator.Facts {
	return &replicator.Facts{
		Now: now, Status: replicator.JobStatus(j.Status), Scheduled: j.scheduled, Queued: j.tag == tagCrashing || j.tag == tagWaiting,
		Again: j.tag == tagAgain, Parked: !j.Parked().IsZero(), Turn: j.tag == tagTurn, Redefined: j.redefined, Args: j.Args, State: j.State, Cluster: cluster,
		Mirror: j.Summary, Pause: j.Paused,
	}
}

// nextRun returns when a job runs next that waits for a time: a crashing job, or the job of a periodic replication.
// A time in the past means that it is due. nextRun is zero for other jobs, for paused ones, and while the job runs.
func (j *Job) nextRun() time.Time {
	if j.Args.Paused != nil {
		return time.Time{}
	}
	if j.Condition() == replicator.StateCrashing || j.Status == fdbjobs.Pending && j.Args.Replication.Periodic() {
		return j.scheduled
	}
	return time.Time{}
}

// Parked returns since when the job is parked: it has copied everything, and waits without a run until its source
// changes. It is zero for other jobs. The Condition of a parked job is pending.
func (j *Job) Parked() time.Time {
	if j.Status != fdbjobs.Pending || j.tag != tagParked || j.State.Parked == nil {
		return time.Time{}
	}
	return j.State.Parked.Since
}

// owesRun reports whether a time of the job's periodic replication has come, and no run has come to its end since.
func (j *Job) owesRun(now time.Time) bool {
	if !j.Args.Replication.Periodic() {
		return false
	}
	return j.Status == fdbjobs.Running ||
		j.Status == fdbjobs.Pending && (j.State.State == replicator.StateCrashing || !j.scheduled.After(now))
}

// ReplicationID returns the job's replication id, or "" while it is not known.
func (j *Job) ReplicationID() string {
	if j.State.ReplicationID != "" {
		return j.State.ReplicationID
	}
	return j.Args.ReplicationID
}

// has reports whether the job's latest run or its definition has a replication id,
// which may have changed since.
func (j *Job) has(replicationID string) bool {
	return j.State.ReplicationID == replicationID || j.Args.ReplicationID == replicationID
}

// keeps reports whether the job keeps a replication id that it has reserved from another job. It does until it ends or gets
// another id. From a job of another user it keeps the id only after a run has opened its databases: anybody can name databases,
// and a wrong password shows only then.
func (j *Job) keeps(replicationID string, from *Job) bool {
	opened := j.State.Opened && j.State.ReplicationID == replicationID
	return j.Status != fdbjobs.Finished && j.has(replicationID) && (opened || j.sameUser(from))
}

func (j *Job) sameUser(other *Job) bool {
	a, b := j.Args.User, other.Args.User
	return a == b || a != nil && b != nil && *a == *b
}

// owner returns the owner of the queue that the job waits in: its replicator database or its
// user. A database that is deleted and created again is another owner.
func (j *Job) owner() string {
	return shares.OwnerOf(deref(j.Args.Database), j.instance(), deref(j.Args.User))
}

// instance returns the instance of the job's replicator database.
func (j *Job) instance() string {
	instance, _, _ := strings.Cut(j.ID, "|")
	return instance
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Jobs are listed by these labels and tags, which are stored. A job's label says whether it is
// transient. Its state is its status in the job layer, or the status and a tag.
const (
	labelTransient = "transient"
	labelDocument  = "document"
	// Jobs that a mirror has made have a label of their own: they have no documents, and are not cancelled by requests.
	labelMirrored       = "mirrored"           // by a document
	labelMirroredByPost = "mirrored transient" // by a request

	tagCrashing  = "crashing" // pending, and waits for a time after a failed run
	tagAgain     = "again"    // pending, and due after such a wait
	tagWaiting   = "waiting"  // pending, and queued for the next time of a periodic replication
	tagParked    = "parked"   // pending, and waits for a change of its source
	tagPaused    = "paused"   // pending, and its document is paused
	tagTurn      = "turn"     // pending, and waits for its turn among the databases of a mirror
	tagGone      = "gone"     // finished: the database of a mirror was deleted at the source
	tagCompleted = "completed"
	tagFailed    = "failed"
)

// IsMirror reports whether the job is a mirror.
func (j *Job) IsMirror() bool { return j.Args.Replication != nil && j.Args.Replication.Mirror != nil }

// Mirror returns the job id of the mirror that has made the job, or "" if none has.
func (j *Job) Mirror() string {
	id, _ := replicator.MirrorOf(j.ID)
	return id
}

// holding is what a running job's row says about its run.
type holding struct {
	lock          string // see fdbjobs.Job
	replicationID string // in the stored state: the one that the run has, if it has one
}

// source is a database that jobs wait for. The zero value is none.
type source struct{ server, database string }

// row returns the source in a list, an empty one if there is none.
func (s source) row() []source {
	if s == (source{}) {
		return nil
	}
	return []source{s}
}

// sourceOf returns the source that a state names.
func sourceOf(parked *replicator.Parked) source {
	if parked == nil {
		return source{}
	}
	return source{parked.Server, parked.Database}
}

// storedTime returns a time as a row has it: in seconds since the Unix epoch, 0 for none.
func storedTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// readTime is the reverse of storedTime.
func readTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// encodeState encodes the state of a job in the size that the job layer accepts. Servers choose the length
// of sequences and reasons, so it drops what is not essential, oldest events first.
func encodeState(jobID string, state *replicator.JobState) (json.RawMessage, error) {
	for {
		text, err := json.Marshal(state)
		switch {
		case err != nil:
			return nil, fmt.Errorf("writing the state of the replication job %q: %w", jobID, err)
		case len(text) <= fdbjobs.MaxStateSize:
			return text, nil
		case len(state.History) > 1:
			state.History = state.History[:len(state.History)/2]
		case state.SourceSeq != nil || state.ThroughSeq != nil || len(state.CheckpointedSourceSeq) > len(unknownSeq):
			state.SourceSeq, state.ThroughSeq, state.CheckpointedSourceSeq = nil, nil, json.RawMessage(unknownSeq)
		case len(state.Result) > len(resultWithoutHistory):
			state.Result = json.RawMessage(resultWithoutHistory)
		default:
			return text, nil // the job layer will refuse it
		}
	}
}

const (
	resultWithoutHistory = `{"ok":true}`
	unknownSeq           = "null" // there is a checkpoint
)
