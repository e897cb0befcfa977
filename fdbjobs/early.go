package fdbjobs

import (
	"fmt"
	"slices"

	"settee/pkg/kv"
)

// takeAny takes pending jobs of any owner and time ([AcceptOptions].NoSchedule). Owners take turns. The jobs of an owner are
// taken in the order of their ids, beginning at a random id.
func (c *claim) takeAny(tx kv.Transaction, out *claimRun) error {
	begin := c.memory.anyFrom
	for _, from := range []string{begin, ""} {
		for t, err := range c.queue.tallies(tx.Snapshot(), from, []Status{Pending}) {
			if err != nil {
				return err
			}
			if c.enough(out) || from == "" && begin != "" && t.owner >= begin {
				break
			}
			out.anyFrom = AfterOwner(t.owner).Owner
			if err := c.takeAnyOf(tx, out, t); err != nil {
				return err
			}
		}
		if begin == "" {
			break
		}
	}
	return nil
}

// takeAnyOf is takeAny for one owner.
func (c *claim) takeAnyOf(tx kv.Transaction, out *claimRun, t tally) error {
	middle := fmt.Sprintf("%016x", c.random.Uint64())
	for _, after := range []string{middle, ""} {
		ids, err := c.queue.readIDs(tx.Snapshot(), t.owner, after, false, c.n-len(out.taken), t.parts).Await()
		if err != nil {
			return err
		}
		if after == "" {
			ids = slices.DeleteFunc(ids, func(id string) bool { return id > middle })
		}
		if err := c.takePending(tx, out, ids); err != nil {
			return err
		}
	}
	return nil
}

// takeEarly takes jobs that are scheduled after now, but not after latest ([AcceptOptions].Latest).
func (c *claim) takeEarly(tx kv.Transaction, out *claimRun, now int64) error {
	if c.enough(out) {
		return nil
	}
	delayed := c.queue.keys.delayed
	soon := kv.KeyRange{Begin: delayed.Pack(now + 1), End: delayed.Pack(c.wants.latest + 1)}
	// Some may be jobs of paused owners.
	pairs, err := tx.Snapshot().GetRange(soon, kv.RangeOptions{Limit: max(c.n-len(out.taken), window)}).Slice()
	if err != nil {
		return err
	}
	ids := make([]string, len(pairs))
	for i, pair := range pairs {
		if _, ids[i], err = c.queue.parseDelayed(pair.Key); err != nil {
			return err
		}
	}
	return c.takePending(tx, out, ids)
}

// takePending takes the pending ones of some jobs.
func (c *claim) takePending(tx kv.Transaction, out *claimRun, ids []string) error {
	for some := range slices.Chunk(ids, readAtOnce) {
		if c.enough(out) {
			break
		}
		if err := c.takeSome(tx, out, some); err != nil {
			return err
		}
	}
	return nil
}

func (c *claim) takeSome(tx kv.Transaction, out *claimRun, ids []string) error {
	reads, rows := make([]jobRead, len(ids)), make([]kv.Future[*row], len(ids))
	for i, id := range ids {
		reads[i] = c.queue.readJob(tx, id)
		rows[i] = reads[i].row
	}
	found, err := kv.All(rows)
	if err != nil {
		return err
	}
	weights := map[string]kv.Future[float64]{}
	for _, row := range found {
		if row != nil && row.status == Pending {
			c.readWeight(tx, weights, row.owner)
		}
	}
	for i, row := range found {
		if row == nil || row.status != Pending || c.enough(out) {
			continue
		}
		weight, err := weights[row.owner].Await()
		if err != nil {
			return err
		}
		if weight == 0 {
			continue
		}
		job, err := reads[i].job(row)
		if err != nil {
			return err
		}
		if err := c.take(tx, out, job, row, ""); err != nil {
			return err
		}
	}
	return nil
}
