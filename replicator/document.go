package replicator

import (
	"encoding/json"
	"strings"
	"time"
)

// Document is a document of a replicator database.
type Document struct {
	// ID, Rev and Deleted are what the document's _id, _rev and _deleted say; zero
	// for those it has not.
	ID      string
	Rev     string
	Deleted bool

	// State is what became of the document's job, as it was last written into the
	// document, and StateTime since when. StateReason says what went wrong, and
	// Stats, a JSON object, what was done. ReplicationID is that of the job. They
	// are zero where the document does not say, or says it in a form that no
	// version of CouchDB wrote.
	State         DocumentState
	StateTime     time.Time
	StateReason   string
	ReplicationID string
	Stats         json.RawMessage

	// Replication is what the document asks for. It is nil if the document is
	// deleted or ignored, and may be nil if its state is failed: it can be the
	// definition that is at fault then.
	Replication *Replication
}

// DocumentState is the value of `_replication_state`.
type DocumentState string

// What `_replication_state` may be. Triggered and error were written by CouchDB
// before 2.1, and by later ones with update_docs = true: a document that has them
// is replicated like one that has none.
const (
	DocumentTriggered DocumentState = "triggered"
	DocumentError     DocumentState = "error"
	DocumentCompleted DocumentState = "completed"
	DocumentFailed    DocumentState = "failed"
)

// Terminal reports whether a document in this state is left alone until a write
// takes the state away.
func (s DocumentState) Terminal() bool {
	return s == DocumentCompleted || s == DocumentFailed
}

// ParseDocument parses a document of a replicator database, as clients write and
// read it. Its errors are of type *ParseError; [ParseError.Forbidden] is what a
// write is refused with.
//
// Fields that it does not know are ignored: users keep data of their own in such
// documents. So are the ids that name a replication to cancel. `cancel` itself
// must not be true: a document is cancelled by deleting it. Of documents that are
// deleted, and of those that [IgnoredID] tells, only _id, _rev and _deleted are
// looked at. A document that failed need not be valid, so that what is at fault
// can be seen in it.
func ParseDocument(text []byte, options ParseOptions) (*Document, error) {
	f, err := readFields(text, notDocument)
	if err != nil {
		return nil, err
	}
	d := &Document{Deleted: f.flag("_deleted")}
	d.ID, _ = f.text("_id", "a string")
	d.Rev, _ = f.text("_rev", "a string")
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := d.read(f, options); err != nil {
		return nil, err
	}
	return d, nil
}

// ParseBody is ParseDocument for a store that keeps _id, _rev and _deleted apart
// from the text of a document. The text of one that is deleted or ignored may be
// anything.
func ParseBody(id string, deleted bool, body []byte, options ParseOptions) (*Document, error) {
	d := &Document{ID: id, Deleted: deleted}
	if deleted || IgnoredID(id) {
		return d, nil
	}
	f, err := readFields(body, notDocument)
	if err != nil {
		return nil, err
	}
	if err := d.read(f, options); err != nil {
		return nil, err
	}
	return d, nil
}

const notDocument = "Document must be a JSON object"

// IgnoredID reports whether a document of that id is none that replicates: a
// design document or a local one.
func IgnoredID(id string) bool {
	return strings.HasPrefix(id, "_design/") || strings.HasPrefix(id, "_local/")
}

// read reads what a document says of itself and asks for.
func (d *Document) read(f *fields, options ParseOptions) error {
	if d.Deleted || IgnoredID(d.ID) {
		return nil
	}
	d.State = f.documentState()
	if err := f.err(); err != nil {
		return err
	}
	d.StateTime = f.stateTime()
	d.StateReason = f.textIfAny(fieldReason)
	d.ReplicationID = f.textIfAny(fieldID)
	if raw := f.values[fieldStats]; len(raw) > 0 && raw[0] == '{' {
		d.Stats = raw
	}
	r, err := f.documentReplication(options)
	if err != nil && d.State != DocumentFailed {
		return err
	}
	d.Replication = r
	return nil
}

