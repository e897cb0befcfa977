package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// MaxLimit is the most jobs on a page of [Store.List] and [Store.ListDocuments].
const MaxLimit = 1_000

// skipAtOnce is the most jobs that one transaction skips.
const skipAtOnce = 1_000

// listBatch is the most jobs that one transaction reads. Each state may have 100,000 bytes.
const listBatch = 50

// Get returns the job with that job id or replication id, including jobs that have ended. It
// returns ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.resolve(tx.Snapshot(), id)
	})
}

// ListOptions select a page of a list. The zero value selects nothing.
type ListOptions struct {
	// After is where the page starts: the Next of the page before, the zero value for the first.
	After fdbjobs.Position
	// Skip is the number of jobs to skip, which is better done with After if there are many. Limit
	// is the most jobs on the page, at most MaxLimit.
	Skip, Limit int
}

// List is a page of a list of jobs. Their definitions have no credentials and no document ids,
// selectors and parameters, which may be large.
type List struct {
	Jobs []*Job
	// Total is the number of jobs in the whole list.
	Total int64
	// Next is where the next page starts, nil if this is the last one.
	Next *fdbjobs.Position
}

// List returns the jobs that have not ended, by owner and job id. A long list is read in several
// transactions, each of which sees a later state.
func (s *Store) List(ctx context.Context, opts ListOptions) (List, error) {
	live := parts(liveStates, labelDocument, labelTransient)
	return s.list(ctx, opts, listing{parts: live, counted: live, statuses: []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running}})
}

// ListDocuments returns the jobs of documents in the given states, nil for all. They are those of
// one replicator database, by document id, or those of all databases if database is empty, by
// database and document id. It returns docstore.ErrDatabaseNotFound if there is no such database.
func (s *Store) ListDocuments(ctx context.Context, database string, states []replicator.State, opts ListOptions) (List, error) {
	if states == nil {
		states = allStates
	}
	l := listing{
		parts: parts(states, labelDocument), counted: parts(allStates, labelDocument),
		statuses: []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished},
	}
	if database != "" {
		db, err := s.docs.Database(ctx, database)
		if err != nil {
			return List{}, err
		}
		l.owner = databaseOwner(db.Name(), db.Instance())
	}
	return s.list(ctx, opts, l)
}

// Document returns the job of a document of a replicator database. It returns
// docstore.ErrDatabaseNotFound or ErrNotFound.
func (s *Store) Document(ctx context.Context, database, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		db, err := s.docs.DatabaseIn(tx.Snapshot(), database)
		if err != nil {
			return nil, err
		}
		jobID := replicator.PersistentJobID(db.Instance(), id)
		if len(jobID) > fdbjobs.MaxNameSize {
			return nil, ErrNotFound
		}
		return s.read(tx.Snapshot(), jobID)
	})
}

// Running yields the running jobs of all nodes, by owner and job id, in the form of a [List].
func (s *Store) Running(ctx context.Context) iter.Seq2[*Job, error] {
	l := listing{parts: parts([]replicator.State{replicator.StateRunning}, labelDocument, labelTransient)}
	return func(yield func(*Job, error) bool) {
		for after, more := (fdbjobs.Position{}), true; more; {
			page, err := s.readPage(ctx, l, after, listBatch)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range page.jobs {
				if !yield(job, nil) {
					return
				}
			}
			after, more = page.after, page.more
		}
	}
}

// Counts returns the number of jobs in each state, from counters. Jobs of deleted databases count
// until upkeep has removed them.
func (s *Store) Counts(ctx context.Context) (map[replicator.State]int64, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (map[replicator.State]int64, error) {
		counts := make(map[replicator.State]int64, len(allStates))
		byPart, err := s.jobs.Counts(tx.Snapshot(), fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished)
		if err != nil {
			return nil, err
		}
		for _, state := range allStates {
			for _, p := range parts([]replicator.State{state}, labelDocument, labelTransient) {
				counts[state] += byPart[p]
			}
		}
		return counts, nil
	})
}

// listing describes a list of jobs.
type listing struct {
	owner    string // empty: any
	parts    []fdbjobs.Part
	counted  []fdbjobs.Part // for the total
	statuses []fdbjobs.Status
}

