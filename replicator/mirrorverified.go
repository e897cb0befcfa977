package replicator

import (
	"encoding/json"
	"time"
)

// MirrorVerified is what a comparison of the two servers of a mirror has found.
type MirrorVerified struct {
	// Began and Ended are when it began and ended.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Databases is the number of databases that were compared, Different the number of those that differ or that the target lacks,
	// and Failed the number of those that could not be compared.
	Databases int64 `json:"databases"`
	Different int64 `json:"different"`
	Failed    int64 `json:"failed"`
	// Revisions is the number of leaf revisions that were looked for, and Missing the number of those that the target lacks.
	Revisions int64 `json:"revisions_checked"`
	Missing   int64 `json:"missing_at_target"`
	// First are the first databases that differ or could not be compared.
	First []MirroredFailure `json:"first,omitempty"`
}

// maxFirstVerified is the number of databases in MirrorVerified.First.
const maxFirstVerified = 5

// Add counts a database. reason says what differs; it is empty if nothing does. failed reports that it could not be compared.
func (v *MirrorVerified) Add(database, reason string, failed bool, now time.Time) {
	v.Databases++
	switch {
	case failed:
		v.Failed++
	case reason != "":
		v.Different++
	default:
		return
	}
	if len(v.First) < maxFirstVerified {
		v.First = append(v.First, MirroredFailure{Database: database, Since: wholeSeconds(now), Reason: cleanReason(reason)})
	}
}

// Equal reports whether everything is at the target.
func (v *MirrorVerified) Equal() bool { return v.Different == 0 && v.Failed == 0 }

// MarshalJSON writes times in UTC and whole seconds.
func (v MirrorVerified) MarshalJSON() ([]byte, error) {
	type plain MirrorVerified
	v.Began, v.Ended = wholeSeconds(v.Began), wholeSeconds(v.Ended)
	return json.Marshal(plain(v))
}

// VerifyDue returns when the two servers of a mirror are to be compared next; zero if never. added is when the mirror was.
func (p *MirrorProgress) VerifyDue(m *Mirror, added time.Time) time.Time {
	every := m.VerifyEvery()
	switch {
	case every == 0:
		return time.Time{}
	case p == nil || p.Verified == nil:
		return added
	}
	return p.Verified.Began.Add(every)
}

// VerifyLate returns the time by which the comparison of both servers is late that is to come next: the time since it should have been
// done. The first one has the time between two comparisons.
func (p *MirrorProgress) VerifyLate(m *Mirror, added, now time.Time) time.Duration {
	due := p.VerifyDue(m, added)
	if due.IsZero() {
		return 0
	}
	if p == nil || p.Verified == nil {
		due = due.Add(m.VerifyEvery())
	}
	return max(0, now.Sub(due))
}
