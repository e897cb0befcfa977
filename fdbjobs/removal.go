package fdbjobs

import (
	"bytes"
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
)

// Remove removes a job, and reports whether it was there. If it runs, its
// processor gets ErrHalt at its next update.
//
// After a commit whose result was unknown the function of the transaction runs
// again and does not find what it has removed. Who tells a user keeps the answer
// outside, and takes a job that any run has seen for one that was there.
func (t *Type) Remove(tx kv.Transaction, id string) (bool, error) {
	old, err := awaitRow(t.readRow(tx, id))
	if err != nil || old == nil {
		return false, err
	}
	t.drop(tx, id, old, 0)
	return true, t.settle(tx, []string{old.owner})
}

// RemoveOwned removes jobs of one owner that are in one of the parts: at most limit
// of them, from the last id down that is less than before, "" being none. It returns them
// as they were, in that order, but without their args, which it does not read; so that what
// else there is of a job can go with it. Those that run are halted as by [Type.Remove].
//
// It goes down because ids often grow, and those who take jobs begin with the oldest: both
// ends of a queue can be worked at without conflicts.
func (t *Type) RemoveOwned(tx kv.Transaction, owner, before string, limit int, parts ...Part) ([]*Job, error) {
	found, err := t.lastOwned(tx.Snapshot(), owner, before, limit, parts)
	if err != nil {
		return nil, err
	}
	return t.removeMany(tx, found, func(_ int, r *row) bool {
		return r.owner == owner && slices.Contains(parts, r.part())
	})
}

// lastOwned reads the last ids of an owner's jobs, the last one first.
func (t *Type) lastOwned(tx kv.ReadTransaction, owner, before string, limit int, parts []Part) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	index := t.keys.owned.Sub(owner)
	ranges := make([]kv.RangeResult, len(parts))
	for i, part := range parts {
		s := index.Sub(part.elements()...)
		r := keyRange(s)
		if before != "" {
			r.End = s.Pack(before)
		}
		ranges[i] = tx.GetRange(r, kv.RangeOptions{Limit: limit, Reverse: true, Mode: kv.StreamWantAll})
	}
	found, err := idsOf(index, ranges)
	slices.Reverse(found)
	return found[:min(limit, len(found))], err
}

// RemoveExpiredIn removes finished jobs whose time is over ([Held.FinishFor]), at most
// limit of them, and returns them as [Type.RemoveOwned] does.
func (t *Type) RemoveExpiredIn(tx kv.Transaction, limit int) ([]*Job, error) {
	expired := keyRange(t.keys.expiry)
	expired.End = t.keys.expiry.Pack(time.Now().Unix() + 1)
	pairs, err := tx.Snapshot().GetRange(expired, kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return nil, err
	}
	ids, err := lastStrings(t.keys.expiry, pairs)
	if err != nil {
		return nil, err
	}
	return t.removeMany(tx, ids, func(i int, r *row) bool {
		return r.expires != nil && bytes.Equal(pairs[i].Key, t.keys.expiry.Pack(*r.expires, ids[i]))
	})
}

// expireBatch is how many expired jobs one transaction removes.
const expireBatch = 100

// RemoveExpired removes some of the finished jobs whose time is over ([Held.FinishFor]),
// and reports how many, and whether there may be more. Upkeep calls it.
func (t *Type) RemoveExpired(ctx context.Context) (removed int, more bool, err error) {
	removed, err = kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (int, error) {
		jobs, err := t.RemoveExpiredIn(tx, expireBatch)
		return len(jobs), err
	})
	return removed, removed == expireBatch, err
}

// removeMany removes those of some jobs, which an index has led to, that match: the
// invariants say that all do.
func (t *Type) removeMany(tx kv.Transaction, ids []string, match func(i int, r *row) bool) ([]*Job, error) {
	rows, states := make([]kv.Future[[]byte], len(ids)), make([]kv.Future[[]byte], len(ids))
	for i, id := range ids {
		rows[i] = t.readRow(tx, id)
		states[i] = tx.Snapshot().Get(t.keys.state.Pack(id)) // written only together with the row
	}
	var removed []*Job
	var owners []string
	for i, id := range ids {
		old, err := awaitRow(rows[i])
		if err != nil {
			return nil, err
		}
		if old == nil || !match(i, old) {
			continue
		}
		state, err := states[i].Await()
		if err != nil {
			return nil, err
		}
		t.drop(tx, id, old, uint16(i))
		owners = append(owners, old.owner)
		removed = append(removed, &Job{
			ID: id, Owner: old.owner, Status: old.status, State: state, Label: old.label, Tag: old.tag,
			Scheduled: unixTime(old.scheduled), Generation: old.generation,
		})
	}
	slices.Sort(owners)
	return removed, t.settle(tx, slices.Compact(owners))
}

// drop removes a job with all that is its own.
func (t *Type) drop(tx kv.Transaction, id string, old *row, order uint16) {
	t.clearArgs(tx, id, 0, old.chunks)
	tx.Clear(t.keys.state.Pack(id))
	t.setListed(tx, id, nil, old)
	t.put(tx, id, old, nil, order)
}
