package fdbjobs

import (
	"context"
	"encoding/json"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// openArgs returns the args of a job. The error is ErrSealed.
func (q *Queue) openArgs(id string, stored []byte) (json.RawMessage, error) {
	args, err := q.layer.sealer.Open(stored, "args", q.name, id)
	if err != nil {
		return nil, fmt.Errorf("%w of the job %q: %w", ErrSealed, id, err)
	}
	return args, nil
}

// resealAtOnce is the number of jobs that one transaction of Reseal reads.
const resealAtOnce = 50

// Reseal reads all jobs. It returns the number of args by the id of the key that sealed them. The empty id is for plain
// args. If keyID is not empty, it is the id of the layer's current key, and Reseal reseals with it all args that were
// sealed with another key or not at all, except those that cannot be opened. It may be interrupted, repeated, and run
// while jobs are added and run.
func (a Admin) Reseal(ctx context.Context, keyID string) (map[string]int64, error) {
	q := a.queue
	counts, err := rows.Reseal(ctx, q.layer.db, q.layer.sealer, keyID, rows.Range(q.keys.data), q.sealedArgs)
	if err != nil {
		return nil, fmt.Errorf("sealing the args of jobs: %w", err)
	}
	return counts, nil
}

// sealedArgs reads the args of the first jobs of a range.
func (q *Queue) sealedArgs(tx kv.Transaction, r kv.KeyRange) (values []rows.Sealed, rest []byte, err error) {
	pairs, err := tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: resealAtOnce}).Slice()
	if err != nil {
		return nil, nil, err
	}
	ids, err := lastStrings(q.keys.data, pairs)
	if err != nil {
		return nil, nil, err
	}
	reads := make([]jobRead, len(pairs))
	for i, id := range ids {
		reads[i] = jobRead{id: id, queue: q, tx: tx.Snapshot(), args: tx.Snapshot().Get(q.keys.args.Pack(id, 0))}
	}
	for i, pair := range pairs {
		row, err := parseRow(pair.Value)
		if err != nil {
			return nil, nil, err
		}
		if row.chunks == 0 {
			continue
		}
		stored, err := reads[i].storedArgs(row.chunks)
		if err != nil {
			return nil, nil, err
		}
		values = append(values, rows.Sealed{
			Begin: pair.Key, Stored: stored,
			Reseal: func() { q.resealOne(tx, pair.Key, ids[i], row, stored) },
		})
	}
	if len(pairs) == resealAtOnce {
		rest = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	return values, rest, nil
}

// resealOne seals the args of a job again, unless they cannot be opened. It conflicts with each write of the job's row:
// adding and removing the job writes it.
func (q *Queue) resealOne(tx kv.Transaction, key []byte, id string, row *row, stored []byte) {
	args, err := q.openArgs(id, stored)
	if err != nil {
		return
	}
	tx.AddReadConflictKey(key)
	if chunks := q.setArgs(tx, id, args, row.chunks); chunks != row.chunks {
		row.chunks = chunks
		tx.Set(key, row.tuple().Pack())
	}
}
