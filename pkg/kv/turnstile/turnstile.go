package turnstile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// ErrStuck is the end of a program in which nothing happens any more.
var ErrStuck = errors.New("turnstile: nothing has happened for a day")

const stuckAfter = 24 * time.Hour

// Options of a Turnstile. The zero value works.
type Options struct {
	// Seed is where the order of the goroutines comes from, and the length of pauses.
	Seed uint64
	// Observe, if not nil, is told of each draw.
	Observe func(Event)
	// Reads is which share of the reads of a wrapped store pass when they are awaited,
	// from 0 to 1. Every transaction passes before its first read anyway.
	Reads float64
}

// Event is a goroutine that was drawn.
type Event struct {
	Name string // of the goroutine
	At   string // where it was parked
	Dead bool   // its process was killed, and it ends here
}

// Turnstile is where goroutines park. It belongs to one bubble of testing/synctest.
type Turnstile struct {
	opts    Options
	arrived chan struct{} // holds a token when someone has parked or may be drawn again

	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	parked  []*parked // the first sorted of them by name
	sorted  int
	free    []chan struct{} // for parked.drawn; channels belong to one bubble
	dead    int             // of parked
	running int             // goroutines that Go started and that have not ended
}

// parked is a goroutine that waits to be drawn.
type parked struct {
	process *Process
	name    string
	at      string
	drawn   chan struct{} // gets a token
}

// New returns a turnstile. It is called in the bubble.
func New(opts Options) *Turnstile {
	return &Turnstile{
		opts: opts, arrived: make(chan struct{}, 1),
		random: rand.New(rand.NewPCG(opts.Seed, 0x7475726e)),
	}
}

// Run draws one goroutine after the other until all that [Process.Go] started have
// ended and nobody is parked. Before each draw, while nobody else runs, it calls
// between, if that is not nil. It is called by the bubble's first goroutine. The error
// is ErrStuck.
func (t *Turnstile) Run(between func()) error {
	for {
		synctest.Wait()
		if between != nil && t.ready() {
			between()
			synctest.Wait()
		}
		g, ended := t.draw()
		switch {
		case g != nil:
			g.drawn <- struct{}{}
		case ended:
			return nil
		default:
			if !t.wait() {
				return ErrStuck
			}
		}
	}
}

// wait lets time pass until someone may be drawn, and reports whether that came.
func (t *Turnstile) wait() bool {
	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	select {
	case <-t.arrived:
		return true
	case <-timer.C:
		return false
	}
}

// ready reports whether someone can be drawn.
func (t *Turnstile) ready() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.parked, func(g *parked) bool { return !g.process.frozen })
}

// draw takes a goroutine that is parked. With none to take it reports whether the
// program has ended.
func (t *Turnstile) draw() (g *parked, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sort()
	var i int
	if t.dead > 0 {
		i = slices.IndexFunc(t.parked, func(g *parked) bool { return g.process.dead })
	} else {
		free := 0
		for _, g := range t.parked {
			if !g.process.frozen {
				free++
			}
		}
		if free == 0 {
			return nil, t.running == 0 && len(t.parked) == 0
		}
		n := t.random.IntN(free)
		i = slices.IndexFunc(t.parked, func(g *parked) bool {
			if !g.process.frozen {
				n--
			}
			return n < 0
		})
	}
	g = t.parked[i]
	t.parked = slices.Delete(t.parked, i, i+1)
	t.sorted--
	if g.process.dead {
		t.dead--
	}
	if t.opts.Observe != nil {
		t.opts.Observe(Event{Name: g.name, At: g.at, Dead: g.process.dead})
	}
	return g, false
}

// sort brings those in order who have parked since the last draw.
func (t *Turnstile) sort() {
	if t.sorted == len(t.parked) {
		return
	}
	slices.SortFunc(t.parked, func(a, b *parked) int { return cmp.Compare(a.name, b.name) })
	for i, g := range t.parked[1:] {
		if g.name == t.parked[i].name {
			panic(fmt.Sprintf("turnstile: two goroutines are parked as %q, at %q and %q", g.name, g.at, t.parked[i].at))
		}
	}
	t.sorted = len(t.parked)
}

// Pass parks the goroutine that ctx belongs to until it is drawn; at says where that is.
// It does not return when the goroutine's process was killed. It panics when ctx has no
// name, and Run does when two of one name are parked.
func Pass(ctx context.Context, at string) {
	id := identityOf(ctx)
	t := id.process.turnstile
	t.mu.Lock()
	g := &parked{process: id.process, name: id.name, at: at, drawn: t.channel()}
	t.parked = append(t.parked, g)
	if g.process.dead {
		t.dead++
	}
	t.mu.Unlock()
	t.signal()
	<-g.drawn
	t.mu.Lock()
	t.free = append(t.free, g.drawn)
	t.mu.Unlock()
	// Only the scheduler kills, so this cannot change while we run.
	if g.process.dead {
		runtime.Goexit()
	}
}

// channel returns a channel that nobody uses. The caller holds mu.
func (t *Turnstile) channel() chan struct{} {
	if n := len(t.free); n > 0 {
		c := t.free[n-1]
		t.free = t.free[:n-1]
		return c
	}
	return make(chan struct{}, 1)
}

func (t *Turnstile) signal() {
	select {
	case t.arrived <- struct{}{}:
	default:
	}
}

// Sleep waits for d or until ctx ends, and passes. It is faultkv.Options.Sleep.
func (t *Turnstile) Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	Pass(ctx, "slept")
}

// Pause is Sleep for a drawn time of at most most. It is kv.Retrier.Pause.
func (t *Turnstile) Pause(ctx context.Context, most time.Duration) {
	t.mu.Lock()
	d := time.Duration(t.random.Int64N(int64(most)))
	t.mu.Unlock()
	t.Sleep(ctx, d)
}

// share draws whether something happens that has a probability.
func (t *Turnstile) share(probability float64) bool {
	if probability <= 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.random.Float64() < probability
}
