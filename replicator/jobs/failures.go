package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

// The latest failures of a job are a ring of rows: the nth listed failure is in row n modulo
// replicator.MaxFailures. The key ("failures", job id) has the number of listed failures, the
// token of the transaction that wrote the latest ones, by which a repeated transaction recognises
// its own commit, the number of all failures, including those that were not listed, and when the
// latest ones were written, which the index ("refused", time, job id) has until the job ends.

// failuresAtOnce is the most rows in one transaction. A row has up to 6,000 bytes.
const failuresAtOnce = 200

// Failures are the revisions that the target of a replication refused.
type Failures struct {
	// Total is their number over all runs of the job, listed or not. A revision that is refused
	// again counts again, as in replicator.Stats. That happens when a run ends after the failure
	// and before the next checkpoint.
	Total int64
	// Latest are the latest ones, the newest first, at most replicator.MaxFailures.
	Latest []json.RawMessage // a replicator.Failure each
}

func (s *jobRecords) failureKey(jobID string) []byte { return s.space.Pack("failures", jobID) }

func (s *jobRecords) failureRows(jobID string) tuple.Subspace { return s.space.Sub("failures", jobID) }

// ListRefused adds to the job's failures: count of them, of which latest are the latest ones, the
// oldest first. It is also an update of the job, and may be called concurrently with one.
func (r *Run) ListRefused(ctx context.Context, latest []replicator.Failure, count int64) error {
	rows := make([][]byte, len(latest))
	for i, failure := range latest {
		text, err := json.Marshal(failure.Redacted(r.secrets))
		if err != nil {
			return fmt.Errorf("writing a failure of the replication job %q: %w", r.job.ID, err)
		}
		rows[i] = text
	}
	unlisted := count - int64(len(latest))
	for some := range slices.Chunk(rows, failuresAtOnce) {
		token := rand.Text()
		err := r.listHeld(ctx, some, unlisted, token)
		if errors.Is(err, ErrEnding) {
			err = r.listEnding(ctx, some, unlisted, token)
		}
		if err != nil {
			return err
		}
		unlisted = 0
	}
	return nil
}

// listHeld is ListRefused for some rows of a run that holds its job.
func (r *Run) listHeld(ctx context.Context, rows [][]byte, unlisted int64, token string) error {
	if r.Ending() {
		return ErrEnding
	}
	return r.halted(ctx, r.held.Update(ctx, nil, func(tx kv.Transaction) error {
		if err := r.check(tx); err != nil {
			return err
		}
		return r.store.records.addFailures(tx, r.job.ID, rows, unlisted, token)
	}))
}

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
	now := time.Now().Unix()
	tx.Set(s.failureKey(jobID), tuple.Tuple{previous.listed + n, token, previous.total + unlisted + n, now}.Pack())
	tx.Clear(s.refusalKey(previous.at, jobID))
	tx.Set(s.refusalKey(now, jobID), nil)
	return nil
}

// failureCount is the value of the key ("failures", job id).
type failureCount struct {
	listed, total int64
	token         string
	at            int64 // seconds since the epoch; 0 in the form of earlier versions
}

// awaitFailures returns the counts, zero if there are none.
func awaitFailures(read kv.Future[[]byte]) (failureCount, error) {
	value, err := read.Await()
	if err != nil || value == nil {
		return failureCount{}, err
	}
	e, err := tuple.Unpack(value)
	if err != nil || len(e) < 2 || len(e) > 4 {
		return failureCount{}, fmt.Errorf("reading the failures of a replication job: malformed value %x", value)
	}
	if len(e) == 2 { // written by earlier versions, which listed all
		e = append(e, e[0])
	}
	if len(e) == 3 {
		e = append(e, int64(0))
	}
	listed, isListed := e[0].(int64)
	token, isToken := e[1].(string)
	total, isTotal := e[2].(int64)
	at, isTime := e[3].(int64)
	if !isListed || !isToken || !isTotal || !isTime {
		return failureCount{}, fmt.Errorf("reading the failures of a replication job: malformed value %v", e)
	}
	return failureCount{listed, total, token, at}, nil
}

// dropFailures removes the failures of jobs that are removed.
func (s *jobRecords) dropFailures(tx kv.Transaction, jobIDs ...string) error {
	reads := make([]kv.Future[[]byte], len(jobIDs))
	for i, id := range jobIDs {
		reads[i] = tx.Get(s.failureKey(id))
	}
	for i, id := range jobIDs {
		count, err := awaitFailures(reads[i])
		if err != nil {
			return err
		}
		if count.listed == 0 {
			continue
		}
		tx.Clear(s.failureKey(id))
		tx.Clear(s.refusalKey(count.at, id))
		begin, end := s.failureRows(id).Range()
		tx.ClearRange(kv.KeyRange{Begin: begin, End: end})
	}
	return nil
}
