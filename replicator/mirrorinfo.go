package replicator

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// MirroredState is the state of a database of a mirror.
type MirroredState string

// The states of a mirror's databases, see [MirroredFacts].
const (
	// MirroredWaiting: its job makes its first run when its turn comes.
	MirroredWaiting MirroredState = "waiting"
	// MirroredStarting: its job makes its first run, which has neither copied everything yet nor failed.
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
	// MirroredPaused: its job does not run, because the mirror is paused.
	MirroredPaused MirroredState = "paused"
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
	// Target is what is known of the target as a whole.
	Target MirrorTargetLook `json:"target,omitzero"`
	// LeftOut is the number of databases of the source that the mirror selects and leaves out, and FirstLeftOut the first of them.
	LeftOut      int64             `json:"left_out,omitempty"`
	FirstLeftOut []MirroredFailure `json:"first_left_out,omitempty"`
	// Replicators are the first databases of the source for which [Mirror.LeavesReplications] is true. They are no failures.
	Replicators []string `json:"replicators_left_out,omitempty"`
	// Verified is the latest comparison of both servers; nil if there was none. Verifying is since when they are compared; zero if
	// they are not.
	Verified  *MirrorVerified `json:"verified,omitempty"`
	Verifying time.Time       `json:"verifying,omitzero"`
	// Summary is what the mirror came to, once it has ended. See [MirrorInfo].
	Summary *MirrorSummary `json:"summary,omitempty"`
}

// How changes of a source become known, for [MirrorProgress].By and [Watch].By: from the server's _db_updates, from the list of all
// databases, which a mirror reads each minute, or from questions to the source of each job.
const (
	ByFeed      = "feed"
	ByList      = "list"
	ByQuestions = "questions"
)

// MirrorTargetLook is what the comparisons of a mirror's target have found.
type MirrorTargetLook struct {
	// Server is couch.Server.Identity of the target; empty if that is not known. Last is when the target was last compared to
	// the end; zero if it never was.
	Server string    `json:"server,omitempty"`
	Last   time.Time `json:"last,omitzero"`
	// Error is why the target cannot be compared now, and ErrorSince since when. Refused reports that it does not let the
	// user list its databases.
	Error      string    `json:"error,omitempty"`
	ErrorSince time.Time `json:"error_since,omitzero"`
	Refused    bool      `json:"refused,omitempty"`
	// Lost says what the target has lost and is being copied again; nil if it has everything.
	Lost *MirrorLoss `json:"lost,omitempty"`
}

// MirrorLoss says that a mirror's target has lost databases that were up to date.
type MirrorLoss struct {
	// Databases is their number, as far as it was noticed, and Database one of them.
	Databases int64  `json:"databases"`
	Database  string `json:"database,omitempty"`
	// At is when the loss was first noticed.
	At time.Time `json:"at"`
	// Rebuilt reports that the target is another server than before.
	Rebuilt bool `json:"rebuilt,omitempty"`
}

// String says what was lost, and what to do.
func (l *MirrorLoss) String() string {
	lost, again := fmt.Sprintf("%d databases, %q among them", l.Databases, l.Database), "they are copied again"
	if l.Databases == 1 {
		lost, again = fmt.Sprintf("the database %q", l.Database), "it is copied again"
	}
	const advice = "If you have not rebuilt it, look where its URL leads"
	switch {
	case l.Rebuilt && l.Databases == 0:
		return "the target is another server than before: it answers with another uuid. " + advice
	case l.Rebuilt:
		return fmt.Sprintf("the target is another server than before, and lacks %s: %s. %s", lost, again, advice)
	}
	return fmt.Sprintf("the target has lost %s: %s. Find out who has deleted that", lost, again)
}

// MarshalJSON writes the time in UTC and whole seconds.
func (l MirrorLoss) MarshalJSON() ([]byte, error) {
	type plain MirrorLoss
	l.At = wholeSeconds(l.At)
	return json.Marshal(plain(l))
}

// MarshalJSON writes times in UTC and whole seconds, and masks credentials in the error.
func (t MirrorTargetLook) MarshalJSON() ([]byte, error) {
	type plain MirrorTargetLook
	t.Last, t.ErrorSince, t.Error = wholeSeconds(t.Last), wholeSeconds(t.ErrorSince), cleanReason(t.Error)
	return json.Marshal(plain(t))
}

