package fdbjobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
)

// maxClaim is how many jobs one transaction takes: their args and states have to be
// read within its five seconds.
const maxClaim = 64

// AcceptOptions says what [Type.Accept] waits for. The zero value is one job that
// is due, for as long as it takes.
type AcceptOptions struct {
	// Count is how many jobs to take at most. Default: 1; the most is 64.
	Count int
	// Latest leaves jobs alone that are scheduled for later, and takes those that are
	// scheduled by then though they are not yet due. Default: what is due. With a
	// time that has passed only the heads of the queues are looked at.
	Latest time.Time
	// NoSchedule takes pending jobs in no order: whatever they are scheduled for,
	// whoever owns them, from a random place among their ids on. For types whose ids are
	// random, and begin with hexadecimal digits, this conflicts least. Latest and Charge
	// have no meaning then.
	NoSchedule bool
	// Charge is added to the owner's usage for each job taken: what it will use at the
	// least. It keeps one that has used little from getting all that is free at a
	// moment. See [Type.Charge].
	Charge int64
	// Yielding, if not nil, are running jobs that can make room, those of one owner in the
	// order in which they are to go. At most as many are taken as there are of them, and
	// each only in exchange for one of the owner that has used the most for its weight,
	// if its own owner has not used more, or is that one. [Held.Instead] says which is to
	// go. With Latest it takes nothing early.
	Yielding []Yielding
	// Wait bounds the waiting for the first job; when it is over, there is none.
	// Negative: no waiting at all. Default: until the context ends.
	Wait time.Duration
}

// Accept waits for jobs and takes them: they are running then, and the caller's to
// finish, resubmit, or keep alive. It returns as soon as it has one, with as many
// as there were at that moment, up to opts.Count; none and no error when
// opts.Wait is over. A job is returned even if ctx has ended just then: it has to
// be resubmitted. Other errors are ctx's, ErrClosed, and the store's.
func (t *Type) Accept(ctx context.Context, opts AcceptOptions) ([]*Held, error) {
	r := &request{
		count: min(max(opts.Count, 1), maxClaim), wants: opts.wants(), once: opts.Wait < 0,
		done: make(chan struct{}),
	}
	if opts.Wait > 0 {
		timer := t.layer.afterFunc(ctx, "waited", opts.Wait, func() { t.claimer.answer(r, nil, nil) })
		defer timer.Stop()
	}
	if !t.claimer.submit(r) {
		return nil, ErrClosed
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	t.layer.pass(ctx)
	t.claimer.answer(r, nil, ctx.Err()) // if nobody else has
	return r.held, r.err
}

func (o AcceptOptions) wants() wants {
	if o.NoSchedule {
		return wants{noSchedule: true}
	}
	w := wants{charge: o.Charge}
	if o.Yielding != nil {
		w.yielding = &o.Yielding // equal to itself only: it is served alone
	}
	if !o.Latest.IsZero() {
		w.latest = max(o.Latest.Unix(), 1)
	}
	return w
}

// request is a call of Accept that waits for its answer.
type request struct {
	count int
	wants wants
	once  bool

	// Guarded by claimer.mu until done is closed.
	answered bool
	held     []*Held
	err      error

	done chan struct{}
}

// claimer takes jobs for all acceptors of one type in this process. Its goroutine
// lives as long as any of them waits.
type claimer struct {
	typ *Type
	id  string // among the claimers of all processes

	mu       sync.Mutex
	requests []*request
	running  bool
	wake     chan struct{} // holds a token when requests have changed

	// The claimer's goroutine alone has these.
	queue queueReader
}

func newClaimer(t *Type) *claimer {
	return &claimer{typ: t, id: t.layer.newID(), wake: make(chan struct{}, 1), queue: newQueueReader()}
}

// submit puts a request in line. It reports false when the layer is closed.
func (c *claimer) submit(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		if !c.typ.layer.start("claimer of "+c.typ.name, c.run) {
			return false
		}
		c.running = true
	}
	c.requests = append(c.requests, r)
	c.poke()
	return true
}

// answer ends a request, unless that has been done, and reports whether it did.
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
		c.poke() // so that nothing is watched for nobody
	}
	return true
}

func (c *claimer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// waiting returns the requests in line. With none left the claimer's goroutine has
// to end: the next request starts another one.
func (c *claimer) waiting() []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = len(c.requests) > 0
	return slices.Clone(c.requests)
}

func (c *claimer) run(ctx context.Context) {
	claims := c.typ.layer.named(c.typ.layer.claims, "claims of "+c.typ.name)
	for {
		requests := c.waiting()
		if len(requests) == 0 {
			return
		}
		if ctx.Err() != nil {
			c.fail(ErrClosed)
			continue
		}
		idle, err := c.serveAll(claims, requests)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, kv.ErrClosed)):
			c.fail(ErrClosed)
		case err != nil:
			c.fail(err)
		case idle != nil:
			idle.wait(ctx, c)
		}
	}
}

// fail ends all requests. It leaves running as it is: whoever calls it goes on.
func (c *claimer) fail(err error) {
	c.mu.Lock()
	requests := slices.Clone(c.requests)
	c.mu.Unlock()
	for _, r := range requests {
		c.answer(r, nil, err)
	}
}

// serveAll serves the requests once. It returns what to wait for if there was nothing
// for any of them.
func (c *claimer) serveAll(ctx context.Context, requests []*request) (*idle, error) {
	var waitFor *idle
	again := false
	for len(requests) > 0 {
		// Requests for the same are served together.
		var group, rest []*request
		for _, r := range requests {
			if r.wants == requests[0].wants {
				group = append(group, r)
			} else {
				rest = append(rest, r)
			}
		}
		requests = rest
		found, err := c.serve(ctx, group)
		if err != nil {
			waitFor.cancel()
			return nil, err
		}
		again = again || found.again()
		if waitFor == nil {
			waitFor = found.idle
		} else {
			found.idle.cancel()
		}
	}
	if again {
		waitFor.cancel()
		return nil, nil
	}
	return waitFor, nil
}

// serve claims jobs for requests that want the same.
func (c *claimer) serve(ctx context.Context, group []*request) (claim, error) {
	found, err := c.claim(ctx, group)
	if err != nil {
		return claim{}, err
	}
	c.hand(ctx, group, found.held)
	if err := c.tidy(ctx, found); err != nil {
		found.idle.cancel()
		return claim{}, err
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

// hand gives jobs to requests. What nobody waits for any more goes back.
func (c *claimer) hand(ctx context.Context, group []*request, held []*Held) {
	for _, r := range group {
		n := min(r.count, len(held))
		if n > 0 && c.answer(r, held[:n:n], nil) {
			held = held[n:]
		}
	}
	for _, h := range held {
		// If this fails the job waits for the activity monitor.
		_ = h.Resubmit(ctx, h.job.Scheduled, nil, nil)
	}
}

// idle is what a claimer waits for when the queue has nothing for it.
type idle struct {
	watch kv.Watch
	next  time.Time // when the next job is due; zero: none is scheduled
}

func (i *idle) cancel() {
	if i != nil {
		i.watch.Cancel()
	}
}

// wait returns when there may be something to claim, or to wait for.
func (i *idle) wait(ctx context.Context, c *claimer) {
	d := reread
	if !i.next.IsZero() {
		d = min(d, max(time.Until(i.next), 0))
	}
	c.typ.layer.await(ctx, i.watch, d, c.wake)
}
