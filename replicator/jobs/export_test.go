package jobs

import (
	"context"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

// Everywhere returns all that jobs of some statuses may be listed as.
func Everywhere(statuses ...fdbjobs.Status) []fdbjobs.Part {
	all := append(parts(allStates, labelDocument, labelTransient), fdbjobs.Parts(statuses...)...)
	all = append(all, fdbjobs.Finished.In("", tagFailed)) // of tests, which do not all give a label
	return slices.DeleteFunc(all, func(p fdbjobs.Part) bool { return !slices.Contains(statuses, p.Status) })
}

// ListFrom lists jobs that have not ended.
func (s *Store) ListFrom(ctx context.Context, skip, limit int) ([]*Job, int64, error) {
	list, err := s.List(ctx, ListOptions{Skip: skip, Limit: limit})
	return list.Jobs, list.Total, err
}

// AddMany adds the jobs of documents of a database, or transient ones where there is none,
// faster than by writing the documents, which do not exist then.
func (s *Store) AddMany(
	ctx context.Context, db *docstore.Database, ids []string, definition func(id string) *replicator.Replication,
) error {
	added := make([]*Job, len(ids))
	for i, id := range ids {
		job, err := s.document(db, id, definition(id))
		if err != nil {
			return err
		}
		added[i] = job
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		for i, job := range added {
			if err := s.claimFree(tx, job.Args.ReplicationID, job.ID); err != nil {
				return err
			}
			if err := s.add(tx, job, fdbjobs.Spec{Token: "many", Order: uint16(i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) document(db *docstore.Database, id string, r *replicator.Replication) (*Job, error) {
	if db != nil {
		rev := docstore.Rev{Pos: 1, ID: "0123456789abcdef0123456789abcdef"}
		return s.documentJob(db, &docstore.Change{ID: id, Rev: rev}, r)
	}
	args := &replicator.JobArgs{Replication: r, Definition: id, Added: time.Now()}
	err := s.computeID(args)
	return &Job{ID: r.JobID(""), Status: fdbjobs.Pending, Args: args, State: s.begin(args, nil)}, err
}

// Entitlements is how running jobs are divided among their owners.
var Entitlements = entitlements

// CountFailures writes how many failures a job had as earlier versions did.
func (s *Store) CountFailures(ctx context.Context, jobID string, n int64) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set(s.failureKey(jobID), tuple.Tuple{n, "token"}.Pack())
		return nil
	})
}
