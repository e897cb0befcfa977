package fdbjobs

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
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

// claim makes a claim for requests that are served together.
func (c *claimer) claim(ctx context.Context, group []*request) (outcome, error) {
	q := c.queue
	n := 0
	for _, r := range group {
		n += r.count
	}
	began := q.layer.now()
	tx := &claim{
		queue: q, claimer: c.id, memory: &c.memory, yielding: group[0].yielding, n: min(n, maxClaim),
		began: began, full: began.Sub(c.memory.full) >= fullRead,
	}
	tx.drawLocks()
	seed := q.layer.draw()
	tx.seeds = [2]uint64{seed.Uint64(), seed.Uint64()}
	found, err := kv.TransactValue(ctx, q.layer.db, tx.attempt)
	if err != nil {
		return outcome{}, err
	}
	c.made.Add(1)
	c.jobs.Add(int64(len(found.taken)))
	if len(found.taken) == 0 {
		c.empty.Add(1)
	}
	c.learn(found)

	out := outcome{due: found.next != 0 && found.next <= q.layer.now().Unix()}
	out.empty = c.leaving(found, began)
	out.more = len(found.loaded) >= maxOwners && len(out.empty) > 0
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

// learn keeps what the next claim begins with.
func (c *claimer) learn(found *attempt) {
	began := found.began
	if found.owner != "" {
		c.memory.owner, c.memory.rank = found.owner, found.rank
	}
	if found.wroteHeartbeat {
		c.memory.heartbeat = began
	}
	if found.partition.claimers != 0 {
		c.memory.partition, c.memory.partitionRead = found.partition, began
	}
	if !found.through {
		return
	}
	if found.full {
		c.memory.full = began
	}
	// The next job may be due much later, but a job scheduled from now on can lie anywhere after now.
	bound := began.Unix()
	if found.next != 0 {
		bound = min(bound, found.next)
	}
	if found.full || bound > c.memory.delayed {
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

// claim is a claimer's transaction, which takes jobs for requests that are served together.
type claim struct {
	queue    *Queue
	claimer  string
	memory   *memory // read only
	yielding []*Held // what can go in exchange; nil if there is room
	n        int     // the maximum number of jobs to take
	began    time.Time
	full     bool // delayed is read from its start
	locks    []string
	seeds    [2]uint64
	earlier  *attempt // the latest one that took jobs, unless it is known that it was not committed
}

// attempt is one run of a claim's function. It reads, chooses from what it has read, and writes the choice.
type attempt struct {
	*claim
	tx     kv.Transaction
	batch  *batch
	again  bool // an earlier attempt has taken jobs
	random *rand.Rand
	rolled kv.Future[rollup] // the last roll-up

	// What it has read. These only grow, except that rows of jobs that cannot be taken leave their owners.
	version   kv.Future[int64]
	unit      float64                       // what a running job counts
	yields    []*candidate                  // owners of jobs that can make room, and that are not in owners
	owners    []*candidate                  // to choose from
	allParts  bool                          // rows in other partitions count
	jobs      map[string]*seen              // by key in ready
	weights   map[string]kv.Future[float64] // of owners of jobs, read with conflicts
	loaded    []*candidate                  // whose usage was read
	partition partition                     // of the claimer; zero if it was not read
	through   bool                          // whether next is set
	next      int64                         // the earliest scheduled time, or 0

	// What it has written.
	taken          []*Job
	size           int // of their args and states
	timeout        time.Duration
	owner          string  // the last one served
	rank           float64 // its rank
	wroteHeartbeat bool
	watch          kv.Watch
}

// exchange reports whether there is no room: jobs that can make room go for those that are taken.
func (c *claim) exchange() bool { return c.yielding != nil }

// attempt is the function of the transaction.
func (c *claim) attempt(tx kv.Transaction) (*attempt, error) {
	a := &attempt{
		claim: c, tx: tx, batch: c.queue.batch(tx), again: c.earlier != nil, random: rand.New(rand.NewPCG(c.seeds[0], c.seeds[1])),
		rolled: c.queue.share.readRollup(tx.Snapshot()), jobs: map[string]*seen{}, weights: map[string]kv.Future[float64]{},
	}
	timeout := c.queue.readTimeout(tx.Snapshot())
	if done, err := a.recover(); done || err != nil {
		return a, err
	}
	var err error
	if a.timeout, err = timeout.Await(); err != nil {
		return a, err
	}
	err = a.takeInOrder()
	if err == nil && len(a.taken) == 0 {
		a.watch = tx.Watch(c.queue.keys.watchReady)
	}
	return a, err
}

// drawLocks draws a lock for each job that an attempt may take. Each lock is used once.
func (c *claim) drawLocks() {
	random := c.queue.layer.draw()
	c.locks = make([]string, c.n)
	for i := range c.locks {
		c.locks[i] = newID(random)
	}
}

// recover finds the jobs that an earlier attempt took, if that attempt was committed. It reads without conflicts, so that
// later writes of the jobs' holders do not make the claim fail.
func (a *attempt) recover() (bool, error) {
	if a.earlier == nil {
		return false, nil
	}
	ids := make([]string, len(a.earlier.taken))
	for i, earlier := range a.earlier.taken {
		ids[i] = earlier.ID
	}
	found, err := a.queue.readRows(a.tx.Snapshot(), ids)
	if err != nil {
		return false, err
	}
	for i, earlier := range a.earlier.taken {
		row := found[i]
		if row == nil || !row.heldBy(earlier.Lock) {
			continue
		}
		job, err := a.queue.readJob(a.tx.Snapshot(), earlier.ID).job(row)
		if err != nil {
			return false, err
		}
		// If it was added again meanwhile, its first update returns ErrHalt.
		job.Generation, job.Instead = earlier.Generation, earlier.Instead
		a.taken = append(a.taken, job)
	}
	if len(a.taken) > 0 {
		a.timeout = a.earlier.timeout // which that attempt wrote with the jobs
		return true, nil
	}
	// Whether that attempt was committed is now known, so its jobs need not be read again. If it was, the jobs have been
	// lost since, but their locks are used up.
	a.claim.earlier = nil
	a.drawLocks()
	return false, nil
}

// parseDelayed returns the time and the job id of a key in delayed.
func (q *Queue) parseDelayed(key []byte) (scheduled int64, id string, err error) {
	err = rows.ScanKey("the key of a delayed job", q.keys.delayed, key, &scheduled, &id)
	return scheduled, id, err
}

// Claims returns how often this process has looked for jobs to take since its layer was opened, how often it took none,
// and how many it has taken. A claim that takes the last ready job is followed by an empty one, which begins to wait, if
// there is still an acceptor.
func (q *Queue) Claims() (made, empty, jobs int64) {
	c := q.claimer
	return c.made.Load(), c.empty.Load(), c.jobs.Load()
}

// maxBounds limits the number of owners whose bounds a process remembers.
const maxBounds = 10_000

// bounds are lower bounds of the keys of ready rows, by owner: where an earlier read of this process has found the first row.
// They stay valid, because stamps only grow. bounds is safe for concurrent use. Forgetting costs only time.
type bounds struct {
	mu      sync.Mutex
	byOwner map[string][]byte
}

// of returns the bound of an owner, or nil if none is known.
func (b *bounds) of(owner string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byOwner[owner]
}

// set notes that an owner has no ready rows below a key.
func (b *bounds) set(owner string, key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note(&b.byOwner, owner, key)
}

// note sets an entry of a map of limited size.
func note[V any](m *map[string]V, owner string, v V) {
	if *m == nil || len(*m) >= maxBounds {
		*m = map[string]V{}
	}
	(*m)[owner] = v
}
