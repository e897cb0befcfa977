package databases

import (
	"cmp"
	"errors"
	"net/http"

	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

const (
	// bulkBytes and bulkEdits are the approximate size of a batch: what is in memory of a bulk write, and is
	// written by one call of the store.
	bulkBytes = 1_000_000
	bulkEdits = 500
)

// bulkResult is the result of one document: ok or an error.
type bulkResult struct {
	OK     bool   `json:"ok,omitempty"`
	ID     string `json:"id"`
	Rev    string `json:"rev,omitempty"`
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// BulkDocs answers POST /{db}/_bulk_docs. The body is checked as a whole before anything is written. Then each
// document is written or refused on its own.
func (e *Endpoints) BulkDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if err := web.RequireJSON(r); err != nil {
		return err
	}
	out := e.newWriter(r, db, false)
	defer out.close()
	s, err := out.receiveJSON(w)
	if err != nil {
		return err
	}
	bulk, err := docbody.ReadBulk(s, e.documentOptions())
	if err != nil {
		return bodyFailure(err)
	}
	if bulk.AllOrNothing && bulk.NewEdits {
		return refuseBulk(w, r, bulk)
	}
	out.replicated = !bulk.NewEdits
	b := &bulkWrite{writer: out, out: web.NewStream(w, r, http.StatusCreated, "application/json")}
	return b.run(bulk)
}

// refuseBulk answers a bulk write with all_or_nothing, which CouchDB does not support either: nothing is written.
func refuseBulk(w http.ResponseWriter, r *http.Request, bulk *docbody.Bulk) error {
	out, n := web.NewStream(w, r, http.StatusExpectationFailed, "application/json"), 0
	a := web.Appender{To: out}
	for doc, err := range bulk.Documents() {
		if err != nil {
			return bodyFailure(err)
		}
		a.Raw([]string{"[", ","}[min(n, 1)]).Value(bulkResult{
			ID: cmp.Or(doc.ID, web.NewUUID()), Rev: cmp.Or(doc.Rev, "0-"), Error: "not_implemented", Reason: "all_or_nothing is not supported",
		})
		if n++; a.Err != nil {
			return a.Err
		}
	}
	if n == 0 {
		return web.Respond(w, r, http.StatusCreated, []bulkResult{})
	}
	if a.Raw("]\n").Err != nil {
		return a.Err
	}
	return out.End()
}

// bulkWrite is a bulk write under way. Only a batch of its documents and a part of its answer are in memory.
type bulkWrite struct {
	*writer
	out     *web.Stream
	results int // in the answer so far
	batch   []*entry
	size    int // of the batch, in bytes
}

func (b *bulkWrite) run(bulk *docbody.Bulk) error {
	if err := b.out.Text("["); err != nil {
		return err
	}
	for doc, err := range bulk.Documents() {
		if err != nil {
			return bodyFailure(err)
		}
		if err := b.add(doc); err != nil {
			return err
		}
	}
	if err := b.flush(); err != nil {
		return err
	}
	if err := b.out.Text("]\n"); err != nil {
		return err
	}
	return b.out.End()
}

// add adds a document to the batch.
func (b *bulkWrite) add(doc *docbody.Document) error {
	if doc.ID == "" {
		doc.ID = b.endpoints.newID()
	}
	one, err := b.newEntry(doc)
	if err != nil && !errors.As(err, new(*web.Failure)) {
		return err
	}
	one.err = err
	b.batch = append(b.batch, one)
	b.size += len(one.ID) + one.Body.Len()
	for _, id := range one.Path {
		b.size += len(id)
	}
	for _, a := range one.Attachments {
		b.size += len(a.Name) + len(a.Type)
	}
	if b.size < bulkBytes && len(b.batch) < bulkEdits {
		return nil
	}
	return b.flush()
}

// flush writes the batch, and answers with its results.
func (b *bulkWrite) flush() error {
	if err := b.write(b.batch); err != nil {
		return err
	}
	if err := b.missingStub(); err != nil {
		return err
	}
	for _, one := range b.batch {
		if err := b.result(one); err != nil {
			return err
		}
	}
	b.discard()
	clear(b.batch) // frees the documents
	b.batch, b.size = b.batch[:0], 0
	return nil
}

// missingStub returns the failure of a document with a stub that stands for no attachment. As in CouchDB the whole
// request fails with it, also if other documents were written. After the answer has begun, it is the result of its
// document.
func (b *bulkWrite) missingStub() error {
	for _, one := range b.batch {
		if errors.As(one.err, new(*docstore.MissingStubError)) && !b.out.Begun() {
			return web.StoreFailure(one.err)
		}
	}
	return nil
}

// result answers with the result of one document. As in CouchDB replicated documents have a result only if they
// were refused. An error that is not about the document is returned.
func (b *bulkWrite) result(one *entry) error {
	result := bulkResult{OK: true, ID: one.ID, Rev: one.written}
	if one.err != nil {
		var refused *web.Failure
		if !errors.As(web.StoreFailure(one.err), &refused) {
			return one.err
		}
		result = bulkResult{ID: one.ID, Error: refused.Code, Reason: refused.Reason}
	}
	if b.replicated {
		if one.err == nil {
			return nil
		}
		result.Rev = one.rev
	}
	a := web.Appender{To: b.out}
	b.results++
	return a.Raw(web.Separator(b.results - 1)).Value(result).Err
}
