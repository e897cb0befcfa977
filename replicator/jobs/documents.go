package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
	"settee/replicator/shares"
)

const (
	// maxDocumentSize is the most bytes of JSON in the body of a document of a replicator
	// database. One transaction writes it together with the args of its job.
	maxDocumentSize = 4_000_000
	// maxDocumentIDSize is the most bytes of such a document's id, which is part of the job id.
	maxDocumentIDSize = fdbjobs.MaxNameSize - 33
)

// Documents makes jobs of the documents of replicator databases. The program gives its hooks to the databases of a node.
type Documents struct {
	*core
	writer *writer
}

// Hooks returns the hooks for the docstore.Store whose replicator databases make jobs. options returns the node's settings, and is
// called for each revision that is checked; nil means the zero value. Design documents are ignored.
//
// A revision with an invalid definition is refused with a *replicator.ParseError. One that
// exceeds maxDocumentSize, or whose job would be too large, is refused with
// docstore.ErrTooLarge, and a document id over maxDocumentIDSize with docstore.ErrDocumentID.
//
// The job of a document follows its winning revision. It is added, changed or removed in the
// transaction that changes that revision; a revision that asks for the same replication changes
// nothing. A replication id that another job holds is not a reason to refuse: the collision is
// reported when the job runs ([Run.Identify]). A new document that says that its replication has
// ended elsewhere gets a job that has ended, so that listings show it.
func (s *Documents) Hooks(options func() replicator.ParseOptions) docstore.Hooks {
	if options == nil {
		options = func() replicator.ParseOptions { return replicator.ParseOptions{} }
	}
	return docstore.Hooks{
		Before: func(_ kv.Transaction, db *docstore.Database, change *docstore.Change) (any, error) {
			if !makesJob(db, change) || change.Deleted {
				return nil, nil
			}
			draft, err := s.checkDocument(db, change, options())
			if draft == nil {
				return nil, err
			}
			return draft, nil
		},
		After: func(tx kv.Transaction, db *docstore.Database, change *docstore.Change) error {
			if !makesJob(db, change) {
				return nil
			}
			return s.follow(tx, db, change)
		},
		Deleted: func(ctx context.Context, tx kv.Transaction, db *docstore.Database) error {
			if !replicator.IsReplicatorDatabase(db.Name()) {
				return nil
			}
			return errors.Join(s.cancelAll(tx, db), recordDeleted(ctx, tx, db))
		},
	}
}

func makesJob(db *docstore.Database, change *docstore.Change) bool {
	return replicator.IsReplicatorDatabase(db.Name()) && !replicator.IgnoredID(change.ID)
}

// checkDocument refuses a revision that cannot have a job. It returns nil instead of a draft if the revision was not
// parsed as a whole: options may forbid the definition of a document that has failed.
func (s *Documents) checkDocument(db *docstore.Database, change *docstore.Change, options replicator.ParseOptions) (*documentDraft, error) {
	if len(change.ID) > maxDocumentIDSize {
		return nil, fmt.Errorf("%w: in a replicator database it may have %d bytes, and it has %d",
			docstore.ErrDocumentID, maxDocumentIDSize, len(change.ID))
	}
	if n := change.Body.Len(); n > maxDocumentSize {
		return nil, fmt.Errorf("%w: a replication document of %d bytes; the most is %d", docstore.ErrTooLarge, n, maxDocumentSize)
	}
	doc, err := replicator.ParseBody(change.ID, false, change.Body, options)
	if err != nil || doc.Replication == nil {
		return nil, err
	}
	job, err := s.documentJob(db, change, doc) // also for a replication that has ended elsewhere
	if err != nil {
		return nil, err
	}
	args, err := job.encodeArgs()
	if err != nil {
		return nil, err
	}
	listed, err := job.summary()
	switch {
	case err != nil:
		return nil, err
	case len(args) > fdbjobs.MaxArgsSize:
		return nil, fmt.Errorf("%w: a replication of %d bytes in its stored form; the most is %d",
			docstore.ErrTooLarge, len(args), fdbjobs.MaxArgsSize)
	case len(listed) > fdbjobs.MaxListedSize:
		return nil, fmt.Errorf("%w: source, target and user_ctx.name of a replication have %d bytes in listings; the most is %d",
			docstore.ErrTooLarge, len(listed), fdbjobs.MaxListedSize)
	}
	return &documentDraft{doc, job, args, listed}, nil
}

