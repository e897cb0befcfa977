package fdbjobs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"settee/pkg/kv"
)

// takeInOrder takes jobs that are due, or early enough.
func (c *claimTx) takeInOrder(tx kv.Transaction, out *claimRun) error {
	c.exchange = nil
	if c.wants.yielding == nil {
		if err := c.takeKnown(tx, out); err != nil || c.enough(out) {
			return err
		}
	} else {
		var err error
		if c.exchange, err = c.typ.newExchange(tx.Snapshot(), *c.wants.yielding); err != nil {
			return err
		}
	}
	delayed := tx.Snapshot().GetRange(
		from(c.typ.keys.delayed, c.typ.keys.delayed.Pack(c.queue.delayedFrom(c.full))), kv.RangeOptions{Limit: 1})
	if err := c.takeReady(tx, out); err != nil {
		return err
	}
	if now := time.Now().Unix(); c.wants.latest > now && c.exchange == nil {
		if err := c.takeEarly(tx, out, now); err != nil {
			return err
		}
	}
	for pair, err := range delayed.All() {
		if err != nil {
			return err
		}
		if out.next, _, err = c.typ.parseDelayed(pair.Key); err != nil {
			return err
		}
	}
	out.looked = true
	return nil
}

// takeKnown takes jobs that an earlier claim saw and left. They may be gone.
func (c *claimTx) takeKnown(tx kv.Transaction, out *claimRun) error {
	out.known = make([]*candidate, len(c.queue.known))
	for i, known := range c.queue.known {
		left := *known
		out.known[i] = &left
	}
	if c.began.Sub(c.queue.seen) >= freshFor {
		return nil
	}
	err := c.takeFrom(tx, out, out.known)
	for _, o := range out.known {
		out.left[o.owner] = o.queue
	}
	return err
}

