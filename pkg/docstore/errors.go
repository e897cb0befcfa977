package docstore

import "errors"

// The errors that callers decide on. Those of one document are wrapped in a
// [DocumentError], which has the document's id.
var (
	// ErrDatabaseExists: there is a database of that name.
	ErrDatabaseExists = errors.New("the database exists")
	// ErrDatabaseNotFound: there is no database of that name, or the one that a
	// [Database] stands for was deleted, even if there is a new one by its name.
	ErrDatabaseNotFound = errors.New("no such database")
	// ErrDatabaseName: CouchDB has no databases of such a name.
	ErrDatabaseName = errors.New("illegal database name")

	// ErrNotFound: there is no such document, revision or attachment.
	ErrNotFound = errors.New("missing")
	// ErrDeleted is the ErrNotFound of a document whose winning revision is deleted.
	ErrDeleted error = deletedError{}
	// ErrConflict: the revision that was to be replaced is no leaf.
	ErrConflict = errors.New("document update conflict")
	// ErrTooLarge: something is over its limit, which the error names.
	ErrTooLarge = errors.New("too large")
	// ErrTooManyLeaves: the document would have more than [MaxLeaves] leaf revisions.
	ErrTooManyLeaves = errors.New("too many conflicts")
	// ErrInvalid: something that was passed is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrDocumentID: the id of a document is not one.
	ErrDocumentID = errors.New("illegal document id")
	// ErrRevision: a revision is not written as N-id.
	ErrRevision = errors.New("invalid rev format")
	// ErrDocument: a document's body is not a JSON object, or has a member that it may
	// not have ([BodyMember]).
	ErrDocument = errors.New("invalid document")
	// ErrMissingStub: an attachment that a document claims to have is not in the revision
	// that it replaces; or its upload was given up.
	ErrMissingStub = errors.New("invalid attachment stub")
	// ErrDigest: an attachment's content does not have the digest or the length that
	// its writer said it has.
	ErrDigest = errors.New("the attachment's content is not what was announced")

	// ErrSealed: the body of a document is not to be had, because of the Sealer's keys.
	ErrSealed = errors.New("opening the body")

	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the document store is closed")
)

type deletedError struct{}

func (deletedError) Error() string        { return "deleted" }
func (deletedError) Is(target error) bool { return target == ErrNotFound }

// DocumentError is an error of one document.
type DocumentError struct {
	ID string
	// Err wraps one of the errors of this package, or is what a hook returned.
	Err error
}

func (e *DocumentError) Error() string { return "document " + quote(e.ID) + ": " + e.Err.Error() }
func (e *DocumentError) Unwrap() error { return e.Err }

// inDocument says which document an error is about.
func inDocument(id string, err error) error { return &DocumentError{ID: id, Err: err} }