func (f *fields) documentReplication(options ParseOptions) (*Replication, error) {
	if f.flag("cancel") {
		f.fail("cancel", "parameter `cancel` must not be true in a document: delete the document instead")
	}
	r := f.replication(options)
	r.UserCtx = f.userCtx()
	r.Owner = f.owner()
	if err := f.err(); err != nil {
		return nil, err
	}
	return r, nil
}

func (f *fields) documentState() DocumentState {
	const what = "completed, failed, triggered or error, or missing"
	text, given := f.text(fieldState, what)
	switch state := DocumentState(text); state {
	case DocumentCompleted, DocumentFailed, DocumentTriggered, DocumentError:
		return state
	}
	if given {
		f.mustBe(fieldState, what)
	}
	return ""
}

// stateTime takes what CouchDB has written over the years: a time of RFC 3339, or
// seconds since the Unix epoch.
func (f *fields) stateTime() time.Time {
	at, err := time.Parse(time.RFC3339, f.textIfAny(fieldStateTime))
	if err != nil {
		var seconds int64
		if raw := f.values[fieldStateTime]; raw == nil || raw[0] == 'n' || json.Unmarshal(raw, &seconds) != nil {
			return time.Time{}
		}
		at = time.Unix(seconds, 0)
	}
	if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
		return time.Time{} // RFC 3339 has no form for it
	}
	return at
}

// textIfAny returns a string, or nothing for what is none.
func (f *fields) textIfAny(name string) string {
	var text string
	if raw, given := f.values[name]; !given || json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// Wanted returns the replication that there is to be a job for, or nil. That of a
// document that does not exist is nil, too.
func (d *Document) Wanted() *Replication {
	if d == nil || d.State.Terminal() {
		return nil
	}
	return d.Replication
}

// Effect is what a write of a document does to the document's job.
type Effect int

// The effects of writes.
const (
	// KeepJob leaves the job alone, or leaves it at there being none.
	KeepJob Effect = iota
	// StartJob makes the job; one that there is already gets the new definition and
	// starts anew.
	StartJob
	// RemoveJob cancels the job and forgets it, if there is one.
	RemoveJob
)

// Effect returns what to do about the document's job now that the document is
// written. current is the definition of the job that the document has, if that is
// pending or running, else nil. So that after.Effect(before.Wanted()) compares two
// versions of a document: KeepJob says that they ask for the same, and that no more
// than the user's own fields, or how the others are spelled, has changed.
//
// A state that is terminal leaves the document alone, and its job with it, but not
// a job that does what the document no longer says.
func (d *Document) Effect(current *Replication) Effect {
	switch {
	case IgnoredID(d.ID):
		return KeepJob
	case d.Deleted:
		return RemoveJob
	case current != nil && current.Equal(d.Replication):
		return KeepJob
	case !d.State.Terminal():
		return StartJob
	case current != nil:
		return RemoveJob
	}
	return KeepJob
}

// SetOwner returns a document as it is stored when user writes it, nil being an
// anonymous one: with `owner` set to the user if it has none, and with every other
// byte as it was. It returns a *ParseError if the document is somebody else's,
// which only an administrator may write. Documents that IgnoredID tells have no
// owner.
func SetOwner(doc []byte, user *string, admin bool) ([]byte, error) {
	text, err := splitObject(doc)
	if err != nil {
		return nil, err
	}
	f := text.fields("owner")
	owner := f.owner()
	if err := f.err(); err != nil {
		return nil, err
	}
	_, given := f.values["owner"]
	switch {
	case given && sameUser(owner, user):
		return doc, nil
	case given && !admin:
		// CouchDB's words.
		return nil, &ParseError{Field: "owner", Reason: "Can't update replication documents from other users."}
	case owner != nil:
		return doc, nil
	}
	return text.edited([]edit{{"owner", encodeJSON(user)}}), nil
}

func sameUser(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
