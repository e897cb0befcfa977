package fdbjobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/kv"
)

const (
	// clockSkew is the largest difference between clocks with which scheduled jobs are seen in time. Jobs further back
	// are seen within fullRead.
	clockSkew = 60 // seconds
	fullRead  = time.Minute
)

// claimer takes jobs for all acceptors of one queue in this process. Its goroutine runs while any of them waits.
type claimer struct {
	queue *Queue
	id    string // unique among the claimers of all processes

	made, none, jobs atomic.Int64 // see Queue.Claims

	mu       sync.Mutex
	requests []*request
	running  bool
	wake     chan struct{} // holds a token when requests have changed

	// The fields below belong to the claimer's goroutine. What earlier claims have found saves time: nothing depends on it.
	lastOwner     string               // the one served last
	lastRank      float64              // its rank
	empty         map[string]time.Time // since when owners have no ready rows
	rankedAt      time.Time            // when it last updated ranks
	delayed       int64                // lower bound of delayed, without clock skew
	fullAt        time.Time            // when delayed was last read from its start
	misses        int                  // changes in a row after which it took no job: see afterWatch
	heartbeatAt   time.Time            // when it last wrote a heartbeat
	partition     partition            // of the queue, that it prefers
	partitionRead time.Time
	// cleanup has the result of the latest tidying in a goroutine of its own, when that has ended. It is nil if none was
	// started since it was received.
	cleanup chan error
}

// newClaimer returns a queue's claimer. The caller holds the layer's mu.
func newClaimer(q *Queue) *claimer {
	return &claimer{queue: q, id: newID(q.layer.random), wake: make(chan struct{}, 1), partition: wholeQueue}
}

// submit adds a request. It reports false if the layer is closed.
func (c *claimer) submit(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		if !c.queue.layer.start("claimer of "+c.queue.name, c.run) {
			return false
		}
		c.running = true
	}
	c.requests = append(c.requests, r)
	c.poke()
	return true
}

// answer ends a request, and reports whether it was still pending.
func (c *claimer) answer(r *request, held []*Held, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.answered {
		return false
	}
	r.answered, r.held, r.err = true, held, err
	c.requests = slices.DeleteFunc(c.requests, func(q *request) bool { return q == r })
	close(r.done)
	if len(c.requests) == 0 {
		c.poke() // end its watch
	}
	return true
}

func (c *claimer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// waiting returns the pending requests. If there are none, the claimer's goroutine must end: the next request starts
// another one.
func (c *claimer) waiting() []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.wake: // a token now is for requests that are returned, and the next wait must not end with it
	default:
	}
	c.running = len(c.requests) > 0
	return slices.Clone(c.requests)
}

func (c *claimer) run(ctx context.Context) {
	claims := c.queue.layer.named(c.queue.layer.claims, "claims of "+c.queue.name)
	for {
		requests := c.waiting()
		if len(requests) == 0 {
			if ctx.Err() != nil {
				_ = c.leave(claims) // if this fails, the heartbeat is forgotten later
			}
			return
		}
		var idle *idle
		err := ctx.Err()
		if err == nil {
			idle, err = c.serveAll(claims, requests)
		}
		switch {
		case err != nil:
			if ctx.Err() != nil || errors.Is(err, kv.ErrClosed) {
				err = ErrClosed
			}
			for _, r := range requests {
				c.answer(r, nil, err)
			}
		case idle != nil:
			if c.queue.layer.await(ctx, idle.watch, idle.next, c.wake) { // the watch has ended
				idle.pause(ctx, c)
				if c.misses++; c.partition.claimers <= 1 {
					c.partitionRead = time.Time{} // others may have begun to take jobs
				}
			}
		}
	}
}

// serveAll serves the requests once. It returns what to wait for if no request got a job.
func (c *claimer) serveAll(ctx context.Context, requests []*request) (waitFor *idle, err error) {
	again := false
	for len(requests) > 0 && err == nil {
		// Requests for which there is room are served together, and each other one alone.
		group := requests[:1:1]
		if requests[0].evictable == nil {
			group = slices.DeleteFunc(slices.Clone(requests), func(r *request) bool { return r.evictable != nil })
		}
		requests = slices.DeleteFunc(slices.Clone(requests), func(r *request) bool { return slices.Contains(group, r) })
		var next *idle
		next, err = c.serve(ctx, group)
		if again = again || next == nil; waitFor == nil {
			waitFor = next
		} else {
			next.cancel()
		}
	}
	if again || err != nil {
		waitFor.cancel()
		return nil, err
	}
	return waitFor, nil
}

