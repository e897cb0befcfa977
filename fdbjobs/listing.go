package fdbjobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Get reads a job. The error is ErrNotFound if there is none.
func (t *Type) Get(tx kv.ReadTransaction, id string) (*Job, error) {
	return t.readJob(tx, id).await()
}

// jobRead is the reading of a job under way. Most args are one chunk; how many more
// there are, the row says.
type jobRead struct {
	id               string
	typ              *Type
	tx               kv.ReadTransaction
	row, state, args kv.Future[[]byte]
	listed           kv.Future[[]byte] // instead of args
}

func (t *Type) readJob(tx kv.ReadTransaction, id string) jobRead {
	return jobRead{
		id:    id,
		typ:   t,
		tx:    tx,
		row:   t.readRow(tx, id),
		state: tx.Get(t.keys.state.Pack(id)),
		args:  tx.Get(t.keys.args.Pack(id, 0)),
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

// job awaits what is left of a job whose row is known.
func (r jobRead) job(row *row) (*Job, error) {
	job := &Job{
		ID: r.id, Owner: row.owner, Status: row.status, Label: row.label, Tag: row.tag,
		Scheduled: unixTime(row.scheduled), Generation: row.generation,
	}
	state, err := r.state.Await()
	if err != nil {
		return nil, err
	}
	job.State = state
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
	job.Args, job.ArgsErr = r.typ.openArgs(r.id, stored)
	return job, nil
}

// storedArgs awaits so many chunks of args, one at least.
func (r jobRead) storedArgs(chunks int64) ([]byte, error) {
	more := make([]kv.Future[[]byte], chunks)
	more[0] = r.args
	for n := int64(1); n < chunks; n++ {
		more[n] = r.tx.Get(r.typ.keys.args.Pack(r.id, n))
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

// GetMany reads several jobs at a time. Where there is none the result is nil.
func (t *Type) GetMany(tx kv.ReadTransaction, ids ...string) ([]*Job, error) {
	reads := make([]jobRead, len(ids))
	for i, id := range ids {
		reads[i] = t.readJob(tx, id)
	}
	jobs := make([]*Job, len(ids))
	for i, read := range reads {
		job, err := read.await()
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		jobs[i] = job
	}
	return jobs, nil
}

// List reads the jobs in some parts, by id: at most limit of them, from the first id that
// is greater than after. It does not read their args: see [Spec].Listed.
func (t *Type) List(tx kv.ReadTransaction, after string, limit int, parts ...Part) ([]*Job, error) {
	return t.list(tx, t.keys.status, after, limit, parts)
}

// ListOwned is List for the jobs of one owner.
func (t *Type) ListOwned(tx kv.ReadTransaction, owner, after string, limit int, parts ...Part) ([]*Job, error) {
	return t.list(tx, t.keys.owned.Sub(owner), after, limit, parts)
}

func (t *Type) list(tx kv.ReadTransaction, index tuple.Subspace, after string, limit int, parts []Part) ([]*Job, error) {
	found, err := ids(tx, index, after, limit, parts)
	if err != nil {
		return nil, err
	}
	reads := make([]jobRead, len(found))
	for i, id := range found {
		reads[i] = jobRead{
			id: id, typ: t, tx: tx,
			row: t.readRow(tx, id), state: tx.Get(t.keys.state.Pack(id)), listed: tx.Get(t.keys.listed.Pack(id)),
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

// Skip returns the id of the nth job, from 1, among those that List would list
// after an id, or the last one's where there are fewer; after itself if there is
// none. It reads the index alone, n keys of it for each part.
func (t *Type) Skip(tx kv.ReadTransaction, after string, n int, parts ...Part) (string, error) {
	return lastOf(tx, t.keys.status, after, n, parts)
}

// SkipOwned is Skip for the jobs of one owner.
func (t *Type) SkipOwned(tx kv.ReadTransaction, owner, after string, n int, parts ...Part) (string, error) {
	return lastOf(tx, t.keys.owned.Sub(owner), after, n, parts)
}

func lastOf(tx kv.ReadTransaction, index tuple.Subspace, after string, n int, parts []Part) (string, error) {
	found, err := ids(tx, index, after, n, parts)
	if err != nil || len(found) == 0 {
		return after, err
	}
	return found[len(found)-1], nil
}

// ids reads some ids from index, which is by part and id.
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
		ranges[i] = tx.GetRange(from(s, begin), kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll})
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
			id, err := lastString(index, pair.Key)
			if err != nil {
				return nil, err
			}
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return found, nil
}

// lastStrings are the last elements of keys of s.
func lastStrings(s tuple.Subspace, pairs []kv.KeyValue) ([]string, error) {
	all := make([]string, len(pairs))
	for i, pair := range pairs {
		var err error
		if all[i], err = lastString(s, pair.Key); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lastString is the last element of a key of s.
func lastString(s tuple.Subspace, key []byte) (string, error) {
	elements, err := s.Unpack(key)
	if err != nil {
		return "", fmt.Errorf("reading a job's key: %w", err)
	}
	var last string
	if len(elements) == 0 || !as(elements[len(elements)-1], &last) {
		return "", fmt.Errorf("reading a job's key: unknown form %v", elements)
	}
	return last, nil
}

// Count returns how many jobs there are in some parts. It reads a counter for each.
func (t *Type) Count(tx kv.ReadTransaction, parts ...Part) (int64, error) {
	reads := make([]kv.Future[[]byte], len(parts))
	for i, part := range parts {
		reads[i] = tx.Get(t.keys.count.Pack(part.elements()...))
	}
	return sum(reads)
}

// CountOwned returns how many jobs of an owner have one of the statuses, whatever their
// labels and tags. It reads a counter for each.
func (t *Type) CountOwned(tx kv.ReadTransaction, owner string, statuses ...Status) (int64, error) {
	reads := make([]kv.Future[[]byte], len(statuses))
	for i, status := range statuses {
		reads[i] = tx.Get(t.keys.ownedCount.Pack(owner, string(status)))
	}
	return sum(reads)
}

func sum(reads []kv.Future[[]byte]) (int64, error) {
	var total int64
	for _, read := range reads {
		n, err := awaitInt(read)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// CountDue returns how many pending jobs are scheduled for latest at the latest, but
// counts no further than limit, which is what it costs. Jobs that were moved to their
// owner's queue count whatever latest is: their time had come.
func (t *Type) CountDue(tx kv.ReadTransaction, latest time.Time, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	delayed := keyRange(t.keys.delayed)
	delayed.End = t.keys.delayed.Pack(latest.Unix() + 1)
	waiting := tx.GetRange(delayed, kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll})
	n, err := t.countReady(tx, limit)
	if err != nil {
		return 0, err
	}
	for _, err := range waiting.All() {
		if err != nil {
			return 0, err
		}
		n++
	}
	return min(n, limit), nil
}

// countReady counts the jobs in ready queues, up to a limit. It reads from the owners in
// line, a few at first.
func (t *Type) countReady(tx kv.ReadTransaction, limit int) (n int, err error) {
	line := keyRange(t.keys.ranks.Sub(rankWaiting))
	for some := 1; n < limit; some = min(4*some, ownersAtATime) {
		pairs, err := tx.GetRange(line, kv.RangeOptions{Limit: some, Mode: kv.StreamWantAll}).Slice()
		if err != nil || len(pairs) == 0 {
			return n, err
		}
		ready := make([]kv.RangeResult, len(pairs))
		begins := make([]func() ([]byte, error), len(pairs))
		for i, pair := range pairs {
			_, owner, err := t.parseRank(pair.Key)
			if err != nil {
				return 0, err
			}
			begins[i] = t.head(tx, owner, nil)
		}
		for i, pair := range pairs {
			begin, err := begins[i]()
			if err != nil {
				return 0, err
			}
			_, owner, _ := t.parseRank(pair.Key)
			ready[i] = tx.GetRange(from(t.keys.ready.Sub(owner), begin), kv.RangeOptions{Limit: limit - n, Mode: kv.StreamWantAll})
		}
		for _, r := range ready {
			for _, err := range r.All() {
				if err != nil {
					return 0, err
				}
				n++
			}
		}
		line.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	return n, nil
}