// takeReady takes jobs from owners' queues: from the owner that has used the least for
// its weight, and of several such from each in turn, beginning behind the one that was
// served last.
func (c *claimTx) takeReady(tx kv.Transaction, out *claimRun) error {
	out.known, out.saw = nil, true
	version := tx.Snapshot().ReadVersion()
	lane := c.lane(tx)
	parts, err := c.parts(tx.Snapshot())
	if err != nil {
		return err
	}
	for _, part := range parts {
		for !c.enough(out) && len(out.owners) < maxOwners {
			limit := max(c.n-len(out.jobs), ownersAtOnce)
			pairs, err := tx.Snapshot().GetRange(part, kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll}).Slice()
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
			// The rows that an earlier claim has seen come first where that is fair.
			for _, read := range [...][]*candidate{c.unread(candidates), candidates} {
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

// parts are the line of owners, in the order in which they are to be looked at.
func (c *claimTx) parts(tx kv.ReadTransaction) ([]kv.KeyRange, error) {
	line := c.typ.keys.ranks.Sub(rankWaiting)
	all := keyRange(line)
	first, err := tx.GetRange(all, kv.RangeOptions{Limit: 1}).Slice()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	rank, _, err := c.typ.parseRank(first[0].Key)
	if err != nil {
		return nil, err
	}
	if c.queue.owner == "" || rank != c.queue.rank {
		return []kv.KeyRange{all}, nil
	}
	// Once around those of this rank.
	middle := kv.KeyAfter(line.Pack(rank, c.queue.owner))
	end := keyRange(line.Sub(rank)).End
	return []kv.KeyRange{{Begin: middle, End: end}, {Begin: all.Begin, End: middle}, {Begin: end, End: all.End}}, nil
}

// candidate is an owner that a claim may serve.
type candidate struct {
	owner  string
	rank   float64
	weight float64
	used   float64 // rank, and what was charged since
	offset float64 // from 0 to 1, see pick
	picks  int
	queue  [][]byte // rows in ready, in the order in which to take them
	own    bool     // they are the claimer's share
	looked bool     // they were read by this run
	more   bool     // the owner may have rows behind these
	short  bool     // all that were seen earlier were picked
}

// unread returns the candidates of which no rows are known, and that come before each of the
// others.
func (c *claimTx) unread(candidates []*candidate) []*candidate {
	least := math.Inf(1)
	for _, o := range candidates {
		if len(o.queue) > 0 {
			least = min(least, o.would(c.unit))
		}
	}
	var out []*candidate
	for _, o := range candidates {
		if o.would(c.unit) < least {
			out = append(out, o)
		}
	}
	return out
}

// candidates reads what some owners in line have used.
func (c *claimTx) candidates(tx kv.ReadTransaction, out *claimRun, pairs []kv.KeyValue) ([]*candidate, error) {
	all := make([]*candidate, len(pairs))
	charges, weights := make([]kv.Future[[]byte], len(pairs)), make([]kv.Future[[]byte], len(pairs))
	usages := make([]usageRead, len(pairs))
	rolled, err := awaitRollup(c.rollup)
	if err != nil {
		return nil, err
	}
	c.unit = float64(rolled.running)
	for i, pair := range pairs {
		rank, owner, err := c.typ.parseRank(pair.Key)
		if err != nil {
			return nil, err
		}
		left, known := out.left[owner]
		switch {
		case c.exchange != nil:
			left = nil // what was seen an interval ago is not there any more
		case !known:
			left = c.queue.stock[owner]
		}
		all[i] = &candidate{owner: owner, rank: rank, queue: left, own: true, more: true}
		out.owners = append(out.owners, owner)
		if rolled.running != 0 {
			usages[i] = c.typ.readUsage(tx, owner)
			continue
		}
		charges[i], weights[i] = tx.Get(c.typ.keys.charges.Pack(owner)), tx.Get(c.typ.keys.weights.Pack(owner))
	}
	for i, candidate := range all {
		if rolled.running != 0 {
			if candidate.used, candidate.weight, err = usages[i].await(rolled); err != nil {
				return nil, err
			}
			candidate.offset = offset(candidate.owner, rolled.generation)
			continue
		}
		charged, err := awaitInt(charges[i])
		if err != nil {
			return nil, err
		}
		if candidate.weight, err = awaitWeight(weights[i]); err != nil {
			return nil, err
		}
		candidate.used = candidate.rank + float64(charged)/candidate.weight
		if charged != 0 {
			out.fold = append(out.fold, candidate.owner)
		}
	}
	byRank(all)
	return all, nil
}

// readHeads reads the heads of owners' queues, but for those that this run has read.
func (c *claimTx) readHeads(
	tx kv.ReadTransaction, out *claimRun, candidates []*candidate, lane func() (share, error), version kv.Future[int64],
) error {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(o *candidate) bool { return o.looked })
	if len(candidates) == 0 {
		return nil
	}
	share, err := lane()
	if err != nil {
		return err
	}
	if c.exchange != nil {
		share = whole // claims are rare, and the longest waiting job is due
	}
	limit := min(max(window, 4*(c.n-len(out.jobs))/len(candidates))*share.of, maxWindow)
	begins := make([]func() ([]byte, error), len(candidates))
	for i, o := range candidates {
		begins[i] = c.typ.head(tx, o.owner, c.queue.heads[o.owner])
	}
	heads := make([]kv.RangeResult, len(candidates))
	for i, o := range candidates {
		begin, err := begins[i]()
		if err != nil {
			return err
		}
		heads[i] = tx.GetRange(from(c.typ.keys.ready.Sub(o.owner), begin), kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll})
	}
	for i, o := range candidates {
		rows, err := heads[i].Slice()
		if err != nil {
			return err
		}
		o.looked, o.more = true, len(rows) == limit
		if len(rows) > 0 {
			out.heads[o.owner] = rows[0].Key
			o.queue, o.own = share.sort(rows, c.random)
			continue
		}
		v, err := version.Await()
		if err != nil {
			return err
		}
		out.heads[o.owner] = c.typ.keys.ready.Sub(o.owner).Pack(stampAfter(v))
		out.empty = append(out.empty, o.owner)
	}
	return nil
}

// takeFrom takes jobs from the queues of some owners.
func (c *claimTx) takeFrom(tx kv.Transaction, out *claimRun, candidates []*candidate) error {
	for !c.enough(out) {
		picks := c.pick(candidates, c.n-len(out.jobs))
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

// picked is a row of a queue that was chosen, and taken out of it.
type picked struct {
	of   *candidate
	key  []byte
	goes *goer // what makes room for it; nil if there is room
}

// pick takes up to n rows out of queues, each from the owner that has used the least
// when what was picked before is counted.
//
// Running jobs are whole, and the parts of owners need not be: with few places an owner would
// always have too much, and another one too little. So up to what a running job counts is
// added, which changes with time: then each has its part on average.
func (c *claimTx) pick(candidates []*candidate, n int) []picked {
	var out []picked
	for n > len(out) {
		var next *candidate
		nextUsed := 0.0
		short := math.Inf(1)
		for _, o := range candidates {
			if len(o.queue) == 0 {
				if o.short && !o.looked {
					short = min(short, o.would(c.unit))
				}
				continue
			}
			used := o.would(c.unit)
			if next == nil || used < nextUsed || used == nextUsed && o.picks < next.picks {
				next, nextUsed = o, used
			}
		}
		if next == nil || short < nextUsed {
			break
		}
		p := picked{of: next}
		if c.exchange != nil {
			if p.of, p.goes = c.exchange.swap(next, candidates); p.goes == nil {
				c.outbid = true
				break
			}
		}
		p.key, p.of.queue = p.of.queue[0], p.of.queue[1:]
		p.of.picks++
		p.of.short = p.of.more && len(p.of.queue) == 0
		p.of.used += c.counts() / p.of.weight
		if p.goes != nil {
			if i := slices.IndexFunc(candidates, func(o *candidate) bool { return o.owner == p.goes.of.name }); i >= 0 {
				p.goes.waits = candidates[i]
				p.goes.waits.used -= c.unit / p.goes.waits.weight
			}
		}
		out = append(out, p)
	}
	return out
}

// would is where the owner is in line, with a place between none and one job more.
func (o *candidate) would(unit float64) float64 { return o.used + o.offset*unit/o.weight }

// offsetFor is how many roll-ups an owner's offset stays the same: for longer than it takes
// until most places were given anew, or else an owner that waits would get one at its best
// offset.
const offsetFor = 16

// offset is drawn for an owner, and again after a while; the same by all processes.
func offset(owner string, generation int64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner)) // never fails
	phase := h.Sum64() % offsetFor
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, (uint64(generation)+phase)/offsetFor))
	return float64(mix(h.Sum64())>>11) / (1 << 53)
}

