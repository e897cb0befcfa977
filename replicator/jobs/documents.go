package jobs

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

const (
	// MaxDocumentSize is the most bytes of JSON that the body of a document of a replicator
	// database may have. It and the args of its job are written in one transaction.
	MaxDocumentSize = 4_000_000
	// MaxDocumentIDSize is that of the id of such a document, which is part of its job's.
	MaxDocumentIDSize = fdbjobs.MaxNameSize - 33
)

// IsReplicatorDatabase reports whether the documents of a database of that name make jobs.
func IsReplicatorDatabase(name string) bool {
	return name == "_replicator" || strings.HasSuffix(name, "/_replicator")
}

// Hooks are for the docstore.Store whose databases are to have jobs; options are what the
// node allows. They act on replicator databases, and there on all but design documents.
//
// A revision whose definition is invalid is refused with a *replicator.ParseError, one that
// is over [MaxDocumentSize], or whose job would be too large, with docstore.ErrTooLarge, and
// a document whose id is over [MaxDocumentIDSize] with docstore.ErrDocumentID.
//
// The job of a document is that of its winning revision. It is added, changed or removed in
// the transaction in which that becomes another one; one that asks for the same leaves it
// alone. A replication id that another job has claimed is no reason to refuse anything: a job
// that cannot have its id learns that when it runs ([Run.Identify]). One that comes from
// elsewhere and says how its replication ended has a job that has ended so, for lists to show.
func (s *Store) Hooks(options replicator.ParseOptions) docstore.Hooks {
	return s.HooksFor(func() replicator.ParseOptions { return options })
}

// HooksFor are [Store.Hooks] whose options may change: they are asked for each time a revision
// is checked.
func (s *Store) HooksFor(options func() replicator.ParseOptions) docstore.Hooks {
	return docstore.Hooks{
		Before: func(_ kv.Transaction, db *docstore.Database, change *docstore.Change) error {
			if !makesJob(db, change) || change.Deleted {
				return nil
			}
			return s.checkDocument(db, change, options())
		},
		After: func(tx kv.Transaction, db *docstore.Database, change *docstore.Change) error {
			if !makesJob(db, change) {
				return nil
			}
			return s.follow(tx, db, change)
		},
		Deleted: func(tx kv.Transaction, db *docstore.Database) error {
			if !IsReplicatorDatabase(db.Name()) {
				return nil
			}
			return s.cancelAll(tx, db)
		},
	}
}

func makesJob(db *docstore.Database, change *docstore.Change) bool {
	return IsReplicatorDatabase(db.Name()) && !replicator.IgnoredID(change.ID)
}

// checkDocument refuses a revision that could not have a job.
func (s *Store) checkDocument(db *docstore.Database, change *docstore.Change, options replicator.ParseOptions) error {
	if len(change.ID) > MaxDocumentIDSize {
		return fmt.Errorf("%w: in a replicator database it may have %d bytes, and it has %d",
			docstore.ErrDocumentID, MaxDocumentIDSize, len(change.ID))
	}
	if len(change.Body) > MaxDocumentSize {
		return fmt.Errorf("%w: a replication document of %d bytes; the most is %d",
			docstore.ErrTooLarge, len(change.Body), MaxDocumentSize)
	}
	doc, err := replicator.ParseBody(change.ID, false, change.Body, options)
	if err != nil || doc.Replication == nil {
		return err
	}
	job, err := s.documentJob(db, change, doc.Replication) // also of one that has ended elsewhere
	if err != nil {
		return err
	}
	args, _, err := job.encode()
	if err != nil {
		return err
	}
	listed, err := job.summary()
	switch {
	case err != nil:
		return err
	case len(args) > fdbjobs.MaxArgsSize:
		return fmt.Errorf("%w: a replication that has %d bytes as it is stored; the most is %d",
			docstore.ErrTooLarge, len(args), fdbjobs.MaxArgsSize)
	case len(listed) > fdbjobs.MaxListedSize:
		return fmt.Errorf("%w: source, target and user_ctx.name of a replication, which have %d bytes as lists have them; the most is %d",
			docstore.ErrTooLarge, len(listed), fdbjobs.MaxListedSize)
	}
	return nil
}

