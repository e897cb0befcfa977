package fdbjobs

import (
	"bytes"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// takeInOrder takes jobs that are due, or that Latest allows.
func (c *claim) takeInOrder(tx kv.Transaction, out *claimRun) error {
	if c.wants.yielding == nil {
		if err := c.takeKnown(tx, out); err != nil || c.enough(out) {
			return err
		}
	} else {
		var err error
		if c.turns.exchange, err = c.queue.share.newExchange(tx.Snapshot(), *c.wants.yielding); err != nil {
			return err
		}
	}
	delayed := tx.Snapshot().GetRange(
		rows.From(c.queue.keys.delayed, c.queue.keys.delayed.Pack(c.memory.delayedFrom(c.full))), kv.RangeOptions{Limit: 1})
	lane := c.readLane(tx)
	if err := c.takeReady(tx, out, lane); err != nil {
		return err
	}
	now := c.queue.layer.now().Unix()
	if c.wants.latest > now && c.turns.exchange == nil {
		if err := c.takeEarly(tx, out, now); err != nil {
			return err
		}
	}
	for pair, err := range delayed.All() {
		if err != nil {
			return err
		}
		if out.next, _, err = c.queue.parseDelayed(pair.Key); err != nil {
			return err
		}
		if out.next <= now {
			if _, err := lane(); err != nil { // for promote
				return err
			}
		}
	}
	out.looked = true
	return nil
}

// takeKnown takes jobs that an earlier claim saw and left. They may be gone.
func (c *claim) takeKnown(tx kv.Transaction, out *claimRun) error {
	out.known = make([]*candidate, len(c.memory.known))
	for i, known := range c.memory.known {
		left := *known
		out.known[i] = &left
	}
	if c.began.Sub(c.memory.seen) >= freshFor {
		return nil
	}
	err := c.takeFrom(tx, out, out.known)
	for _, o := range out.known {
		out.left[o.owner] = o.rows
	}
	return err
}

// takeReady takes jobs that are ready. The owner with the lowest usage per weight is first. Owners with the same
// usage take turns, beginning after the one that was served last.
func (c *claim) takeReady(tx kv.Transaction, out *claimRun, lane func() (lane, error)) error {
	out.known, out.saw = nil, true
	version := tx.Snapshot().ReadVersion()
	parts, err := c.queue.share.order(tx.Snapshot(), c.memory.owner, c.memory.rank)
	if err != nil {
		return err
	}
	for _, part := range parts {
		for !c.enough(out) && len(out.owners) < maxOwners {
			limit := max(c.n-len(out.jobs), ownersAtOnce)
			pairs, err := tx.Snapshot().GetRange(part, kv.RangeOptions{Limit: limit}).Slice()
			if err != nil {
				return err
			}
			if len(pairs) == 0 {
				break
			}
			candidates, err := c.candidates(tx.Snapshot(), out, pairs)
			if err != nil {
				return err
			}
			out.known = append(out.known, candidates...)
			// Rows that an earlier claim has seen come first, where that is fair.
			for _, read := range [...][]*candidate{c.turns.unread(candidates), candidates} {
				if c.enough(out) {
					break
				}
				if err := c.readHeads(tx.Snapshot(), out, read, lane, version); err != nil {
					return err
				}
				if err := c.takeFrom(tx, out, candidates); err != nil {
					return err
				}
			}
			part.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
		}
	}
	return nil
}

// candidates returns the owners of some keys of the line, in the order in which they are served.
func (c *claim) candidates(tx kv.ReadTransaction, out *claimRun, pairs []kv.KeyValue) ([]*candidate, error) {
	all := make([]*candidate, len(pairs))
	for i, pair := range pairs {
		rank, owner, err := c.queue.share.parseRank(pair.Key)
		if err != nil {
			return nil, err
		}
		left, known := out.left[owner]
		switch {
		case c.turns.exchange != nil:
			left = nil // rows seen an interval ago are gone
		case !known:
			left = c.memory.stock[owner]
		}
		all[i] = &candidate{owner: owner, rank: rank, rows: left, own: true, more: true}
		out.owners = append(out.owners, owner)
	}
	charged, err := c.turns.read(tx, all)
	out.fold = append(out.fold, charged...)
	return all, err
}

// readHeads reads the heads of owners' ready rows, except those that this run has read.
func (c *claim) readHeads(
	tx kv.ReadTransaction, out *claimRun, candidates []*candidate, readLane func() (lane, error), version kv.Future[int64],
) error {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(o *candidate) bool { return o.looked })
	if len(candidates) == 0 {
		return nil
	}
	lane, err := readLane()
	if err != nil {
		return err
	}
	if c.turns.exchange != nil {
		lane = wholeQueue // claims are rare: take the longest waiting job
	}
	limit := min(max(window, 4*(c.n-len(out.jobs))/len(candidates))*lane.of, maxWindow)
	begins := make([]func() ([]byte, error), len(candidates))
	for i, o := range candidates {
		begins[i] = c.queue.head(tx, o.owner, c.memory.heads[o.owner])
	}
	heads := make([]kv.RangeResult, len(candidates))
	for i, o := range candidates {
		begin, err := begins[i]()
		if err != nil {
			return err
		}
		heads[i] = tx.GetRange(rows.From(c.queue.keys.ready.Sub(o.owner), begin), kv.RangeOptions{Limit: limit})
	}
	for i, o := range candidates {
		rows, err := heads[i].Slice()
		if err != nil {
			return err
		}
		o.looked, o.more = true, len(rows) == limit
		if len(rows) > 0 {
			out.heads[o.owner] = rows[0].Key
			rows, o.own = lane.sort(rows, c.random)
			o.rows = make([][]byte, len(rows))
			for i, row := range rows {
				o.rows[i] = row.Key
			}
			continue
		}
		v, err := version.Await()
		if err != nil {
			return err
		}
		out.heads[o.owner] = c.queue.keys.ready.Sub(o.owner).Pack(stampAfter(v))
		out.empty = append(out.empty, o.owner)
	}
	return nil
}

