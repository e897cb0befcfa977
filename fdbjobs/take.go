package fdbjobs

import (
	"bytes"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// takeInOrder takes jobs that are due, or that Latest allows.
func (c *claim) takeInOrder(tx kv.Transaction, out *claimRun) error {
	delayed := tx.Snapshot().GetRange(
		rows.From(c.queue.keys.delayed, c.queue.keys.delayed.Pack(c.memory.delayedFrom(c.full))), kv.RangeOptions{Limit: 1})
	v := view{exchange: c.wants.yielding != nil, jobs: map[string]*seen{}, weights: map[string]kv.Future[float64]{}}
	if v.exchange {
		v.yields = yielders(*c.wants.yielding)
		if _, err := c.queue.share.loadUsage(tx.Snapshot(), c.rolled, v.yields, true); err != nil {
			return err
		}
	}
	partition := c.readPartition(tx)
	if err := c.takeReady(tx, out, &v, partition); err != nil {
		return err
	}
	now := c.queue.layer.now().Unix()
	if c.wants.latest > now && !v.exchange {
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
			if _, err := partition.Await(); err != nil { // for promote
				return err
			}
		}
	}
	out.through = true
	return nil
}

// view is what a run of a claim has read of the ready jobs. Its parts only grow, except that rows of jobs that cannot be
// taken leave their owners. choose chooses from it, again whenever it has changed. The claim writes the last choice.
type view struct {
	version  kv.Future[int64]
	unit     float64      // what a running job counts
	exchange bool         // there is no room: jobs of yields go for those taken
	yields   []*candidate // owners of jobs that can make room, and that are not in owners
	owners   []*candidate // that choose chooses from
	jobs     map[string]*seen
	weights  map[string]kv.Future[float64] // of owners of jobs, read with conflicts
	// othersToo says that rows in other partitions count.
	othersToo bool
	// lower reports whether an owner with a lower usage may follow. It may be nil.
	lower func(used float64) bool
}

// seen is a job with a ready row, as it was read.
type seen struct {
	read jobRead
	row  *row
	job  *Job // nil if it cannot be taken
}

func (v *view) choose(n int) decision {
	return choose(slices.Concat(v.yields, v.owners), v.unit, v.exchange, n)
}

// add adds owners to choose from, whose usage is known.
func (v *view) add(owners []*candidate) {
	for _, p := range owners {
		if i := slices.IndexFunc(v.yields, func(y *candidate) bool { return y.owner == p.owner }); i >= 0 {
			p.yields = v.yields[i].yields
			v.yields = slices.Delete(v.yields, i, i+1)
		}
	}
	v.owners = append(v.owners, owners...)
}

// takeReady takes jobs that are ready. The owner with the lowest usage per weight is first. Owners with the same
// usage take turns, beginning after the one that was served last. Jobs in other partitions are taken only if no others are
// found.
func (c *claim) takeReady(tx kv.Transaction, out *claimRun, v *view, readPartition kv.Future[partition]) error {
	v.version = tx.Snapshot().ReadVersion()
	line := c.queue.share.order(tx.Snapshot(), c.memory.owner, c.memory.rank, c.ownersToRead(c.memory.partition))
	partition, err := readPartition.Await()
	if err != nil {
		return err
	}
	if err := line.lowestFirst(c.memory.rank); err != nil {
		return err
	}
	if v.exchange {
		partition = wholeQueue // claims are rare: take the longest waiting job
	}
	// Without running jobs, a rank is a bound of an owner's usage. So usages are read one after the other, while a lower
	// one is possible.
	atOnce := c.n
	if r, err := c.rolled.Await(); err != nil {
		return err
	} else if r.running != 0 || v.exchange {
		atOnce = max(c.n, ownersAtOnce)
	}
	var all, mine []*candidate // of the line, and of these those to look at
	v.lower = func(used float64) bool {
		return len(mine) > 0 && mine[0].rank < used && len(v.owners) < max(c.n, ownersAtOnce)
	}
	chosen, outbid, err := c.choose(tx, out, v, func() ([]*candidate, error) {
		for len(mine) == 0 && len(all) < maxOwners {
			next, err := line.next(c.ownersToRead(partition))
			if err != nil || len(next) == 0 {
				return nil, err
			}
			all = append(all, next...)
			mine = c.prefer(partition, all, len(next))
		}
		some := mine[:min(len(mine), atOnce)]
		mine, atOnce = mine[len(some):], max(c.n, ownersAtOnce)
		return some, nil
	})
	if err != nil {
		return err
	}
	if len(chosen) == 0 && !outbid {
		if chosen, err = c.chooseOthers(tx, out, v, all); err != nil {
			return err
		}
	}
	for _, choice := range chosen {
		found := v.jobs[string(choice.key)]
		if err := c.take(tx, out, found.job, found.row, choice.instead); err != nil {
			return err
		}
		out.owner, out.rank = choice.of.owner, choice.of.rank
	}
	return nil
}

