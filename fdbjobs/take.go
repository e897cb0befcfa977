package fdbjobs

import (
	"bytes"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// seen is a job that was found by an index, as a claim has read it.
type seen struct {
	id, owner string
	key       []byte // in ready or delayed; nil if it was found by its owner
	read      jobRead
	row       *row
	job       *Job // nil if it cannot be taken
}

// takeInOrder takes jobs that are due.
func (a *attempt) takeInOrder() error {
	delayed := a.tx.Snapshot().GetRange(
		rows.From(a.queue.keys.delayed, a.queue.keys.delayed.Pack(a.memory.delayedFrom(a.full))), kv.RangeOptions{Limit: 1})
	if a.exchange() {
		a.yields = yielders(a.yielding)
		if _, err := a.queue.share.loadUsage(a.tx.Snapshot(), a.rolled, a.yields, true); err != nil {
			return err
		}
	}
	partition := a.readPartition()
	if err := a.takeReady(partition); err != nil {
		return err
	}
	now := a.queue.layer.now().Unix()
	for pair, err := range delayed.All() {
		if err != nil {
			return err
		}
		if a.next, _, err = a.queue.parseDelayed(pair.Key); err != nil {
			return err
		}
		if a.next <= now {
			if _, err := partition.Await(); err != nil { // for promote
				return err
			}
		}
	}
	a.through = true
	return nil
}

// takeReady takes jobs that are ready. The owner with the lowest usage per weight is first. Owners with the same
// usage take turns, beginning after the one that was served last. Jobs in other partitions are taken only if no others are
// found.
func (a *attempt) takeReady(readPartition kv.Future[partition]) error {
	a.version = a.tx.Snapshot().ReadVersion()
	line := a.queue.share.order(a.tx.Snapshot(), a.memory.owner, a.memory.rank, a.ownersToRead(a.memory.partition))
	partition, err := readPartition.Await()
	if err != nil {
		return err
	}
	if err := line.lowestFirst(a.memory.rank); err != nil {
		return err
	}
	if a.exchange() {
		partition = wholeQueue // claims are rare: take the longest waiting job
	}
	// Without running jobs, a rank is a bound of an owner's usage. So usages are read one after the other, while a lower
	// one is possible.
	atOnce := a.n
	if r, err := a.rolled.Await(); err != nil {
		return err
	} else if r.running != 0 || a.exchange() {
		atOnce = max(a.n, ownersAtOnce)
	}
	var all, mine []*candidate // of the line, and of these those to look at
	chosen, outbid, err := a.readAndChoose(func(d decision) ([]*candidate, error) {
		lower := len(mine) > 0 && mine[0].rank < d.last && len(a.owners) < max(a.n, ownersAtOnce)
		if len(d.chosen) == a.n && !lower {
			return nil, nil
		}
		for len(mine) == 0 && len(all) < maxOwners {
			next, err := line.next(a.ownersToRead(partition))
			if err != nil || len(next) == 0 {
				return nil, err
			}
			all = append(all, next...)
			mine = a.prefer(partition, all, len(next))
		}
		some := mine[:min(len(mine), atOnce)]
		mine, atOnce = mine[len(some):], max(a.n, ownersAtOnce)
		return some, nil
	})
	if err == nil && len(chosen) == 0 && !outbid && !a.exchange() { // without room, the partition was the whole queue
		chosen, err = a.chooseOthers(all)
	}
	if err != nil {
		return err
	}
	for _, choice := range chosen {
		if a.batch.full() {
			break
		}
		if err := a.take(a.jobs[string(choice.key)], choice.instead); err != nil {
			return err
		}
		a.owner, a.rank = choice.of.owner, choice.of.rank
	}
	return nil
}

// readAndChoose chooses the jobs that a claim takes. It reads what the choice needs: the owners that more returns until it
// returns none, their rows, and the jobs of these.
func (a *attempt) readAndChoose(more func(decision) ([]*candidate, error)) (chosen []choice, outbid bool, err error) {
	for atOnce := a.n; ; {
		d := choose(slices.Concat(a.yields, a.owners), a.unit, a.exchange(), a.n)
		if len(d.unread) > 0 {
			if a.exchange() { // any of them may have a job that is taken
				atOnce = len(d.unread)
			}
			if err := a.readRows(d.unread[:min(len(d.unread), atOnce)]); err != nil {
				return nil, false, err
			}
			atOnce = max(2*atOnce, ownersAtOnce)
			continue
		}
		if !d.outbid {
			owners, err := more(d)
			if err != nil {
				return nil, false, err
			}
			if len(owners) > 0 {
				if err := a.addOwners(owners); err != nil {
					return nil, false, err
				}
				continue
			}
		}
		fitting, all, err := a.look(d.chosen)
		if all || err != nil {
			return d.chosen[:fitting], d.outbid, err
		}
	}
}

// addOwners adds owners to choose from, and reads their usage if it is not known.
func (a *attempt) addOwners(owners []*candidate) (err error) {
	unknown := slices.DeleteFunc(slices.Clone(owners), func(p *candidate) bool { return p.weight != 0 })
	if a.unit, err = a.queue.share.loadUsage(a.tx.Snapshot(), a.rolled, unknown, a.exchange()); err != nil {
		return err
	}
	a.loaded = append(a.loaded, unknown...)
	for _, p := range owners {
		if i := slices.IndexFunc(a.yields, func(y *candidate) bool { return y.owner == p.owner }); i >= 0 {
			p.yields = a.yields[i].yields
			a.yields = slices.Delete(a.yields, i, i+1)
		}
	}
	a.owners = append(a.owners, owners...)
	return nil
}

// chooseOthers chooses jobs in other partitions, of the first owners that have any. Claimers that find nothing in their
// partitions should not all take the same.
func (a *attempt) chooseOthers(line []*candidate) ([]choice, error) {
	rest := slices.DeleteFunc(slices.Clone(line), func(p *candidate) bool { return !p.unread && len(p.others) == 0 })
	a.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	a.owners, a.allParts = nil, true
	atOnce := ownersAtOnce
	chosen, _, err := a.readAndChoose(func(decision) ([]*candidate, error) {
		if slices.ContainsFunc(a.owners, func(p *candidate) bool { return len(p.rows) > 0 }) {
			return nil, nil
		}
		some := rest[:min(atOnce, maxWindow/window, len(rest))]
		rest, atOnce = rest[len(some):], 2*atOnce
		for _, p := range some {
			if !p.unread {
				p.rows = a.shuffled(p.others)
			}
		}
		return some, nil
	})
	return chosen, err
}

func (a *attempt) shuffled(keys [][]byte) [][]byte {
	a.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// ownersToRead returns the number of owners to read at the same time.
func (a *attempt) ownersToRead(partition partition) int {
	return min(max(a.n, ownersAtOnce, 4*partition.claimers), maxOwners)
}

// prefer sets the partitions of the last n owners of the line. It returns the owners that can have jobs in them.
func (a *attempt) prefer(partition partition, line []*candidate, n int) (mine []*candidate) {
	upTo := len(line)
	for i := len(line) - 1; i >= len(line)-n; i-- {
		p := line[i]
		if i < len(line)-1 && p.rank != line[i+1].rank {
			upTo = i + 1
		}
		if p.partition = partition.among(upTo, p.owner, a.began); p.partition.prefers() {
			mine = append(mine, p)
		}
	}
	slices.Reverse(mine)
	return mine
}

// readRows reads the first ready rows of owners: of as many as have maxWindow rows.
func (a *attempt) readRows(owners []*candidate) error {
	// Enough that several are likely to be in the partition, if the owner has so many.
	own := max(window/4, 4*a.n/len(owners))
	var reads []kv.Future[[]kv.KeyValue]
	for all := 0; len(reads) < len(owners) && all < maxWindow; {
		p, limit := owners[len(reads)], window
		if p.partition.prefers() {
			limit = min(max(window, own*p.partition.shared), maxWindow)
		}
		reads = append(reads, a.queue.readReady(a.tx.Snapshot(), p.owner, limit))
		all += limit
	}
	for i, read := range reads {
		p := owners[i]
		pairs, err := read.Await()
		if err != nil {
			return err
		}
		p.unread, p.empty = false, len(pairs) == 0
		if p.empty {
			at, err := a.version.Await()
			if err != nil {
				return err
			}
			a.queue.bounds.set(p.owner, a.queue.keys.ready.Sub(p.owner).Pack(stampAfter(at)))
			continue
		}
		a.queue.bounds.set(p.owner, pairs[0].Key)
		own, others := p.partition.sort(pairs)
		p.rows, p.others = keysOf(own), keysOf(others)
		if a.allParts {
			p.rows = a.shuffled(append(p.rows, p.others...))
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
func (a *attempt) look(chosen []choice) (fitting int, all bool, err error) {
	all = true
	size := 0
	for some := range slices.Chunk(chosen, readAtOnce) {
		if size >= enoughBytes {
			break
		}
		var unread []*seen
		for _, choice := range some {
			if a.jobs[string(choice.key)] != nil {
				continue
			}
			_, id, err := stampAndID(a.queue.keys.ready, choice.key)
			if err != nil {
				return 0, false, err
			}
			s := &seen{id: id, owner: choice.of.owner, key: choice.key}
			a.jobs[string(choice.key)] = s
			unread = append(unread, s)
		}
		if err := a.readJobs(unread); err != nil {
			return 0, false, err
		}
		for _, choice := range some {
			job := a.jobs[string(choice.key)].job
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

// readJobs reads jobs with conflicts, and the weights of their owners: the claim conflicts with pausing an owner. A job can
// be taken if it is pending where it was found, its owner is not paused, and the request may get it.
func (a *attempt) readJobs(found []*seen) error {
	for _, s := range found {
		s.read = a.queue.readJob(a.tx, s.id)
		if a.weights[s.owner] == nil {
			a.weights[s.owner] = a.queue.share.readWeight(a.tx, s.owner)
		}
	}
	for _, s := range found {
		var err error
		if s.row, err = s.read.row.Await(); err != nil {
			return err
		}
		weight, err := a.weights[s.owner].Await()
		if err != nil {
			return err
		}
		if s.row == nil || s.row.status != Pending || s.row.owner != s.owner || weight == 0 ||
			!bytes.Equal(s.key, a.queue.derive(s.id, s.row).key()) {
			continue
		}
		if s.job, err = s.read.job(s.row); err != nil {
			return err
		}
	}
	return nil
}

// take makes the claimer the holder of a job, in exchange for the job with the id instead, if that is not empty.
func (a *attempt) take(s *seen, instead string) error {
	i := len(a.taken)
	next := *s.row
	next.status, next.tag, next.lock, next.sequence, next.timeout = Running, "", a.locks[i], stamp(uint16(i)), a.timeout
	if err := a.batch.put(s.id, s.row, &next); err != nil {
		return err
	}
	a.heartbeat()
	held := next.job(s.id, s.job.State)
	held.Args, held.ArgsErr, held.Instead = s.job.Args, s.job.ArgsErr, instead
	a.taken = append(a.taken, held)
	a.claim.earlier = a
	a.size += len(held.Args) + len(held.State)
	return nil
}
