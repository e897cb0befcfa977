package fdbjobs

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

const (
	// window is how many rows at the head of a queue a claim chooses from at least.
	// The more there are, the fewer claimers choose the same.
	window = 16
	// ownersAtOnce is how many owners' queues are read side by side at least.
	ownersAtOnce = 8
	// maxOwners is how many owners' queues one claim looks into at most.
	maxOwners = 500
	// promoteBatch is how many jobs whose time has come one transaction moves.
	promoteBatch = 100
	// ownersPerDrop is how many owners without jobs one transaction forgets. While
	// there are jobs to take, fewer than that are left alone: an owner that is served
	// as fast as it adds jobs has none at many a moment.
	ownersPerDrop = 100
	// clockSkew is how far the clocks of those who schedule jobs may be apart, for a
	// job to be seen in time. What lies further back is seen within fullRead.
	clockSkew = 60 // seconds
	fullRead  = time.Minute
	// maxBounds bounds the memory of queueReader.
	maxBounds = 10_000
	// readAtOnce is how many jobs a claim reads side by side, and enoughBytes how
	// much of args and states it takes before it is content with the jobs it has:
	// with large ones its five seconds would end before it had maxClaim.
	readAtOnce  = 16
	enoughBytes = 16_000_000
)

// queueReader remembers where to begin reading. What it forgets costs time only.
type queueReader struct {
	owner   string            // the one that was served last
	heads   map[string][]byte // of owners' ready queues: nothing lies below
	delayed int64             // nothing in delayed lies below, but for clock skew
	full    time.Time         // when delayed was read from its start
}

func newQueueReader() queueReader { return queueReader{heads: map[string][]byte{}} }

func (q *queueReader) remember(owner string, head []byte) {
	if len(q.heads) >= maxBounds {
		clear(q.heads)
	}
	q.heads[owner] = head
}

// claim is the outcome of a claimer's transaction.
type claim struct {
	held  []*Held
	empty []string // owners without jobs
	due   bool     // there are jobs whose time has come
	idle  *idle    // what to wait for; nil if held is not empty
}

// again reports whether another claim may find something at once.
func (c claim) again() bool { return len(c.held) > 0 || c.due || len(c.empty) > 0 }

// claimRun is what one run of a claim's transaction found.
type claimRun struct {
	jobs    []*Job
	locks   []string // of jobs
	timeout time.Duration
	owner   string            // the last one served
	heads   map[string][]byte // see queueReader
	empty   []string          // owners without jobs
	looked  bool              // whether next says anything
	next    int64             // the earliest scheduled time, or 0
	watch   kv.Watch
	size    int // of the jobs' args and states
}

// claim takes jobs for a group of requests.
func (c *claimer) claim(ctx context.Context, group []*request, latest time.Time) (claim, error) {
	t := c.typ
	n := 0
	for _, r := range group {
		n += r.count
	}
	tx := claimTx{typ: t, queue: &c.queue, n: min(n, maxClaim), latest: latest}
	for range tx.n {
		tx.locks = append(tx.locks, t.layer.newLock())
	}
	seed := t.layer.draw()
	tx.seeds = [2]uint64{seed.Uint64(), seed.Uint64()}
	tx.full = time.Since(c.queue.full) >= fullRead

	began := time.Now()
	found, err := kv.TransactValue(ctx, t.layer.db, tx.run)
	if err != nil {
		return claim{}, err
	}
	c.learn(tx, found, began)

	out := claim{empty: found.empty, due: found.next != 0 && found.next <= time.Now().Unix()}
	for i, job := range found.jobs {
		out.held = append(out.held, newHeld(t, job, found.locks[i], began, found.timeout))
	}
	if found.watch != nil {
		out.idle = &idle{watch: found.watch}
		if found.next != 0 {
			out.idle.next = unixTime(found.next)
		}
	}
	return out, nil
}

