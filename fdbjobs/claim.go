package fdbjobs

import (
	"context"
	"math/rand/v2"
	"time"

	"settee/pkg/kv"
)

const (
	// window is the minimum number of an owner's ready rows that a claim looks at. With other claimers it is more: a
	// quarter of it, multiplied by the number of claimers that share the owner. maxWindow is the maximum number for an
	// owner, and for owners whose rows are read at the same time.
	window    = 16
	maxWindow = 2_048
	// ownersAtOnce is the minimum number of owners that are read at the same time.
	ownersAtOnce = 8
	// maxOwners is the maximum number of owners whose ready rows one claim reads.
	maxOwners = 500
	// promoteBatch is the number of due jobs that one transaction moves to ready.
	promoteBatch = 100
	// An owner without ready jobs leaves the line after emptyFor, or as soon as there are manyEmpty such owners. An
	// owner whose jobs are taken as fast as they are added often has none for a moment.
	emptyFor  = time.Second
	manyEmpty = 100
	// foldEvery is how often a claimer folds charges into owners' ranks. With few other claimers it does so more often:
	// every foldAlone for each of them and itself.
	foldEvery = 250 * time.Millisecond
	foldAlone = 100 * time.Millisecond
	// clockSkew is the largest difference between clocks with which scheduled jobs are seen in time. Jobs further back
	// are seen within fullRead.
	clockSkew = 60 // seconds
	fullRead  = time.Minute
	// readAtOnce is the number of jobs that a claim reads at the same time. enoughBytes is the size of args and states
	// after which it stops, because with large ones its five seconds would end before it had maxClaim.
	readAtOnce  = 16
	enoughBytes = 16_000_000
)

// memory is what a claimer keeps between claims, besides the queue's bounds. Forgetting costs only time.
type memory struct {
	owner     string               // the one served last
	rank      float64              // its rank
	empty     map[string]time.Time // since when owners have no ready rows
	anyFrom   string               // the owner with which the next claim of any jobs begins
	folding   time.Time            // when charges were last folded
	delayed   int64                // lower bound of delayed, without clock skew
	full      time.Time            // when delayed was last read from its start
	misses    int                  // changes in a row after which it took no job: see afterWatch
	heartbeat time.Time            // when this claimer last wrote a heartbeat
	partition partition            // its partition
	// partitionRead is when partition was read.
	partitionRead time.Time
}

// outcome is the outcome of a claim.
type outcome struct {
	held  []*Held
	empty []string // owners to take out of the line
	fold  []string // owners whose charges to fold
	due   bool     // there are jobs to promote
	more  bool     // there are more owners in line, after some that leave it
	idle  *idle    // what to wait for; nil if held is not empty
}

// again reports whether another claim may find something at once.
func (o outcome) again() bool { return len(o.held) > 0 || o.due || o.more }

// claimRun is the result of one run of a claim.
type claimRun struct {
	taken   []*Job
	timeout time.Duration
	owners  []*candidate // whose usage was read
	owner   string       // the last one served
	rank    float64      // its rank
	anyFrom string       // see memory; set by a claim of any jobs
	through bool         // whether next is set
	next    int64        // the earliest scheduled time, or 0
	watch   kv.Watch
	size    int // of the jobs' args and states
}

// claim makes a claim for a group of requests with the same wants.
func (c *claimer) claim(ctx context.Context, group []*request) (outcome, error) {
	q := c.queue
	n := 0
	for _, r := range group {
		n += r.count
	}
	tx := claim{queue: q, claimer: c.id, memory: &c.memory, n: min(n, maxClaim), wants: group[0].wants}
	tx.drawLocks()
	seed := q.layer.draw()
	tx.seeds = [2]uint64{seed.Uint64(), seed.Uint64()}
	began := q.layer.now()
	tx.began, tx.full = began, began.Sub(c.memory.full) >= fullRead
	found, err := kv.TransactValue(ctx, q.layer.db, tx.run)
	if err != nil {
		return outcome{}, err
	}
	c.count(len(found.taken))
	c.learn(tx, found, began)

	out := outcome{due: found.next != 0 && found.next <= q.layer.now().Unix()}
	out.empty = c.leaving(found, began)
	out.more = len(found.owners) >= maxOwners && len(out.empty) > 0
	if len(found.taken) == 0 || !c.tidying() {
		out.fold = c.memory.toFold(found, began)
	}
	for _, job := range found.taken {
		out.held = append(out.held, newHeld(q, job, began, found.timeout))
	}
	if found.watch != nil {
		out.idle = &idle{watch: found.watch}
		if found.next != 0 {
			left := unixTime(found.next).Sub(q.layer.now())
			if !kv.Exclusive(q.layer.db) {
				// Times are whole seconds. With a random part of one claimers do not all wake at that moment.
				left += time.Duration(seed.Int64N(int64(time.Second)))
			}
			out.idle.next = time.Now().Add(left)
		}
	}
	return out, nil
}

