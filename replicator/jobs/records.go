package jobs

import (
	"encoding/json"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// What is stored of the past of a job is below ("records", job id):
//
//	("run", n modulo maxRuns)                -> the nth run that has ended, a replicator.EndedRun
//	("lags")                                 -> of a mirror: a replicator.MirrorLags
//	("failures")                             -> (listed, token, total), see failures.go
//	("failure", n modulo MaxFailures)        -> the nth listed failure, a replicator.Failure
//	("verification")                         -> a Verification, see verify.go
//	("life"), ("state")                      -> life and state of a transient job before it was added again
//
// n begins with 1; JobState.Runs is the number of all runs. A run is written in the transaction that records its end. The
// rows go with the job, and those of a document's job when another definition runs.

// maxRuns is the most runs of a job that are kept.
const maxRuns = 20

// jobRecords are these rows.
type jobRecords struct{ *core }

// of returns the records of a job.
func (s *jobRecords) of(jobID string) tuple.Subspace { return s.space.Sub("records", jobID) }

func (s *jobRecords) runKey(jobID string, n int64) []byte { return s.of(jobID).Pack("run", n%maxRuns) }

// setRun records the nth run of a job.
func (s *jobRecords) setRun(tx kv.Transaction, jobID string, n int64, run replicator.EndedRun) error {
	text, err := json.Marshal(run)
	if err != nil {
		return fmt.Errorf("writing a run of the replication job %q: %w", jobID, err)
	}
	tx.Set(s.runKey(jobID, n), text)
	return nil
}

// lagsKey returns the key of how far the target of a mirror was behind.
func (s *jobRecords) lagsKey(jobID string) []byte { return s.of(jobID).Pack("lags") }

// awaitLags returns how far the target of a mirror was behind.
func awaitLags(read kv.Future[[]byte]) (l replicator.MirrorLags, err error) {
	value, err := read.Await()
	if err != nil || value == nil {
		return l, err
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return l, fmt.Errorf("reading the lags of a mirror: %w", err)
	}
	return l, nil
}

// clearRecords removes the records of a job.
func (s *jobRecords) clearRecords(tx kv.Transaction, jobID string) {
	tx.ClearRange(rows.Range(s.of(jobID)))
}

// endKeys are the keys of the life before the current one, and of its last state. They are for
// waiters that have not seen its end yet.
func (s *jobRecords) endKeys(jobID string) (life, state []byte) {
	return s.of(jobID).Pack("life"), s.of(jobID).Pack("state")
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

func (s *jobRecords) failureKey(jobID string) []byte { return s.of(jobID).Pack("failures") }

func (s *jobRecords) failureRows(jobID string) tuple.Subspace { return s.of(jobID).Sub("failure") }

// addFailures adds rows to the list, and counts unlisted failures before them.
func (s *jobRecords) addFailures(tx kv.Transaction, jobID string, rows [][]byte, unlisted int64, token string) error {
	previous, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err != nil || previous.token == token {
		return err
	}
	ring := s.failureRows(jobID)
	for i, row := range rows {
		tx.Set(ring.Pack((previous.listed+int64(i))%replicator.MaxFailures), row)
	}
	n := int64(len(rows))
	tx.Set(s.failureKey(jobID), tuple.Tuple{previous.listed + n, token, previous.total + unlisted + n}.Pack())
	return nil
}

// failureCount is the row before the failures of a job.
type failureCount struct {
	listed, total int64
	token         string
}

// awaitFailures returns the counts, zero if there are none.
func awaitFailures(read kv.Future[[]byte]) (c failureCount, err error) {
	value, err := read.Await()
	if err != nil || value == nil {
		return c, err
	}
	return c, rows.Scan("the failures of a replication job", value, &c.listed, &c.token, &c.total)
}
