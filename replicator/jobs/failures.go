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

// The latest revisions that a job's target refused are a ring of rows: the nth of all is in
// row n modulo replicator.MaxFailures. The key ("failures", job id) has how many there were,
// and the token of the transaction that wrote the last ones, by which a repeated one finds
// that it was committed.

// failuresAtOnce is how many rows one transaction writes or reads: they have up to 6,000 bytes.
const failuresAtOnce = 200

// Failures are the revisions that the target of a replication refused.
type Failures struct {
	// Total is how many there were, over all runs of the job.
	Total int64
	// Latest are the latest of them, replicator.MaxFailures at most, the newest first.
	Latest []json.RawMessage // a replicator.Failure each
}

func (s *Store) failureKey(jobID string) []byte { return s.space.Pack("failures", jobID) }

func (s *Store) failureRows(jobID string) tuple.Subspace { return s.space.Sub("failures", jobID) }

// ListRefused adds to the list of what the job's target refused. It says that the job is
// being worked on, as an update does, and may be called at the same time as one.
func (r *Run) ListRefused(ctx context.Context, refused []replicator.Failure) error {
	rows := make([][]byte, len(refused))
	for i, failure := range refused {
		text, err := json.Marshal(failure.Redacted(r.secrets))
		if err != nil {
			return fmt.Errorf("writing a failure of the replication job %q: %w", r.job.ID, err)
		}
		rows[i] = text
	}
	for some := range slices.Chunk(rows, failuresAtOnce) {
		token := rand.Text()
		err := r.held.Update(ctx, nil, func(tx kv.Transaction) error {
			if err := r.check(tx); err != nil {
				return err
			}
			return r.store.addFailures(tx, r.job.ID, some, token)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addFailures(tx kv.Transaction, jobID string, rows [][]byte, token string) error {
	total, last, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err != nil || last == token {
		return err
	}
	ring := s.failureRows(jobID)
	for _, row := range rows {
		tx.Set(ring.Pack(total%replicator.MaxFailures), row)
		total++
	}
	tx.Set(s.failureKey(jobID), tuple.Tuple{total, token}.Pack())
	return nil
}

// awaitFailures returns how many failures there were, and the token of the last ones.
func awaitFailures(read kv.Future[[]byte]) (total int64, token string, err error) {
	value, err := read.Await()
	if err != nil || value == nil {
		return 0, "", err
	}
	e, err := tuple.Unpack(value)
	if err != nil || len(e) != 2 {
		return 0, "", fmt.Errorf("reading the failures of a replication job: unknown form %x", value)
	}
	total, isTotal := e[0].(int64)
	token, isToken := e[1].(string)
	if !isTotal || !isToken {
		return 0, "", fmt.Errorf("reading the failures of a replication job: unknown form %v", e)
	}
	return total, token, nil
}

// dropFailures removes the list of a job that goes.
func (s *Store) dropFailures(tx kv.Transaction, jobID string) error {
	total, _, err := awaitFailures(tx.Get(s.failureKey(jobID)))
	if err != nil || total == 0 {
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
	var out Failures
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
			out.Total, _, err = awaitFailures(read)
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
		next := int(out.Total) % len(rows) // where the oldest one is, once the ring is full
		if len(rows) < replicator.MaxFailures {
			next = 0
		}
		rows = append(slices.Clone(rows[next:]), rows[:next]...)
	}
	slices.Reverse(rows)
	out.Latest = rows
	return out, nil
}
