package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// The limits of [Store.List] and [Store.ListDocuments].
const (
	MaxLimit = 1_000 // jobs
	MaxSkip  = 10_000
)

// listBatch is how many jobs one transaction reads: the state of each may have 100,000
// bytes.
const listBatch = 50

// Get returns the job that has an id, as its job id or its replication id, also
// one that has ended. The error is ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.resolve(tx.Snapshot(), id)
	})
}

// ListOptions say which part of a list is wanted. The zero value is none of it.
type ListOptions struct {
	// After is the start key of a page: the Next of the one before it. Empty is the start.
	After string
	// Skip leaves jobs out, MaxSkip at most; Limit is how many there are, MaxLimit at most.
	Skip, Limit int
}

// List is a page of a list of jobs. The definitions of its jobs are not whole: what may be
// large is left out of them (document ids, selectors, parameters), and so are credentials.
type List struct {
	Jobs []*Job
	// Total is how many jobs there are in all, whatever was asked for of them.
	Total int64
	// Next is the start key of the page behind this one, empty if there is none.
	Next string
}

// List returns jobs that have not ended, by job id. A list that takes several transactions
// to read shows each part as it was when it was read.
func (s *Store) List(ctx context.Context, opts ListOptions) (List, error) {
	live := parts(liveStates, labelDocument, labelTransient)
	return s.list(ctx, opts, listing{parts: live, counted: live, statuses: []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running}})
}

// ListDocuments returns the jobs of documents that are in one of some states, nil for all:
// of one replicator database, by document id, or of all if database is empty. The error is
// docstore.ErrDatabaseNotFound.
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

// Document returns the job of a document of a replicator database. The errors are
// ErrNotFound and docstore.ErrDatabaseNotFound.
func (s *Store) Document(ctx context.Context, database, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		db, err := s.docs.DatabaseIn(tx.Snapshot(), database)
		if err != nil {
			return nil, err
		}
		jobID := db.Instance() + "|" + id
		if len(jobID) > fdbjobs.MaxNameSize {
			return nil, ErrNotFound
		}
		return s.read(tx.Snapshot(), jobID)
	})
}

// Running yields the jobs that a node runs, by job id, as those of a [List].
func (s *Store) Running(ctx context.Context) iter.Seq2[*Job, error] {
	l := listing{parts: parts([]replicator.State{replicator.StateRunning}, labelDocument, labelTransient)}
	return func(yield func(*Job, error) bool) {
		for after, more := "", true; more; {
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

// Counts returns how many jobs there are in each state. Jobs of deleted databases count until
// upkeep has removed them. It reads some counters, however many jobs there are.
func (s *Store) Counts(ctx context.Context) (map[replicator.State]int64, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (map[replicator.State]int64, error) {
		counts := make(map[replicator.State]int64, len(allStates))
		for _, state := range allStates {
			n, err := s.jobs.Count(tx.Snapshot(), parts([]replicator.State{state}, labelDocument, labelTransient)...)
			if err != nil {
				return nil, err
			}
			counts[state] = n
		}
		return counts, nil
	})
}

// listing is a list of jobs.
type listing struct {
	owner    string // of all of them; empty: of any
	parts    []fdbjobs.Part
	counted  []fdbjobs.Part // of which the total is
	statuses []fdbjobs.Status
}

func (s *Store) list(ctx context.Context, opts ListOptions, l listing) (List, error) {
	if opts.Skip < 0 || opts.Skip > MaxSkip || opts.Limit < 0 || opts.Limit > MaxLimit || len(opts.After) > fdbjobs.MaxNameSize {
		return List{}, fmt.Errorf("listing replication jobs: skip %d, limit %d or a start key of %d bytes are out of range",
			opts.Skip, opts.Limit, len(opts.After))
	}
	var out List
	var after string
	err := s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		out.Total, after, err = s.beginList(tx.Snapshot(), opts, l)
		return err
	})
	if err != nil {
		return List{}, err
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
		out.Next = after
	}
	return out, nil
}

