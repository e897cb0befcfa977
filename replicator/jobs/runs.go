package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/replicator"
)

// The latest runs of a job that have ended are a ring of rows. The nth of all is in
//
//	("runs", job id, n modulo MaxRuns) -> replicator.EndedRun
//
// where n begins with 1. JobState.Runs is the number of all. A row is written in the transaction that
// records the end of the run.

// MaxRuns is the most runs of a job that are kept.
const MaxRuns = 20

func (s *Store) runKey(jobID string, n int64) []byte { return s.space.Pack("runs", jobID, n%MaxRuns) }

// setRun records the nth run of a job.
func (s *Store) setRun(tx kv.Transaction, jobID string, n int64, run replicator.EndedRun) error {
	text, err := json.Marshal(run)
	if err != nil {
		return fmt.Errorf("writing a run of the replication job %q: %w", jobID, err)
	}
	tx.Set(s.runKey(jobID, n), text)
	return nil
}

// Runs returns the latest runs of a job that have ended, at most MaxRuns, the newest first.
func (s *Store) Runs(ctx context.Context, job *Job) ([]json.RawMessage, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]json.RawMessage, error) {
		var reads []kv.Future[[]byte]
		for n := job.State.Runs; n > max(job.State.Runs-MaxRuns, 0); n-- {
			reads = append(reads, tx.Snapshot().Get(s.runKey(job.ID, n)))
		}
		runs := make([]json.RawMessage, 0, len(reads))
		for _, read := range reads {
			text, err := read.Await()
			if err != nil {
				return nil, err
			}
			if text != nil { // the job may have been removed since
				runs = append(runs, text)
			}
		}
		return runs, nil
	})
}

// record is what a stored state says about other rows of its job.
type record struct {
	crashing time.Time // the time of its row in the index of crashing jobs; zero if there is none
	stuck    time.Time // the time of its row in the index of stuck jobs
	behind   time.Time // the time of its row in the index of jobs whose targets lack changes
	parked   source    // the source in its row of a parked job; zero if there is none
	runs     int64     // see JobState.Runs
}

func recordOf(state *replicator.JobState) record {
	return record{state.CrashingSince, state.StuckSince, state.BehindSince, sourceOf(state.Parked), state.Runs}
}

// clearRecord clears these rows of a job that is removed, except the row of a parked job.
func (s *Store) clearRecord(tx kv.Transaction, jobID string, r record) {
	s.retime(tx, jobID, record{}, r)
	// The result of a write may be unknown to its run: there may be one more row.
	for n := int64(1); n <= min(r.runs+1, MaxRuns); n++ {
		tx.Clear(s.runKey(jobID, n))
	}
}

// dropRecords removes what is stored about the runs of a job that is removed, or has another definition.
func (s *Store) dropRecords(tx kv.Transaction, job *Job) error {
	unpark := s.unparking(tx, job.stored.parked, job.ID)
	s.clearRecord(tx, job.ID, job.stored)
	if err := unpark(); err != nil {
		return err
	}
	return s.dropFailures(tx, job.ID)
}
