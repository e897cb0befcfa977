package fdbjobs

import (
	"context"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// layout is the version of the layer's keys, in (layout). Stores without it have counters by part and by owner, and an
// index by part, instead of counts.
const layout = int64(2)

// The size of the transactions of Upgrade.
const (
	upgradeReads  = 10_000 // keys of an index
	upgradeWrites = 1_000  // counters
)

// Upgrade makes the keys of a layer that an earlier version has written those of this version. Call it before Open. In a
// store that is up to date it reads one key. Otherwise no other process may use the layer until Upgrade has returned
// without an error, except that several may call Upgrade at the same time. It can be interrupted, and called again.
//
// It counts all jobs, which takes some seconds for a million. The monitors remove what is no longer used.
func Upgrade(ctx context.Context, db kv.Database, prefix []byte) error {
	root := tuple.SubspaceFromBytes(prefix)
	if done, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) (bool, error) {
		return upgraded(tx.Snapshot(), root)
	}); err != nil || done {
		return err
	}
	counts, err := countJobs(ctx, db, root.Sub(tagOwned))
	if err != nil {
		return err
	}
	keys := make([][]byte, 0, len(counts))
	for key := range counts {
		keys = append(keys, []byte(key))
	}
	for len(keys) > upgradeWrites {
		if err := setCounts(ctx, db, root, keys[:upgradeWrites], counts, false); err != nil {
			return err
		}
		keys = keys[upgradeWrites:]
	}
	return setCounts(ctx, db, root, keys, counts, true)
}

func upgraded(tx kv.ReadTransaction, root tuple.Subspace) (bool, error) {
	value, err := tx.Get(root.Pack(tagLayout)).Await()
	if err != nil || value == nil {
		return false, err
	}
	e, err := tuple.Unpack(value)
	if err != nil || len(e) != 1 || e[0] != layout {
		return false, fmt.Errorf("the keys of the jobs have the layout %v, and this version knows only %d", e, layout)
	}
	return true, nil
}

// countJobs counts the jobs in the indexes by owner of all queues. The keys of the result are those of tagCounts without
// the layer's prefix and the tag.
func countJobs(ctx context.Context, db kv.Database, owned tuple.Subspace) (map[string]int64, error) {
	counts := map[string]int64{}
	for begin := []byte(nil); ; {
		pairs, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(rows.From(owned, begin), kv.RangeOptions{Limit: upgradeReads}).Slice()
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
		if len(pairs) < upgradeReads {
			return counts, nil
		}
		begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
}

// setCounts writes some counters, unless another process has ended its own Upgrade. The last call notes the layout.
func setCounts(
	ctx context.Context, db kv.Database, root tuple.Subspace, keys [][]byte, counts map[string]int64, last bool,
) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		done, err := upgraded(tx, root) // with a conflict
		if err != nil || done {
			return err
		}
		to := root.Sub(tagCounts).Bytes()
		for _, key := range keys {
			tx.Set(append(to, key...), rows.Int(counts[string(key)]))
		}
		if last {
			tx.Set(root.Pack(tagLayout), tuple.Tuple{layout}.Pack())
		}
		return nil
	})
}
