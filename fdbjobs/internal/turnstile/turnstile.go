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

	"settee/pkg/retry"
)

// ErrStuck is returned by Run if no goroutine can continue.
var ErrStuck = errors.New("turnstile: nothing has happened for a day")

const stuckAfter = 24 * time.Hour

// Options of a Turnstile. The zero value works.
type Options struct {
	// Seed determines the order of the goroutines and the length of pauses.
	Seed uint64
	// Observe, if not nil, is called for each draw.
	Observe func(Event)
	// Reads is the share of the reads of a wrapped store, from 0 to 1, that pass when they are awaited. Every
	// transaction also passes before its first read.
	Reads float64
}

// Event is the draw of a goroutine.
type Event struct {
	Name string // the goroutine's name
	At   string // where it was parked
	Dead bool   // its process was killed, so it ends here
}

// Turnstile schedules goroutines. It belongs to one bubble of testing/synctest.
type Turnstile struct {
	opts    Options
	arrived chan struct{} // holds a token when a goroutine has parked or may be drawn again

	mu      sync.Mutex // guards the fields below
	random  *rand.Rand
	parked  []*parked // the first sorted ones are sorted by name
	sorted  int
	free    []chan struct{} // for parked.drawn; channels belong to one bubble
	dead    int             // the number of parked goroutines whose process is dead
	running int             // the number of goroutines started by Go that have not ended
}

// parked is a goroutine that waits to be drawn.
type parked struct {
	process *Process
	name    string
	at      string
	drawn   chan struct{} // receives a token
}

// New returns a turnstile. It must be called in the bubble.
func New(opts Options) *Turnstile {
	return &Turnstile{
		opts: opts, arrived: make(chan struct{}, 1),
		random: rand.New(rand.NewPCG(opts.Seed, 0x7475726e)),
	}
}

// Run draws one goroutine after another until all that [Process.Go] started have ended and none is parked. Before each
// draw, while no goroutine runs, it calls between, if that is not nil. It must be called by the bubble's first
// goroutine. It returns ErrStuck if nothing happens for a day.
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

// wait lets time pass until a goroutine may be drawn, and reports whether one may.
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

// ready reports whether a goroutine can be drawn.
func (t *Turnstile) ready() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.parked, func(g *parked) bool { return !g.process.frozen })
}

// draw removes a random parked goroutine and returns it. If there is none it reports whether the program has ended.
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

// sort sorts the goroutines that have parked since the last draw.
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

// Pass parks the goroutine of ctx until it is drawn; at describes the position in the program. It does not return if
// the goroutine's process was killed. It panics if ctx has no name. Run panics if two goroutines with one name are
// parked.
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
	// Only the scheduler kills, so this does not change while we run.
	if g.process.dead {
		runtime.Goexit()
	}
}

// channel returns an unused channel. The caller holds mu.
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
	_ = retry.Wait(ctx, d)
	Pass(ctx, "slept")
}

// Pause is Sleep for a random time below limit. It is kv.Retrier.Pause.
func (t *Turnstile) Pause(ctx context.Context, limit time.Duration) {
	t.mu.Lock()
	d := time.Duration(t.random.Int64N(int64(limit)))
	t.mu.Unlock()
	t.Sleep(ctx, d)
}

// share reports true with a probability.
func (t *Turnstile) share(probability float64) bool {
	if probability <= 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.random.Float64() < probability
}
