package fdbjobs

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

const (
	// window is how many rows at the head of a queue a claim looks at, at least, and
	// maxWindow at most. With other claimers about it looks at as many times more.
	window    = 16
	maxWindow = 2_048
	// ownersAtOnce is how many owners' queues are read side by side at least.
	ownersAtOnce = 8
	// maxOwners is how many owners' queues one claim looks into at most.
	maxOwners = 500
	// promoteBatch is how many jobs whose time has come one transaction moves.
	promoteBatch = 100
	// An owner without ready jobs leaves the line after emptyFor, or with others when
	// there are manyEmpty of them: one that is served as fast as it adds jobs has none
	// at many a moment.
	emptyFor  = time.Second
	manyEmpty = 100
	// foldEvery is how often a claimer moves what was charged to an owner into its rank.
	foldEvery = time.Second
	// freshFor is how long a claim relies on what an earlier one has seen of the owners in
	// line and the heads of their queues, before it looks again.
	freshFor = 100 * time.Millisecond
	// clockSkew is how far the clocks of those who schedule jobs may be apart, for a
	// job to be seen in time. What lies further back is seen within fullRead.
	clockSkew = 60 // seconds
	fullRead  = time.Minute
	// maxBounds bounds the memory of queueReader; maxStocks and maxStock that of the rows
	// it keeps, by owners and for each of them.
	maxBounds = 10_000
	maxStocks = 1_000
	maxStock  = 64
	// readAtOnce is how many jobs a claim reads side by side, and enoughBytes how
	// much of args and states it takes before it is content with the jobs it has:
	// with large ones its five seconds would end before it had maxClaim.
	readAtOnce  = 16
	enoughBytes = 16_000_000
)

// queueReader remembers where to begin reading. What it forgets costs time only.
type queueReader struct {
	owner   string               // the one that was served last
	rank    float64              // where it was in line
	known   []*candidate         // the owners in line, as they were seen
	unit    float64              // what a running job counted when they were
	seen    time.Time            // when that was
	stock   map[string][][]byte  // of owners' ready queues: rows that were seen and left
	heads   map[string][]byte    // of owners' ready queues: nothing lies below
	empty   map[string]time.Time // since when owners have had nothing ready
	noted   map[string]string    // the heads that were noted for others: see noteHeads
	noting  time.Time            // when some were
	folded  map[string]time.Time // when owners' charges were last folded
	delayed int64                // nothing in delayed lies below, but for clock skew
	full    time.Time            // when delayed was read from its start
	beat    time.Time            // when this claimer last said that it is there
}

func newQueueReader() queueReader {
	return queueReader{
		stock: map[string][][]byte{}, heads: map[string][]byte{}, noted: map[string]string{},
		empty: map[string]time.Time{}, folded: map[string]time.Time{},
	}
}

// note sets an entry of a map that is bounded.
func note[V any](m map[string]V, owner string, v V) {
	if len(m) >= maxBounds {
		clear(m)
	}
	m[owner] = v
}

// claim is the outcome of a claimer's transaction.
type claim struct {
	held  []*Held
	empty []string    // owners that are to leave the line
	fold  []string    // owners whose charges are to be folded
	heads []ownerHead // to be noted
	due   bool        // there are jobs whose time has come
	more  bool        // there are owners in line that were not looked at, behind some that leave it
	idle  *idle       // what to wait for; nil if held is not empty
}

// again reports whether another claim may find something at once.
func (c claim) again() bool { return len(c.held) > 0 || c.due || c.more }

// claimRun is what one run of a claim's transaction found.
type claimRun struct {
	jobs    []*Job
	locks   []string // of jobs
	instead []string // of jobs that were taken in exchange: what goes for them
	timeout time.Duration
	owners  []string            // that were looked at
	owner   string              // the last one served
	rank    float64             // its rank
	heads   map[string][]byte   // see queueReader
	empty   []string            // owners without ready jobs
	fold    []string            // owners with charges
	known   []*candidate        // the owners in line, with what is left of their queues
	left    map[string][][]byte // of queueReader.stock, where this run has taken of it
	saw     bool                // whether this run has read them
	looked  bool                // whether next says anything
	next    int64               // the earliest scheduled time, or 0
	watch   kv.Watch
	size    int // of the jobs' args and states
}

