package fdbjobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Get reads a job. The error is ErrNotFound if it does not exist.
func (q *Queue) Get(tx kv.ReadTransaction, id string) (*Job, error) {
	return q.readJob(tx, tx, id).Await()
}

// jobRead is a pending read of a job. Most args are one chunk. The row says how many more there are.
type jobRead struct {
	id          string
	queue       *Queue
	tx          kv.ReadTransaction
	row         kv.Future[*row]
	state, args kv.Future[[]byte]
	listed      kv.Future[[]byte] // instead of args
}

// readJob starts reading a job: its row through own, and the rest through rest. A write of the rest conflicts with a read of
// the row as well, so the rest needs no conflicts of its own.
func (q *Queue) readJob(own, rest kv.ReadTransaction, id string) jobRead {
	return jobRead{
		id: id, queue: q, tx: rest,
		row: q.readRow(own, id), state: rest.Get(q.keys.state.Pack(id)), args: rest.Get(q.keys.args.Pack(id, 0)),
	}
}

// readListed is readJob with Listed instead of the args.
func (q *Queue) readListed(own, rest kv.ReadTransaction, id string) jobRead {
	state, listed := rest.Get(q.keys.state.Pack(id)), rest.Get(q.keys.listed.Pack(id))
	return jobRead{id: id, queue: q, row: q.readRow(own, id), state: state, listed: listed}
}

// Await returns the job. The error is ErrNotFound if it does not exist.
func (r jobRead) Await() (*Job, error) {
	row, err := r.row.Await()
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, r.id)
	}
	return r.job(row)
}

// job awaits the rest of a job with a known row.
func (r jobRead) job(row *row) (*Job, error) {
	state, err := r.state.Await()
	if err != nil {
		return nil, err
	}
	job := row.job(r.id, state)
	if r.args == nil {
		job.Listed, err = r.listed.Await()
		return job, err
	}
	if row.chunks == 0 {
		job.Args = json.RawMessage("{}")
		return job, nil
	}
	stored, err := r.storedArgs(row.chunks)
	if err != nil {
		return nil, err
	}
	job.Args, job.ArgsErr = r.queue.openArgs(r.id, stored)
	return job, nil
}

// storedArgs awaits the chunks of args, at least one.
func (r jobRead) storedArgs(chunks int64) ([]byte, error) {
	reads := []kv.Future[[]byte]{r.args}
	for n := int64(1); n < chunks; n++ {
		reads = append(reads, r.tx.Get(r.queue.keys.args.Pack(r.id, n)))
	}
	found, err := kv.All(reads)
	if err == nil && slices.ContainsFunc(found, func(chunk []byte) bool { return chunk == nil }) {
		err = fmt.Errorf("reading the args of the job %q: a chunk of %d is missing", r.id, chunks)
	}
	return bytes.Join(found, nil), err
}

// readAll starts reading a range, and returns what parse returns of each of its rows.
func readAll[T any](
	tx kv.ReadTransaction, keys kv.KeyRange, opts kv.RangeOptions, parse func(kv.KeyValue) (T, error),
) kv.Future[[]T] {
	read := tx.GetRange(keys, opts)
	return kv.Func[[]T](func() ([]T, error) {
		pairs, err := read.Slice()
		if err != nil {
			return nil, err
		}
		all := make([]T, len(pairs))
		for i, pair := range pairs {
			if all[i], err = parse(pair); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

// lastString returns a function that returns the last element of a key of s.
func lastString(s tuple.Subspace) func(kv.KeyValue) (string, error) {
	return func(pair kv.KeyValue) (string, error) { return rows.LastString(s, pair.Key) }
}
