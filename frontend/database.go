package frontend

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/gorilla/mux"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// databaseAction is an action on a database that exists.
type databaseAction func(http.ResponseWriter, *http.Request, *docstore.Database) error

// inDatabase opens the database of a path. What an action asks of the store has to
// bound its own time (storeContext): requests that stream may go on for long.
func (h *Handler) inDatabase(act databaseAction) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		if db := accessOf(r).db; db != nil {
			return act(w, r, db)
		}
		ctx, cancel := storeContext(r)
		defer cancel()
		db, err := h.docs.Database(ctx, pathValue(r, "db"))
		if errors.Is(err, docstore.ErrDatabaseNotFound) {
			return unknownPath(w, r)
		}
		if err != nil {
			return docFailure(err)
		}
		return act(w, r, db)
	}
}

// storeContext bounds what one question to the store may take.
func storeContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), storeTimeout)
}

// pathValue returns a part of the path that a route names.
func pathValue(r *http.Request, name string) string {
	raw := mux.Vars(r)[name]
	value, err := url.PathUnescape(raw)
	if err != nil { // then canonical could not have made it
		return raw
	}
	return value
}

// docFailure returns what CouchDB says about an error of the document store's; other
// errors as they are.
func docFailure(err error) error {
	if f := refusal(err); f != nil {
		return f
	}
	return err
}

// refusal returns what CouchDB says about an error of the document store's, or nil if
// the error is not about what was asked, but about the store.
func refusal(err error) *failure {
	var refused *replicator.ParseError
	var document *docstore.DocumentError
	var reason string
	if reason = err.Error(); errors.As(err, &document) {
		reason = document.Err.Error()
	}
	switch {
	case errors.As(err, new(*kv.Error)), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &refused):
		forbidden := refused.Forbidden()
		return &failure{http.StatusForbidden, forbidden.Error, forbidden.Reason}
	case errors.Is(err, docstore.ErrDatabaseNotFound):
		return &failure{http.StatusNotFound, "not_found", "Database does not exist."}
	case errors.Is(err, docstore.ErrDatabaseExists):
		return &failure{http.StatusPreconditionFailed, "file_exists", "The database could not be created, the file already exists."}
	case errors.Is(err, docstore.ErrDatabaseName):
		return &failure{http.StatusBadRequest, "illegal_database_name", reason}
	case errors.Is(err, docstore.ErrDeleted):
		return &failure{http.StatusNotFound, "not_found", "deleted"}
	case errors.Is(err, docstore.ErrNotFound):
		return &failure{http.StatusNotFound, "not_found", "missing"}
	case errors.Is(err, docstore.ErrConflict):
		return &failure{http.StatusConflict, "conflict", "Document update conflict."}
	case errors.Is(err, docstore.ErrTooManyLeaves):
		return &failure{http.StatusConflict, "conflict", reason}
	case errors.Is(err, docstore.ErrTooLarge):
		return &failure{http.StatusRequestEntityTooLarge, "document_too_large", reason}
	case errors.Is(err, docstore.ErrDocumentID):
		return &failure{http.StatusBadRequest, "illegal_docid", reason}
	case errors.Is(err, docstore.ErrSealed):
		return &failure{http.StatusInternalServerError, "unreadable", reason}
	case errors.Is(err, docstore.ErrDocument):
		return &failure{http.StatusBadRequest, "doc_validation", reason}
	case errors.Is(err, docstore.ErrMissingStub):
		return &failure{http.StatusPreconditionFailed, "missing_stub", reason}
	case errors.Is(err, docstore.ErrDigest):
		return &failure{http.StatusBadRequest, "content_md5_mismatch", "Possible message corruption."}
	case errors.Is(err, docstore.ErrRevision), errors.Is(err, docstore.ErrInvalid):
		return &failure{http.StatusBadRequest, "bad_request", reason}
	}
	return nil
}