// choose chooses the jobs that a claim takes. It reads what the choice needs: further owners, which next returns, their
// rows, and the jobs of these.
func (c *claim) choose(
	tx kv.Transaction, out *claimRun, v *view, next func() ([]*candidate, error),
) (chosen []choice, outbid bool, err error) {
	for atOnce, ended := c.n, false; ; {
		d := v.choose(c.n)
		switch {
		case len(d.unread) > 0:
			if v.exchange { // any of them may have a job that is taken
				atOnce = len(d.unread)
			}
			if err := c.readRows(tx.Snapshot(), v, d.unread[:min(len(d.unread), atOnce)]); err != nil {
				return nil, false, err
			}
			atOnce = max(2*atOnce, ownersAtOnce)
		case !d.outbid && !ended && (len(d.chosen) < c.n || v.lower != nil && v.lower(d.last)):
			more, err := next()
			if err != nil {
				return nil, false, err
			}
			if ended = len(more) == 0; ended {
				continue
			}
			unknown := slices.DeleteFunc(slices.Clone(more), func(p *candidate) bool { return p.weight != 0 })
			if v.unit, err = c.queue.share.loadUsage(tx.Snapshot(), c.rolled, unknown, v.exchange); err != nil {
				return nil, false, err
			}
			out.owners = append(out.owners, unknown...)
			v.add(more)
		default:
			fitting, all, err := c.look(tx, v, d.chosen)
			if all || err != nil {
				return d.chosen[:fitting], d.outbid, err
			}
		}
	}
}

// chooseOthers chooses jobs in other partitions, of the first owners that have any. Claimers that find nothing in their
// partitions should not all take the same.
func (c *claim) chooseOthers(tx kv.Transaction, out *claimRun, v *view, line []*candidate) ([]choice, error) {
	if v.exchange {
		return nil, nil // the partition was the whole queue
	}
	rest := slices.DeleteFunc(slices.Clone(line), func(p *candidate) bool { return p.looked && len(p.others) == 0 })
	c.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	v.owners, v.othersToo, v.lower = nil, true, nil
	atOnce := ownersAtOnce
	chosen, _, err := c.choose(tx, out, v, func() ([]*candidate, error) {
		if slices.ContainsFunc(v.owners, func(p *candidate) bool { return len(p.rows) > 0 }) {
			return nil, nil
		}
		some := rest[:min(atOnce, maxWindow/window, len(rest))]
		rest, atOnce = rest[len(some):], 2*atOnce
		for _, p := range some {
			if p.unread = !p.looked; p.looked {
				p.rows = c.shuffled(p.others)
			}
		}
		return some, nil
	})
	return chosen, err
}

