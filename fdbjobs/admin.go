package fdbjobs

import (
	"context"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// What the keepers of a store need: these calls look at all jobs.

// States returns where the queue keeps the states of all jobs, by job id. It is for checks and conversions of the states.
func (q *Queue) States() tuple.Subspace { return q.keys.state }

// RequeueAll takes all running jobs from their holders and queues them again. It is for a process that has just opened
// a store that no other process can have open ([kv.Exclusive]): the holders were in a process that has died. It must be
// called before the process accepts jobs. It returns the number of jobs.
func (q *Queue) RequeueAll(ctx context.Context) (n int, err error) {
	moved, err := q.requeueAll(ctx, func(int64, time.Duration) bool { return true })
	return len(moved), err
}

// The sizes of a transaction of Rederive.
const (
	rederivedRows = 500 // that it reads
	rederivedJobs = 20  // that it changes: it reads up to 120 kB of each
)

// Rederive gives rows the version of the queue's [Derivation] that new rows have, from a position on, and writes what follows
// from them then. A nil position is the start. It returns the position after these rows, and nil if no row is left. It is a
// step of a conversion (package levels), and of the first use of a derivation in a queue that has jobs. Until the last
// step, entries are missing that only the new version has.
func (q *Queue) Rederive(tx kv.Transaction, from []byte) (next []byte, err error) {
	version, err := q.derivation.newVersion(tx)
	if err != nil {
		return nil, err
	}
	pairs, err := tx.Snapshot().GetRange(rows.From(q.keys.data, from), kv.RangeOptions{Limit: rederivedRows}).Slice()
	if err != nil {
		return nil, err
	}
	if len(pairs) == rederivedRows {
		next = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	var reads []jobRead
	for _, pair := range pairs {
		old, err := parseRow(pair.Value)
		if err != nil {
			return nil, err
		}
		if old.version == version {
			continue
		}
		id, err := rows.LastString(q.keys.data, pair.Key)
		if err != nil {
			return nil, err
		}
		if reads = append(reads, q.readListed(tx, tx.Snapshot(), id)); len(reads) == rederivedJobs {
			next = kv.KeyAfter(pair.Key)
			break
		}
	}
	for i, batch := 0, q.batch(tx); i < len(reads); i++ {
		if batch.full() {
			return q.keys.data.Pack(reads[i].id), nil
		}
		if err := batch.rederive(reads[i], version); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// rederive gives the row of a job a version.
func (b *batch) rederive(read jobRead, version int64) error {
	old, err := read.row.Await()
	if err != nil || old == nil {
		return err
	}
	state, err := read.state.Await()
	if err != nil {
		return err
	}
	listed, err := read.listed.Await()
	if err != nil {
		return err
	}
	next, over := b.queue.derivedAgain(old, version, state, listed)
	if over != nil && leftOut != nil {
		leftOut(over)
	}
	return b.put(read.id, old, next)
}

// resealAtOnce is the number of jobs that one transaction of Reseal reads.
const resealAtOnce = 50

// Reseal reads all jobs. It returns the number of args by the id of the key that sealed them. The empty id is for plain
// args. If keyID is not empty, it is the id of the layer's current key, and Reseal reseals with it all args that were
// sealed with another key or not at all, except those that cannot be opened. It may be interrupted, repeated, and run
// while jobs are added and run.
func (q *Queue) Reseal(ctx context.Context, keyID string) (map[string]int64, error) {
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
	reads := make([]jobRead, len(pairs))
	for i, pair := range pairs {
		id, err := rows.LastString(q.keys.data, pair.Key)
		if err != nil {
			return nil, nil, err
		}
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
			Reseal: func() { q.resealOne(tx, reads[i].id, row, stored) },
		})
	}
	if len(pairs) == resealAtOnce {
		rest = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	return values, rest, nil
}

// resealOne seals the args of a job again, unless they cannot be opened. It conflicts with each write of the job's row:
// adding and removing the job writes it.
func (q *Queue) resealOne(tx kv.Transaction, id string, old *row, stored []byte) {
	args, err := q.openArgs(id, stored)
	if err != nil {
		return
	}
	tx.AddReadConflictKey(q.keys.data.Pack(id))
	next := *old
	if err := q.batch(tx).putArgs(id, old, &next, args); err != nil {
		panic(err) // the job stays in its place, and nothing follows from the number of chunks
	}
}
