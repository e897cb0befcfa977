package fdbjobs

import (
	"encoding/json"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Get reads a job. The error is ErrNotFound if it does not exist.
func (q *Queue) Get(tx kv.ReadTransaction, id string) (*Job, error) {
	return q.readJob(tx, id).await()
}

// jobRead is a pending read of a job. Most args are one chunk. The row says how many more there are.
type jobRead struct {
	id               string
	queue            *Queue
	tx               kv.ReadTransaction
	row, state, args kv.Future[[]byte]
	listed           kv.Future[[]byte] // instead of args
}

func (q *Queue) readJob(tx kv.ReadTransaction, id string) jobRead {
	return jobRead{
		id:    id,
		queue: q,
		tx:    tx,
		row:   q.readRow(tx, id),
		state: tx.Get(q.keys.state.Pack(id)),
		args:  tx.Get(q.keys.args.Pack(id, 0)),
	}
}

func (r jobRead) await() (*Job, error) {
	row, err := awaitRow(r.row)
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
	more := make([]kv.Future[[]byte], chunks)
	more[0] = r.args
	for n := int64(1); n < chunks; n++ {
		more[n] = r.tx.Get(r.queue.keys.args.Pack(r.id, n))
	}
	var args []byte
	for _, chunk := range more {
		value, err := chunk.Await()
		if err != nil {
			return nil, err
		}
		if value == nil {
			return nil, fmt.Errorf("reading the args of the job %q: a chunk of %d is missing", r.id, chunks)
		}
		args = append(args, value...)
	}
	return args, nil
}

// List reads the jobs in some parts, by id: at most limit jobs, from the first id that is greater than after. It does
// not read their args: see [Spec].Listed.
func (q *Queue) List(tx kv.ReadTransaction, after string, limit int, parts ...Part) ([]*Job, error) {
	return q.list(tx, q.keys.status, after, limit, parts)
}

// ListOwned is List for the jobs of one owner.
func (q *Queue) ListOwned(tx kv.ReadTransaction, owner, after string, limit int, parts ...Part) ([]*Job, error) {
	return q.list(tx, q.keys.owned.Sub(owner), after, limit, parts)
}

func (q *Queue) list(tx kv.ReadTransaction, index tuple.Subspace, after string, limit int, parts []Part) ([]*Job, error) {
	found, err := ids(tx, index, after, limit, parts)
	if err != nil {
		return nil, err
	}
	reads := make([]jobRead, len(found))
	for i, id := range found {
		reads[i] = jobRead{
			id: id, queue: q, tx: tx,
			row: q.readRow(tx, id), state: tx.Get(q.keys.state.Pack(id)), listed: tx.Get(q.keys.listed.Pack(id)),
		}
	}
	jobs := make([]*Job, len(found))
	for i, read := range reads {
		if jobs[i], err = read.await(); err != nil {
			return nil, fmt.Errorf("reading an index: %w", err)
		}
	}
	return jobs, nil
}

// Skip returns the id of the nth job, from 1, of those that List would list after an id. It returns the last id if
// there are fewer, and after itself if there are none. It reads n keys of the index for each part.
func (q *Queue) Skip(tx kv.ReadTransaction, after string, n int, parts ...Part) (string, error) {
	return lastOf(tx, q.keys.status, after, n, parts)
}

// SkipOwned is Skip for the jobs of one owner.
func (q *Queue) SkipOwned(tx kv.ReadTransaction, owner, after string, n int, parts ...Part) (string, error) {
	return lastOf(tx, q.keys.owned.Sub(owner), after, n, parts)
}

func lastOf(tx kv.ReadTransaction, index tuple.Subspace, after string, n int, parts []Part) (string, error) {
	found, err := ids(tx, index, after, n, parts)
	if err != nil || len(found) == 0 {
		return after, err
	}
	return found[len(found)-1], nil
}

// ids reads ids from index, whose keys end with a part and an id.
func ids(tx kv.ReadTransaction, index tuple.Subspace, after string, limit int, parts []Part) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	ranges := make([]kv.RangeResult, len(parts))
	for i, part := range parts {
		s := index.Sub(part.elements()...)
		var begin []byte
		if after != "" {
			begin = kv.KeyAfter(s.Pack(after))
		}
		ranges[i] = tx.GetRange(rows.From(s, begin), kv.RangeOptions{Limit: limit})
	}
	found, err := idsOf(index, ranges)
	return found[:min(limit, len(found))], err
}

// idsOf awaits ids from ranges of index, and sorts them.
func idsOf(index tuple.Subspace, ranges []kv.RangeResult) ([]string, error) {
	var found []string
	for _, r := range ranges {
		for pair, err := range r.All() {
			if err != nil {
				return nil, err
			}
			id, err := rows.LastString(index, pair.Key)
			if err != nil {
				return nil, err
			}
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return found, nil
}

// lastStrings returns the last elements of keys of s.
func lastStrings(s tuple.Subspace, pairs []kv.KeyValue) ([]string, error) {
	all := make([]string, len(pairs))
	for i, pair := range pairs {
		var err error
		if all[i], err = rows.LastString(s, pair.Key); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Count returns the number of jobs in some parts. It reads a counter for each part.
func (q *Queue) Count(tx kv.ReadTransaction, parts ...Part) (int64, error) {
	reads := make([]kv.Future[[]byte], len(parts))
	for i, part := range parts {
		reads[i] = tx.Get(q.keys.count.Pack(part.elements()...))
	}
	return sum(reads)
}

// CountOwned returns the number of an owner's jobs with one of the statuses, whatever their labels and tags. It reads a
// counter for each status.
func (q *Queue) CountOwned(tx kv.ReadTransaction, owner string, statuses ...Status) (int64, error) {
	reads := make([]kv.Future[[]byte], len(statuses))
	for i, status := range statuses {
		reads[i] = tx.Get(q.keys.ownedCount.Pack(owner, string(status)))
	}
	return sum(reads)
}

func sum(reads []kv.Future[[]byte]) (int64, error) {
	var total int64
	for _, read := range reads {
		n, err := rows.AwaitInt(read)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
