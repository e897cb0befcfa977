package databases

import (
	"errors"
	"io"
	"net/http"

	"settee/frontend/internal/access"
	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// writer writes the documents of one request. All of them go one way:
//
//	request      an endpoint: writedoc.go, copydoc.go, putattachment.go, postform.go, bulkdocs.go
//	document     receive.go: from a body that is checked once. uploads.go: contents of attachments are stored
//	permission   access.Rights.Writes, or WritesLocal
//	functions    functions.Functions.Write, which calls the store
//	store        docstore.Database.Write, or PutLocal and DeleteLocal
//	answer       the endpoint
type writer struct {
	endpoints  *Endpoints
	r          *http.Request
	db         *docstore.Database
	replicated bool // the documents have their revisions (new_edits=false)

	body    io.Closer        // of the request, whose documents refer to it; nil: not received
	related *docbody.Related // the contents that follow a document; nil: none
	unused  []*docstore.Upload
}

// newWriter returns the writer of a request. The caller closes it.
func (e *Endpoints) newWriter(r *http.Request, db *docstore.Database, replicated bool) *writer {
	return &writer{endpoints: e, r: r, db: db, replicated: replicated}
}

func (w *writer) close() {
	w.discard()
	if w.body != nil {
		_ = w.body.Close() // it was only read
	}
}

// entry is a document on its way into the store.
type entry struct {
	docstore.Edit
	rev string // as the request states it; it may be empty
	// mustExist makes the deletion of a local document that is missing an error.
	mustExist bool

	written string // its revision, as it was written
	err     error  // why it is not written
}

// localDeleted is the revision of a deleted local document in CouchDB's answers.
const localDeleted = "0-0"

// writeOne writes a document, and returns its revision.
func (w *writer) writeOne(one *entry) (string, error) {
	if err := w.write([]*entry{one}); err != nil {
		return "", err
	}
	return one.written, web.StoreFailure(one.err)
}

// write writes the documents that have no error, and sets their revisions or errors. The error that it returns is not about
// a document.
func (w *writer) write(entries []*entry) error {
	var allowed []*entry
	var edits []docstore.Edit
	for _, one := range entries {
		switch {
		case one.err != nil:
			continue
		case isLocal(one.ID):
			one.written, one.err = w.writeLocal(one)
			continue
		}
		if one.err = access.RightsOf(w.r).Writes(w.r.Context(), w.db, &one.Edit, w.replicated); one.err == nil {
			allowed, edits = append(allowed, one), append(edits, one.Edit)
		}
	}
	arguments := &functionArguments{writer: w}
	results, err := w.endpoints.Functions.Write(w.r.Context(), w.db, edits, docstore.WriteOptions{Replicated: w.replicated, By: access.UserOf(w.r).Name}, arguments.of)
	if err != nil {
		return web.StoreFailure(err)
	}
	for i, one := range allowed {
		one.written, one.err = results[i].Rev.String(), results[i].Err
	}
	w.used(entries)
	return nil
}

// writeLocal writes or deletes a local document.
func (w *writer) writeLocal(one *entry) (string, error) {
	if err := access.RightsOf(w.r).WritesLocal(w.db); err != nil {
		return "", err
	}
	ctx, cancel := web.StoreContext(w.r)
	defer cancel()
	if one.Deleted {
		err := w.db.DeleteLocal(ctx, one.ID)
		if errors.Is(err, docstore.ErrNotFound) && !one.mustExist {
			err = nil
		}
		return localDeleted, err
	}
	rev, err := w.db.PutLocal(ctx, one.ID, one.rev, one.Body)
	if errors.Is(err, docstore.ErrRevision) {
		err = web.BadRequest("Invalid rev format")
	}
	return rev, err
}
