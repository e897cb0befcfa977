// Package upgrade converts the keys that version 0.1.0 of package fdbjobs has written into the keys of this version. No
// other code knows them.
//
// Version 0.1.0 has these keys that differ. All are tuples below the layer's prefix, and begin with the numbers below.
//
//	(data,   queue, id)                -> the row of 13 elements, without the last three of today's
//	(active, queue, stamp, id)         -> seconds  without a stripe
//	(status, …), (count, …), (ownedCount, …), (ownedTagged, …)  two indexes and three kinds of counters instead of counts
//	(transitions, …), (trimmed, …), (watchTransitions, …)       a range of all changes of jobs
//	(heads, …)                                                  where ready jobs begin
package upgrade

import (
	"context"
	"fmt"
	"hash/fnv"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// The first elements of keys.
const (
	tagData   int64 = 0
	tagActive int64 = 12
	tagOwned  int64 = 14
	tagCounts int64 = 26
	tagLayout int64 = 27
)

// retired are the first elements of keys that are no longer used.
var retired = []int64{
	13, // status
	15, // count
	16, // ownedCount
	18, // transitions
	19, // trimmed
	22, // watchTransitions
	23, // heads
	25, // ownedTagged
}

// Layout is the version of the keys that Jobs leaves, in the key (layout).
const Layout int64 = 3

// The sizes of transactions.
const (
	readAtOnce   = 10_000 // keys of an index
	rowsAtOnce   = 500
	countsAtOnce = 1_000
)

// Jobs upgrades the jobs below a prefix. Call it before fdbjobs.Open. In a store that is up to date it reads one key.
// Otherwise no other process may use the layer until Jobs has returned without an error, except that several may call
// Jobs at the same time. It can be interrupted, and called again.
//
// It reads all jobs, which takes some seconds for a million.
func Jobs(ctx context.Context, db kv.Database, prefix []byte) error {
	u := upgrade{db: db, root: tuple.SubspaceFromBytes(prefix)}
	done, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) (bool, error) { return u.done(tx.Snapshot()) })
	if err != nil || done {
		return err
	}
	if err := u.rewriteRows(ctx); err != nil {
		return err
	}
	counts, err := u.countJobs(ctx)
	if err != nil {
		return err
	}
	keys := make([][]byte, 0, len(counts))
	for key := range counts {
		keys = append(keys, []byte(key))
	}
	for len(keys) > countsAtOnce {
		if err := u.setCounts(ctx, keys[:countsAtOnce], counts, false); err != nil {
			return err
		}
		keys = keys[countsAtOnce:]
	}
	return u.setCounts(ctx, keys, counts, true)
}

type upgrade struct {
	db   kv.Database
	root tuple.Subspace
}

func (u upgrade) done(tx kv.ReadTransaction) (bool, error) {
	value, err := tx.Get(u.root.Pack(tagLayout)).Await()
	if err != nil || value == nil {
		return false, err
	}
	e, err := tuple.Unpack(value)
	if err != nil || len(e) != 1 {
		return false, fmt.Errorf("reading the layout of the jobs: %w", tuple.ErrMalformed)
	}
	if at, _ := e[0].(int64); at < Layout {
		return false, nil // written by no release
	}
	if e[0] != Layout {
		return false, fmt.Errorf("the keys of the jobs have the layout %v, and this version knows only %d", e[0], Layout)
	}
	return true, nil
}

// transact runs fn in a transaction, unless another process has ended its own upgrade.
func (u upgrade) transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return u.db.Transact(ctx, func(tx kv.Transaction) error {
		if done, err := u.done(tx); done || err != nil { // with a conflict
			return err
		}
		return fn(tx)
	})
}

