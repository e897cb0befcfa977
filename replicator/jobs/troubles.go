package jobs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// The jobs that may need an operator are indexed by time, in seconds since the Unix epoch:
//
//	("crashing", since, job id) -> ""    by JobState.CrashingSince
//	("stuck", since, job id)    -> ""    by JobState.StuckSince
//	("behind", since, job id)   -> ""    by JobState.BehindSince
//	("refused", time, job id)   -> ""    by when the target last refused revisions, until the job ends
//
// A row of the first three is written and cleared in the transaction that writes the state, so it agrees
// with the stored state of its job. A row of the last is written with the failures of its job.
// Jobs that crash and recover, get stuck and go on, or fall behind and catch up, cost a row each time, and all others nothing.

func (s *Store) crashKey(since time.Time, jobID string) []byte {
	return s.space.Pack("crashing", since.Unix(), jobID)
}

func (s *Store) stuckKey(since time.Time, jobID string) []byte {
	return s.space.Pack("stuck", since.Unix(), jobID)
}

func (s *Store) behindKey(since time.Time, jobID string) []byte {
	return s.space.Pack("behind", since.Unix(), jobID)
}

// stuckSince returns since when a running job makes no progress, or zero if it has not been so for long.
func (s *Store) stuckSince(state *replicator.JobState) time.Time {
	since := state.WithoutProgress()
	if time.Since(since) < s.settings().StuckAfter {
		return time.Time{}
	}
	return since
}

// behind returns the lag of the target of a continuous job in a state, and the time of its row in the index of such jobs. The
// time is zero while a run has been behind for less than StuckAfter: most runs catch up before, and have no row.
func (r *Run) behind(state *replicator.JobState) (*replicator.Behind, time.Time) {
	if r.job.IsMirror() || !r.job.Args.Replication.Continuous {
		return nil, time.Time{}
	}
	now := time.Now()
	behind := state.Behind.After(state, now)
	if behind == nil || state.State == replicator.StateRunning && now.Sub(behind.Since) < r.store.settings().StuckAfter {
		return behind, time.Time{}
	}
	return behind, behind.Since.UTC().Truncate(time.Second)
}

// reindex writes what follows from a state that replaces another one: the rows of the job in the first three indexes, and
// no row of a parked job for a source that the state does not name. before are the records that the job may have in the
// store.
func (s *Store) reindex(tx kv.Transaction, jobID string, now record, before ...record) error {
	s.retime(tx, jobID, now, before...)
	for _, was := range before {
		if was.parked == now.parked {
			continue
		}
		if err := s.unparking(tx, was.parked, jobID)(); err != nil {
			return err
		}
	}
	return nil
}

// retime writes the rows of a job in the first three indexes. before is as in reindex.
func (s *Store) retime(tx kv.Transaction, jobID string, now record, before ...record) {
	for _, was := range before {
		if !was.crashing.IsZero() {
			tx.Clear(s.crashKey(was.crashing, jobID))
		}
		if !was.stuck.IsZero() {
			tx.Clear(s.stuckKey(was.stuck, jobID))
		}
		if !was.behind.IsZero() {
			tx.Clear(s.behindKey(was.behind, jobID))
		}
	}
	if !now.crashing.IsZero() {
		tx.Set(s.crashKey(now.crashing, jobID), nil)
	}
	if !now.stuck.IsZero() {
		tx.Set(s.stuckKey(now.stuck, jobID), nil)
	}
	if !now.behind.IsZero() {
		tx.Set(s.behindKey(now.behind, jobID), nil)
	}
}

func (s *Store) refusalKey(at int64, jobID string) []byte { return s.space.Pack("refused", at, jobID) }

// clearRefusal removes the index row of a job that ends.
func (s *Store) clearRefusal(tx kv.Transaction, jobID string) error {
	count, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err == nil && count.at != 0 {
		tx.Clear(s.refusalKey(count.at, jobID))
	}
	return err
}

// troubled returns the pageRead of a list in the order of an index.
func (s *Store) troubled(order Order) pageRead {
	name := map[Order]string{ByCrash: "crashing", ByStuck: "stuck", ByLag: "behind", ByRefusal: "refused"}[order]
	index, latestFirst := s.space.Sub(name), order == ByRefusal
	return func(tx kv.ReadTransaction, _ listing, after fdbjobs.Position, n int) (out page, err error) {
		r := rows.Range(index)
		if after != (fdbjobs.Position{}) {
			at, err := strconv.ParseInt(after.Owner, 10, 64)
			if err != nil {
				return out, fmt.Errorf("listing replication jobs: the start key has no time: %w", err)
			}
			if key := index.Pack(at, after.ID); latestFirst {
				r.End = key
			} else {
				r.Begin = kv.KeyAfter(key)
			}
		}
		pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: n, Reverse: latestFirst}).Slice()
		if err != nil {
			return out, err
		}
		times, ids := make([]int64, len(pairs)), make([]string, len(pairs))
		for i, pair := range pairs {
			e, err := index.Unpack(pair.Key)
			if err != nil || len(e) != 2 || !rows.As(e[0], &times[i]) || !rows.As(e[1], &ids[i]) {
				return out, fmt.Errorf("reading an index of replication jobs: %w", tuple.ErrMalformed)
			}
		}
		found, err := s.jobs.Index().ListIDs(tx, ids...)
		if err != nil {
			return out, err
		}
		owners := map[string]ownership{}
		for i, raw := range found {
			out.after = fdbjobs.Position{Owner: strconv.FormatInt(times[i], 10), ID: ids[i]}
			job, err := s.indexedJob(tx, raw, owners)
			if err != nil {
				return out, err
			}
			if job == nil || !job.indexed(order, times[i]) {
				out.passed++
				continue
			}
			out.jobs, out.places = append(out.jobs, job), append(out.places, out.after)
		}
		out.more = len(pairs) == n
		return out, nil
	}
}

// indexed reports whether a row of an index is true of the job. It is not if the job has a new definition that has not
// run, or was running on a node that died.
func (j *Job) indexed(order Order, at int64) bool {
	switch order {
	case ByCrash:
		return j.State.CrashingSince.Unix() == at
	case ByStuck:
		return j.State.StuckSince.Unix() == at && j.Status == fdbjobs.Running
	case ByLag:
		return j.State.BehindSince.Unix() == at
	}
	return true
}

// indexedJob parses a job of an index. It returns nil if the job or its database does not exist.
func (s *Store) indexedJob(tx kv.ReadTransaction, raw *fdbjobs.Job, owners map[string]ownership) (*Job, error) {
	if raw == nil {
		return nil, nil
	}
	of, known := owners[raw.Owner]
	if !known {
		var err error
		if of, err = s.ownership(tx, raw.Owner); err != nil {
			return nil, err
		}
		owners[raw.Owner] = of
	}
	if !of.exists {
		return nil, nil
	}
	return s.parseListed(raw, of)
}

// countTroubles returns the number of rows of an index with times until then, at most MaxCounted.
func (s *Store) countTroubles(ctx context.Context, name string, until time.Time) (int, error) {
	index := s.space.Sub(name)
	r := kv.KeyRange{Begin: rows.Range(index).Begin, End: index.Pack(until.Unix() + 1)}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (int, error) {
		pairs, err := tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: MaxCounted}).Slice()
		return len(pairs), err
	})
}
