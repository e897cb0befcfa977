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

// maxClaim is the maximum number of jobs that one transaction takes. Their args and states must be read within its five
// seconds.
const maxClaim = 64

const (
	// afterWatch limits the random pause of a claimer between a change and its claim. A claimer pauses if it took no job
	// after the change before: there may be other claimers, and a ready job wakes all of them. With the pause most of them
	// find the job taken, instead of a conflict. The claimer that took the job does not pause.
	afterWatch = 50 * time.Millisecond
	// idlePause limits the pause if other claimers take jobs: to idlePause for each process that accepts jobs, and to
	// maxIdlePause. The pause becomes eight times as long with each change in a row after which the claimer took no job. So
	// while there are few jobs, a few claimers take them. The others together look about twice in idlePause, however many
	// they are. They take the jobs for which the few have no room.
	idlePause    = 150 * time.Millisecond
	maxIdlePause = 10 * time.Second
)

// AcceptOptions says what [Queue.Accept] waits for. The zero value waits for one due job, without a time limit.
type AcceptOptions struct {
	// Count is the maximum number of jobs to take. Default: 1. Maximum: 64.
	Count int
	// Yielding, if not nil, are jobs that this process holds and that can make room. The jobs of one owner are in the
	// order in which they go. Accept takes at most as many jobs, each in exchange for a job of the owner with the highest
	// usage per weight. The new job's owner must have no higher usage, or be the same owner. [Job].Instead names the job
	// that goes.
	Yielding []*Held
	// Wait is the maximum time to wait for the first job. Negative: do not wait. Default: until the context ends.
	Wait time.Duration
}

// Accept waits for jobs and takes them. The caller holds them, and must keep them alive and finish or resubmit them.
// Accept returns as soon as it has one, with all that are available at that moment, up to opts.Count. It returns no
// jobs and no error after opts.Wait. A job may be returned after ctx has ended: the caller must resubmit it. The errors
// are ctx's, ErrClosed, and the store's.
func (q *Queue) Accept(ctx context.Context, opts AcceptOptions) ([]*Held, error) {
	r := &request{
		count: min(max(opts.Count, 1), maxClaim), yielding: opts.Yielding, once: opts.Wait < 0,
		done: make(chan struct{}),
	}
	waits := ctx
	if opts.Wait > 0 {
		var cancel func()
		waits, cancel = context.WithTimeout(ctx, opts.Wait)
		defer cancel()
	}
	if !q.claimer.submit(r) {
		return nil, ErrClosed
	}
	select {
	case <-r.done:
	case <-waits.Done():
	}
	q.layer.pass(ctx)
	q.claimer.answer(r, nil, ctx.Err()) // without effect if it was answered
	return r.held, r.err
}

// request is a pending call of Accept.
type request struct {
	count    int
	yielding []*Held // nil if there is room
	once     bool

	// Guarded by claimer.mu until done is closed.
	answered bool
	held     []*Held
	err      error

	done chan struct{}
}

// claimer takes jobs for all acceptors of one queue in this process. Its goroutine runs while any of them waits.
type claimer struct {
	queue *Queue
	id    string // unique among the claimers of all processes

	made, empty, jobs atomic.Int64 // see Queue.Claims

	mu       sync.Mutex
	requests []*request
	running  bool
	wake     chan struct{} // holds a token when requests have changed

	// The fields below belong to the claimer's goroutine.
	memory memory
	// cleanup has the result of the latest tidying in a goroutine of its own, when that has ended. It is nil if none was
	// started since it was received.
	cleanup chan error
}

// newClaimer returns a queue's claimer. The caller holds the layer's mu.
func newClaimer(q *Queue) *claimer {
	return &claimer{queue: q, id: newID(q.layer.random), wake: make(chan struct{}, 1), memory: memory{partition: wholeQueue}}
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
				if c.memory.misses++; c.memory.partition.claimers <= 1 {
					c.memory.partitionRead = time.Time{} // others may have begun to take jobs
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
		if requests[0].yielding == nil {
			group = slices.DeleteFunc(slices.Clone(requests), func(r *request) bool { return r.yielding != nil })
		}
		requests = slices.DeleteFunc(slices.Clone(requests), func(r *request) bool { return slices.Contains(group, r) })
		var found outcome
		found, err = c.serve(ctx, group)
		if again = again || found.again(); waitFor == nil {
			waitFor = found.idle
		} else {
			found.idle.cancel()
		}
	}
	if again || err != nil {
		waitFor.cancel()
		return nil, err
	}
	return waitFor, nil
}

// serve claims jobs for requests that are served together.
func (c *claimer) serve(ctx context.Context, group []*request) (outcome, error) {
	found, err := c.claim(ctx, group)
	if err != nil {
		return outcome{}, err
	}
	if len(found.held) > 0 {
		c.memory.misses = 0
	}
	c.hand(ctx, group, found.held)
	if err := c.tidy(ctx, found); err != nil {
		found.idle.cancel()
		return outcome{}, err
	}
	if !found.again() {
		for _, r := range group {
			if r.once {
				c.answer(r, nil, nil)
			}
		}
	}
	return found, nil
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

// idle is what a claimer without jobs waits for.
type idle struct {
	watch kv.Watch
	next  time.Time // when the next job is due; zero if none is scheduled
}

func (i *idle) cancel() {
	if i != nil {
		i.watch.Cancel()
	}
}

// pause waits between a change and the claim after it, or until the next job is due, or requests change.
func (i *idle) pause(ctx context.Context, c *claimer) {
	longest := c.memory.longestPause(c.queue.layer.claimers)
	if longest == 0 {
		return
	}
	pause := time.Duration(c.queue.layer.draw().Int64N(int64(longest)))
	if !i.next.IsZero() {
		pause = min(pause, time.Until(i.next))
	}
	c.queue.layer.pause(ctx, pause, c.wake)
}

// longestPause returns the limit of the pause after a change. claimers is Options.Claimers.
func (m *memory) longestPause(claimers func() int) time.Duration {
	switch {
	case m.misses == 0:
		return 0
	case m.partition.claimers <= 1: // no other claimer has taken jobs lately
		return afterWatch
	}
	return min(afterWatch<<min(3*(m.misses-1), 10), max(afterWatch, idlePause*time.Duration(claimers())), maxIdlePause)
}