// rewriteRows gives all jobs today's rows.
func (u upgrade) rewriteRows(ctx context.Context) error {
	data := u.root.Sub(tagData)
	for begin, more := []byte(nil), true; more; {
		var last []byte
		if err := u.transact(ctx, func(tx kv.Transaction) error {
			last, more = nil, false
			pairs, err := tx.GetRange(rows.From(data, begin), kv.RangeOptions{Limit: rowsAtOnce}).Slice()
			if err != nil {
				return err
			}
			for _, pair := range pairs {
				if err := u.rewriteRow(tx, data, pair); err != nil {
					return err
				}
				last = pair.Key
			}
			more = len(pairs) == rowsAtOnce
			return nil
		}); err != nil {
			return err
		}
		if more {
			begin = kv.KeyAfter(last)
		}
	}
	return nil
}

// The number of elements of a row.
const (
	earlierSize = 13
	todaysSize  = 16
)

// stripes is the number of parts of active.
const stripes = 16

// rewriteRow gives a job today's row, if it has an earlier one, and moves the row in active of one that runs.
func (u upgrade) rewriteRow(tx kv.Transaction, data tuple.Subspace, pair kv.KeyValue) error {
	var queue, id, status string
	key, err := data.Unpack(pair.Key)
	if err != nil || len(key) != 2 || !rows.As(key[0], &queue) || !rows.As(key[1], &id) {
		return fmt.Errorf("reading a job's key: %w", tuple.ErrMalformed)
	}
	row, err := tuple.Unpack(pair.Value)
	if err != nil || len(row) != earlierSize && len(row) != todaysSize || !rows.As(row[1], &status) {
		return fmt.Errorf("reading a job's row: unknown form of %d elements", len(row))
	}
	if len(row) == todaysSize {
		return nil
	}
	tx.Set(pair.Key, append(row, int64(0), int64(0), int64(0)).Pack())
	if status != "running" {
		return nil
	}
	var stamp tuple.Versionstamp
	if !rows.As(row[0], &stamp) {
		return fmt.Errorf("reading a job's row: %w", tuple.ErrMalformed)
	}
	active := u.root.Sub(tagActive, queue)
	timeout, err := tx.Get(active.Pack(stamp, id)).Await()
	if err != nil || timeout == nil {
		return err // what is missing is for a check of the store
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // never fails
	tx.Clear(active.Pack(stamp, id))
	tx.Set(active.Pack(int(hash.Sum32()%stripes), stamp, id), timeout)
	return nil
}

// countJobs counts the jobs in the indexes by owner of all queues. The keys of the result are keys of counts without
// the layer's prefix and the tag.
func (u upgrade) countJobs(ctx context.Context) (map[string]int64, error) {
	counts, owned := map[string]int64{}, u.root.Sub(tagOwned)
	for begin := []byte(nil); ; {
		pairs, err := kv.TransactValue(ctx, u.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(rows.From(owned, begin), kv.RangeOptions{Limit: readAtOnce}).Slice()
		})
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			e, err := owned.Unpack(pair.Key) // queue, owner, status, label, tag, id
			if err != nil || len(e) != 6 {
				return nil, fmt.Errorf("reading the index of jobs by owner: unknown form %v: %w", e, tuple.ErrMalformed)
			}
			counts[string(tuple.Tuple{e[0], e[2], e[1], e[3], e[4]}.Pack())]++
		}
		if len(pairs) < readAtOnce {
			return counts, nil
		}
		begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
}

// setCounts writes some counters. The last call also removes what is no longer used, and writes the layout.
func (u upgrade) setCounts(ctx context.Context, keys [][]byte, counts map[string]int64, last bool) error {
	return u.transact(ctx, func(tx kv.Transaction) error {
		to := u.root.Sub(tagCounts).Bytes()
		for _, key := range keys {
			tx.Set(append(to, key...), rows.Int(counts[string(key)]))
		}
		if last {
			for _, tag := range retired {
				tx.ClearRange(kv.PrefixRange(u.root.Pack(tag)))
			}
			tx.Set(u.root.Pack(tagLayout), tuple.Tuple{Layout}.Pack())
		}
		return nil
	})
}