// claim takes jobs for a group of requests, which want the same.
func (c *claimer) claim(ctx context.Context, group []*request) (claim, error) {
	t := c.typ
	n := 0
	for _, r := range group {
		n += r.count
	}
	tx := claimTx{typ: t, claimer: c.id, queue: &c.queue, n: min(n, maxClaim), wants: group[0].wants}
	for range tx.n {
		tx.locks = append(tx.locks, t.layer.newLock())
	}
	seed := t.layer.draw()
	tx.seeds = [2]uint64{seed.Uint64(), seed.Uint64()}
	began := time.Now()
	tx.began, tx.full = began, began.Sub(c.queue.full) >= fullRead
	found, err := kv.TransactValue(ctx, t.layer.db, tx.run)
	if err != nil {
		return claim{}, err
	}
	c.learn(tx, found, began)

	out := claim{due: found.next != 0 && found.next <= time.Now().Unix()}
	out.empty = c.queue.leaving(found, began)
	out.more = len(found.owners) >= maxOwners && len(out.empty) > 0
	for _, owner := range found.fold {
		if began.Sub(c.queue.folded[owner]) >= foldEvery {
			note(c.queue.folded, owner, began)
			out.fold = append(out.fold, owner)
		}
	}
	if out.heads, err = c.queue.toNote(t, found, began); err != nil {
		return claim{}, err
	}
	for i, job := range found.jobs {
		held := newHeld(t, job, found.locks[i], began, found.timeout)
		if len(found.instead) > 0 {
			held.instead = found.instead[i]
		}
		out.held = append(out.held, held)
	}
	if found.watch != nil {
		out.idle = &idle{watch: found.watch}
		if found.next != 0 {
			out.idle.next = unixTime(found.next)
		}
	}
	return out, nil
}

// tidy makes the jobs ready whose time has come, and keeps the line of owners in order.
func (c *claimer) tidy(ctx context.Context, found claim) error {
	for owners := range slices.Chunk(found.empty, ownersAtATime) {
		if err := c.typ.delist(ctx, owners, c.queue.heads); err != nil {
			return err
		}
		for _, owner := range owners {
			delete(c.queue.empty, owner)
		}
	}
	for owners := range slices.Chunk(found.fold, ownersAtATime) {
		if err := c.typ.layer.db.Transact(ctx, func(tx kv.Transaction) error { return c.typ.fold(tx, owners) }); err != nil {
			return err
		}
	}
	if len(found.heads) > 0 {
		if err := c.typ.noteHeads(ctx, found.heads); err != nil {
			return err
		}
	}
	if !found.due {
		return nil
	}
	return c.typ.promote(ctx, c.queue.delayedFrom(false))
}

// leaving returns the owners that a claim found without ready jobs, and that have had
// none for long enough.
func (q *queueReader) leaving(found claimRun, now time.Time) []string {
	for _, owner := range found.owners {
		if !slices.Contains(found.empty, owner) {
			delete(q.empty, owner)
		}
	}
	var out []string
	for _, owner := range found.empty {
		since, known := q.empty[owner]
		if !known {
			since = now
			note(q.empty, owner, now)
		}
		if now.Sub(since) >= emptyFor || len(found.empty) >= manyEmpty {
			out = append(out, owner)
		}
	}
	return out
}

