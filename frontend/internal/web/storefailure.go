package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// StoreTimeout is how long a request waits for one answer of the store. Waiting for a replication or a change has no
// such limit.
const StoreTimeout = 30 * time.Second

// StoreContext returns the context of one question to the store.
func StoreContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), StoreTimeout)
}

// LastingStoreContext returns the context of one change of the store that is made even if the client hangs up.
func LastingStoreContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), StoreTimeout)
}

// StoreFailure returns the failure for an error of the document store, in CouchDB's words. It returns other errors, and
// nil, as they are: they say nothing about the request.
func StoreFailure(err error) error {
	if err == nil {
		return nil
	}
	if f := refusal(err); f != nil {
		return f
	}
	return err
}

// refusal returns the failure for an error of the document store, or nil if the error is not about the request.
func refusal(err error) *Failure {
	var refused *replicator.ParseError
	var document *docstore.DocumentError
	var stub *docstore.MissingStubError
	var reason string
	if reason = err.Error(); errors.As(err, &document) {
		reason = document.Err.Error()
	}
	switch {
	case errors.As(err, new(*kv.Error)), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &refused):
		said := refused.Forbidden()
		return NewFailure(http.StatusForbidden, said.Error, said.Reason)
	case errors.Is(err, docstore.ErrDatabaseNotFound):
		return NewFailure(http.StatusNotFound, "not_found", "Database does not exist.")
	case errors.Is(err, docstore.ErrDatabaseExists):
		return NewFailure(http.StatusPreconditionFailed, "file_exists", "The database could not be created, the file already exists.")
	case errors.Is(err, docstore.ErrDatabaseName):
		return NewFailure(http.StatusBadRequest, "illegal_database_name", reason)
	case errors.Is(err, docstore.ErrDeleted):
		return NewFailure(http.StatusNotFound, "not_found", "deleted")
	case errors.Is(err, docstore.ErrNotFound):
		return NewFailure(http.StatusNotFound, "not_found", "missing")
	case errors.Is(err, docstore.ErrConflict):
		return NewFailure(http.StatusConflict, "conflict", "Document update conflict.")
	case errors.Is(err, docstore.ErrTooManyLeaves):
		return NewFailure(http.StatusConflict, "conflict", reason)
	case errors.Is(err, docstore.ErrTooLarge):
		return NewFailure(http.StatusRequestEntityTooLarge, "document_too_large", reason)
	case errors.Is(err, docstore.ErrDocumentID):
		return NewFailure(http.StatusBadRequest, "illegal_docid", reason)
	case errors.Is(err, docstore.ErrSealed):
		return NewFailure(http.StatusInternalServerError, "unreadable", reason)
	case errors.Is(err, docstore.ErrDocument):
		return NewFailure(http.StatusBadRequest, "doc_validation", reason)
	case document != nil && errors.As(err, &stub):
		return NewFailure(http.StatusPreconditionFailed, "missing_stub", "Invalid attachment stub in "+Cut(document.ID)+" for "+Cut(stub.Name))
	case errors.Is(err, docstore.ErrMissingStub):
		return NewFailure(http.StatusPreconditionFailed, "missing_stub", reason)
	case errors.Is(err, docstore.ErrDigest):
		return NewFailure(http.StatusBadRequest, "content_md5_mismatch", "Possible message corruption.")
	case errors.Is(err, docstore.ErrRevision), errors.Is(err, docstore.ErrInvalid):
		return NewFailure(http.StatusBadRequest, "bad_request", reason)
	}
	return nil
}

// UnknownPath is the action of a path that no route has.
func UnknownPath(_ http.ResponseWriter, r *http.Request) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name != "" && (!strings.HasPrefix(name, "_") || docstore.CheckDatabaseName(name) == nil) {
		return NotFound("Database does not exist.")
	}
	return NotFound("there is no such path on this server")
}
