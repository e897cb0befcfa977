package fdbjobs

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"time"

	"settee/pkg/kv"
)

// A claim is the transaction in which a claimer takes jobs. It reads, chooses (choose.go), and writes what it has chosen. It
// reads only what the choice needs: the first waiting owners, and the first ready jobs of the owners that may be served.

// claim is a claim over all its runs.
type claim struct {
	queue *Queue
	by    *claimer // which no run changes

	n         int     // the maximum number of jobs to take
	evictable []*Held // jobs that this process holds and that can be evicted; nil if there is room
	began     time.Time
	full      bool     // delayed is read from its start
	locks     []string // for the jobs; each is used once
	seeds     [2]uint64
	earlier   *view // the latest run that took jobs, unless it is known that it was not committed
}

// view is what a run of a claim has read, and the jobs that it has taken.
type view struct {
	*claim
	tx        kv.Transaction
	random    *rand.Rand
	rolled    kv.Future[rollup]
	version   kv.Future[int64]
	partition partition // that the claimer prefers

	byRank  *ownersByRank
	waiting []*contender                            // the owners that were read from byRank
	mine    []*contender                            // of these, those in the partition that are not yet in owners
	owners  []*contender                            // to choose from
	jobCost float64                                 // what a running job counts
	others  []*contender                            // of waiting, those with jobs in other partitions, if these are taken
	anyPart bool                                    // they are
	tried   int                                     // the number of owners that were taken out of others
	windows map[*contender]kv.Future[[]kv.KeyValue] // the first ready rows of owners, also those not yet awaited
	jobs    map[string]*readyJob                    // by key in ready
	weights map[string]kv.Future[float64]           // of the owners of jobs, read with conflicts
	next    int64                                   // the earliest scheduled time, or 0; it is read last
	// partitionRead: partition was not remembered. recovered: an earlier run was committed, and nothing else was read.
	partitionRead, recovered bool

	taken     []*Job
	served    *contender // the last one
	heartbeat bool       // it has written one
	watch     kv.Watch   // without jobs
}

// readyJob is a ready job. job is nil if it cannot be taken.
type readyJob struct {
	read jobRead
	row  *row
	job  *Job
}

// run is the function of the transaction.
func (c *claim) run(tx kv.Transaction) (*view, error) {
	q, now := c.queue, tx.Snapshot()
	v := &view{
		claim: c, tx: tx, random: rand.New(rand.NewPCG(c.seeds[0], c.seeds[1])), rolled: q.share.readRollup(now),
		windows: map[*contender]kv.Future[[]kv.KeyValue]{}, jobs: map[string]*readyJob{}, weights: map[string]kv.Future[float64]{},
	}
	again := c.earlier != nil // an earlier run has taken jobs
	if done, err := v.recover(); done || err != nil {
		return v, err
	}
	reading := q.firstDelayed(now, c.by.delayedFrom(c.full))
	v.version = now.ReadVersion()
	if err := v.readRanks(again); err != nil {
		return v, err
	}
	picks, err := v.choose()
	if err != nil {
		return v, err
	}
	if err := v.take(picks); err != nil {
		return v, err
	}
	delayed, err := reading.Await()
	if err != nil {
		return v, err
	}
	for _, d := range delayed { // one
		v.next = d.scheduled
	}
	if len(v.taken) == 0 {
		v.watch = tx.Watch(q.keys.watchReady)
	}
	return v, nil
}

// readRanks starts reading the waiting owners, and reads the usage of the owners of the jobs that can be evicted.
func (v *view) readRanks(again bool) (err error) {
	partition := v.readPartition(again)
	v.byRank = v.queue.share.byRank(v.tx.Snapshot(), v.by.lastOwner, v.by.lastRank, v.ownersToRead(v.by.partition))
	if err := v.addOwners(ownersOf(v.evictable)); err != nil {
		return err
	}
	if v.partition, err = partition.Await(); err != nil {
		return err
	}
	return v.byRank.lowestFirst(v.by.lastRank)
}

// choose chooses the jobs to take, and reads what the choice needs.
func (v *view) choose() ([]pick, error) {
	for windows := v.n; ; {
		c := choose(v.owners, v.jobCost, v.evictable != nil, v.n)
		if len(c.unread) > 0 {
			if v.evictable != nil { // any of these owners may have a job that is taken
				windows = len(c.unread)
			}
			if err := v.readWindows(c.unread[:min(len(c.unread), windows)]); err != nil {
				return nil, err
			}
			windows = max(2*windows, ownersAtOnce)
			continue
		}
		if v.wantsOwners(c) {
			if more, err := v.readOwners(len(c.picks)); err != nil {
				return nil, err
			} else if more {
				continue
			}
		}
		if picks, all, err := v.readJobs(c.picks); all || err != nil {
			return picks, err
		}
	}
}

// wantsOwners reports whether the choice may depend on owners that have not been read. If running jobs do not count, a rank
// is a bound of an owner's usage.
func (v *view) wantsOwners(c choice) bool {
	if c.settled || len(c.picks) < v.n {
		return !c.settled
	}
	last := c.picks[len(c.picks)-1].of
	return len(v.mine) > 0 && v.mine[0].rank < last.used && len(v.owners) < max(v.n, ownersAtOnce)
}

