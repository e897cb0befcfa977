package replicator

import "time"

// MaxNote is the most bytes of the note of an [Acknowledgement].
const MaxNote = 500

// Acknowledgement says that a person knows what a job needs a person for, so that it needs nobody. Times are in UTC and whole seconds.
type Acknowledgement struct {
	// Kind and Code are those of the [Attention] that it covers, as it was At that time.
	Kind AttentionKind `json:"kind"`
	Code FaultCode     `json:"code"`
	At   time.Time     `json:"at"`
	// Until is its end, zero if it has none. Upkeep removes it at the end, at the latest a minute late.
	Until time.Time `json:"until,omitzero"`
	// By is the name of the user that has acknowledged it, empty for an anonymous one. Note is what that user says of it.
	By   string `json:"by,omitempty"`
	Note string `json:"note,omitempty"`
}

// Of returns an acknowledgement of what a job needs a person for. It covers that also if a node with a faster clock says since when.
func (a Acknowledgement) Of(needs Attention) *Acknowledgement {
	a.Kind, a.Code, a.At, a.Until = needs.Kind, needs.Code, wholeSeconds(a.At), wholeSeconds(a.Until)
	if needs.Since.After(a.At) {
		a.At = wholeSeconds(needs.Since)
	}
	return &a
}

// Covers reports whether a job needs nobody because of the acknowledgement, whatever the time is: what the job needs a person for is of
// the same kind, has the same fault, and began before. So trouble that begins after progress is not covered. A nil Acknowledgement covers
// nothing.
func (a *Acknowledgement) Covers(needs Attention) bool {
	return a != nil && needs.Kind != "" && a.Kind == needs.Kind && a.Code == needs.Code && !wholeSeconds(needs.Since).After(a.At)
}

// acknowledged returns the acknowledgement because of which the job needs nobody, nil if there is none.
func (f *Facts) acknowledged() *Acknowledgement {
	a := f.Args.Acknowledged
	if f.Redefined || !a.Covers(f.State.Attention()) || !a.Until.IsZero() && !a.Until.After(f.Now) {
		return nil
	}
	return a
}
