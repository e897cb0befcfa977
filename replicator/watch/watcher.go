package watch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// rotateEvery is how often a node that has as many watches as it may have looks for others that are due. A watch is kept
	// for turnTime before it makes room for one of these, and for shortTurn if one of these has waited for longer than
	// turnPatience.
	rotateEvery  = 5 * time.Second
	turnTime     = time.Minute
	shortTurn    = 10 * time.Second
	turnPatience = 30 * time.Second
)

// Options are the options of [New].
type Options struct {
	Jobs *jobs.Store
	// Config returns the current settings. Changed, if not nil, returns a channel that is closed when they change.
	Config  func() *config.Config
	Changed func() <-chan struct{}
	// Worker returns the configuration with which requests are made. Its Shared should be the one that the node's runs use.
	Worker func() worker.Config
	Log    zerolog.Logger
}

// Watcher runs the watches of a node.
type Watcher struct {
	opts  Options
	queue *fdbjobs.Queue

	stages *jobserver.Stages

	runs, beating sync.WaitGroup
	counter       counter

	mu      sync.Mutex
	watches map[string]*watch // by server
	change  chan struct{}     // holds a token when a watch has begun or ended
	begun   chan struct{}     // holds a token when a watch has begun
	paces   map[paceKey]*paces
	targets map[string]*targetServer // by route.Key
	waiting time.Time                // since when the due watch has waited that waits longest; zero if there is room
}

// New returns a watcher. Run starts it.
func New(opts Options) *Watcher {
	w := &Watcher{
		opts: opts, queue: opts.Jobs.Watches.Queue(), stages: jobserver.NewStages(),
		watches: map[string]*watch{}, change: make(chan struct{}, 1),
		begun: make(chan struct{}, 1), paces: map[paceKey]*paces{}, targets: map[string]*targetServer{},
	}
	return w
}

// Run takes and runs watches until Shutdown, and then returns nil. When ctx ends, it drops everything at once, as if the
// node had died, and returns ctx's error. Run must be called only once.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.stages.Ended()
	accepting, cancel := jobserver.Merge(ctx, w.stages.Accepting)
	defer cancel()
	var loops sync.WaitGroup
	loops.Go(func() { w.monitor(accepting) })
	loops.Go(func() { w.accept(ctx, accepting) })
	beats, endBeats := context.WithCancel(ctx)
	defer endBeats()
	var beating sync.WaitGroup
	beating.Go(func() { w.beat(beats) })
	loops.Wait()
	w.runs.Wait()
	endBeats()
	beating.Wait()
	w.beating.Wait()
	return ctx.Err()
}

// Leave ends all watches and puts their jobs back, where other nodes take them. It does not wait for that.
func (w *Watcher) Leave() { w.stages.Leave() }

// Shutdown is Leave, and waits until Run has returned, for which the watches have until ctx ends. It returns ctx's error if
// ctx ended first. Run must have been called.
func (w *Watcher) Shutdown(ctx context.Context) error { return w.stages.Shutdown(ctx) }

// monitor puts the watches of dead nodes back into the queue.
func (w *Watcher) monitor(ctx context.Context) {
	_ = w.queue.RunMonitor(ctx, func(servers []string, _ time.Duration, err error) {
		if len(servers) > 0 {
			w.opts.Log.Warn().Strs("servers", servers).Msg("queued watches of servers again that no node kept alive")
		}
		if err != nil {
			w.opts.Log.Error().Err(err).Msg("the monitor of watches failed, and tries again")
		}
	})
}

// changed returns a channel that is closed when settings change, or nil if they do not.
func (w *Watcher) changed() <-chan struct{} {
	if w.opts.Changed == nil {
		return nil
	}
	return w.opts.Changed()
}

// accept takes watches while there is room for them.
func (w *Watcher) accept(ctx, accepting context.Context) {
	rotate := time.Now().Add(rotateEvery)
	for accepting.Err() == nil {
		changed := w.changed() // before the settings are read, so that no change is missed
		most := config.MaxWatches.Get(w.opts.Config())
		held, err := w.take(accepting, changed, most, &rotate)
		for _, h := range held {
			w.start(ctx, accepting, h)
		}
		switch {
		case err == nil, accepting.Err() != nil:
		case errors.Is(err, fdbjobs.ErrClosed):
			return
		default:
			w.opts.Log.Error().Err(err).Msg("taking a watch failed, and is tried again")
			kv.Sleep(accepting, time.Second+rand.N(time.Second))
		}
	}
}

