package serverbudget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// nestedPatience is how long a job that holds a connection waits for another one.
	nestedPatience = 10 * time.Second
	// toldAfter is how long a request waits before people are told so.
	toldAfter = time.Second
	// parkEvery is how often an idle job is asked to park while a feed waits.
	parkEvery = time.Second
	// piece is how many bytes of a body pass at a time.
	piece = 16 << 10
)

// ErrConnections is the error of a request of a job that has other connections and has waited too long for one more.
var ErrConnections = errors.New("the budget of the server has no connection left")

// Limit is what a server may be asked for. 0 is no limit.
type Limit struct {
	Requests    int64 `json:"requests,omitempty"`    // a second
	Bytes       int64 `json:"bytes,omitempty"`       // a second, of bodies in both directions
	Connections int64 `json:"connections,omitempty"` // at a time, at least MinConnections
}

// Flow is a job on this node: what takes turns with others. It must not be copied.
type Flow struct {
	Owner  string // of the job
	Weight int    // shares of the owner; 0 counts as 1
	Job    string // its id
	// Park, if not nil, asks the job to park if it is idle. It must not wait.
	Park func()
	// Changed, if not nil, is called when Waiting may have changed. It must not wait.
	Changed func()

	held atomic.Int64 // connections

	mu    sync.Mutex
	waits []*Waiting
}

// Waiting says that a job waits for a budget.
type Waiting struct {
	Server string    // its host, with its port if the budget names one
	Since  time.Time // when the request began to wait
	Before int       // the jobs of this node whose turn is before

	of *budget
	in *queue
}

// Waiting returns the wait that began first, of those that have lasted a second. ok is false if there is none.
func (f *Flow) Waiting() (_ Waiting, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waits) == 0 {
		return Waiting{}, false
	}
	w := *f.waits[0]
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.Before = w.in.before(f)
	return w, true
}

// tell adds a wait until over is called.
func (f *Flow) tell(w *Waiting) (over func()) {
	f.mu.Lock()
	f.waits = append(f.waits, w)
	f.mu.Unlock()
	f.changed()
	return func() {
		f.mu.Lock()
		f.waits = slices.DeleteFunc(f.waits, func(other *Waiting) bool { return other == w })
		f.mu.Unlock()
		f.changed()
	}
}

func (f *Flow) changed() {
	if f.Changed != nil {
		f.Changed()
	}
}

type flowKey struct{}

// WithFlow returns a context for the requests of a job.
func WithFlow(ctx context.Context, f *Flow) context.Context {
	return context.WithValue(ctx, flowKey{}, f)
}

// flowOf returns the flow of a request. One of no job has a flow of its own.
func flowOf(ctx context.Context) *Flow {
	if f, ok := ctx.Value(flowKey{}).(*Flow); ok {
		return f
	}
	return new(Flow)
}

// budget is what this node may ask of a server. It is safe for concurrent use.
type budget struct {
	server string

	mu          sync.Mutex // never held while a function of a Flow runs
	limit       Limit      // of all nodes
	part        Limit      // of this node
	requests    gate
	bytes       gate
	connections connections
	flows       map[*Flow]time.Time // that have asked for something, and when
	seen        time.Time           // when something was last asked for
	measured    measured            // when need was last called
	gone        bool                // another one has taken its place
}

// errGone is the error of a budget whose place another one has taken.
var errGone = errors.New("the budget is gone")

func newBudget(server string) *budget {
	now := time.Now()
	return &budget{server: server, flows: map[*Flow]time.Time{}, seen: now, measured: measured{at: now}}
}

// set changes the limit and the part.
func (b *budget) set(limit, part Limit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.part = limit, part
	b.requests.setRate(limit.Requests, part.Requests)
	b.bytes.setRate(limit.Bytes, part.Bytes)
	b.connections.free, b.connections.most = limit.Connections == 0, part.Connections
	b.passAll()
}

// passAll lets everyone through who may pass. The caller holds mu.
func (b *budget) passAll() {
	b.requests.pass(b.again)
	b.bytes.pass(b.again)
	b.connections.pass()
}

// again is called by timers.
func (b *budget) again() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passAll()
}

// Exchange is a request that has begun, until its answer was read. A nil Exchange has no limits.
type Exchange struct {
	b    *budget
	flow *Flow
	feed bool
	done bool
	// ctx ends waits for bytes.
	ctx context.Context
}

