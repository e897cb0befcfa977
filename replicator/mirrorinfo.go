package replicator

import (
	"encoding/json"
	"time"
)

// MirroredState is the state of a database of a mirror.
type MirroredState string

// The states of a mirror's databases. Only a database that waits, or is gone, has no job.
const (
	// MirroredWaiting: its job is added when its turn comes.
	MirroredWaiting MirroredState = "waiting"
	// MirroredStarting: its job has not copied everything yet, and not failed.
	MirroredStarting MirroredState = "starting"
	// MirroredCopying: it has changes that may not be at the target.
	MirroredCopying MirroredState = "copying"
	// MirroredCurrent: everything is at the target.
	MirroredCurrent MirroredState = "up_to_date"
	// MirroredFailing: its last run failed, and it is tried again.
	MirroredFailing MirroredState = "failing"
	// MirroredFailed: its job has failed. The next look at all databases adds it again.
	MirroredFailed MirroredState = "failed"
	// MirroredElsewhere: another job has its replication id. The next look at all databases tries again.
	MirroredElsewhere MirroredState = "elsewhere"
	// MirroredGone: it was deleted at the source, and is deleted at the target later.
	MirroredGone MirroredState = "gone"
)

// MirrorProgress is what the run of a mirror has seen of its source.
type MirrorProgress struct {
	// By says how the mirror hears of new databases: ByFeed or ByList. It is empty before the first look.
	By string `json:"by,omitempty"`
	// LastLook is when the list of all databases was last read to its end; zero if it never was.
	LastLook time.Time `json:"last_look,omitzero"`
	// Error is why the list cannot be read now, or a database of the target not be deleted; empty if nothing fails.
	// ErrorSince is since when.
	Error      string    `json:"error,omitempty"`
	ErrorSince time.Time `json:"error_since,omitzero"`
	// Summary is what the mirror came to, once it has ended. See [MirrorInfo].
	Summary *MirrorSummary `json:"summary,omitempty"`
}

// The values of [MirrorProgress].By: the watch of the server tells the mirror, or it reads the list of all databases each
// minute.
const (
	ByFeed = "feed"
	ByList = "list"
)

// MarshalJSON writes times in UTC and whole seconds, and masks credentials in the error.
func (p MirrorProgress) MarshalJSON() ([]byte, error) {
	type plain MirrorProgress
	p.LastLook, p.ErrorSince, p.Error = wholeSeconds(p.LastLook), wholeSeconds(p.ErrorSince), cleanReason(p.Error)
	return json.Marshal(plain(p))
}

// MirrorSummary is what people see of a mirror's databases.
type MirrorSummary struct {
	// Known is the number of databases without those that are gone, and States their number in each state.
	Known  int64                   `json:"databases"`
	States map[MirroredState]int64 `json:"states"`
	// Failures are the first databases whose runs fail, those that have failed for longest first.
	Failures []MirroredFailure `json:"failures"`
	// The sums over the replications of the databases, with what earlier replications with the same ids have copied.
	DocCounts
	// Behind is since when the target may lack changes, and BehindDatabase a database whose changes it may lack since then.
	// Behind is zero if it lacks none. Lag is the age of Behind in seconds.
	Behind         time.Time `json:"behind_since,omitzero"`
	BehindDatabase string    `json:"behind_database,omitempty"`
	Lag            int64     `json:"lag_sec"`
}

// MirroredFailure is a database of a mirror whose runs fail.
type MirroredFailure struct {
	Database string    `json:"database"`
	JobID    string    `json:"job_id"`
	Since    time.Time `json:"since"`
	Reason   string    `json:"reason"`
}

// MirrorInfo is the `mirror` member of the `info` object of a mirror's job in listings. Summary may be nil.
type MirrorInfo struct {
	MirrorProgress
	*MirrorSummary
}

// MarshalJSON writes the members of both.
func (i MirrorInfo) MarshalJSON() ([]byte, error) {
	p := i.MirrorProgress
	return json.Marshal(struct {
		By         string    `json:"by,omitempty"`
		LastLook   time.Time `json:"last_look,omitzero"`
		Error      string    `json:"error,omitempty"`
		ErrorSince time.Time `json:"error_since,omitzero"`
		*MirrorSummary
	}{p.By, wholeSeconds(p.LastLook), cleanReason(p.Error), wholeSeconds(p.ErrorSince), i.MirrorSummary})
}