// mix spreads the bits of a hash whose last bytes differ little (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// counts is what a job that is taken adds to what its owner has used.
func (c *claimTx) counts() float64 { return float64(c.wants.charge) + c.unit }

// unpick takes back what a pick has counted.
func (c *claimTx) unpick(p picked) {
	p.of.used -= c.counts() / p.of.weight
	if p.goes != nil {
		if o := p.goes.waits; o != nil {
			o.used += c.unit / o.weight
		}
		c.exchange.undo(p.of, p.goes)
		c.outbid = false // which what was picked may have made so
	}
}

// takeRows takes the jobs of rows in ready. One whose time lies behind latest
// stays.
func (c *claimTx) takeRows(tx kv.Transaction, out *claimRun, picks []picked) error {
	reads := make([]jobRead, len(picks))
	for i, p := range picks {
		_, id, err := stampAndID(c.typ.keys.ready, p.key)
		if err != nil {
			return err
		}
		reads[i] = c.typ.readJob(tx, id)
	}
	for i, read := range reads {
		row, err := awaitRow(read.row)
		if err != nil {
			return err
		}
		if row == nil || row.status != Pending || row.sequence == nil ||
			!bytes.Equal(picks[i].key, c.typ.keys.ready.Pack(row.owner, *row.sequence, read.id)) ||
			c.wants.latest != 0 && row.scheduled > c.wants.latest {
			// Somebody has taken it since it was seen, or it is to stay.
			c.unpick(picks[i])
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
		if c.counts() != 0 {
			out.fold = append(out.fold, out.owner)
		}
	}
	return nil
}

// takeAny takes pending jobs of any owner and time, from a random place on.
func (c *claimTx) takeAny(tx kv.Transaction, out *claimRun) error {
	pending := c.typ.keys.status.Sub(Part{Status: Pending}.elements()...)
	all := keyRange(pending)
	middle := pending.Pack(fmt.Sprintf("%016x", c.random.Uint64()))
	for _, part := range []kv.KeyRange{{Begin: middle, End: all.End}, {Begin: all.Begin, End: middle}} {
		if c.enough(out) {
			break
		}
		pairs, err := tx.Snapshot().GetRange(part, kv.RangeOptions{Limit: c.n - len(out.jobs), Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return err
		}
		ids, err := lastStrings(pending, pairs)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(ids, readAtOnce) {
			if c.enough(out) {
				break
			}
			if err := c.takePending(tx, out, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeEarly takes jobs that are scheduled after now, but not after latest.
func (c *claimTx) takeEarly(tx kv.Transaction, out *claimRun, now int64) error {
	if c.enough(out) {
		return nil
	}
	delayed := c.typ.keys.delayed
	soon := kv.KeyRange{Begin: delayed.Pack(now + 1), End: delayed.Pack(c.wants.latest + 1)}
	pairs, err := tx.Snapshot().GetRange(soon, kv.RangeOptions{Limit: c.n - len(out.jobs)}).Slice()
	if err != nil {
		return err
	}
	ids := make([]string, len(pairs))
	for i, pair := range pairs {
		if _, ids[i], err = c.typ.parseDelayed(pair.Key); err != nil {
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

// takePending takes those of some jobs that are pending.
func (c *claimTx) takePending(tx kv.Transaction, out *claimRun, ids []string) error {
	reads := make([]jobRead, len(ids))
	for i, id := range ids {
		reads[i] = c.typ.readJob(tx, id)
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

// take makes a job this claim's.
func (c *claimTx) take(tx kv.Transaction, out *claimRun, read jobRead, old *row) error {
	i := len(out.jobs)
	next := *old
	next.status, next.tag, next.lock, next.sequence, next.timeout = Running, "", c.locks[i], stamp(uint16(i)), out.timeout
	job, err := read.job(&next)
	if err != nil {
		return err
	}
	if old.waits() {
		// Its owner may have had nothing ready yet, and is to have a row nonetheless.
		if err := c.typ.place(tx, old.owner, rankIdle); err != nil {
			return err
		}
	}
	c.typ.put(tx, read.id, old, &next, uint16(i))
	if c.wants.charge != 0 {
		c.typ.Charge(tx, next.owner, c.wants.charge)
	}
	c.beat(tx)
	c.taken = append(c.taken, taken{id: read.id, lock: next.lock, generation: next.generation})
	out.jobs = append(out.jobs, job)
	out.locks = append(out.locks, next.lock)
	out.size += len(job.Args) + len(job.State)
	return nil
}