// begin is Node.Begin for a server with a budget.
func (b *budget) begin(ctx context.Context, feed bool) (*Exchange, error) {
	f := flowOf(ctx)
	if err := b.connect(ctx, f, feed); err != nil {
		return nil, err
	}
	x := &Exchange{b: b, flow: f, feed: feed, ctx: ctx}
	if err := b.wait(ctx, f, &b.requests, 1); err != nil {
		x.Done()
		return nil, err
	}
	return x, nil
}

// wait waits for the turn of a flow at a gate.
func (b *budget) wait(ctx context.Context, f *Flow, g *gate, cost float64) error {
	w := &waiter{flow: f, cost: cost, ready: make(chan struct{})}
	b.mu.Lock()
	b.note(f)
	g.add(w)
	g.pass(b.again)
	b.mu.Unlock()
	return b.until(ctx, w, &g.queue)
}

// connect waits for a connection.
func (b *budget) connect(ctx context.Context, f *Flow, feed bool) error {
	w, c := &waiter{flow: f, cost: 1, ready: make(chan struct{})}, &b.connections
	q := &c.requests
	if feed {
		q = &c.feeds
	}
	b.mu.Lock()
	if b.gone {
		b.mu.Unlock()
		return errGone
	}
	b.note(f)
	q.add(w)
	c.pass()
	b.mu.Unlock()
	switch {
	case w.isReady():
		return nil
	case feed:
		stop := b.makeRoom(w)
		defer stop()
	case f.held.Load() > 0:
		nested, cancel := context.WithTimeoutCause(ctx, nestedPatience, ErrConnections)
		defer cancel()
		ctx = nested
	}
	return b.until(ctx, w, q)
}

// makeRoom asks idle jobs to park, one after the other, while a feed waits.
func (b *budget) makeRoom(w *waiter) (stop func()) {
	over := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(parkEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-w.ready:
				return
			case <-tick.C:
			}
			b.mu.Lock()
			var one *Flow
			if feeding := b.connections.feeding; len(feeding) > 0 {
				one = feeding[n%len(feeding)]
			}
			b.mu.Unlock()
			if one != nil && one.Park != nil {
				one.Park()
			}
		}
	})
	return func() {
		close(over)
		asking.Wait()
	}
}

func (w *waiter) isReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// until waits for w. If ctx ends before, it takes w out of its queue.
func (b *budget) until(ctx context.Context, w *waiter, q *queue) error {
	if w.isReady() {
		return nil
	}
	since, soon := time.Now(), time.NewTimer(toldAfter)
	defer soon.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	case <-soon.C:
		over := w.flow.tell(&Waiting{Server: b.server, Since: since, of: b, in: q})
		defer over()
		select {
		case <-w.ready:
			return nil
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.isReady() {
		return nil
	}
	q.remove(w)
	return context.Cause(ctx)
}

// note notes that a job asks for something. The caller holds mu.
func (b *budget) note(f *Flow) {
	b.seen = time.Now()
	if f.Job != "" {
		b.flows[f] = b.seen
	}
}

// Stream is a body of an exchange, of the request or of its answer. A nil Stream has no limits.
type Stream struct {
	x    *Exchange
	owed int // bytes that have passed and were not moved yet
}

// Stream returns a body of the exchange.
func (x *Exchange) Stream() *Stream {
	if x == nil {
		return nil
	}
	return &Stream{x: x}
}

// Take returns how many bytes of n may be read or written, after a wait if need be.
func (s *Stream) Take(n int) (int, error) {
	if s == nil || n == 0 {
		return n, nil
	}
	if s.owed == 0 {
		if err := s.x.b.wait(s.x.ctx, s.x.flow, &s.x.b.bytes, piece); err != nil {
			return 0, err
		}
		s.owed = piece
	}
	return min(n, s.owed), nil
}

// Moved says how many bytes were read or written after Take.
func (s *Stream) Moved(n int) {
	if s != nil {
		s.owed -= n
	}
}

// Done gives back what was not moved. It may be called more than once.
func (s *Stream) Done() {
	if s == nil || s.owed == 0 {
		return
	}
	b := s.x.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes.charge(time.Now(), -float64(s.owed))
	s.owed = 0
	b.bytes.pass(b.again)
}

// Done ends the exchange. It may be called more than once.
func (x *Exchange) Done() {
	if x == nil || x.done {
		return
	}
	x.done = true
	b := x.b
	b.mu.Lock()
	defer b.mu.Unlock()
	x.flow.held.Add(-1)
	b.connections.open--
	if x.feed {
		if i := slices.Index(b.connections.feeding, x.flow); i >= 0 {
			b.connections.feeding = slices.Delete(b.connections.feeding, i, i+1)
		}
	}
	b.passAll()
}