func (s *Store) list(ctx context.Context, opts ListOptions, l listing) (List, error) {
	if opts.Skip < 0 || opts.Limit < 0 || opts.Limit > MaxLimit ||
		max(len(opts.After.Owner), len(opts.After.ID)) > fdbjobs.MaxNameSize {
		return List{}, fmt.Errorf("listing replication jobs: skip %d, limit %d or a start key of %d and %d bytes are out of range",
			opts.Skip, opts.Limit, len(opts.After.Owner), len(opts.After.ID))
	}
	var out List
	after := opts.After
	for begun, skip := false, opts.Skip; !begun; skip -= skipAtOnce {
		step := ListOptions{After: after, Skip: min(skip, skipAtOnce)}
		err := s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
			out.Total, after, err = s.beginList(tx.Snapshot(), step, l)
			return err
		})
		if err != nil {
			return List{}, err
		}
		begun = skip <= skipAtOnce || after == step.After
	}
	more := true
	for more && len(out.Jobs) < opts.Limit {
		page, err := s.readPage(ctx, l, after, min(listBatch, opts.Limit-len(out.Jobs)))
		if err != nil {
			return List{}, err
		}
		out.Jobs = append(out.Jobs, page.jobs...)
		after, more = page.after, page.more
	}
	if more && opts.Limit > 0 {
		out.Next = &after
	}
	return out, nil
}

// beginList returns the total of a list, and the position after which the page begins. If there are
// more than deletedAtOnce deleted databases, it counts the jobs of the rest.
func (s *Store) beginList(tx kv.ReadTransaction, opts ListOptions, l listing) (total int64, after fdbjobs.Position, err error) {
	after = opts.After
	if l.owner != "" {
		if total, err = s.jobs.CountOwned(tx, l.owner, l.statuses...); err != nil {
			return 0, after, err
		}
		after.ID, err = s.jobs.SkipOwned(tx, l.owner, after.ID, opts.Skip, l.parts...)
		return total, after, err
	}
	deleted, err := s.deletedDatabases(tx, "")
	if err != nil {
		return 0, after, err
	}
	if total, err = s.jobs.Count(tx, l.counted...); err != nil {
		return 0, after, err
	}
	without := make([]string, len(deleted))
	for i, d := range deleted {
		n, err := s.jobs.CountOwned(tx, d.owner, l.statuses...)
		if err != nil {
			return 0, after, err
		}
		total, without[i] = total-n, d.owner
	}
	after, err = s.jobs.Skip(tx, after, opts.Skip, without, l.parts...)
	return total, after, err
}

// page is a part of a list.
type page struct {
	jobs  []*Job
	after fdbjobs.Position // where the next page begins
	more  bool             // whether there may be one
}

// readPage returns up to n jobs of a list from a position on.
func (s *Store) readPage(ctx context.Context, l listing, after fdbjobs.Position, n int) (page, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (page, error) {
		return s.page(tx.Snapshot(), l, after, n)
	})
}

// page is readPage in a transaction. It skips all jobs of a deleted database in one step.
func (s *Store) page(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (out page, err error) {
	var batch []*fdbjobs.Job
	if l.owner != "" {
		batch, err = s.jobs.ListOwned(tx, l.owner, after.ID, n, l.parts...)
	} else {
		batch, err = s.jobs.List(tx, after, n, l.parts...)
	}
	if err != nil {
		return out, err
	}
	out.more = len(batch) == n
	exists := false
	for i, raw := range batch {
		if i == 0 || raw.Owner != batch[i-1].Owner {
			if exists, err = s.ownerExists(tx, raw.Owner); err != nil {
				return out, err
			}
		}
		if !exists && l.owner != "" {
			return page{}, docstore.ErrDatabaseNotFound
		}
		if !exists {
			out.after, out.more = fdbjobs.AfterOwner(raw.Owner), true
			return out, nil
		}
		job, err := s.parseListed(raw)
		if err != nil {
			return out, err
		}
		out.jobs, out.after = append(out.jobs, job), fdbjobs.Position{Owner: raw.Owner, ID: raw.ID}
	}
	return out, nil
}

// parseListed parses a job of a list, whose args are a summary.
func (s *Store) parseListed(raw *fdbjobs.Job) (*Job, error) {
	listed := *raw
	if listed.Args = raw.Listed; listed.Args == nil {
		listed.Args = json.RawMessage("{}")
	}
	return s.parse(&listed)
}
