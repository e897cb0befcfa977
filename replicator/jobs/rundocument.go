package jobs

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"

	"settee/fdbjobs"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// liveStateWriter returns a function that writes the state of a job that has not ended into its
// document, if it has one and UpdateDocs is set.
func (r *Run) liveStateWriter() func(kv.Transaction, *replicator.JobState) error {
	if !r.job.hasDocument() || !r.store.settings().UpdateDocs {
		return func(kv.Transaction, *replicator.JobState) error { return nil }
	}
	return r.documentWriter()
}

// documentWriter returns a function that writes the state of a job into its document, in the
// transaction that writes the job's state. The new revision replaces the winning one and keeps
// its attachments. There is no write if the document has the state already.
//
// The document still has the definition that the job is held with: a write that changes it raises
// the job's generation or removes the job, and then this transaction does not commit.
func (r *Run) documentWriter() func(kv.Transaction, *replicator.JobState) error {
	token := rand.Text()
	return func(tx kv.Transaction, state *replicator.JobState) error { return r.writeDocument(tx, state, token) }
}

func (r *Run) writeDocument(tx kv.Transaction, state *replicator.JobState, token string) error {
	if state.State == replicator.StatePending || !r.job.hasDocument() {
		return nil // not recorded in documents
	}
	return r.editDocument(tx, state.UpdateDocument, token)
}

// clearState returns a function that removes the fields of a state that has not ended from a job's
// document when a run starts. Another system, or this one with UpdateDocs, has written them, and
// they would stay until the job ends.
func (r *Run) clearState() func(kv.Transaction) error {
	if !r.job.hasDocument() || r.store.settings().UpdateDocs {
		return func(kv.Transaction) error { return nil } // the run writes the state anew
	}
	token := rand.Text()
	return func(tx kv.Transaction) error {
		// Most documents have no such fields, and a user's write must not conflict with the start.
		_, doc, err := r.document(tx.Snapshot())
		if err != nil || bytes.Equal(withoutState(doc.Body), doc.Body) {
			return err
		}
		return r.editDocument(tx, func(body []byte) ([]byte, error) { return withoutState(body), nil }, token)
	}
}

// withoutState returns the text of a document without the fields of its state, unless that has ended.
func withoutState(body []byte) []byte {
	var says struct {
		State replicator.DocumentState `json:"_replication_state"`
	}
	if json.Unmarshal(body, &says) != nil || says.State.Terminal() {
		return body
	}
	cleared, err := replicator.ClearDocumentState(body)
	if err != nil {
		return body
	}
	return cleared
}

// document reads the job's document. If it does not exist the job is gone, and the error is
// fdbjobs.ErrHalt.
func (r *Run) document(tx kv.ReadTransaction) (*docstore.Database, *docstore.Document, error) {
	db, err := r.store.docs.Instance(*r.job.Args.Database, r.job.instance())
	if err != nil {
		return nil, nil, err
	}
	doc, err := db.GetIn(tx, *r.job.Args.DocID, docstore.GetOptions{})
	if errors.Is(err, docstore.ErrDatabaseNotFound) || errors.Is(err, docstore.ErrNotFound) {
		r.gone = true
		return nil, nil, fdbjobs.ErrHalt
	}
	return db, doc, err
}

// editDocument changes the text of the job's document.
func (r *Run) editDocument(tx kv.Transaction, change func([]byte) ([]byte, error), token string) error {
	db, doc, err := r.document(tx)
	if err != nil {
		return err
	}
	text, err := change(doc.Body)
	if err != nil || bytes.Equal(text, doc.Body) {
		return err
	}
	body, err := docjson.Parse(text)
	if err != nil {
		return err
	}
	edit := docstore.Edit{ID: doc.ID, Rev: doc.Rev, Body: body}
	for _, a := range doc.Attachments {
		edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: a.Name})
	}
	results, err := db.WriteIn(tx, []docstore.Edit{edit}, docstore.WriteOptions{Token: token})
	if err != nil {
		return err
	}
	if err := results[0].Err; err != nil && !errors.Is(err, docstore.ErrTooLarge) {
		return err
	}
	return nil // a document too large for the state stays as it is: the job has the state
}