// learn keeps what the next claim begins with, from a claim that began at a time.
func (c *claimer) learn(tx claim, found claimRun, began time.Time) {
	if found.owner != "" {
		c.memory.owner, c.memory.rank = found.owner, found.rank
	}
	if found.anyFrom != "" {
		c.memory.anyFrom = found.anyFrom
	}
	if tx.wroteHeartbeat {
		c.memory.heartbeat = began
	}
	if tx.partition.claimers != 0 {
		c.memory.partition, c.memory.partitionRead = tx.partition, began
	}
	if !found.through {
		return
	}
	if tx.full {
		c.memory.full = began
	}
	// The next job may be due much later, but a job scheduled from now on can lie anywhere after now.
	bound := began.Unix()
	if found.next != 0 {
		bound = min(bound, found.next)
	}
	if tx.full || bound > c.memory.delayed {
		c.memory.delayed = bound
	}
}

// delayedFrom returns the time from which to read delayed.
func (m *memory) delayedFrom(full bool) int64 {
	if full {
		return 0
	}
	return max(m.delayed-clockSkew, 0)
}

// wants is what a request asks for. Requests with the same wants are served together.
type wants struct {
	latest     int64 // seconds since the epoch; 0 means due jobs only
	noSchedule bool
	yielding   *[]*Held // what can go in exchange; nil if there is room
}

// allow reports whether a request may get a ready job.
func (w wants) allow(r *row) bool { return w.latest == 0 || r.scheduled <= w.latest }

// claim is a claimer's transaction, which takes jobs for requests with the same wants.
type claim struct {
	queue          *Queue
	claimer        string
	memory         *memory // read only
	began          time.Time
	n              int
	wants          wants
	locks          []string
	seeds          [2]uint64
	full           bool
	wroteHeartbeat bool          // the latest run wrote a heartbeat
	partition      partition     // that the latest run read; zero if it read none
	taken          []*Job        // by the latest run that took any
	timeout        time.Duration // that the latest run read

	// Of one run.
	again  bool // an earlier run has taken jobs
	random *rand.Rand
	rolled kv.Future[rollup] // the last roll-up
}

func (c *claim) run(tx kv.Transaction) (claimRun, error) {
	var out claimRun
	c.wroteHeartbeat, c.again = false, len(c.taken) > 0
	c.random = rand.New(rand.NewPCG(c.seeds[0], c.seeds[1]))
	timeout := c.queue.readTimeout(tx.Snapshot())
	c.rolled = c.queue.share.readRollup(tx.Snapshot())
	var err error
	if done, err := c.recover(tx, &out); done || err != nil {
		out.timeout = c.timeout // which that run wrote with the jobs
		return out, err
	}
	if out.timeout, err = timeout.Await(); err != nil {
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
	if len(out.taken) == 0 {
		out.watch = tx.Watch(c.queue.keys.watchReady)
	}
	return out, nil
}

// drawLocks draws a lock for each job that a run may take. Each lock is used once.
func (c *claim) drawLocks() {
	c.locks = make([]string, c.n)
	for i := range c.locks {
		c.locks[i] = c.queue.layer.newLock()
	}
}

// recover finds the jobs that an earlier run of this transaction took, if that run was committed. It reads without
// conflicts, so that later writes of the jobs' holders do not make the claim fail.
func (c *claim) recover(tx kv.Transaction, out *claimRun) (bool, error) {
	ids := make([]string, len(c.taken))
	for i, earlier := range c.taken {
		ids[i] = earlier.ID
	}
	found, err := c.queue.readRows(tx.Snapshot(), ids)
	if err != nil {
		return false, err
	}
	for i, earlier := range c.taken {
		row := found[i]
		if row == nil || !row.heldBy(earlier.Lock) {
			continue
		}
		job, err := c.queue.readJob(tx.Snapshot(), earlier.ID).job(row)
		if err != nil {
			return false, err
		}
		// If it was added again meanwhile, its first update returns ErrHalt.
		job.Generation, job.Instead = earlier.Generation, earlier.Instead
		out.taken = append(out.taken, job)
	}
	// Whether that run was committed is now known, so its jobs need not be read again. If it was, the jobs have been
	// lost since, but their locks are used up.
	if len(c.taken) > 0 && len(out.taken) == 0 {
		c.taken = nil
		c.drawLocks()
	}
	return len(out.taken) > 0, nil
}

// enough reports whether a run has taken all that it may.
func (c *claim) enough(out *claimRun) bool { return len(out.taken) >= c.n || out.size >= enoughBytes }

// parseDelayed returns the time and the job id of a key in delayed.
func (q *Queue) parseDelayed(key []byte) (scheduled int64, id string, err error) {
	err = scanKey("the key of a delayed job", q.keys.delayed, key, &scheduled, &id)
	return scheduled, id, err
}

// Claims are the claims of one process in a queue, since its layer was opened.
type Claims struct {
	// Made is the number of claims. Empty of them took no job.
	Made, Empty int64
	// Jobs is the number of jobs that claims took.
	Jobs int64
}

// Claims returns how often this process has looked for jobs to take, and how many it has taken. A claim that takes the
// last ready job is followed by an empty one, which begins to wait, if there is still an acceptor.
func (q *Queue) Claims() Claims {
	q.claimer.mu.Lock()
	defer q.claimer.mu.Unlock()
	return q.claimer.counts
}

// count counts a claim that took some jobs.
func (c *claimer) count(jobs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Made++
	c.counts.Jobs += int64(jobs)
	if jobs == 0 {
		c.counts.Empty++
	}
}