// documentJob returns the job of a document.
func (s *Store) documentJob(db *docstore.Database, change *docstore.Change, r *replicator.Replication) (*Job, error) {
	args := &replicator.JobArgs{
		Replication: r, Definition: change.Rev.String(),
		Database: new(db.Name()), DocID: &change.ID, Added: time.Now(),
	}
	if r.UserCtx != nil {
		args.User = r.UserCtx.Name
	}
	if err := s.computeID(args); err != nil {
		return nil, err
	}
	id := replicator.PersistentJobID(db.Instance(), change.ID)
	return &Job{ID: id, Status: fdbjobs.Pending, Args: args, State: s.begin(args, nil)}, nil
}

// follow makes the job of a document what its winning revision wants.
//
// Neither it nor anything it calls needs to know its own work when the transaction's function
// runs again: docstore does not tell of a revision that is there already.
func (s *Store) follow(tx kv.Transaction, db *docstore.Database, change *docstore.Change) error {
	id := replicator.PersistentJobID(db.Instance(), change.ID)
	if len(id) > fdbjobs.MaxNameSize {
		return nil // it was refused but for its deletions
	}
	existing, err := s.read(tx, id)
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, fdbjobs.ErrSealed) {
		return err // one whose definition cannot be opened can be replaced and removed
	}
	var current *replicator.Replication
	if existing != nil && existing.Status != fdbjobs.Finished {
		current = existing.Args.Replication
	}
	doc, effect := effectOf(change, current)
	ended := doc != nil && !doc.Deleted && doc.State.Terminal() && doc.Replication != nil
	switch {
	case effect == replicator.RemoveJob && existing != nil:
		if err := s.remove(tx, existing); err != nil || !ended {
			return err
		}
		return s.addEnded(tx, db, change, doc)
	case effect == replicator.KeepJob && existing == nil && ended:
		return s.addEnded(tx, db, change, doc)
	case effect == replicator.StartJob:
		job, err := s.documentJob(db, change, doc.Wanted())
		if err != nil {
			return err
		}
		return s.start(tx, job, existing, change.Order)
	}
	return nil
}

// maxEndedSequence is how many bytes the sequence of a replication may have that ended elsewhere: a state has room for it.
const maxEndedSequence = 60_000

// addEnded adds the job of a document that says how its replication has ended, as it was
// elsewhere: lists show it as CouchDB's do.
func (s *Store) addEnded(tx kv.Transaction, db *docstore.Database, change *docstore.Change, doc *replicator.Document) error {
	job, err := s.documentJob(db, change, doc.Replication)
	if err != nil {
		return err
	}
	state := job.State
	state.History = nil
	if !doc.StateTime.IsZero() {
		state.LastUpdated = doc.StateTime
	}
	if doc.State == replicator.DocumentFailed {
		state.State = replicator.StateFailed
		state.ErrorCount = 1
		state.SetError("", doc.StateReason)
	} else {
		state.State = replicator.StateCompleted
		var stats replicator.DocumentStats
		_ = json.Unmarshal(doc.Stats, &stats) // what it has of them, if anything
		if len(stats.CheckpointedSourceSeq) > maxEndedSequence {
			stats.CheckpointedSourceSeq = nil
		}
		state.SetDocumentStats(stats)
	}
	return s.add(tx, job, fdbjobs.Spec{Order: change.Order, Ended: true, Tag: part("", state.State).Tag})
}

// effectOf returns what becomes of the job of a document. What the settings forbid is not
// looked at: a revision that was accepted under others may win at any time, and its job
// fails when it runs. One that no settings allow, as an earlier version may have
// accepted, has no job.
func effectOf(change *docstore.Change, current *replicator.Replication) (*replicator.Document, replicator.Effect) {
	doc, err := replicator.ParseBody(change.ID, change.Deleted, change.Body, replicator.ParseOptions{})
	if err != nil {
		return nil, replicator.RemoveJob
	}
	return doc, doc.Effect(current)
}