func (c *claim) shuffled(keys [][]byte) [][]byte {
	c.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// ownersToRead returns the number of owners to read at the same time.
func (c *claim) ownersToRead(partition partition) int {
	return min(max(c.n, ownersAtOnce, 4*partition.claimers), maxOwners)
}

// prefer sets the partitions of the last n owners of the line. It returns the owners that can have jobs in them.
func (c *claim) prefer(partition partition, line []*candidate, n int) (mine []*candidate) {
	upTo := len(line)
	for i := len(line) - 1; i >= len(line)-n; i-- {
		p := line[i]
		if i < len(line)-1 && p.rank != line[i+1].rank {
			upTo = i + 1
		}
		if p.partition = partition.among(upTo, p.owner, c.began); p.partition.prefers() {
			mine = append(mine, p)
		}
	}
	slices.Reverse(mine)
	return mine
}

// readRows reads the first ready rows of owners: of as many as have maxWindow rows.
func (c *claim) readRows(tx kv.ReadTransaction, v *view, owners []*candidate) error {
	// Enough that several are likely to be in the partition, if the owner has so many.
	own := max(window/4, 4*c.n/len(owners))
	var reads []kv.Future[[]kv.KeyValue]
	for all := 0; len(reads) < len(owners) && all < maxWindow; {
		p, limit := owners[len(reads)], window
		if p.partition.prefers() {
			limit = min(max(window, own*p.partition.shared), maxWindow)
		}
		reads = append(reads, c.queue.readReady(tx, p.owner, limit))
		all += limit
	}
	for i, read := range reads {
		p := owners[i]
		pairs, err := read.Await()
		if err != nil {
			return err
		}
		p.looked, p.unread, p.empty = true, false, len(pairs) == 0
		if p.empty {
			at, err := v.version.Await()
			if err != nil {
				return err
			}
			c.queue.bounds.set(p.owner, c.queue.keys.ready.Sub(p.owner).Pack(stampAfter(at)))
			continue
		}
		c.queue.bounds.set(p.owner, pairs[0].Key)
		own, others := p.partition.sort(pairs)
		p.rows, p.others = keysOf(own), keysOf(others)
		if v.othersToo {
			p.rows = c.shuffled(append(p.rows, p.others...))
		}
	}
	return nil
}

// readReady starts reading the first ready rows of an owner.
func (q *Queue) readReady(tx kv.ReadTransaction, owner string, limit int) kv.Future[[]kv.KeyValue] {
	ready := rows.From(q.keys.ready.Sub(owner), q.bounds.of(owner))
	return kv.Func[[]kv.KeyValue](tx.GetRange(ready, kv.RangeOptions{Limit: limit}).Slice)
}

func keysOf(rows []kv.KeyValue) [][]byte {
	keys := make([][]byte, len(rows))
	for i, row := range rows {
		keys[i] = row.Key
	}
	return keys
}

// look reads the jobs that were chosen, and returns how many of them fit into the transaction. all is false if some
// cannot be taken: their rows have left their owners then.
func (c *claim) look(tx kv.Transaction, v *view, chosen []choice) (fitting int, all bool, err error) {
	all = true
	size := 0
	for some := range slices.Chunk(chosen, readAtOnce) {
		if size >= enoughBytes {
			break
		}
		if err := c.readJobs(tx, v, some); err != nil {
			return 0, false, err
		}
		for _, choice := range some {
			job := v.jobs[string(choice.key)].job
			if job == nil {
				p := choice.of
				p.rows = slices.DeleteFunc(p.rows, func(key []byte) bool { return bytes.Equal(key, choice.key) })
				all = false
				continue
			}
			size += len(job.Args) + len(job.State)
			fitting++
		}
	}
	return fitting, all, nil
}

// readJobs reads the jobs of choices that v does not have.
func (c *claim) readJobs(tx kv.Transaction, v *view, some []choice) error {
	var reading []choice
	for _, choice := range some {
		if v.jobs[string(choice.key)] != nil {
			continue
		}
		_, id, err := stampAndID(c.queue.keys.ready, choice.key)
		if err != nil {
			return err
		}
		v.jobs[string(choice.key)] = &seen{read: c.queue.readJob(tx, id)}
		c.readWeight(tx, v.weights, choice.of.owner)
		reading = append(reading, choice)
	}
	for _, choice := range reading {
		found := v.jobs[string(choice.key)]
		var err error
		if found.row, err = found.read.row.Await(); err != nil {
			return err
		}
		weight, err := v.weights[choice.of.owner].Await()
		if err != nil {
			return err
		}
		r := found.row
		if weight == 0 || r == nil || r.status != Pending || r.waits() || !c.wants.allow(r) ||
			!bytes.Equal(choice.key, c.queue.derive(found.read.id, r).key()) {
			continue
		}
		if found.job, err = found.read.job(r); err != nil {
			return err
		}
	}
	return nil
}

// readWeight starts reading the weight of an owner into weights, once. The claim conflicts with pausing the owner.
func (c *claim) readWeight(tx kv.Transaction, weights map[string]kv.Future[float64], owner string) {
	if weights[owner] == nil {
		weights[owner] = c.queue.share.readWeight(tx, owner)
	}
}

// take makes the claimer the holder of a job, in exchange for the job with the id instead, if that is not empty.
func (c *claim) take(tx kv.Transaction, out *claimRun, job *Job, old *row, instead string) error {
	i := len(out.taken)
	next := *old
	next.status, next.tag, next.lock, next.sequence, next.timeout = Running, "", c.locks[i], stamp(uint16(i)), out.timeout
	if old.waits() {
		// The owner may have had nothing ready, and must have a row now.
		if err := c.queue.share.admit(tx, old.owner, rankIdle); err != nil {
			return err
		}
	}
	c.queue.put(tx, job.ID, old, &next)
	c.heartbeat(tx)
	held := next.job(job.ID, job.State)
	held.Args, held.ArgsErr, held.Instead = job.Args, job.ArgsErr, instead
	out.taken = append(out.taken, held)
	c.taken = out.taken
	out.size += len(job.Args) + len(job.State)
	return nil
}