// takeFrom takes jobs of some owners, whose rows are known.
func (c *claim) takeFrom(tx kv.Transaction, out *claimRun, candidates []*candidate) error {
	for !c.enough(out) {
		picks := c.turns.pick(candidates, c.n-len(out.jobs))
		if len(picks) == 0 {
			return nil
		}
		for some := range slices.Chunk(picks, readAtOnce) {
			if c.sated(out) {
				break
			}
			if err := c.takeRows(tx, out, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeRows takes the jobs of rows in ready, except those scheduled after latest.
func (c *claim) takeRows(tx kv.Transaction, out *claimRun, picks []picked) error {
	reads := make([]jobRead, len(picks))
	for i, p := range picks {
		_, id, err := stampAndID(c.queue.keys.ready, p.key)
		if err != nil {
			return err
		}
		// A job that this run has taken may have another remembered row, from its previous owner. Its data is already
		// written and cannot be read.
		if !slices.ContainsFunc(out.jobs, func(j *Job) bool { return j.ID == id }) {
			reads[i] = c.queue.readJob(tx, id)
		}
	}
	for i, read := range reads {
		if read.row == nil {
			c.turns.unpick(picks[i])
			continue
		}
		row, err := awaitRow(read.row)
		if err != nil {
			return err
		}
		if row == nil || row.status != Pending || row.sequence == nil ||
			!bytes.Equal(picks[i].key, c.queue.keys.ready.Pack(row.owner, *row.sequence, read.id)) ||
			c.wants.latest != 0 && row.scheduled > c.wants.latest {
			// Another claim has taken it since, or it is scheduled after latest.
			c.turns.unpick(picks[i])
			continue
		}
		if err := c.take(tx, out, read, row); err != nil {
			return err
		}
		if goes := picks[i].goes; goes != nil {
			out.instead = append(out.instead, goes.id)
			c.taken[len(c.taken)-1].instead = goes.id
		}
		out.owner, out.rank = picks[i].of.owner, picks[i].of.rank
		if c.turns.unit != 0 {
			out.fold = append(out.fold, out.owner)
		}
	}
	return nil
}

// takeAny takes pending jobs of any owner and time. Owners take turns, and of each the ids from a random one on are
// first.
func (c *claim) takeAny(tx kv.Transaction, out *claimRun) error {
	begin := c.memory.anyFrom
	for _, from := range []string{begin, ""} {
		for t, err := range c.queue.tallies(tx.Snapshot(), from, []Status{Pending}, anyPart) {
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
		ids, err := c.queue.readIDs(tx.Snapshot(), t.owner, after, c.n-len(out.jobs), t.parts).await()
		if err != nil {
			return err
		}
		if after == "" {
			ids = slices.DeleteFunc(ids, func(id string) bool { return id > middle })
		}
		for some := range slices.Chunk(ids, readAtOnce) {
			if c.enough(out) {
				return nil
			}
			if err := c.takePending(tx, out, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeEarly takes jobs that are scheduled after now, but not after latest.
func (c *claim) takeEarly(tx kv.Transaction, out *claimRun, now int64) error {
	if c.enough(out) {
		return nil
	}
	delayed := c.queue.keys.delayed
	soon := kv.KeyRange{Begin: delayed.Pack(now + 1), End: delayed.Pack(c.wants.latest + 1)}
	pairs, err := tx.Snapshot().GetRange(soon, kv.RangeOptions{Limit: c.n - len(out.jobs)}).Slice()
	if err != nil {
		return err
	}
	ids := make([]string, len(pairs))
	for i, pair := range pairs {
		if _, ids[i], err = c.queue.parseDelayed(pair.Key); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(ids, readAtOnce) {
		if c.enough(out) {
			return nil
		}
		if err := c.takePending(tx, out, some); err != nil {
			return err
		}
	}
	return nil
}

// takePending takes the pending ones of some jobs.
func (c *claim) takePending(tx kv.Transaction, out *claimRun, ids []string) error {
	reads := make([]jobRead, len(ids))
	for i, id := range ids {
		reads[i] = c.queue.readJob(tx, id)
	}
	for _, read := range reads {
		row, err := awaitRow(read.row)
		if err != nil {
			return err
		}
		if row == nil || row.status != Pending {
			continue // as in takeRows
		}
		if err := c.take(tx, out, read, row); err != nil {
			return err
		}
	}
	return nil
}

// take makes the claimer the holder of a job.
func (c *claim) take(tx kv.Transaction, out *claimRun, read jobRead, old *row) error {
	i := len(out.jobs)
	next := *old
	next.status, next.tag, next.lock, next.sequence, next.timeout = Running, "", c.locks[i], stamp(uint16(i)), out.timeout
	job, err := read.job(&next)
	if err != nil {
		return err
	}
	if old.waits() {
		// The owner may have had nothing ready, and must have a row now.
		if err := c.queue.share.enter(tx, old.owner); err != nil {
			return err
		}
	}
	c.queue.put(tx, read.id, old, &next)
	c.beat(tx)
	c.taken = append(c.taken, taken{id: read.id, lock: next.lock, generation: next.generation})
	out.jobs = append(out.jobs, job)
	out.locks = append(out.locks, next.lock)
	out.size += len(job.Args) + len(job.State)
	return nil
}