// take waits for watches for the room that there is. It returns without any when that may have changed.
func (w *Watcher) take(ctx context.Context, changed <-chan struct{}, most int, rotate *time.Time) ([]*fdbjobs.Held, error) {
	free := most - w.settle(most)
	if free > 0 || most == 0 {
		w.setWaiting(time.Time{})
	}
	if free > 0 {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		var stop sync.WaitGroup
		defer stop.Wait()
		defer cancel()
		stop.Go(func() {
			select {
			case <-changed:
				cancel()
			case <-waiting.Done():
			}
		})
		held, err := w.queue.Accept(waiting, fdbjobs.AcceptOptions{Count: free})
		if err != nil && ctx.Err() == nil && waiting.Err() != nil {
			err = nil
		}
		return held, err
	}
	timer := time.NewTimer(time.Until(*rotate))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, nil
	case <-changed:
		return nil, nil
	case <-w.change:
		return nil, nil
	case <-timer.C:
	}
	*rotate = time.Now().Add(rotateEvery)
	since, err := w.opts.Jobs.Watches.OldestDue(ctx)
	if err != nil || since.IsZero() || most == 0 {
		return nil, err
	}
	w.setWaiting(since)
	turn := turnTime
	if time.Since(since) > turnPatience {
		turn = shortTurn
	}
	yielding := w.yielding(turn)
	if len(yielding) == 0 {
		return nil, nil
	}
	return w.queue.Accept(ctx, fdbjobs.AcceptOptions{Count: len(yielding), Wait: -1, Evictable: yielding})
}

// settle stops the youngest watches beyond most, and returns the number of those that are left. Watches that end make room
// already.
func (w *Watcher) settle(most int) int {
	running := w.staying(0)
	left := min(len(running), max(most, 0))
	for _, one := range running[left:] {
		one.stop()
	}
	return left
}

// staying returns the watches that have run for a time and are not told to stop, the oldest first.
func (w *Watcher) staying(age time.Duration) []*watch {
	return slices.DeleteFunc(w.oldest(age), func(one *watch) bool { return one.stopping.Err() != nil })
}

func (w *Watcher) setWaiting(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = since
}

// waited returns how long the due watch has waited that waits longest for a place.
func (w *Watcher) waited() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting.IsZero() {
		return 0
	}
	return max(0, time.Since(w.waiting))
}

// yielding returns the watches that have had a turn, the oldest first.
func (w *Watcher) yielding(turn time.Duration) []*fdbjobs.Held {
	var list []*fdbjobs.Held
	for _, one := range w.staying(turn) {
		list = append(list, one.held)
	}
	return list
}

// oldest returns the watches that have run for a time, the oldest first.
func (w *Watcher) oldest(age time.Duration) []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*watch
	for _, one := range w.watches {
		if time.Since(one.began) >= age {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b *watch) int { return a.began.Compare(b.began) })
	return list
}

// start runs a watch in a goroutine, and stops the one that makes room for it.
func (w *Watcher) start(ctx, accepting context.Context, held *fdbjobs.Held) {
	one := newWatch(w, held)
	w.mu.Lock()
	if other := w.watches[held.Job().Evicted]; other != nil {
		other.stop()
	}
	w.watches[one.server] = one
	w.mu.Unlock()
	jobserver.Poke(w.change)
	jobserver.Poke(w.begun)
	w.runs.Go(func() {
		defer jobserver.Poke(w.change)
		defer w.remove(one)
		one.run(ctx, accepting)
	})
}

func (w *Watcher) remove(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches[one.server] == one { // otherwise it was lost, and taken again
		delete(w.watches, one.server)
	}
}

// beat keeps the jobs of all watches alive, until ctx ends.
func (w *Watcher) beat(ctx context.Context) {
	at := time.Now().Add(w.heartbeat())
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.begun: // its job may need an update sooner
			if next := time.Now().Add(w.heartbeat()); next.Before(at) {
				at = next
			}
		case <-timer.C:
			w.beatAll(ctx)
			at = time.Now().Add(w.heartbeat())
		}
		timer.Reset(time.Until(at))
	}
}

func (w *Watcher) beatAll(ctx context.Context) {
	for _, one := range w.oldest(0) {
		if one.beating.CompareAndSwap(false, true) {
			w.beating.Go(func() {
				defer one.beating.Store(false)
				one.beat(ctx)
			})
		}
	}
}

// heartbeat returns the time between two updates of the jobs of all watches.
func (w *Watcher) heartbeat() time.Duration {
	shortest := fdbjobs.DefaultTimeout / 3
	for _, one := range w.oldest(0) {
		shortest = min(shortest, one.held.Heartbeat())
	}
	return shortest
}
