package jobs

import (
	"context"
	"fmt"
	"iter"

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
	live := []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running}
	var after string
	begin := func(tx kv.Transaction) error {
		if total, err = s.jobs.Count(tx.Snapshot(), live...); err != nil {
			return err
		}
		after, err = s.jobs.Skip(tx.Snapshot(), "", skip, live...)
		return err
	}
	if err := s.db.Transact(ctx, begin); err != nil {
		return nil, 0, err
	}
	if int64(skip) >= total {
		return nil, total, nil
	}
	for len(jobs) < limit {
		n := min(listBatch, limit-len(jobs))
		batch, err := s.listAfter(ctx, after, n, live...)
		if err != nil {
			return nil, 0, err
		}
		jobs = append(jobs, batch...)
		if len(batch) < n {
			break
		}
		after = batch[n-1].ID
	}
	return jobs, total, nil
}

// Running yields the jobs that a node runs, by job id. Like those of [Store.List] their
// definitions are not whole, and each part of them is shown as it was when it was read.
func (s *Store) Running(ctx context.Context) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		for after := ""; ; {
			batch, err := s.listAfter(ctx, after, listBatch, fdbjobs.Running)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range batch {
				if !yield(job, nil) {
					return
				}
			}
			if len(batch) < listBatch {
				return
			}
			after = batch[listBatch-1].ID
		}
	}
}

// listAfter reads the next n jobs behind an id that have one of the statuses.
func (s *Store) listAfter(ctx context.Context, after string, n int, statuses ...fdbjobs.Status) ([]*Job, error) {
	batch, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
		return s.jobs.List(tx.Snapshot(), after, n, statuses...)
	})
	if err != nil {
		return nil, err
	}
	jobs := make([]*Job, len(batch))
	for i, raw := range batch {
		if jobs[i], err = parseJob(raw); err != nil {
			return nil, err
		}
		jobs[i].summarize()
	}
	return jobs, nil
}

// summarize leaves out of the job's definition what may be large.
func (j *Job) summarize() {
	r := *j.Args.Replication
	r.DocIDs, r.Selector, r.QueryParams, r.CreateTargetParams = nil, nil, nil, nil
	r.Source.Headers, r.Target.Headers = nil, nil
	j.Args.Replication = &r
}
