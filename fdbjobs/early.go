package fdbjobs

import (
	"fmt"
	"slices"

	"settee/pkg/kv"
)

// takeAny takes pending jobs of any owner and time ([AcceptOptions].NoSchedule). Owners take turns, beginning after the one
// that was served last. The jobs of an owner are taken in the order of their ids, beginning at a random id.
func (a *attempt) takeAny() error {
	begin := a.memory.owner
	if begin != "" {
		begin = AfterOwner(begin).Owner
	}
	for _, from := range []string{begin, ""} {
		for t, err := range a.queue.Index().tallies(a.tx.Snapshot(), from, []Status{Pending}) {
			if err != nil {
				return err
			}
			if a.enough() || from == "" && begin != "" && t.owner >= begin {
				break
			}
			a.owner = t.owner
			if err := a.takeAnyOf(t); err != nil {
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
func (a *attempt) takeAnyOf(t tally) error {
	middle := fmt.Sprintf("%016x", a.random.Uint64())
	for _, after := range []string{middle, ""} {
		ids, err := a.queue.readIDs(a.tx.Snapshot(), t.owner, after, false, a.n-len(a.taken), t.parts).Await()
		if err != nil {
			return err
		}
		var found []*seen
		for _, id := range ids {
			if after != "" || id <= middle {
				found = append(found, &seen{id: id, owner: t.owner})
			}
		}
		if err := a.takePending(found); err != nil {
			return err
		}
	}
	return nil
}

// takeEarly takes jobs that are scheduled after now, but not after latest ([AcceptOptions].Latest).
func (a *attempt) takeEarly(now int64) error {
	if a.enough() {
		return nil
	}
	delayed := a.queue.keys.delayed
	soon := kv.KeyRange{Begin: delayed.Pack(now + 1), End: delayed.Pack(a.wants.latest + 1)}
	// Some may be jobs of paused owners.
	pairs, err := a.tx.Snapshot().GetRange(soon, kv.RangeOptions{Limit: max(a.n-len(a.taken), window)}).Slice()
	if err != nil {
		return err
	}
	found := make([]*seen, len(pairs))
	for i, pair := range pairs {
		found[i] = &seen{owner: string(pair.Value), key: pair.Key}
		if _, found[i].id, err = a.queue.parseDelayed(pair.Key); err != nil {
			return err
		}
	}
	return a.takePending(found)
}

// takePending takes the jobs that can be taken, in their order.
func (a *attempt) takePending(found []*seen) error {
	for some := range slices.Chunk(found, readAtOnce) {
		if a.enough() {
			return nil
		}
		if err := a.readJobs(some); err != nil {
			return err
		}
		for _, s := range some {
			if s.job == nil || a.enough() {
				continue
			}
			if err := a.take(s, ""); err != nil {
				return err
			}
		}
	}
	return nil
}