// tidy makes the jobs ready whose time has come, and forgets owners without jobs.
func (c *claimer) tidy(ctx context.Context, found claim) error {
	if len(found.held) == 0 || len(found.empty) >= ownersPerDrop {
		for owners := range slices.Chunk(found.empty, ownersPerDrop) {
			if err := c.typ.dropOwners(ctx, owners, c.queue.heads); err != nil {
				return err
			}
		}
	}
	if !found.due {
		return nil
	}
	return c.typ.promote(ctx, c.queue.delayedFrom(false))
}

// learn keeps what the next claim begins with, of one that began at a time.
func (c *claimer) learn(tx claimTx, found claimRun, began time.Time) {
	if found.owner != "" {
		c.queue.owner = found.owner
	}
	for owner, head := range found.heads {
		c.queue.remember(owner, head)
	}
	if !found.looked {
		return
	}
	if tx.full {
		c.queue.full = began
	}
	// What the next job waits for may be far away, but another that is scheduled
	// from now on can lie anywhere behind now.
	bound := began.Unix()
	if found.next != 0 {
		bound = min(bound, found.next)
	}
	if tx.full || bound > c.queue.delayed {
		c.queue.delayed = bound
	}
}

// delayedFrom is the time from which delayed is to be read.
func (q *queueReader) delayedFrom(full bool) int64 {
	if full {
		return 0
	}
	return max(q.delayed-clockSkew, 0)
}

// claimTx is the transaction of a claim.
type claimTx struct {
	typ    *Type
	queue  *queueReader // only read
	n      int
	latest time.Time
	locks  []string
	seeds  [2]uint64
	full   bool
	taken  []taken // by the latest run that took any
}

// taken is a job that a run took, which may or may not have been committed.
type taken struct {
	id, lock   string
	generation int64
}

func (c *claimTx) run(tx kv.Transaction) (claimRun, error) {
	out := claimRun{heads: map[string][]byte{}}
	timeout := tx.Snapshot().Get(c.typ.keys.timeout)
	var err error
	if done, err := c.recover(tx, &out); done || err != nil {
		if err == nil {
			out.timeout, err = awaitTimeout(timeout)
		}
		return out, err
	}
	delayed := tx.Snapshot().GetRange(
		from(c.typ.keys.delayed, c.typ.keys.delayed.Pack(c.queue.delayedFrom(c.full))), kv.RangeOptions{Limit: 1})
	if err = c.takeReady(tx, &out); err != nil {
		return out, err
	}
	if now := time.Now(); c.latest.After(now) {
		if err = c.takeEarly(tx, &out, now); err != nil {
			return out, err
		}
	}
	for pair, err := range delayed.All() {
		if err != nil {
			return out, err
		}
		if out.next, _, err = c.typ.parseDelayed(pair.Key); err != nil {
			return out, err
		}
	}
	out.looked = true
	if len(out.jobs) == 0 {
		out.watch = tx.Watch(c.typ.keys.watchReady)
	}
	out.timeout, err = awaitTimeout(timeout)
	return out, err
}

// recover finds the jobs that an earlier run of this transaction took, if its
// commit was made after all. It reads without conflicts: what the jobs' holders
// do now must not hinder a claim that lost them.
func (c *claimTx) recover(tx kv.Transaction, out *claimRun) (bool, error) {
	rows := make([]kv.Future[[]byte], len(c.taken))
	for i, earlier := range c.taken {
		rows[i] = c.typ.readRow(tx.Snapshot(), earlier.id)
	}
	for i, earlier := range c.taken {
		row, err := awaitRow(rows[i])
		if err != nil {
			return false, err
		}
		if row == nil || !row.heldBy(earlier.lock) {
			continue
		}
		job, err := c.typ.readJob(tx.Snapshot(), earlier.id).job(row)
		if err != nil {
			return false, err
		}
		// If it was added again meanwhile, its first update is to find that.
		job.Generation = earlier.generation
		out.jobs = append(out.jobs, job)
		out.locks = append(out.locks, earlier.lock)
	}
	// That run's fate is decided; its jobs need not be looked at again.
	if len(out.jobs) == 0 {
		c.taken = nil
	}
	return len(out.jobs) > 0, nil
}

