package fdbjobs

import (
	"slices"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Remove removes the jobs that exist of some, and returns these as they were, in the given order, with Listed instead of
// their args. If one runs, its holder gets ErrHalt at its next update.
//
// After a commit whose result was unknown the transaction's function runs again and finds the jobs gone. A caller that
// reports the result keeps it outside of the function: a job existed if any run found it.
func (q *Queue) Remove(tx kv.Transaction, ids ...string) ([]*Job, error) {
	return q.remove(tx, ids, func(*row) bool { return true })
}

// remove is Remove for the jobs whose rows match.
func (q *Queue) remove(tx kv.Transaction, ids []string, match func(*row) bool) (removed []*Job, err error) {
	reads, now := make([]jobRead, 0, len(ids)), tx.Snapshot()
	for i, id := range ids {
		if !slices.Contains(ids[:i], id) {
			// A write of the state or of Listed conflicts with a read of the row as well.
			reads = append(reads, q.readListed(tx, now, id))
		}
	}
	batch := q.batch(tx)
	for _, read := range reads {
		old, err := read.row.Await()
		if err != nil {
			return nil, err
		}
		if old == nil || !match(old) {
			continue
		}
		job, err := read.job(old)
		if err != nil {
			return nil, err
		}
		q.clearArgs(tx, read.id, 0, old.chunks)
		tx.Clear(q.keys.state.Pack(read.id))
		q.setListed(tx, read.id, nil, old)
		if err := batch.gather(read.id, old, nil); err != nil {
			return nil, err
		}
		removed = append(removed, job)
	}
	batch.writeTallies()
	return removed, nil
}

// RemoveExpired removes up to limit finished jobs that have expired ([Held].Expires), and returns them as [Queue.Remove] does.
func (q *Queue) RemoveExpired(tx kv.Transaction, limit int) ([]*Job, error) {
	until := q.layer.now().Unix() + 1
	expired, err := q.Entries(tx.Snapshot(), indexExpiry, EntryRange{Until: tuple.Tuple{until}, Limit: limit}).Await()
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(expired))
	for i, e := range expired {
		ids[i] = e.ID
	}
	return q.remove(tx, ids, func(r *row) bool { return r.expires != nil && *r.expires < until }) // whatever the index says
}