// WithLeftOut returns a summary whose failures include the databases that are left out.
func (p *MirrorProgress) WithLeftOut(s *MirrorSummary) *MirrorSummary {
	if s == nil || len(p.FirstLeftOut) == 0 {
		return s
	}
	all := *s
	all.Failures = slices.Concat(s.Failures, p.FirstLeftOut)
	return &all
}

// Fault returns what is wrong with a mirror as a whole, and since when: an error of the source, then of the target, then a loss.
func (p *MirrorProgress) Fault() (text string, since time.Time) {
	switch {
	case p.Error != "":
		return p.Error, p.ErrorSince
	case p.Target.Error != "":
		return p.Target.Error, p.Target.ErrorSince
	case p.Target.Lost != nil:
		return p.Target.Lost.String(), p.Target.Lost.At
	}
	return "", time.Time{}
}

// KnownBehind moves Behind back while the target cannot be compared: what it has is known from the last comparison.
func (m *MirrorSummary) KnownBehind(p *MirrorProgress) {
	if p == nil || p.Target.Error == "" || p.Target.Refused || p.Target.Last.IsZero() {
		return
	}
	if last := wholeSeconds(p.Target.Last); m.Behind.IsZero() || last.Before(m.Behind) {
		m.Behind, m.BehindDatabase = last, ""
	}
}

// Unseen returns since when changes of the source may not be known, if no feed tells of them: since the list of databases was read,
// or since the database was asked that has not been asked for longest. pause is the longest time between two questions.
func (p *MirrorProgress) Unseen(pause time.Duration, now time.Time) time.Time {
	asked := now.Add(-pause)
	if p.LastLook.Before(asked) {
		asked = p.LastLook
	}
	return wholeSeconds(asked)
}

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
	// Acknowledged is the number of databases whose replications fail, have failed, or belong to other jobs, and need nobody because they
	// are acknowledged.
	Acknowledged int64 `json:"acknowledged,omitempty"`
	// Failures are the first databases whose runs fail, those that have failed for longest first.
	Failures []MirroredFailure `json:"failures"`
	// The sums over the replications of the databases, with what earlier replications with the same ids have copied.
	DocCounts
	// Behind is since when the target may lack changes, and BehindDatabase a database whose changes it may lack since then.
	// Behind is zero if it lacks none.
	Behind         time.Time `json:"behind_since,omitzero"`
	BehindDatabase string    `json:"behind_database,omitempty"`
	// Unseen is since when changes of the source may not be known; zero if a feed tells of them.
	Unseen time.Time `json:"unseen_since,omitzero"`
}

// LagsSince returns since when the target may lack changes, those that are not known yet included; zero if it lacks none.
func (m *MirrorSummary) LagsSince() time.Time {
	if m.Behind.IsZero() || !m.Unseen.IsZero() && m.Unseen.Before(m.Behind) {
		return m.Unseen
	}
	return m.Behind
}

// MirroredFailure is a database of a mirror whose runs fail.
type MirroredFailure struct {
	Database string    `json:"database"`
	JobID    string    `json:"job_id,omitempty"` // empty for one that is left out
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
	fault, since := p.Fault()
	return json.Marshal(struct {
		By          string          `json:"by,omitempty"`
		LastLook    time.Time       `json:"last_look,omitzero"`
		TargetLook  time.Time       `json:"target_look,omitzero"`
		Lost        *MirrorLoss     `json:"target_lost,omitempty"`
		Error       string          `json:"error,omitempty"`
		ErrorSince  time.Time       `json:"error_since,omitzero"`
		LeftOut     int64           `json:"left_out,omitempty"`
		Replicators []string        `json:"replicators_left_out,omitempty"`
		Verified    *MirrorVerified `json:"verified,omitempty"`
		Verifying   time.Time       `json:"verifying_since,omitzero"`
		*MirrorSummary
	}{p.By, wholeSeconds(p.LastLook), wholeSeconds(p.Target.Last), p.Target.Lost, cleanReason(fault), wholeSeconds(since), p.LeftOut, p.Replicators, p.Verified, wholeSeconds(p.Verifying), p.WithLeftOut(i.MirrorSummary)})
}

// NotCopied is the number of databases for which [MirroredState.NotCopied] is true.
func (m *MirrorSummary) NotCopied() (n int64) {
	for state, databases := range m.States {
		if state.NotCopied() {
			n += databases
		}
	}
	return n
}