// readOwners adds the next owners to choose from, and reports whether there were any. chosen is the number of jobs that
// were chosen from the others. Jobs in other partitions are taken only if there are no jobs in the claimer's: of the first
// owners in a random order, because claimers that find nothing in their partitions should not all take the same jobs.
func (v *view) readOwners(chosen int) (bool, error) {
	for !v.anyPart && len(v.mine) == 0 && len(v.waiting) < maxOwners {
		next, err := v.byRank.next(v.ownersToRead(v.partition))
		if err != nil {
			return false, err
		}
		if len(next) == 0 {
			break
		}
		v.waiting = append(v.waiting, next...)
		v.mine = v.prefer(len(next))
	}
	atOnce := max(v.n, ownersAtOnce)
	if len(v.owners) == 0 && v.jobCost == 0 {
		atOnce = v.n // see wantsOwners
	}
	if some := v.mine[:min(len(v.mine), atOnce)]; len(some) > 0 {
		v.mine = v.mine[len(some):]
		if len(v.owners) == 0 {
			v.startWindows(some[:min(len(some), v.n)]) // these are probably served first
		}
		return true, v.addOwners(some)
	}
	if chosen > 0 || v.evictable != nil {
		return false, nil
	}
	if !v.anyPart {
		v.anyPart = true
		v.others = slices.DeleteFunc(slices.Clone(v.waiting), func(p *contender) bool { return p.read && len(p.others) == 0 })
		v.random.Shuffle(len(v.others), func(i, j int) { v.others[i], v.others[j] = v.others[j], v.others[i] })
	}
	some := v.others[:min(len(v.others), max(2*v.tried, ownersAtOnce), maxWindow/window)]
	v.others, v.tried = v.others[len(some):], v.tried+len(some)
	for _, p := range some {
		p.rows, p.others = v.shuffled(p.others), nil
	}
	return len(some) > 0, v.addOwners(slices.DeleteFunc(slices.Clone(some), func(p *contender) bool { return p.read }))
}

// addOwners adds owners to choose from, and reads their usage.
func (v *view) addOwners(owners []*contender) (err error) {
	v.jobCost, err = v.queue.share.readUsage(v.tx.Snapshot(), v.rolled, owners)
	for _, p := range owners {
		same := func(o *contender) bool { return o.owner == p.owner }
		if i := slices.IndexFunc(v.owners, same); i >= 0 { // with jobs that can be evicted
			p.evictable = v.owners[i].evictable
			v.owners = slices.Delete(v.owners, i, i+1)
		}
	}
	v.owners = append(v.owners, owners...)
	return err
}

// readJobs reads the jobs that were chosen, their rows with conflicts, and returns the picks that fit into the transaction. complete is
// false if some jobs cannot be taken: their rows are no longer among those of their owners then.
func (v *view) readJobs(picks []pick) (fitting []pick, complete bool, err error) {
	for _, p := range picks {
		if err := v.startJob(p); err != nil {
			return nil, false, err
		}
	}
	complete = true
	for size := 0; len(picks) > 0 && size < enoughBytes; picks = picks[1:] {
		p := picks[0]
		job, err := v.awaitJob(p)
		if err != nil {
			return nil, false, err
		}
		if job == nil {
			p.of.rows = slices.DeleteFunc(p.of.rows, func(key []byte) bool { return bytes.Equal(key, p.key) })
			complete = false
			continue
		}
		size += len(job.Args) + len(job.State)
		fitting = append(fitting, p)
	}
	return fitting, complete, nil
}

// startJob starts reading a job, and the weight of its owner: the claim conflicts with pausing an owner.
func (v *view) startJob(p pick) error {
	if v.jobs[string(p.key)] != nil {
		return nil
	}
	id, err := v.queue.keys.readyID(p.key)
	if err != nil {
		return err
	}
	v.jobs[string(p.key)] = &readyJob{read: v.queue.readJob(v.tx, v.tx.Snapshot(), id)}
	if v.weights[p.of.owner] == nil {
		v.weights[p.of.owner] = v.queue.share.readWeight(v.tx, p.of.owner)
	}
	return nil
}

// awaitJob awaits a job. It returns nil if the job cannot be taken: if it is not pending where it was found, or its owner is
// paused.
func (v *view) awaitJob(p pick) (*Job, error) {
	j := v.jobs[string(p.key)]
	if j.job != nil {
		return j.job, nil
	}
	row, err := j.read.row.Await()
	if err != nil {
		return nil, err
	}
	weight, err := v.weights[p.of.owner].Await()
	if err != nil || row == nil || row.status != Pending || row.owner != p.of.owner || weight == 0 ||
		!bytes.Equal(p.key, v.queue.derive(j.read.id, row).key()) {
		return nil, err
	}
	j.row = row
	j.job, err = j.read.job(row)
	return j.job, err
}

// take makes the claimer the holder of the jobs that were chosen, as many as fit into the transaction.
func (v *view) take(picks []pick) error {
	batch := v.queue.batch(v.tx)
	for i, p := range picks {
		if batch.full() {
			break
		}
		j := v.jobs[string(p.key)]
		next := *j.row
		next.status, next.tag, next.lock, next.sequence, next.renews = Running, "", v.locks[i], nil, true
		if err := batch.gather(j.read.id, j.row, &next); err != nil {
			return err
		}
		held := next.job(j.read.id, j.job.State)
		held.Args, held.ArgsErr, held.Evicted = j.job.Args, j.job.ArgsErr, p.evicts
		v.taken = append(v.taken, held)
		v.served, v.earlier = p.of, v
	}
	batch.writeTallies()
	if len(v.taken) > 0 {
		v.writeHeartbeat()
	}
	return nil
}