// beginList counts the jobs of a list, and finds behind which one a page begins.
func (s *Store) beginList(tx kv.ReadTransaction, opts ListOptions, l listing) (total int64, after string, err error) {
	if l.owner != "" {
		if total, err = s.jobs.CountOwned(tx, l.owner, l.statuses...); err != nil {
			return 0, "", err
		}
		after, err = s.jobs.SkipOwned(tx, l.owner, opts.After, opts.Skip, l.parts...)
		return total, after, err
	}
	deleted, err := s.deletedJobs(tx, l.statuses)
	if err != nil {
		return 0, "", err
	}
	if total, err = s.jobs.Count(tx, l.counted...); err != nil {
		return 0, "", err
	}
	for _, d := range deleted {
		total -= d.jobs
	}
	after, err = s.skip(tx, deleted, opts.After, opts.Skip, l.parts)
	return total, after, err
}

// page is some jobs of a list.
type page struct {
	jobs  []*Job
	after string // where the next page begins
	more  bool   // whether there may be one
}

// readPage reads up to n jobs of a list behind an id.
func (s *Store) readPage(ctx context.Context, l listing, after string, n int) (page, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (page, error) {
		return s.page(tx.Snapshot(), l, after, n)
	})
}

// page is readPage in a transaction. Jobs of a deleted database are passed over at once,
// however many they are.
func (s *Store) page(tx kv.ReadTransaction, l listing, after string, n int) (out page, err error) {
	var batch []*fdbjobs.Job
	if l.owner != "" {
		batch, err = s.jobs.ListOwned(tx, l.owner, after, n, l.parts...)
	} else {
		batch, err = s.jobs.List(tx, after, n, l.parts...)
	}
	if err != nil {
		return out, err
	}
	out.more = len(batch) == n
	for _, raw := range batch {
		alive, err := s.alive(tx, raw.Owner)
		if err != nil {
			return out, err
		}
		if !alive && l.owner != "" {
			return page{}, docstore.ErrDatabaseNotFound
		}
		if !alive {
			_, instance, _ := ownerDatabase(raw.Owner)
			out.after, out.more = deletedDatabase{instance: instance}.last(), true
			return out, nil
		}
		job, err := s.parseListed(raw)
		if err != nil {
			return out, err
		}
		out.jobs, out.after = append(out.jobs, job), raw.ID
	}
	return out, nil
}

// parseListed reads a job of a list, whose args are a summary.
func (s *Store) parseListed(raw *fdbjobs.Job) (*Job, error) {
	listed := *raw
	if listed.Args = raw.Listed; listed.Args == nil {
		listed.Args = json.RawMessage("{}")
	}
	return s.parse(&listed)
}

// deletedJobs reads which databases were deleted and have jobs of some statuses. While there
// are more than a hundred, until upkeep has come to them, some jobs count that are none.
func (s *Store) deletedJobs(tx kv.ReadTransaction, statuses []fdbjobs.Status) ([]deletedDatabase, error) {
	deleted, err := s.deletedDatabases(tx, "")
	if err != nil {
		return nil, err
	}
	for i := range deleted {
		if deleted[i].jobs, err = s.jobs.CountOwned(tx, deleted[i].owner, statuses...); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(deleted, func(d deletedDatabase) bool { return d.jobs == 0 }), nil
}

// skip returns the id of the nth job behind an id, or the last one's where there are fewer, not counting
// those of deleted databases, whose ids are ranges. It walks in steps, which are halved where
// one would come into or over such a range.
func (s *Store) skip(tx kv.ReadTransaction, deleted []deletedDatabase, after string, n int, parts []fdbjobs.Part) (string, error) {
	for step := n; n > 0; {
		next, err := s.jobs.Skip(tx, after, step, parts...)
		if err != nil || next == after {
			return after, err
		}
		i := slices.IndexFunc(deleted, func(d deletedDatabase) bool { return after < d.first() })
		switch {
		case i < 0 || next < deleted[i].first():
			after = next
			n -= step
			step = min(step, n)
		case step > 1:
			step /= 2
		default: // the next job is one of that database's
			after, step = deleted[i].last(), n
		}
	}
	return after, nil
}
