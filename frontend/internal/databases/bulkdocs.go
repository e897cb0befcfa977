package databases

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"settee/frontend/internal/access"
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
	s, err := e.spool(w, r)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it was only read
	bulk, err := docbody.ReadBulk(s, e.documentOptions())
	if err != nil {
		return bodyFailure(err)
	}
	if bulk.AllOrNothing && bulk.NewEdits {
		return refuseBulk(w, r, bulk)
	}
	b := &bulkWrite{
		writer: e.newWriter(r, db), replicated: !bulk.NewEdits,
		out: web.NewStream(w, r, http.StatusCreated, "application/json"),
	}
	defer b.discard()
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
	replicated bool
	out        *web.Stream
	results    int // in the answer so far
	batch      []bulkEdit
	size       int // of the batch, in bytes
}

// bulkEdit is a document of a batch.
type bulkEdit struct {
	docstore.Edit
	rev     string       // as the client states it
	refused *web.Failure // if not nil, the document is not written
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

// add adds a document to the batch, or writes it at once if it is a local one.
func (b *bulkWrite) add(doc *docbody.Document) error {
	if doc.ID == "" {
		doc.ID = b.newID()
	}
	if strings.HasPrefix(doc.ID, localPrefix) {
		if err := b.flush(); err != nil {
			return err
		}
		rev, err := b.local(doc, doc.Rev)
		return b.result(doc.ID, doc.Rev, rev, err)
	}
	edit, err := newEdit(doc, doc.Rev, b.replicated)
	if err == nil {
		edit.Attachments, err = b.inline(doc)
	}
	added := bulkEdit{Edit: edit, rev: doc.Rev}
	if err == nil {
		err = access.RightsOf(b.r).Writes(b.r.Context(), b.db, &added.Edit, b.replicated)
	}
	if err != nil && !errors.As(err, &added.refused) {
		return err
	}
	b.batch = append(b.batch, added)
	b.size += len(edit.ID) + edit.Body.Len()
	for _, id := range edit.Path {
		b.size += len(id)
	}
	for _, a := range edit.Attachments {
		b.size += len(a.Name) + len(a.Type)
	}
	if b.size < bulkBytes && len(b.batch) < bulkEdits {
		return nil
	}
	return b.flush()
}

// flush writes the batch, and answers with its results.
func (b *bulkWrite) flush() error {
	if len(b.batch) == 0 {
		return nil
	}
	results, err := b.write()
	if err != nil {
		return err
	}
	if err := b.missingStub(results); err != nil {
		return err
	}
	unused := b.replicated // a replicated revision may have been there already, with other uploads
	for i, edit := range b.batch {
		result := results[i]
		unused = unused || result.Err != nil
		if err := b.result(edit.ID, edit.rev, result.Rev.String(), result.Err); err != nil {
			return err
		}
	}
	if unused {
		b.discard()
	} else {
		b.used()
	}
	clear(b.batch) // frees the documents
	b.batch, b.size = b.batch[:0], 0
	return nil
}

// missingStub returns the failure of a document with a stub that stands for no attachment. As in CouchDB the whole
// request fails with it, also if other documents were written. After the answer has begun, it is the result of its
// document.
func (b *bulkWrite) missingStub(results []docstore.Result) error {
	for _, result := range results {
		if errors.As(result.Err, new(*docstore.MissingStubError)) && !b.out.Begun() {
			return web.StoreFailure(result.Err)
		}
	}
	return nil
}

// write writes the edits of the batch that were not refused, and returns the results of all edits.
func (b *bulkWrite) write() ([]docstore.Result, error) {
	var edits []docstore.Edit
	for _, edit := range b.batch {
		if edit.refused == nil {
			edits = append(edits, edit.Edit)
		}
	}
	made, err := b.writer.write(edits, b.replicated)
	if err != nil {
		return nil, err
	}
	results := make([]docstore.Result, len(b.batch))
	for i, edit := range b.batch {
		if edit.refused != nil {
			results[i].Err = edit.refused
			continue
		}
		results[i], made = made[0], made[1:]
	}
	return results, nil
}

// result answers with the result of one document. As in CouchDB replicated documents have a result only if they
// were refused. An error that is not about the document is returned.
func (b *bulkWrite) result(id, rev, written string, err error) error {
	result := bulkResult{OK: true, ID: id, Rev: written}
	if err != nil {
		var refused *web.Failure
		if !errors.As(web.StoreFailure(err), &refused) {
			return err
		}
		result = bulkResult{ID: id, Error: refused.Code, Reason: refused.Reason}
	}
	if b.replicated {
		if err == nil {
			return nil
		}
		result.Rev = rev
	}
	a := web.Appender{To: b.out}
	b.results++
	return a.Raw(web.Separator(b.results - 1)).Value(result).Err
}
