package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"settee/fdbjobs"
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
	opts Options

	stages *jobserver.Stages

	slots   *slots
	runs    sync.WaitGroup
	count   atomic.Int64 // number of runs so far; part of their names
	counter counter
	shared  worker.Shared

	heartbeats   *heartbeats
	look, ticked deadline // of the activity monitor and of tick
}

// New returns a job server. Run starts it.
func New(opts Options) *Server {
	if opts.Node == "" {
		opts.Node, _ = os.Hostname() // an empty name is allowed
	}
	if opts.Replicate == nil {
		opts.Replicate = worker.Run
	}
	s := &Server{opts: opts, stages: jobserver.NewStages(), heartbeats: new(heartbeats), look: newDeadline(), ticked: newDeadline()}
	s.slots = newSlots(s.limits, opts.Running)
	return s
}

// Run takes and runs jobs until Shutdown, and then returns nil. When ctx ends, it drops everything at once, as if the
// node had died, and returns ctx's error. Run must be called only once.
func (s *Server) Run(ctx context.Context) error {
	defer s.stages.Ended()
	accepting, cancel := jobserver.Merge(ctx, s.stages.Accepting)
	defer cancel()
	var loops sync.WaitGroup
	loops.Go(func() { s.monitor(accepting) })
	loops.Go(func() {
		s.accept(ctx, accepting)
		<-accepting.Done()
		if ctx.Err() == nil {
			s.slots.close() // not before: this node would take the jobs again that it puts back
		}
	})
	loops.Go(func() { s.tick(ctx, accepting) })
	loops.Go(func() { s.parkIdle(accepting) })
	ended := make(chan struct{})
	var recording sync.WaitGroup
	recording.Go(func() { s.record(ctx, ended) })
	loops.Wait()
	s.runs.Wait()
	close(ended)
	recording.Wait()
	return ctx.Err()
}

// Leave stops taking jobs, and tells the running jobs to write a checkpoint and go back to the queue, where other nodes
// take them. It does not wait for that.
func (s *Server) Leave() { s.stages.Leave() }

// Shutdown is Leave, and waits until Run has returned. Running jobs have until ctx ends to write a checkpoint and go back
// to the queue. After that they are cut off without a checkpoint. It returns ctx's error if ctx ended first. Run must
// have been called.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	return s.stages.Shutdown(ctx)
}

// monitor puts the jobs of dead nodes back into the queue.
func (s *Server) monitor(ctx context.Context) {
	_ = s.opts.Jobs.Jobs().RunMonitor(ctx, func(ids []string, next time.Duration, err error) {
		if len(ids) > 0 {
			s.opts.Log.Warn().Strs("jobs", ids).Msg("queued jobs again that no node kept alive")
		}
		if err != nil {
			s.opts.Log.Error().Err(err).Msg("the activity monitor failed, and tries again")
			return
		}
		s.look.set(next)
	})
}

// acceptPause is the pause of the acceptors after the room has changed. Jobs that become idle and busy by turns change it
// all the time.
const acceptPause = 100 * time.Millisecond

// accept takes due jobs while there is room, up to max_acceptors at a time.
func (s *Server) accept(ctx, accepting context.Context) {
	for {
		if !s.onTime(accepting) {
			return
		}
		waiting, n := s.slots.room(accepting)
		if n == 0 {
			return
		}
		runs, err := s.opts.Jobs.Runs.Accept(waiting, n, nil)
		changed := waiting.Err() != nil // checked first: accepting may end later
		for _, run := range runs {
			s.start(ctx, run, time.Now())
		}
		if err == nil {
			continue
		}
		wait := acceptPause
		switch {
		case accepting.Err() != nil, errors.Is(err, fdbjobs.ErrClosed):
			return
		case !changed:
			s.opts.Log.Error().Err(err).Msg("taking a job failed, and is tried again")
			wait = time.Second + rand.N(config.AcceptJitter.Get(s.opts.Config())+1)
		}
		select {
		case <-accepting.Done():
			return
		case <-time.After(wait):
		}
	}
}

// limits returns the current settings of slots.
func (s *Server) limits() limits {
	cfg := s.opts.Config()
	return limits{
		running: config.MaxJobs.Get(cfg), mirrors: config.MaxMirrors.Get(cfg), atOnce: config.MaxAcceptors.Get(cfg), idleTimeout: config.IdleTimeout.Get(cfg),
	}
}

// parkIdle asks jobs to park that have been idle for idle_timeout_sec.
func (s *Server) parkIdle(accepting context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-accepting.Done():
			return
		case <-s.slots.sooner:
		case <-timer.C:
		}
		timer.Stop()
		if at := s.slots.turn(); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
	}
}

// start runs a job in a goroutine, and stops the one that it was taken for. began is when the run counts as started.
func (s *Server) start(ctx context.Context, run *jobs.Run, began time.Time) {
	job := newRunning(run.Job().ID, run, began)
	job.flow = s.flow(job)
	s.slots.add(job, run.Instead())
	s.runs.Go(func() {
		defer s.slots.remove(job)
		s.run(ctx, job)
	})
}

// pid returns a name for a run on this node, for listings.
func (s *Server) pid() string {
	return fmt.Sprintf("%d.%d", os.Getpid(), s.count.Add(1))
}