// learn keeps what the next claim begins with, of one that began at a time.
func (c *claimer) learn(tx claimTx, found claimRun, began time.Time) {
	if found.owner != "" {
		c.queue.owner, c.queue.rank = found.owner, found.rank
	}
	for owner, head := range found.heads {
		note(c.queue.heads, owner, head)
	}
	c.queue.keep(found, began)
	c.queue.unit = tx.unit
	if tx.beats {
		c.queue.beat = began
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

// keep remembers what a claim has left of the queues that it knew.
func (q *queueReader) keep(found claimRun, began time.Time) {
	if found.saw {
		q.seen = began
	}
	q.known = found.known
	for _, o := range q.known {
		if !o.own {
			o.queue = nil // others are about to take these
		}
		o.looked, o.more = false, o.more || len(o.queue) > maxStock
		o.queue = o.queue[:min(len(o.queue), maxStock)]
		switch {
		case len(o.queue) == 0:
			delete(q.stock, o.owner)
		case len(q.stock) >= maxStocks:
			clear(q.stock)
		default:
			q.stock[o.owner] = o.queue
		}
	}
}

// delayedFrom is the time from which delayed is to be read.
func (q *queueReader) delayedFrom(full bool) int64 {
	if full {
		return 0
	}
	return max(q.delayed-clockSkew, 0)
}

// wants is what a request asks for. Requests that want the same are served together.
type wants struct {
	latest     int64 // seconds since the epoch; 0: what is due
	charge     int64
	noSchedule bool
	yielding   *[]Yielding // what has to go for what is taken; nil: there is room
}

// claimTx is the transaction of a claim.
type claimTx struct {
	typ     *Type
	claimer string
	queue   *queueReader // only read
	began   time.Time
	n       int
	wants   wants
	locks   []string
	seeds   [2]uint64
	full    bool
	beats   bool          // the latest run said that the claimer is there
	taken   []taken       // by the latest run that took any
	timeout time.Duration // that the latest run read

	// Of one run.
	random   *rand.Rand
	rollup   kv.Future[[]byte]
	unit     float64   // what a running job counts
	exchange *exchange // nil if there is room
	outbid   bool      // nothing that runs is to go for anything that waits
}

// taken is a job that a run took, which may or may not have been committed.
type taken struct {
	id, lock   string
	generation int64
	instead    string
}

func (c *claimTx) run(tx kv.Transaction) (claimRun, error) {
	out := claimRun{heads: map[string][]byte{}, left: map[string][][]byte{}}
	c.beats, c.outbid = false, false
	c.unit = c.queue.unit
	c.random = rand.New(rand.NewPCG(c.seeds[0], c.seeds[1]))
	timeout := tx.Snapshot().Get(c.typ.keys.timeout)
	c.rollup = tx.Snapshot().Get(c.typ.keys.rollup)
	var err error
	if done, err := c.recover(tx, &out); done || err != nil {
		out.timeout = c.timeout // which that run wrote beside the jobs
		return out, err
	}
	if out.timeout, err = awaitTimeout(timeout); err != nil {
		return out, err
	}
	c.timeout = out.timeout
	if c.wants.noSchedule {
		err = c.takeAny(tx, &out)
	} else {
		err = c.takeInOrder(tx, &out)
	}
	if err != nil {
		return out, err
	}
	if len(out.jobs) == 0 {
		out.watch = tx.Watch(c.typ.keys.watchReady)
	}
	return out, nil
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
		if c.wants.yielding != nil {
			out.instead = append(out.instead, earlier.instead)
		}
	}
	// That run's fate is decided; its jobs need not be looked at again.
	if len(out.jobs) == 0 {
		c.taken = nil
	}
	return len(out.jobs) > 0, nil
}

// enough reports whether a run is to look for no more jobs.
func (c *claimTx) enough(out *claimRun) bool { return c.sated(out) || c.outbid }

// sated reports whether a run has taken what it may.
func (c *claimTx) sated(out *claimRun) bool { return len(out.jobs) >= c.n || out.size >= enoughBytes }

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
		line := t.line(tx)
		for i, pair := range pairs {
			if _, ids[i], err = t.parseDelayed(pair.Key); err != nil {
				return err
			}
			rows[i] = t.readRow(tx, ids[i])
			line.want(string(pair.Value))
		}
		for i, id := range ids {
			old, err := awaitRow(rows[i])
			if err != nil {
				return err
			}
			if old == nil || !old.waits() {
				continue
			}
			if err := t.queue(tx, line, id, old, queued(*old, old.scheduled, now, uint16(i)), uint16(i)); err != nil {
				return err
			}
		}
		return nil
	})
}
