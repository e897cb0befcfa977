package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// turnEvery is how often a node that has as many watches as it may have looks for others that are due. A watch is kept
	// for turnTime before it makes room for one of these, and for shortTurn if one of these has waited for longer than
	// turnPatience.
	turnEvery    = 5 * time.Second
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
	opts    Options
	server  *jobserver.Server[*watch]
	counter counter

	mu         sync.Mutex
	paces      map[paceKey]*paces
	targets    map[string]*targetServer // by route.Key
	waitsSince time.Time                // since when the due watch waits that waits longest; zero if none was due at the last turn
}

// New returns a watcher. Run starts it.
func New(opts Options) *Watcher {
	w := &Watcher{opts: opts, paces: map[paceKey]*paces{}, targets: map[string]*targetServer{}}
	w.server = jobserver.New(jobserver.Options[*watch]{
		Queue: opts.Jobs.Watches.Queue, Config: opts.Config, Changed: opts.Changed,
		Accept: jobserver.AcceptFrom(opts.Jobs.Watches.Queue, w.newWatch, func(one *watch) *fdbjobs.Held { return one.held }),
		Run:    w.run, GiveBack: w.giveBack,
		Limiter:    &jobserver.AtMost[*watch]{Max: func() int { return config.MaxWatches.Get(opts.Config()) }},
		Interval:   func(*config.Config) time.Duration { return turnEvery },
		BeforeTurn: w.readOldestDue, MakesRoom: w.makesRoom,
		Log: opts.Log.With().Str("queue", "watches").Logger(),
	})
	return w
}

// Run takes and runs watches until Shutdown, and then returns nil. When ctx ends, it drops everything at once, as if the
// node had died, and returns ctx's error. Run must be called only once.
func (w *Watcher) Run(ctx context.Context) error { return w.server.Run(ctx) }

// Cordon sets whether the node takes no watches, and with drain ends those that it has, see jobserver.Server.Cordon.
func (w *Watcher) Cordon(cordoned, drain bool) { w.server.Cordon(cordoned, drain) }

// Leave ends all watches and puts their jobs back, where other nodes take them. It does not wait for that.
func (w *Watcher) Leave() { w.server.Leave() }

// Shutdown is Leave, and waits until Run has returned, for which the watches have until ctx ends. It returns ctx's error if
// ctx ended first. Run must have been called.
func (w *Watcher) Shutdown(ctx context.Context) error { return w.server.Shutdown(ctx) }

// changed returns a channel that is closed when settings change, or nil if they do not.
func (w *Watcher) changed() <-chan struct{} {
	if w.opts.Changed == nil {
		return nil
	}
	return w.opts.Changed()
}

// makesRoom decides which watches make room at a turn, from those that are not stopping, the oldest first. most is how many
// there may be. If no more are allowed, and a due one has waited for a time, those make room that have had
// their turn. If there are more than most, the youngest stop.
func makesRoom(most int, list []*watch, full bool, waited time.Duration, at time.Time) jobserver.Turn[*watch] {
	if excess := len(list) - most; excess > 0 {
		slices.Reverse(list)
		return jobserver.Turn[*watch]{Excess: excess, Stop: [][]*watch{list}}
	}
	if !full || waited == 0 {
		return jobserver.Turn[*watch]{}
	}
	turn := turnTime
	if waited > turnPatience {
		turn = shortTurn
	}
	yielding := slices.DeleteFunc(list, func(one *watch) bool { return at.Sub(one.Began) < turn })
	return jobserver.Turn[*watch]{Yielding: yielding, Most: len(yielding)}
}

func (w *Watcher) makesRoom(cfg *config.Config, list []*watch, full bool, at time.Time) jobserver.Turn[*watch] {
	return makesRoom(config.MaxWatches.Get(cfg), list, full, w.waited(), at)
}

// readOldestDue reads for the next turn since when a due watch waits, if this node may have no more.
func (w *Watcher) readOldestDue(ctx context.Context, cfg *config.Config) error {
	var since time.Time
	var err error
	if w.server.Full() && config.MaxWatches.Get(cfg) > 0 {
		since, err = w.opts.Jobs.Watches.OldestDue(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waitsSince = since
	return err
}

// waited returns how long the due watch has waited that waits longest for a place.
func (w *Watcher) waited() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waitsSince.IsZero() {
		return 0
	}
	return max(0, time.Since(w.waitsSince))
}