// serve claims jobs for requests that are served together. It returns what to wait for, or nil if another claim may find
// something at once.
func (c *claimer) serve(ctx context.Context, group []*request) (*idle, error) {
	n := 0
	for _, r := range group {
		n += r.count
	}
	found, err := c.claim(ctx, min(n, maxClaim), group[0].evictable)
	if err != nil {
		return nil, err
	}
	var held []*Held
	for _, job := range found.taken {
		held = append(held, newHeld(c.queue, job, found.began))
	}
	if len(held) > 0 {
		c.misses = 0
	}
	idle := c.idle(found)
	c.hand(ctx, group, held)
	more, err := c.tidy(ctx, found)
	if err != nil || more || len(held) > 0 {
		idle.cancel()
		return nil, err
	}
	for _, r := range group {
		if r.once {
			c.answer(r, nil, nil)
		}
	}
	return idle, nil
}

// claim makes a claim of up to n jobs. evictable is [AcceptOptions].Evictable.
func (c *claimer) claim(ctx context.Context, n int, evictable []*Held) (*view, error) {
	began, random := c.queue.layer.now(), c.queue.layer.draw()
	tx := &claim{
		queue: c.queue, by: c, n: n, evictable: evictable, began: began, full: began.Sub(c.fullAt) >= fullRead,
		seeds: [2]uint64{random.Uint64(), random.Uint64()},
	}
	tx.drawLocks()
	found, err := kv.TransactValue(ctx, c.queue.layer.db, tx.run)
	if err == nil {
		c.learn(found)
	}
	return found, err
}

// Claims returns how often this process has looked for jobs to take since its layer was opened, how often it took none,
// and how many it has taken. A claim that takes the last ready job is followed by an empty one, which begins to wait, if
// there is still an acceptor.
func (q *Queue) Claims() (made, empty, jobs int64) {
	c := q.claimer
	return c.made.Load(), c.none.Load(), c.jobs.Load()
}

// learn keeps what the next claim begins with.
func (c *claimer) learn(found *view) {
	c.made.Add(1)
	c.jobs.Add(int64(len(found.taken)))
	if len(found.taken) == 0 {
		c.none.Add(1)
	}
	if found.served != nil {
		c.lastOwner, c.lastRank = found.served.owner, found.served.rank
	}
	if found.heartbeat {
		c.heartbeatAt = found.began
	}
	if found.partitionRead {
		c.partition, c.partitionRead = found.partition, found.began
	}
	if found.recovered {
		return
	}
	if found.full {
		c.fullAt = found.began
	}
	// The next job may be due much later, but a job scheduled from now on can lie anywhere after now.
	bound := found.began.Unix()
	if found.next != 0 {
		bound = min(bound, found.next)
	}
	if found.full || bound > c.delayed {
		c.delayed = bound
	}
}

// delayedFrom returns the time from which to read delayed.
func (c *claimer) delayedFrom(full bool) int64 {
	if full {
		return 0
	}
	return max(c.delayed-clockSkew, 0)
}

// hand gives jobs to requests. It queues the rest again.
func (c *claimer) hand(ctx context.Context, group []*request, held []*Held) {
	for _, r := range group {
		n := min(r.count, len(held))
		if n > 0 && c.answer(r, held[:n:n], nil) {
			held = held[n:]
		}
	}
	for _, h := range held {
		// If this fails, the activity monitor queues the job.
		_ = h.Resubmit(ctx, h.job.Scheduled, nil, nil)
	}
}

// recover finds the jobs that an earlier run took, if that run was committed. It reads without conflicts, so that later
// writes of the jobs' holders do not make the claim fail.
func (v *view) recover() (bool, error) {
	if v.earlier == nil {
		return false, nil
	}
	ids := make([]string, len(v.earlier.taken))
	for i, earlier := range v.earlier.taken {
		ids[i] = earlier.ID
	}
	found, err := v.queue.readRows(v.tx.Snapshot(), ids)
	if err != nil {
		return false, err
	}
	for i, earlier := range v.earlier.taken {
		row := found[i]
		if row == nil || !row.heldBy(earlier.Lock) {
			continue
		}
		job, err := v.queue.readJob(v.tx.Snapshot(), v.tx.Snapshot(), earlier.ID).job(row)
		if err != nil {
			return false, err
		}
		// If it was added again meanwhile, its first update returns ErrHalt.
		job.generation, job.Evicted = earlier.generation, earlier.Evicted
		v.taken = append(v.taken, job)
	}
	if len(v.taken) > 0 {
		v.recovered = true
		return true, nil
	}
	// Whether that run was committed is now known, so its jobs need not be read again. If it was, the jobs have been
	// lost since, but their locks are used up.
	v.earlier = nil
	v.drawLocks()
	return false, nil
}

// drawLocks draws a lock for each job that a run may take.
func (c *claim) drawLocks() {
	random := c.queue.layer.draw()
	c.locks = make([]string, c.n)
	for i := range c.locks {
		c.locks[i] = newID(random)
	}
}

// request is a pending call of Accept.
type request struct {
	count     int
	evictable []*Held // nil if there is room
	once      bool

	// Guarded by claimer.mu until done is closed.
	answered bool
	held     []*Held
	err      error

	done chan struct{}
}
