package jobs

import (
	"time"

	"settee/pkg/kv"
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

func (s *jobRecords) crashKey(since time.Time, jobID string) []byte {
	return s.space.Pack("crashing", since.Unix(), jobID)
}

func (s *jobRecords) stuckKey(since time.Time, jobID string) []byte {
	return s.space.Pack("stuck", since.Unix(), jobID)
}

func (s *jobRecords) behindKey(since time.Time, jobID string) []byte {
	return s.space.Pack("behind", since.Unix(), jobID)
}

// behind returns the lag of the target of a continuous job in a state, and the time of its row in the index of such jobs. The
// time is zero while a run has been behind for less than StuckAfter: most runs catch up before, and have no row.
func (r *Run) behind(state *replicator.JobState) (*replicator.Behind, time.Time) {
	if r.job.IsMirror() || !r.job.Args.Replication.Continuous {
		return nil, time.Time{}
	}
	now, was := time.Now(), state.Behind
	if was == nil && !r.lost.IsZero() {
		was = &replicator.Behind{Since: r.lost}
	}
	behind := was.After(state, now)
	if behind == nil || state.State == replicator.StateRunning && now.Sub(behind.Since) < r.store.settings().StuckAfter {
		return behind, time.Time{}
	}
	return behind, behind.Since.UTC().Truncate(time.Second)
}

// reindex writes what follows from a state that replaces another one: the rows of the job in the first three indexes, and
// no row of a parked job for a source that the state does not name. before are the records that the job may have in the
// store.
func (s *jobRecords) reindex(tx kv.Transaction, jobID string, now record, before ...record) error {
	s.retime(tx, jobID, now, before...)
	for _, was := range before {
		if was.parked == now.parked {
			continue
		}
		if err := s.parking.unparking(tx, was.parked, jobID)(); err != nil {
			return err
		}
	}
	return nil
}

// retime writes the rows of a job in the first three indexes. before is as in reindex.
func (s *jobRecords) retime(tx kv.Transaction, jobID string, now record, before ...record) {
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

func (s *jobRecords) refusalKey(at int64, jobID string) []byte {
	return s.space.Pack("refused", at, jobID)
}

// clearRefusal removes the index row of a job that ends.
func (s *jobRecords) clearRefusal(tx kv.Transaction, jobID string) error {
	count, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err == nil && count.at != 0 {
		tx.Clear(s.refusalKey(count.at, jobID))
	}
	return err
}
