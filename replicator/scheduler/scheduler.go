package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"settee/pkg/config"
	"settee/pkg/serverbudget"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// Options are the options of [New].
type Options struct {
	Jobs *jobs.Store
	// Config returns the current settings. Changed, if not nil, returns a channel that is closed when they change.
	// Changes apply to the next run or tick.
	Config  func() *config.Config
	Changed func() <-chan struct{}
	// Node is this node's name in listings. Default: the host name.
	Node string
	// UserAgent is the User-Agent header of requests to endpoints, unless Config has one. Default: settee.
	UserAgent string
	// Transport is passed to worker.Config.
	Transport func(replicator.Endpoint, *sockopt.Options) http.RoundTripper
	// Budgets is passed to worker.Config.
	Budgets *serverbudget.Node
	// Traffic, if not nil, returns how many bytes went through the connections of Transport so far.
	Traffic func() (received, sent int64)
	// Tracer is passed to worker.Config.
	Tracer trace.Tracer
	// Running, if not nil, is called with the number of jobs that run or are stopping, each time that it changes. It must
	// not wait.
	Running func(jobs int)
	// Replicate runs a job once. Default: worker.Run.
	Replicate func(context.Context, worker.Job, worker.Config, worker.Reporter) (worker.Result, error)
	Log       zerolog.Logger
}

// Server runs replication jobs.
type Server struct {
	opts        Options
	server      *jobserver.Server[*running]
	comparisons *jobserver.Server[*comparison]
	slots       *slots
	count       atomic.Int64 // number of runs so far; part of their names
	counter     counter
	shared      worker.Shared
	recorded    chan struct{} // closed when what this node did is recorded for the last time
}

// New returns a job server. Run starts it.
func New(opts Options) *Server {
	if opts.Node == "" {
		opts.Node, _ = os.Hostname() // an empty name is allowed
	}
	if opts.Replicate == nil {
		opts.Replicate = worker.Run
	}
	s := &Server{opts: opts, recorded: make(chan struct{})}
	s.slots = newSlots(s.limits)
	s.server = jobserver.New(jobserver.Options[*running]{
		Queue: opts.Jobs.Jobs, Config: opts.Config, Changed: opts.Changed, Reconfigured: s.reconfigured,
		Accept: s.accept, Run: s.run, GiveBack: s.giveBack, Release: s.release,
		Limiter: s.slots, Interval: config.Interval.Get, BeforeTurn: s.rollUp, MakesRoom: makesRoom, Choose: s.choose,
		Running: opts.Running, Log: opts.Log,
	})
	s.comparisons = s.newComparisons()
	return s
}

// Run takes and runs jobs until Shutdown, and then returns nil. When ctx ends, it drops everything at once, as if the
// node had died, and returns ctx's error. Run must be called only once.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.recorded)
	ended := make(chan struct{})
	var recording sync.WaitGroup
	recording.Go(func() { s.recordWork(ctx, ended) })
	var comparing sync.WaitGroup
	comparing.Go(func() { _ = s.comparisons.Run(ctx) }) // the error is ctx's, as below
	err := s.server.Run(ctx)
	comparing.Wait()
	close(ended)
	recording.Wait()
	return err
}

// Cordon sets whether the node takes no jobs, and with drain gives back those that it has, see jobserver.Server.Cordon. A cordoned
// node gives back its comparisons in any case.
func (s *Server) Cordon(cordoned, drain bool) {
	s.server.Cordon(cordoned, drain)
	s.comparisons.Cordon(cordoned, true)
}

// Leave stops taking jobs, and tells the running jobs to write a checkpoint and go back to the queue, where other nodes
// take them. It does not wait for that.
func (s *Server) Leave() {
	s.server.Leave()
	s.comparisons.Leave()
}

// Shutdown is Leave, and waits until Run has returned. Running jobs have until ctx ends to write a checkpoint and go back
// to the queue. After that they are cut off without a checkpoint. It returns ctx's error if ctx ended first. Run must
// have been called.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	err := cmp.Or(s.server.Shutdown(ctx), s.comparisons.Shutdown(ctx))
	<-s.recorded
	return err
}

// Overdue returns how late the activity monitor or the rescheduling is, whichever is later, see jobserver.Server.Overdue.
func (s *Server) Overdue() time.Duration { return max(s.server.Overdue(), s.comparisons.Overdue()) }

// accept takes jobs from the queue, see jobserver.Options.
func (s *Server) accept(ctx context.Context, n int, yielding []*running) ([]*running, error) {
	runs, err := s.opts.Jobs.Runs.Accept(ctx, n, runsOf(yielding))
	taken := make([]*running, len(runs))
	for i, run := range runs {
		taken[i] = s.newRunning(run)
	}
	return taken, err
}

// limits returns the current settings of slots.
func (s *Server) limits() limits {
	cfg := s.opts.Config()
	return limits{
		running: config.MaxJobs.Get(cfg), mirrors: config.MaxMirrors.Get(cfg), atOnce: config.MaxAcceptors.Get(cfg), idleTimeout: config.IdleTimeout.Get(cfg),
	}
}

// newRunName returns a name for a run on this node, for listings.
func (s *Server) newRunName() string {
	return fmt.Sprintf("%d.%d", os.Getpid(), s.count.Add(1))
}
