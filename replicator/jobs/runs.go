package jobs

import (
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

// jobRecords are the rows of a job that record what its runs did: the runs, failures.go, and the times in troubles.go.
type jobRecords struct {
	*core
	parking *parkedRows
}

func (s *jobRecords) runKey(jobID string, n int64) []byte {
	return s.space.Pack("runs", jobID, n%MaxRuns)
}

// setRun records the nth run of a job.
func (s *jobRecords) setRun(tx kv.Transaction, jobID string, n int64, run replicator.EndedRun) error {
	text, err := json.Marshal(run)
	if err != nil {
		return fmt.Errorf("writing a run of the replication job %q: %w", jobID, err)
	}
	tx.Set(s.runKey(jobID, n), text)
	return nil
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
func (s *jobRecords) clearRecord(tx kv.Transaction, jobID string, r record) {
	s.retime(tx, jobID, record{}, r)
	// The result of a write may be unknown to its run: there may be one more row.
	for n := int64(1); n <= min(r.runs+1, MaxRuns); n++ {
		tx.Clear(s.runKey(jobID, n))
	}
}

// dropRecords removes what is stored about the runs of a job that is removed, or has another definition.
func (s *jobRecords) dropRecords(tx kv.Transaction, job *Job) error {
	unpark := s.parking.unparking(tx, job.stored.parked, job.ID)
	s.clearRecord(tx, job.ID, job.stored)
	if err := unpark(); err != nil {
		return err
	}
	return s.dropFailures(tx, job.ID)
}

// endKeys are the keys of the life before the current one, and of its last state. They are for
// waiters that have not seen its end yet.
func (s *jobRecords) endKeys(jobID string) (life, state []byte) {
	return s.space.Pack("ended", jobID, "life"), s.space.Pack("ended", jobID, "state")
}

// keepEnd stores the end of a job that is added again.
func (s *jobRecords) keepEnd(tx kv.Transaction, job *Job) error {
	text, err := json.Marshal(job.State)
	if err != nil {
		return fmt.Errorf("writing the state of the replication job %q: %w", job.ID, err)
	}
	life, state := s.endKeys(job.ID)
	tx.Set(life, []byte(job.Args.Life))
	tx.Set(state, text)
	return nil
}

func (s *jobRecords) forgetEnd(tx kv.Transaction, jobID string) {
	life, state := s.endKeys(jobID)
	tx.Clear(life)
	tx.Clear(state)
}
