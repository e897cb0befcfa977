package jobs

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"settee/fdbjobs"
	"settee/pkg/kv"
)

// The limits of [Store.List].
const (
	MaxLimit = 1_000 // jobs
	MaxSkip  = 10_000
)

// listBatch is how many jobs one transaction reads: a job's args may have 4 MB, and
// the transaction lives for five seconds.
const listBatch = 10

// Get returns the job that has an id, as its job id or its replication id, also
// one that has ended. The error is ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.resolve(tx.Snapshot(), id)
	})
}

// List returns the jobs that have not ended, by job id: limit of them, of at most
// MaxLimit, without the first skip, of at most MaxSkip, and how many there are in
// all. A list that takes several transactions to read shows each part as it was
// when it was read.
//
// The definitions of these jobs are not whole: what may be large is left out of
// them (document ids, selectors, parameters, headers), so that a list of large jobs
// needs no more memory than one of small ones.
func (s *Store) List(ctx context.Context, skip, limit int) (jobs []*Job, total int64, err error) {
	if skip < 0 || skip > MaxSkip || limit < 0 || limit > MaxLimit {
		return nil, 0, fmt.Errorf("listing replication jobs: skip %d and limit %d are out of range", skip, limit)
	}
	var after string
	begin := func(tx kv.Transaction) error {
		deleted, err := s.deletedJobs(tx.Snapshot())
		if err != nil {
			return err
		}
		if total, err = s.jobs.Count(tx.Snapshot(), live...); err != nil {
			return err
		}
		for _, d := range deleted {
			total -= d.jobs
		}
		after, err = s.skip(tx.Snapshot(), deleted, skip)
		return err
	}
	if err := s.db.Transact(ctx, begin); err != nil {
		return nil, 0, err
	}
	if int64(skip) >= total {
		return nil, total, nil
	}
	for more := true; more && len(jobs) < limit; {
		page, err := s.readPage(ctx, after, min(listBatch, limit-len(jobs)), live...)
		if err != nil {
			return nil, 0, err
		}
		jobs = append(jobs, page.jobs...)
		after, more = page.after, page.more
	}
	return jobs, total, nil
}

// Running yields the jobs that a node runs, by job id. Like those of [Store.List] their
// definitions are not whole, and each part of them is shown as it was when it was read.
func (s *Store) Running(ctx context.Context) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		for after := ""; ; {
			page, err := s.readPage(ctx, after, listBatch, fdbjobs.Running)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range page.jobs {
				if !yield(job, nil) {
					return
				}
			}
			if !page.more {
				return
			}
			after = page.after
		}
	}
}

// live are the statuses of jobs that have not ended.
var live = []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running}

// page is some jobs of a list.
type page struct {
	jobs  []*Job
	after string // where the next page begins
	more  bool   // whether there may be one
}

// readPage reads up to n jobs that have one of the statuses, behind an id.
func (s *Store) readPage(ctx context.Context, after string, n int, statuses ...fdbjobs.Status) (page, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (page, error) {
		return s.page(tx.Snapshot(), after, n, statuses)
	})
}

// page reads up to n jobs. Those of a deleted database are passed over at once, however many
// they are.
func (s *Store) page(tx kv.ReadTransaction, after string, n int, statuses []fdbjobs.Status) (out page, err error) {
	batch, err := s.jobs.List(tx, after, n, statuses...)
	if err != nil {
		return out, err
	}
	out.more = len(batch) == n
	for _, raw := range batch {
		alive, err := s.alive(tx, raw.Owner)
		if err != nil {
			return out, err
		}
		if !alive {
			_, instance, _ := ownerDatabase(raw.Owner)
			out.after, out.more = deletedDatabase{instance: instance}.last(), true
			return out, nil
		}
		job, err := s.parse(raw)
		if err != nil {
			return out, err
		}
		job.summarize()
		out.jobs, out.after = append(out.jobs, job), raw.ID
	}
	return out, nil
}

// deletedJobs reads which databases were deleted and have jobs that had not ended. While there
// are more than a hundred, until upkeep has come to them, some jobs count that are none.
func (s *Store) deletedJobs(tx kv.ReadTransaction) ([]deletedDatabase, error) {
	deleted, err := s.deletedDatabases(tx)
	if err != nil {
		return nil, err
	}
	for i := range deleted {
		if deleted[i].jobs, err = s.jobs.CountOwned(tx, deleted[i].owner, live...); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(deleted, func(d deletedDatabase) bool { return d.jobs == 0 }), nil
}

// skip returns the id of the nth job, or the last one's where there are fewer, not counting
// those of deleted databases, whose ids are ranges. It walks in steps, which are halved where
// one would come into or over such a range.
func (s *Store) skip(tx kv.ReadTransaction, deleted []deletedDatabase, n int) (after string, err error) {
	for step := n; n > 0; {
		next, err := s.jobs.Skip(tx, after, step, live...)
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

// summarize leaves out of the job's definition what may be large.
func (j *Job) summarize() {
	r := *j.Args.Replication
	r.DocIDs, r.Selector, r.QueryParams, r.CreateTargetParams = nil, nil, nil, nil
	r.Source.Headers, r.Target.Headers = nil, nil
	j.Args.Replication = &r
}