// start adds the job of a document, or gives it the new definition: in effect it is another
// job then, but one that runs begins anew only when its processor has let go of it. Until
// then it keeps its state, and has no claim to the replication id that it will have.
func (s *Store) start(tx kv.Transaction, job, existing *Job, order uint16) error {
	if existing != nil {
		if err := s.unclaim(tx, existing, job.Args.ReplicationID); err != nil {
			return err
		}
	}
	if existing == nil || existing.Status != fdbjobs.Running {
		// What waits would keep its state, too.
		if _, err := s.jobs.Remove(tx, job.ID); err != nil {
			return err
		}
		if err := s.dropFailures(tx, job.ID); err != nil {
			return err
		}
		if err := s.claimFree(tx, job.Args.ReplicationID, job.ID); err != nil {
			return err
		}
	}
	return s.add(tx, job, fdbjobs.Spec{Order: order})
}

// remove removes a job, which stops if it runs.
func (s *Store) remove(tx kv.Transaction, job *Job) error {
	if _, err := s.jobs.Remove(tx, job.ID); err != nil {
		return err
	}
	if err := s.dropFailures(tx, job.ID); err != nil {
		return err
	}
	return s.unclaim(tx, job, "")
}

// say returns what writes the state of a job that has not ended into its document, if it is
// one of a document and is to tell.
func (r *Run) say() func(kv.Transaction, *replicator.JobState) error {
	if r.job.Transient() || !r.store.settings().UpdateDocs {
		return func(kv.Transaction, *replicator.JobState) error { return nil }
	}
	return r.documentWriter()
}

// documentWriter returns what writes the state of a job into its document, in the transaction
// that gives it to the job: a revision that replaces the winning one, with the same
// attachments and all else that it has, unless it says all that already.
//
// The job is held by a definition that the document still has: a write that changes it
// raises the job's generation or removes the job, and then nothing of this is committed.
func (r *Run) documentWriter() func(kv.Transaction, *replicator.JobState) error {
	token := rand.Text()
	return func(tx kv.Transaction, state *replicator.JobState) error { return r.writeDocument(tx, state, token) }
}

func (r *Run) writeDocument(tx kv.Transaction, state *replicator.JobState, token string) error {
	if state.State == replicator.StatePending {
		return nil // which no document says
	}
	return r.editDocument(tx, state.UpdateDocument, token)
}

// clearState returns what takes out of a job's document, when a run starts, that the job is triggered or in error: another
// system wrote that, or this one with other settings. Otherwise it would stay there until the job ends.
func (r *Run) clearState() func(kv.Transaction) error {
	if r.job.Transient() || r.store.settings().UpdateDocs {
		return func(kv.Transaction) error { return nil } // what it says becomes true at once
	}
	token := rand.Text()
	return func(tx kv.Transaction) error {
		// Most say nothing, and no write of a user's is to be in the way of a start.
		_, doc, err := r.document(tx.Snapshot())
		if err != nil || bytes.Equal(withoutPassing(doc.Body), doc.Body) {
			return err
		}
		return r.editDocument(tx, func(body []byte) ([]byte, error) { return withoutPassing(body), nil }, token)
	}
}

// withoutPassing returns the text of a document without what it says of its job, if that is a state that passes.
func withoutPassing(body []byte) []byte {
	var says struct {
		State replicator.DocumentState `json:"_replication_state"`
	}
	if json.Unmarshal(body, &says) != nil || says.State != replicator.DocumentTriggered && says.State != replicator.DocumentError {
		return body
	}
	cleared, err := replicator.ClearDocumentState(body)
	if err != nil {
		return body
	}
	return cleared
}

// document reads the job's document. Without one the job is none any more: the error is fdbjobs.ErrHalt.
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
	body, err := change(doc.Body)
	if err != nil || bytes.Equal(body, doc.Body) {
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
	return nil // one that has no room for it stays as it is: the job knows
}
