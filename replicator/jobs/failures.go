package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

// The latest revisions that a job's target refused are a ring of rows: the nth that was listed
// is in row n modulo replicator.MaxFailures. The key ("failures", job id) has how many were
// listed, the token of the transaction that wrote the last ones, by which a repeated one finds
// that it was committed, and how many there were with those that nobody has listed.

// failuresAtOnce is how many rows one transaction writes or reads: they have up to 6,000 bytes.
const failuresAtOnce = 200

// Failures are the revisions that the target of a replication refused.
type Failures struct {
	// Total is how many there were, over all runs of the job, be they listed or not. As in
	// replicator.Stats a revision counts again when it is refused again: when a run ended after it was
	// listed and before a checkpoint was past it.
	Total int64
	// Latest are the latest of them, replicator.MaxFailures at most, the newest first.
	Latest []json.RawMessage // a replicator.Failure each
}

func (s *Store) failureKey(jobID string) []byte { return s.space.Pack("failures", jobID) }

func (s *Store) failureRows(jobID string) tuple.Subspace { return s.space.Sub("failures", jobID) }

// ListRefused adds to the list of what the job's target refused: the latest, the oldest first,
// of so many. It says that the job is being worked on, as an update does, and may be called at
// the same time as one.
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
		err := r.held.Update(ctx, nil, func(tx kv.Transaction) error {
			if err := r.check(tx); err != nil {
				return err
			}
			return r.store.addFailures(tx, r.job.ID, some, unlisted, token)
		})
		if err != nil {
			return err
		}
		unlisted = 0
	}
	return nil
}

// addFailures lists failures, and counts those before them that nobody lists.
func (s *Store) addFailures(tx kv.Transaction, jobID string, rows [][]byte, unlisted int64, token string) error {
	had, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err != nil || had.token == token {
		return err
	}
	ring := s.failureRows(jobID)
	for i, row := range rows {
		tx.Set(ring.Pack((had.listed+int64(i))%replicator.MaxFailures), row)
	}
	n := int64(len(rows))
	tx.Set(s.failureKey(jobID), tuple.Tuple{had.listed + n, token, had.total + unlisted + n}.Pack())
	return nil
}

// failureCount is the value of the key ("failures", job id).
type failureCount struct {
	listed, total int64
	token         string
}

// awaitFailures returns how many failures there were, and the token of the last ones.
func awaitFailures(read kv.Future[[]byte]) (failureCount, error) {
	value, err := read.Await()
	if err != nil || value == nil {
		return failureCount{}, err
	}
	e, err := tuple.Unpack(value)
	if err != nil || len(e) != 2 && len(e) != 3 {
		return failureCount{}, fmt.Errorf("reading the failures of a replication job: unknown form %x", value)
	}
	if len(e) == 2 { // as earlier versions wrote it, which counted what they listed
		e = append(e, e[0])
	}
	listed, isListed := e[0].(int64)
	token, isToken := e[1].(string)
	total, isTotal := e[2].(int64)
	if !isListed || !isToken || !isTotal {
		return failureCount{}, fmt.Errorf("reading the failures of a replication job: unknown form %v", e)
	}
	return failureCount{listed, total, token}, nil
}

// dropFailures removes the list of a job that goes.
func (s *Store) dropFailures(tx kv.Transaction, jobID string) error {
	had, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err != nil || had.listed == 0 {
		return err
	}
	tx.Clear(s.failureKey(jobID))
	begin, end := s.failureRows(jobID).Range()
	tx.ClearRange(kv.KeyRange{Begin: begin, End: end})
	return nil
}

// Failures returns what the target of a job refused. The id is as for [Store.Get]. The error
// is ErrNotFound if there is no such job. What is refused meanwhile may be missing, and
// something in its place be newer.
func (s *Store) Failures(ctx context.Context, id string) (Failures, error) {
	job, err := s.Get(ctx, id)
	if err != nil {
		return Failures{}, err
	}
	var count failureCount
	begin, end := s.failureRows(job.ID).Range()
	ring := kv.KeyRange{Begin: begin, End: end}
	var rows []json.RawMessage
	for more := true; more; {
		page, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			read := tx.Snapshot().Get(s.failureKey(job.ID))
			pairs, err := tx.Snapshot().GetRange(ring, kv.RangeOptions{Limit: failuresAtOnce, Mode: kv.StreamWantAll}).Slice()
			if err != nil {
				return nil, err
			}
			count, err = awaitFailures(read)
			return pairs, err
		})
		if err != nil {
			return Failures{}, err
		}
		for _, pair := range page {
			rows = append(rows, pair.Value)
			ring.Begin = kv.KeyAfter(pair.Key)
		}
		more = len(page) == failuresAtOnce
	}
	if len(rows) > 0 {
		next := int(count.listed) % len(rows) // where the oldest one is, once the ring is full
		if len(rows) < replicator.MaxFailures {
			next = 0
		}
		rows = append(slices.Clone(rows[next:]), rows[:next]...)
	}
	slices.Reverse(rows)
	return Failures{Total: count.total, Latest: rows}, nil
}
