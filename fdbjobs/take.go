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
	out.through = true
	return nil
}

// takeKnown takes jobs that an earlier claim saw and left. They may be gone.
func (c *claim) takeKnown(tx kv.Transaction, out *claimRun) error {
	out.known = make([]*candidate, len(c.memory.known))
	for i, known := range c.memory.known {
		left := *known
		out.known[i] = &left
	}
	if c.again || c.began.Sub(c.memory.seen) >= freshFor {
		return nil
	}
	err := c.takeFrom(tx, out, out.known)
	for _, o := range out.known {
		out.left[o.owner] = o.rows
	}
	return err
}

// takeReady takes jobs that are ready. The owner with the lowest usage per weight is first. Owners with the same
// usage take turns, beginning after the one that was served last. Jobs in other lanes are taken only if no others are
// found.
func (c *claim) takeReady(tx kv.Transaction, out *claimRun, readLane func() (lane, error)) error {
	out.known, out.saw = nil, true
	version := tx.Snapshot().ReadVersion()
	line := c.queue.share.order(tx.Snapshot(), c.memory.owner, c.memory.rank, c.ownersToRead(out, c.memory.lane))
	lane, err := readLane()
	if err != nil {
		return err
	}
	if err := line.lowestFirst(c.memory.rank); err != nil {
		return err
	}
	if c.turns.exchange != nil {
		lane = wholeQueue // claims are rare: take the longest waiting job
	}
	var all []*candidate
	for len(all) < maxOwners && !c.enough(out) {
		next, err := line.next(c.ownersToRead(out, lane))
		if err != nil {
			return err
		}
		if len(next) == 0 {
			break
		}
		all = append(all, next...)
		mine := c.prefer(out, lane, all, len(next))
		for some := range slices.Chunk(mine, max(c.n-len(out.jobs), ownersAtOnce)) {
			if c.enough(out) {
				break
			}
			if err := c.takeOwn(tx, out, some, version); err != nil {
				return err
			}
		}
	}
	if len(out.jobs) > 0 || c.enough(out) {
		return nil
	}
	// Claimers that find nothing in their lanes should not all take the same.
	all = slices.DeleteFunc(all, func(o *candidate) bool { return o.looked && len(o.others) == 0 })
	c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for n := ownersAtOnce; len(all) > 0 && len(out.jobs) == 0 && !c.enough(out); n *= 2 {
		n = min(n, maxWindow/window, len(all))
		if err := c.takeOthers(tx, out, all[:n], version); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// ownersToRead returns the number of owners to read at the same time.
func (c *claim) ownersToRead(out *claimRun, lane lane) int {
	return min(max(c.n-len(out.jobs), ownersAtOnce, 4*lane.of), maxOwners)
}

// prefer sets the lanes of the last n candidates of the line, and the rows in them that earlier claims have seen. It
// returns those that have jobs in the claimer's lane.
func (c *claim) prefer(out *claimRun, lane lane, line []*candidate, n int) (mine []*candidate) {
	upTo := len(line)
	for i := len(line) - 1; i >= len(line)-n; i-- {
		o := line[i]
		if i < len(line)-1 && o.rank != line[i+1].rank {
			upTo = i + 1
		}
		if o.lane = lane.among(upTo, o.owner, c.began); !o.lane.prefers() {
			continue
		}
		left, known := out.left[o.owner]
		switch {
		case c.turns.exchange != nil: // rows seen an interval ago are gone
		case !known:
			left = c.memory.stock[o.owner]
			fallthrough
		default:
			for _, key := range left {
				if o.lane.has(key) {
					o.rows = append(o.rows, key)
				}
			}
		}
		o.short = len(o.rows) == 0
		mine = append(mine, o)
	}
	slices.Reverse(mine)
	return mine
}

// takeOwn takes jobs of candidates in the claimer's lane.
func (c *claim) takeOwn(tx kv.Transaction, out *claimRun, candidates []*candidate, version kv.Future[int64]) error {
	if err := c.turns.read(tx.Snapshot(), candidates); err != nil {
		return err
	}
	out.known = append(out.known, candidates...)
	for {
		// Rows that an earlier claim has seen come first, where that is fair.
		unread := c.turns.unread(candidates)
		if err := c.readHeads(tx.Snapshot(), out, unread, version); err != nil {
			return err
		}
		if err := c.takeFrom(tx, out, candidates); err != nil {
			return err
		}
		if len(unread) == 0 || c.enough(out) {
			return nil
		}
	}
}

// takeOthers takes jobs in other lanes.
func (c *claim) takeOthers(tx kv.Transaction, out *claimRun, candidates []*candidate, version kv.Future[int64]) error {
	if err := c.turns.read(tx.Snapshot(), candidates); err != nil {
		return err
	}
	unread := slices.DeleteFunc(slices.Clone(candidates), func(o *candidate) bool { return o.looked })
	if err := c.readHeads(tx.Snapshot(), out, unread, version); err != nil {
		return err
	}
	for _, o := range candidates {
		c.random.Shuffle(len(o.others), func(i, j int) { o.others[i], o.others[j] = o.others[j], o.others[i] })
		o.rows, o.own = o.others, false
	}
	return c.takeFrom(tx, out, candidates)
}

// readHeads reads the heads of the ready rows of owners that this run has not read: of as many as have maxWindow rows.
func (c *claim) readHeads(tx kv.ReadTransaction, out *claimRun, candidates []*candidate, version kv.Future[int64]) error {
	if len(candidates) == 0 {
		return nil
	}
	// Enough that several are likely to be in the lane, if the owner has so many.
	own := max(window/2, 4*(c.n-len(out.jobs))/len(candidates))
	var limits []int
	for all := 0; len(limits) < len(candidates) && all < maxWindow; all += limits[len(limits)-1] {
		o, limit := candidates[len(limits)], window
		if o.lane.prefers() {
			limit = min(max(window, own*o.lane.shared), maxWindow)
		}
		limits = append(limits, limit)
	}
	candidates = candidates[:len(limits)]
	heads := make([]kv.RangeResult, len(candidates))
	for i, o := range candidates {
		heads[i] = c.queue.readReady(tx, o.owner, limits[i])
	}
	for i, o := range candidates {
		rows, err := heads[i].Slice()
		if err != nil {
			return err
		}
		out.looked = append(out.looked, o)
		o.looked, o.short, o.more = true, false, len(rows) == limits[i]
		if len(rows) > 0 {
			out.heads[o.owner] = rows[0].Key
			own, others := o.lane.sort(rows)
			o.rows, o.others = keysOf(own), keysOf(others)
			continue
		}
		v, err := version.Await()
		if err != nil {
			return err
		}
		out.heads[o.owner] = c.queue.keys.ready.Sub(o.owner).Pack(stampAfter(v))
		o.empty = true
	}
	return nil
}

// readReady starts reading the first ready rows of an owner.
func (q *Queue) readReady(tx kv.ReadTransaction, owner string, limit int) kv.RangeResult {
	return tx.GetRange(rows.From(q.keys.ready.Sub(owner), q.bounds.of(owner)), kv.RangeOptions{Limit: limit})
}

func keysOf(rows []kv.KeyValue) [][]byte {
	keys := make([][]byte, len(rows))
	for i, row := range rows {
		keys[i] = row.Key
	}
	return keys
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
	reads, weights := make([]jobRead, len(picks)), map[string]kv.Future[[]byte]{}
	for i, p := range picks {
		c.readWeight(tx, weights, p.of.owner)
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
		_, paused, err := awaitWeight(weights[picks[i].of.owner])
		if err != nil {
			return err
		}
		if paused || row == nil || row.status != Pending || row.sequence == nil ||
			!bytes.Equal(picks[i].key, c.queue.keys.ready.Pack(row.owner, *row.sequence, read.id)) ||
			c.wants.latest != 0 && row.scheduled > c.wants.latest {
			// Another claim has taken it since, its owner was paused, or it is scheduled after latest.
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
	}
	return nil
}

// readWeight starts reading the weight of an owner into weights, once. The claim conflicts with pausing the owner.
func (c *claim) readWeight(tx kv.Transaction, weights map[string]kv.Future[[]byte], owner string) {
	if weights[owner] == nil {
		weights[owner] = tx.Get(c.queue.share.weights.Pack(owner))
	}
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
	// Some may be jobs of paused owners.
	pairs, err := tx.Snapshot().GetRange(soon, kv.RangeOptions{Limit: max(c.n-len(out.jobs), window)}).Slice()
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
	found, weights := make([]*row, len(ids)), map[string]kv.Future[[]byte]{}
	for i, read := range reads {
		var err error
		if found[i], err = awaitRow(read.row); err != nil {
			return err
		}
		if found[i] != nil && found[i].status == Pending {
			c.readWeight(tx, weights, found[i].owner)
		}
	}
	for i, row := range found {
		if row == nil || row.status != Pending || c.sated(out) {
			continue // as in takeRows
		}
		_, paused, err := awaitWeight(weights[row.owner])
		if err != nil {
			return err
		}
		if paused {
			continue
		}
		if err := c.take(tx, out, reads[i], row); err != nil {
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
