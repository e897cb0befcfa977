package jobs

import (
	"context"

	"settee/pkg/audit"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// Who has changed jobs is recorded by the transactions that change them, see package audit. New documents and posted jobs are not: they
// say themselves whose they are.

// auditedJob returns an entry about a job.
func auditedJob(e audit.Entry, job *Job) audit.Entry {
	e.JobID, e.Database, e.DocID = job.ID, deref(job.Args.Database), deref(job.Args.DocID)
	return e
}

// recordChange records who has changed a document of a replicator database. existing is its job before the change, or nil.
func recordChange(tx kv.Transaction, db *docstore.Database, change *docstore.Change, existing *Job) error {
	if change.By == "" || change.Winner == (docstore.Rev{}) || change.WinnerDeleted {
		return nil
	}
	id := replicator.PersistentJobID(db.Instance(), change.ID)
	// docstore calls no hook for a revision that an earlier run has committed.
	e := audit.Of(change.By, actionOf(change, existing), change.Rev.String()+"|"+id)
	e.JobID, e.Database, e.DocID = id, db.Name(), change.ID
	return e.Record(tx)
}

// actionOf returns what a change of a document does to its job.
func actionOf(change *docstore.Change, existing *Job) audit.Action {
	if change.Deleted {
		return audit.Deleted
	}
	draft, _ := change.Draft.(*documentDraft)
	if draft == nil || existing == nil || existing.Args.Replication == nil {
		return audit.Edited
	}
	was, is := existing.Args.Paused != nil, draft.document.Paused
	switch {
	case was == is || !existing.Args.Replication.Equal(draft.document.Replication):
		return audit.Edited
	case is:
		return audit.Paused
	}
	return audit.Resumed
}

// recordDeleted records who has deleted a replicator database. A run of the function after one that was committed does not call it.
func recordDeleted(ctx context.Context, tx kv.Transaction, db *docstore.Database) error {
	e := audit.Of(audit.UserOf(ctx), audit.Deleted, db.Instance())
	e.Database = db.Name()
	return e.Record(tx)
}

// Audit returns the latest changes that users have made, at most limit, the newest first: those of the job with an id, or of all if it is
// empty, and those of a kind, or of all. A deletion of a replicator database is not a change of a job. Only the latest audit.Kept are known.
func (s *Lists) Audit(ctx context.Context, jobID string, of audit.Kind, limit int) ([]audit.Entry, error) {
	return audit.List(ctx, s.db, limit, func(e *audit.Entry) bool {
		return (jobID == "" || e.JobID == jobID) && (of == "" || e.Kind() == of)
	})
}
