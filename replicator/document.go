package replicator

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"settee/pkg/docjson"
)

// IsReplicatorDatabase reports whether the documents of a database with this name ask for replications.
func IsReplicatorDatabase(name string) bool {
	return name == "_replicator" || strings.HasSuffix(name, "/_replicator")
}

// Document is a document of a replicator database.
type Document struct {
	ID      string
	Deleted bool

	// State, StateTime, StateReason, ReplicationID and Stats, a JSON object, are the outcome of
	// the document's job, as last written into the document. StateTime is when State was written.
	// They are zero if absent or not in a form that some version of CouchDB wrote.
	State         DocumentState
	StateTime     time.Time
	StateReason   string
	ReplicationID string
	Stats         json.RawMessage

	// Paused asks that the job does not run until a later revision has no `paused`, or a false one.
	Paused bool

	// Replication is the definition. It is nil if the document is deleted or ignored. It may be
	// nil if the state is failed, because then the definition may be invalid.
	Replication *Replication
}

// DocumentState is the value of `_replication_state`.
type DocumentState string

// The values of `_replication_state`. CouchDB before 2.1 wrote triggered and error, and so do
// later versions with update_docs = true. A document with one of these two is replicated like one
// without a state.
const (
	DocumentTriggered DocumentState = "triggered"
	DocumentError     DocumentState = "error"
	DocumentCompleted DocumentState = "completed"
	DocumentFailed    DocumentState = "failed"
)

// Terminal reports whether a document in this state is ignored until a write removes the state.
func (s DocumentState) Terminal() bool {
	return s == DocumentCompleted || s == DocumentFailed
}

// ParseBody parses a document of a replicator database. Its errors are of type *ParseError;
// [ParseError.Forbidden] is the body of the response that refuses a write.
//
// Unknown fields are ignored, because users keep data of their own in such documents. So are the
// fields that name a replication to cancel. `cancel` must not be true: a document is cancelled by
// deleting it. The body of a document that is deleted, or for which [IgnoredID] is true, may be
// anything. A failed document need not be valid, so that the fault can be seen in it.
func ParseBody(id string, deleted bool, body docjson.Body, options ParseOptions) (*Document, error) {
	d := &Document{ID: id, Deleted: deleted}
	if deleted || IgnoredID(id) {
		return d, nil
	}
	return d.read(newFields(body.Values()), options)
}

// ParseText is [ParseBody] for a text that was not checked and may have other members of a document, such as _id. It
// ignores these.
func ParseText(id string, text []byte, options ParseOptions) (*Document, error) {
	d := &Document{ID: id}
	if IgnoredID(id) {
		return d, nil
	}
	f, err := readFields(text, notDocument)
	if err != nil {
		return nil, err
	}
	return d.read(f, options)
}

const notDocument = "Document must be a JSON object"

// IgnoredID reports whether a document with this id is not a replication: design documents and
// local documents are not.
func IgnoredID(id string) bool {
	return strings.HasPrefix(id, "_design/") || strings.HasPrefix(id, "_local/")
}

// read reads the state and the definition, and returns d.
func (d *Document) read(f *fields, options ParseOptions) (*Document, error) {
	d.State = f.documentState()
	if err := f.err(); err != nil {
		return nil, err
	}
	d.StateTime = f.stateTime()
	d.StateReason = f.textIfAny(fieldReason)
	d.ReplicationID = f.textIfAny(fieldID)
	if raw := f.values[fieldStats]; len(raw) > 0 && raw[0] == '{' {
		d.Stats = raw
	}
	d.Paused = f.flag("paused")
	r, err := f.documentReplication(options)
	if err != nil && d.State != DocumentFailed {
		return nil, err
	}
	d.Replication = r
	return d, nil
}

func (f *fields) documentReplication(options ParseOptions) (*Replication, error) {
	if f.flag("cancel") {
		f.fail("cancel", "parameter `cancel` must not be true in a document: delete the document instead")
	}
	r := f.replication(options)
	f.periodic(r)
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

// stateTime accepts the forms that versions of CouchDB wrote: RFC 3339, or seconds since the Unix
// epoch.
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

// textIfAny returns the value of a string, or "" for any other value.
func (f *fields) textIfAny(name string) string {
	var text string
	if raw, given := f.values[name]; !given || json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// Effect is what a write of a document does to the document's job.
type Effect int

// The effects of writes.
const (
	// KeepJob changes nothing: the job stays, or there is no job.
	KeepJob Effect = iota
	// StartJob adds the job. A job that exists gets the new definition and starts anew.
	StartJob
	// RemoveJob cancels the job and removes it, if there is one.
	RemoveJob
)

// Effect returns what a write of d does to the document's job. current is the definition of the
// document's job if that is pending or running, else nil. The effect is KeepJob if the document
// asks for the same replication, whatever else has changed.
//
// With a terminal state nothing starts, but a job whose definition differs from the document's is
// removed.
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

// Draft is a replication document that a user writes.
type Draft struct {
	body   docjson.Body
	object *objectText
}

// ReadDraft returns a draft with a body.
func ReadDraft(body docjson.Body) *Draft { return &Draft{body, newObjectText(body.Bytes())} }

// WithOwner returns the body as it is stored when user writes it: with `owner` set to
// the user if it has none, and with every other byte as it was. nil means an anonymous user.
// The error is a *ParseError if the document has another owner, and the user is no
// administrator. Documents that IgnoredID tells have no owner.
func (d *Draft) WithOwner(user *string, admin bool) (docjson.Body, error) {
	f := d.object.fields("owner")
	owner := f.owner()
	if err := f.err(); err != nil {
		return d.body, err
	}
	_, given := f.values["owner"]
	switch {
	case given && sameUser(owner, user):
		return d.body, nil
	case given && !admin:
		// CouchDB's text.
		return d.body, &ParseError{Field: "owner", Reason: "Can't update replication documents from other users."}
	case owner != nil:
		return d.body, nil
	}
	return docjson.Parse(d.object.edited([]edit{{"owner", encodeJSON(user)}}))
}

// CheckUserCtx returns a *ParseError if the `user_ctx` of the document is another user than the
// one that writes it, or has roles that the user does not have. Only administrators may write
// such documents.
func (d *Draft) CheckUserCtx(user *string, roles []string) error {
	f := d.object.fields("user_ctx")
	ctx := f.userCtx()
	if err := f.err(); err != nil || ctx == nil {
		return err
	}
	if !sameUser(ctx.Name, user) {
		return &ParseError{Field: "user_ctx", Reason: "`user_ctx.name` can only be your own name"}
	}
	for _, role := range ctx.Roles {
		if !slices.Contains(roles, role) {
			return &ParseError{Field: "user_ctx", Reason: "`user_ctx.roles` can only have roles of your own"}
		}
	}
	return nil
}

func sameUser(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