// enough reports whether a run has taken what it may.
func (c *claimTx) enough(out *claimRun) bool {
	return len(out.jobs) >= c.n || out.size >= enoughBytes
}

// takeReady takes jobs from owners' queues, from as many owners as possible,
// beginning behind the one that was served last.
func (c *claimTx) takeReady(tx kv.Transaction, out *claimRun) error {
	random := rand.New(rand.NewPCG(c.seeds[0], c.seeds[1]))
	version := tx.Snapshot().ReadVersion()
	owners := c.typ.keys.owners
	all := keyRange(owners)
	middle := kv.KeyAfter(owners.Pack(c.queue.owner))
	// Once around: those behind the last one, then those up to it.
	for _, part := range []kv.KeyRange{{Begin: middle, End: all.End}, {Begin: all.Begin, End: middle}} {
		for !c.enough(out) && len(out.heads) < maxOwners {
			limit := max(c.n-len(out.jobs), ownersAtOnce)
			pairs, err := tx.Snapshot().GetRange(part, kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll}).Slice()
			if err != nil {
				return err
			}
			if len(pairs) == 0 {
				break
			}
			if err := c.takeFrom(tx, out, pairs, random, version); err != nil {
				return err
			}
			part.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
		}
	}
	return nil
}

// takeFrom takes jobs from the queues of some owners, one of each in turn.
func (c *claimTx) takeFrom(
	tx kv.Transaction, out *claimRun, pairs []kv.KeyValue, random *rand.Rand, version kv.Future[int64],
) error {
	owners := make([]string, len(pairs))
	heads := make([]kv.RangeResult, len(pairs))
	limit := max(window, 4*(c.n-len(out.jobs))/len(pairs))
	for i, pair := range pairs {
		var err error
		if owners[i], err = lastString(c.typ.keys.owners, pair.Key); err != nil {
			return err
		}
		ready := from(c.typ.keys.ready.Sub(owners[i]), c.queue.heads[owners[i]])
		heads[i] = tx.Snapshot().GetRange(ready, kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll})
	}
	queues := make([][][]byte, len(pairs))
	for i, head := range heads {
		rows, err := head.Slice()
		if err != nil {
			return err
		}
		for _, row := range rows {
			queues[i] = append(queues[i], row.Key)
		}
		if len(rows) > 0 {
			out.heads[owners[i]] = rows[0].Key
			continue
		}
		v, err := version.Await()
		if err != nil {
			return err
		}
		out.heads[owners[i]] = c.typ.keys.ready.Sub(owners[i]).Pack(stampAfter(v))
		out.empty = append(out.empty, owners[i])
	}
	for !c.enough(out) {
		picks := pick(queues, c.n-len(out.jobs), random)
		if len(picks) == 0 {
			return nil
		}
		for some := range slices.Chunk(picks, readAtOnce) {
			if c.enough(out) {
				break
			}
			out.owner = owners[some[len(some)-1].queue]
			if err := c.takeRows(tx, out, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// picked is a row of a queue that was chosen, and taken out of it.
type picked struct {
	queue int
	key   []byte
}

// pick takes up to n rows out of queues, one of each queue in turn, and at random
// within each.
func pick(queues [][][]byte, n int, random *rand.Rand) []picked {
	var out []picked
	for n > len(out) {
		before := len(out)
		for i, queue := range queues {
			if len(queue) == 0 || len(out) == n {
				continue
			}
			j := random.IntN(len(queue))
			out = append(out, picked{i, queue[j]})
			queues[i] = slices.Delete(queue, j, j+1)
		}
		if len(out) == before {
			break
		}
	}
	return out
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
			!bytes.Equal(picks[i].key, c.typ.keys.ready.Pack(row.owner, *row.sequence, read.id)) {
			continue // the invariant says never
		}
		if !c.latest.IsZero() && row.scheduled > c.latest.Unix() {
			continue
		}
		if err := c.take(tx, out, read, row); err != nil {
			return err
		}
	}
	return nil
}

// takeEarly takes jobs that are scheduled after now, but not after latest.
func (c *claimTx) takeEarly(tx kv.Transaction, out *claimRun, now time.Time) error {
	if c.enough(out) || c.latest.Unix() <= now.Unix() {
		return nil
	}
	delayed := c.typ.keys.delayed
	soon := kv.KeyRange{Begin: delayed.Pack(now.Unix() + 1), End: delayed.Pack(c.latest.Unix() + 1)}
	pairs, err := tx.Snapshot().GetRange(soon, kv.RangeOptions{Limit: c.n - len(out.jobs)}).Slice()
	if err != nil {
		return err
	}
	for some := range slices.Chunk(pairs, readAtOnce) {
		if c.enough(out) {
			return nil
		}
		if err := c.takeDelayed(tx, out, some); err != nil {
			return err
		}
	}
	return nil
}

// takeDelayed takes the jobs of rows in delayed.
func (c *claimTx) takeDelayed(tx kv.Transaction, out *claimRun, pairs []kv.KeyValue) error {
	reads := make([]jobRead, len(pairs))
	for i, pair := range pairs {
		_, id, err := c.typ.parseDelayed(pair.Key)
		if err != nil {
			return err
		}
		reads[i] = c.typ.readJob(tx, id)
	}
	for _, read := range reads {
		row, err := awaitRow(read.row)
		if err != nil {
			return err
		}
		if row == nil || !row.waits() {
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
	next.status, next.lock, next.sequence = Running, c.locks[i], stamp(uint16(i))
	job, err := read.job(&next)
	if err != nil {
		return err
	}
	c.typ.put(tx, read.id, old, &next, uint16(i))
	c.taken = append(c.taken, taken{read.id, next.lock, next.generation})
	out.jobs = append(out.jobs, job)
	out.locks = append(out.locks, next.lock)
	out.size += len(job.Args) + len(job.State)
	return nil
}

// parseDelayed returns the time and the job of a row in delayed.
func (t *Type) parseDelayed(key []byte) (scheduled int64, id string, err error) {
	elements, err := t.keys.delayed.Unpack(key)
	if err == nil && (len(elements) != 2 || !as(elements[0], &scheduled) || !as(elements[1], &id)) {
		err = tuple.ErrMalformed
	}
	return scheduled, id, err
}

// promote makes jobs ready whose time has come, of those scheduled from then on.
func (t *Type) promote(ctx context.Context, begin int64) error {
	return t.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		now := time.Now().Unix()
		due := kv.KeyRange{Begin: t.keys.delayed.Pack(begin), End: t.keys.delayed.Pack(now + 1)}
		pairs, err := tx.Snapshot().GetRange(due, kv.RangeOptions{Limit: promoteBatch, Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return err
		}
		ids := make([]string, len(pairs))
		rows := make([]kv.Future[[]byte], len(pairs))
		for i, pair := range pairs {
			if _, ids[i], err = t.parseDelayed(pair.Key); err != nil {
				return err
			}
			rows[i] = t.readRow(tx, ids[i])
		}
		for i, id := range ids {
			old, err := awaitRow(rows[i])
			if err != nil {
				return err
			}
			if old != nil && old.waits() {
				t.put(tx, id, old, queued(*old, old.scheduled, now, uint16(i)), uint16(i))
			}
		}
		return nil
	})
}

// dropOwners removes the rows of owners without jobs that are ready. One that
// becomes ready meanwhile conflicts with the reading, or sets the row again. On a
// conflict there is something to take, and the rows stay for now. heads are
// queueReader's.
func (t *Type) dropOwners(ctx context.Context, owners []string, heads map[string][]byte) error {
	attempted := false
	return t.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if attempted {
			return nil
		}
		attempted = true
		ready := make([]kv.RangeResult, len(owners))
		for i, owner := range owners {
			ready[i] = tx.GetRange(from(t.keys.ready.Sub(owner), heads[owner]), kv.RangeOptions{Limit: 1})
		}
		for i, owner := range owners {
			rows, err := ready[i].Slice()
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				tx.Clear(t.keys.owners.Pack(owner))
			}
		}
		return nil
	})
}
