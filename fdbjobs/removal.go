package fdbjobs

import (
	"bytes"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// Remove removes a job, and reports whether it existed. If it runs, its processor gets ErrHalt at its next update.
//
// After a commit whose result was unknown the transaction's function runs again and finds the job gone. A caller that
// reports the result keeps it outside of the function: the job existed if any run found it.
func (q *Queue) Remove(tx kv.Transaction, id string) (bool, error) {
	old, err := q.readRow(tx, id).Await()
	if err != nil || old == nil {
		return false, err
	}
	q.drop(tx, id, old)
	return true, q.settle(tx, []string{old.owner})
}

// RemoveOwned removes jobs of one owner that are in one of the parts: at most limit jobs, in descending order of ids
// from the last id that is less than before, or from the last of all if before is empty. It returns them in that order,
// as they were, with Listed instead of their args, so that the caller can remove what belongs to them. Running jobs are
// halted as by [Queue.Remove].
//
// The order is descending because ids often grow, and claims begin with the oldest jobs: the two ends of a queue do not
// conflict.
func (a Admin) RemoveOwned(tx kv.Transaction, owner, before string, limit int, parts ...Part) ([]*Job, error) {
	found, err := a.queue.readIDs(tx.Snapshot(), owner, before, true, limit, parts).Await()
	if err != nil {
		return nil, err
	}
	return a.queue.removeMany(tx, found, func(_ int, r *row) bool {
		return r.owner == owner && slices.Contains(parts, r.part())
	})
}

// RemoveExpired removes up to limit finished jobs that have expired ([Held].Expires), and returns them as
// [Admin.RemoveOwned] does.
func (a Admin) RemoveExpired(tx kv.Transaction, limit int) ([]*Job, error) {
	q := a.queue
	expired := rows.Range(q.keys.expiry)
	expired.End = q.keys.expiry.Pack(q.layer.now().Unix() + 1)
	pairs, err := tx.Snapshot().GetRange(expired, kv.RangeOptions{Limit: limit}).Slice()
	if err != nil {
		return nil, err
	}
	ids, err := lastStrings(q.keys.expiry, pairs)
	if err != nil {
		return nil, err
	}
	return q.removeMany(tx, ids, func(i int, r *row) bool {
		return r.expires != nil && bytes.Equal(pairs[i].Key, q.keys.expiry.Pack(*r.expires, ids[i]))
	})
}

// removeMany removes the jobs that match. They come from an index, so the invariants say that all match.
func (q *Queue) removeMany(tx kv.Transaction, ids []string, match func(i int, r *row) bool) ([]*Job, error) {
	reads, now := make([]jobRead, len(ids)), tx.Snapshot()
	for i, id := range ids {
		// A write of the state or of Listed conflicts with a read of the row as well.
		reads[i] = jobRead{
			id: id, row: q.readRow(tx, id), state: now.Get(q.keys.state.Pack(id)), listed: now.Get(q.keys.listed.Pack(id)),
		}
	}
	var removed []*Job
	var owners []string
	for i, read := range reads {
		old, err := read.row.Await()
		if err != nil {
			return nil, err
		}
		if old == nil || !match(i, old) {
			continue
		}
		job, err := read.job(old)
		if err != nil {
			return nil, err
		}
		q.drop(tx, read.id, old)
		removed, owners = append(removed, job), append(owners, old.owner)
	}
	slices.Sort(owners)
	return removed, q.settle(tx, slices.Compact(owners))
}

// drop removes a job with all its rows.
func (q *Queue) drop(tx kv.Transaction, id string, old *row) {
	q.clearArgs(tx, id, 0, old.chunks)
	tx.Clear(q.keys.state.Pack(id))
	q.setListed(tx, id, nil, old)
	q.put(tx, id, old, nil)
}
