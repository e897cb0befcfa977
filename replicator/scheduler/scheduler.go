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

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/jobs"
)

// Options are what a job server is made of.
type Options struct {
	Jobs   *jobs.Store
	Config *config.Config
	// Node is this node's name in listings. Default: the host's name.
	Node string
	// UserAgent is the User-Agent header of requests to endpoints. Default: settee.
	UserAgent string
	// Transport is worker.Config's.
	Transport func(replicator.Endpoint, *replicator.SocketOptions) http.RoundTripper
	Log       zerolog.Logger
}

// Server runs replication jobs.
type Server struct {
	opts Options

	accepting     context.Context // ends when no more jobs are to be taken
	stopAccepting context.CancelFunc
	stop          chan struct{}   // closed when runs are to come to an end
	hurry         context.Context // ends when they have had the time for it
	stopRuns      context.CancelFunc
	stopOnce      sync.Once
	done          chan struct{} // closed when Run returns

	slots chan struct{} // a token for each job that runs, or that an acceptor waits for
	runs  sync.WaitGroup
	count atomic.Int64 // of runs so far, which names them
}

// New returns a job server. Run starts it.
func New(opts Options) *Server {
	if opts.Node == "" {
		opts.Node, _ = os.Hostname() // an empty name is shown as it is
	}
	s := &Server{
		opts:  opts,
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
		slots: make(chan struct{}, config.MaxJobs.Get(opts.Config)),
	}
	s.accepting, s.stopAccepting = context.WithCancel(context.Background())
	s.hurry, s.stopRuns = context.WithCancel(context.Background())
	return s
}

// Run takes and runs jobs until Shutdown, and returns nil then. When ctx ends it
// drops everything at once, as if the node had died, and returns ctx's error. It is
// called once.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.done)
	accepting, cancel := merge(ctx, s.accepting)
	defer cancel()
	var acceptors sync.WaitGroup
	acceptors.Go(func() { s.monitor(accepting) })
	for range config.MaxAcceptors.Get(s.opts.Config) {
		acceptors.Go(func() { s.accept(ctx, accepting) })
	}
	acceptors.Wait()
	s.runs.Wait()
	return ctx.Err()
}

// Shutdown takes no more jobs, and gives those that run until ctx ends to write a
// checkpoint and to go back to the queue; then it ends them without one. It returns
// when Run has, with ctx's error if that came first. Run must have been called.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.stopAccepting()
		close(s.stop)
	})
	defer s.stopRuns()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.stopRuns()
	<-s.done
	return ctx.Err()
}

// merge returns a context that ends with either of two.
func merge(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// monitor queues the jobs of dead nodes again.
func (s *Server) monitor(ctx context.Context) {
	_ = s.opts.Jobs.Jobs().RunMonitor(ctx, fdbjobs.MonitorOptions{
		Requeued: func(ids []string) {
			s.opts.Log.Warn().Strs("jobs", ids).Msg("queued the jobs again that nobody kept alive")
		},
		Failed: func(err error) { s.opts.Log.Error().Err(err).Msg("the activity monitor failed, and tries again") },
	})
}

// accept takes one job after another while there is room.
func (s *Server) accept(ctx, accepting context.Context) {
	for {
		select {
		case s.slots <- struct{}{}:
		case <-accepting.Done():
			return
		}
		run, err := s.opts.Jobs.Accept(accepting)
		if err == nil {
			s.runs.Go(func() {
				defer func() { <-s.slots }()
				s.run(ctx, run)
			})
			continue
		}
		<-s.slots
		if accepting.Err() != nil || errors.Is(err, fdbjobs.ErrClosed) {
			return
		}
		s.opts.Log.Error().Err(err).Msg("taking a job failed, and is tried again")
		wait := time.Second + rand.N(config.AcceptJitter.Get(s.opts.Config)+1)
		select {
		case <-accepting.Done():
			return
		case <-time.After(wait):
		}
	}
}

// pid names a run on this node, for listings.
func (s *Server) pid() string {
	return fmt.Sprintf("%d.%d", os.Getpid(), s.count.Add(1))
}
