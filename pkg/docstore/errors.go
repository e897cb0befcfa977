package docstore

import (
	"errors"

	"settee/pkg/docjson"
)

// The errors that callers decide on. An error of one document is wrapped in a [DocumentError], which has the document's
// id.
var (
	// ErrDatabaseExists: a database of that name exists.
	ErrDatabaseExists = errors.New("the database exists")
	// ErrDatabaseNotFound: no database of that name exists, or the instance that a [Database] stands for was deleted,
	// even if a new database has its name.
	ErrDatabaseNotFound = errors.New("no such database")
	// ErrDatabaseName: CouchDB does not allow that name for a database.
	ErrDatabaseName = errors.New("illegal database name")

	// ErrNotFound: the document, revision or attachment does not exist.
	ErrNotFound = errors.New("missing")
	// ErrDeleted is an ErrNotFound: the document's winning revision is deleted.
	ErrDeleted error = deletedError{}
	// ErrConflict: the revision to be replaced is not a leaf.
	ErrConflict = errors.New("document update conflict")
	// ErrTooLarge: a value is over its limit. The text names both.
	ErrTooLarge = errors.New("too large")
	// ErrTooManyLeaves: the document would have more than [MaxLeaves] leaf revisions.
	ErrTooManyLeaves = errors.New("too many conflicts")
	// ErrInvalid: an argument is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrDocumentID: the id is not valid for a document.
	ErrDocumentID = errors.New("illegal document id")
	// ErrRevision: a revision does not have the form N-id.
	ErrRevision = errors.New("invalid rev format")
	// ErrDocument: an attachment of a document is not valid. It is also the error of [docjson.Parse].
	ErrDocument = docjson.ErrInvalid
	// ErrMissingStub: the revision that is replaced does not have the attachment that a stub names ([MissingStubError]),
	// or the upload was removed.
	ErrMissingStub = errors.New("invalid attachment stub")
	// ErrDigest: an attachment's content does not have the announced digest.
	ErrDigest = errors.New("the attachment's content is not what was announced")

	// ErrSealed: the Sealer has no key that opens the body of a document.
	ErrSealed = errors.New("opening the body")

	// ErrClosed: the store is closed.
	ErrClosed = errors.New("the document store is closed")
)

// MissingStubError is an [ErrMissingStub]: there is no attachment for a stub.
type MissingStubError struct{ Name string }

func (e *MissingStubError) Error() string { return ErrMissingStub.Error() + ": " + quote(e.Name) }
func (e *MissingStubError) Unwrap() error { return ErrMissingStub }

type deletedError struct{}

func (deletedError) Error() string        { return "deleted" }
func (deletedError) Is(target error) bool { return target == ErrNotFound }

// DocumentError is an error of one document.
type DocumentError struct {
	ID string
	// Err wraps an error of this package, or is the error of a hook.
	Err error
}

func (e *DocumentError) Error() string { return "document " + quote(e.ID) + ": " + e.Err.Error() }
func (e *DocumentError) Unwrap() error { return e.Err }

func inDocument(id string, err error) error { return &DocumentError{ID: id, Err: err} }