// documentJob returns the job of a document.
func (s *Documents) documentJob(db *docstore.Database, change *docstore.Change, doc *replicator.Document) (*Job, error) {
	r := doc.Replication
	args := &replicator.JobArgs{
		Replication: r, Definition: change.Rev.String(),
		Database: new(db.Name()), DocID: &change.ID, Added: time.Now(),
	}
	if r.UserCtx != nil {
		args.User = r.UserCtx.Name
	}
	if doc.Paused {
		args.Paused = &replicator.Pause{Since: args.Added}
	}
	if err := s.computeID(args); err != nil {
		return nil, err
	}
	id := replicator.PersistentJobID(db.Instance(), change.ID)
	return &Job{ID: id, Status: fdbjobs.Pending, Args: args, State: s.initialState(args, nil)}, nil
}

// follow brings the job of a document in line with its winning revision.
//
// It need not recognise its own work when the transaction's function runs again, because docstore
// does not call the hook for a revision that exists already.
func (s *Documents) follow(tx kv.Transaction, db *docstore.Database, change *docstore.Change) error {
	id := replicator.PersistentJobID(db.Instance(), change.ID)
	if len(id) > fdbjobs.MaxNameSize {
		return nil // only deletions of such a document are accepted
	}
	existing, err := s.read(tx, id)
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, fdbjobs.ErrSealed) {
		return err // a job whose args cannot be opened can be replaced and removed
	}
	if err := recordChange(tx, db, change, existing); err != nil {
		return err
	}
	var current *replicator.Replication
	if existing != nil && existing.Status != fdbjobs.Finished {
		current = existing.Args.Replication
	}
	draft, effect := effectOf(change, current)
	ended := draft != nil && draft.document.State.Terminal()
	switch {
	case effect == replicator.RemoveJob && existing != nil:
		if err := s.writer.remove(tx, existing); err != nil || !ended {
			return err
		}
	case effect == replicator.KeepJob && existing == nil && ended:
	case effect == replicator.StartJob:
	case effect == replicator.KeepJob && current != nil && draft != nil && draft.document.Paused != (existing.Args.Paused != nil):
		return s.writer.setPaused(tx, existing, draft.document.Paused)
	default:
		return nil
	}
	if draft.job == nil {
		if draft.job, err = s.documentJob(db, change, draft.document); err != nil {
			return err
		}
	}
	if ended {
		return s.addEnded(tx, draft)
	}
	return s.writer.start(tx, draft, existing)
}

// maxEndedSequence is the most bytes of the sequence of a replication that ended elsewhere, so
// that the state has room for it.
const maxEndedSequence = 60_000

// addEnded adds a job that has ended, for a document that says so. Listings show it, as CouchDB's
// do.
func (s *Documents) addEnded(tx kv.Transaction, draft *documentDraft) error {
	doc, job := draft.document, draft.job
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
		_ = json.Unmarshal(doc.Stats, &stats) // ignores what has another form
		if n := len(stats.CheckpointedSourceSeq); n == 0 || n > maxEndedSequence {
			stats.CheckpointedSourceSeq = json.RawMessage(unknownSeq)
		}
		state.SetDocumentStats(stats)
	}
	return s.writer.put(tx, nil, job, draft.spec(fdbjobs.Spec{Ended: true, Tag: endTag(state.State)}))
}

// effectOf returns the effect of a change on the document's job. The draft is nil if the document has no definition, and
// has no job if the revision was not checked in this transaction. It ignores the settings: a revision that was accepted
// under other settings may win at any time, and its job fails when it runs. A revision that is invalid under any
// settings, which another version may have accepted, has no job.
func effectOf(change *docstore.Change, current *replicator.Replication) (*documentDraft, replicator.Effect) {
	if draft, _ := change.Draft.(*documentDraft); draft != nil {
		return draft, draft.document.Effect(current)
	}
	doc, err := replicator.ParseBody(change.ID, change.Deleted, change.Body, replicator.ParseOptions{})
	switch {
	case err != nil:
		return nil, replicator.RemoveJob
	case doc.Replication == nil:
		return nil, doc.Effect(current)
	}
	return &documentDraft{document: doc}, doc.Effect(current)
}

// cancelAll cancels the jobs of a database in the transaction that deletes it, in constant time:
// once that commits they no longer count (see [core.ownerExists]). It wakes upkeep, which
// removes them. No job can be added later, because adding one reads with a conflict that the
// database exists.
func (s *Documents) cancelAll(tx kv.Transaction, db *docstore.Database) error {
	tx.Set(s.space.Pack("deleted", db.Instance()), []byte(shares.OwnerOf(db.Name(), db.Instance(), "")))
	return s.upkeep.Add(tx, fdbjobs.Spec{ID: cancelledTask})
}
