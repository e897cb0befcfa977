package frontend

import (
	"errors"
	"net/http"
	"strings"

	"settee/frontend/internal/docbody"
	"settee/pkg/docstore"
)

const (
	// bulkBytes and bulkEdits are about how much of a bulk write is in memory, and is given
	// to the store at once.
	bulkBytes = 1_000_000
	bulkEdits = 500
)

// bulkResult is what became of a document: ok, or an error.
type bulkResult struct {
	OK     bool   `json:"ok,omitempty"`
	ID     string `json:"id"`
	Rev    string `json:"rev,omitempty"`
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// bulkDocs answers POST /{db}/_bulk_docs. The body is checked as a whole before anything
// is written; then each document is written or refused for itself.
func (h *Handler) bulkDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if err := requireJSON(r.Header); err != nil {
		return err
	}
	s, err := h.spool(w, r)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // what was only read
	bulk, err := docbody.ReadBulk(s, h.documentOptions())
	if err != nil {
		return bodyFailure(err)
	}
	if bulk.AllOrNothing && bulk.NewEdits {
		return &failure{http.StatusExpectationFailed, "not_implemented", "all_or_nothing is not supported"}
	}
	b := &bulkWrite{
		writer: h.newWriter(r, db), replicated: !bulk.NewEdits,
		out: newStream(w, r, http.StatusCreated, "application/json"),
	}
	defer b.discard()
	return b.run(bulk)
}

// bulkWrite is a bulk write under way. Of its documents, and of its answer, some are in
// memory at a time.
type bulkWrite struct {
	*writer
	replicated bool
	out        *stream
	results    int // that were answered
	batch      []bulkEdit
	size       int // of the batch, in bytes
}

// bulkEdit is a document of a batch.
type bulkEdit struct {
	docstore.Edit
	rev     string   // that the client says it has
	refused *failure // not nil: it is not for the store
}

func (b *bulkWrite) run(bulk *docbody.Bulk) error {
	if err := b.out.text("["); err != nil {
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
	if err := b.out.text("]\n"); err != nil {
		return err
	}
	return b.out.end()
}

// add takes a document into the batch, or writes it, if it is a local one.
func (b *bulkWrite) add(doc *docbody.Document) error {
	if doc.ID == "" {
		doc.ID = newUUID()
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
		err = accessOf(b.r).writes(b.r.Context(), b.db, &added.Edit, b.replicated)
	}
	if err != nil && !errors.As(err, &added.refused) {
		return err
	}
	b.batch = append(b.batch, added)
	b.size += len(edit.ID) + len(edit.Body)
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

// flush writes the batch, and says what became of it.
func (b *bulkWrite) flush() error {
	if len(b.batch) == 0 {
		return nil
	}
	results, err := b.write()
	if err != nil {
		return err
	}
	unused := b.replicated // the revision may have been there, with other uploads
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
	clear(b.batch) // the documents are garbage now
	b.batch, b.size = b.batch[:0], 0
	return nil
}

// write makes the edits of the batch that were not refused, and returns the results of all.
func (b *bulkWrite) write() ([]docstore.Result, error) {
	var edits []docstore.Edit
	for _, edit := range b.batch {
		if edit.refused == nil {
			edits = append(edits, edit.Edit)
		}
	}
	ctx, cancel := storeContext(b.r)
	defer cancel()
	made, err := b.db.Write(ctx, edits, docstore.WriteOptions{Replicated: b.replicated})
	if err != nil {
		return nil, docFailure(err)
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

// result answers with what became of a document: as CouchDB does, of replicated ones only
// with those that were refused. An error that is not about the document is returned.
func (b *bulkWrite) result(id, rev, written string, err error) error {
	result := bulkResult{OK: true, ID: id, Rev: written}
	if err != nil {
		var refused *failure
		if !errors.As(docFailure(err), &refused) {
			return err
		}
		result = bulkResult{ID: id, Error: refused.code, Reason: refused.reason}
	}
	if b.replicated {
		if err == nil {
			return nil
		}
		result.Rev = rev
	}
	a := appender{to: b.out}
	if b.results++; b.results > 1 {
		a.raw(",")
	}
	return a.value(result).err
}
