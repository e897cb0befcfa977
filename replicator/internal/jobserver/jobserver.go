// Package jobserver is the server of jobs on one node. It takes due jobs from a queue, runs each in a goroutine, and gives
// back to the queue what it cannot end. A node has a server for replications and mirrors and one for comparisons of jobs
// (package scheduler), and one for watches (package watch). They say in [Options] what a run is, how many jobs there may be, and
// which ones make room for others.
// The server does the rest:
//
//   - accept: while it may have more jobs, it waits for due jobs and takes them, unless heartbeats are late (accept.go);
//   - beat: it keeps the jobs alive whose runs report nothing by themselves, and measures all heartbeats (heartbeats.go);
//   - rotate: at each interval it takes due jobs in exchange for others, and stops jobs if there are too many (turns.go);
//   - leave and drain: it stops taking jobs, stops its runs, and gives their jobs back while there is time (drain.go);
//   - the activity monitor, which queues the jobs of dead nodes again.
//
// A run ends in one of these ways (Server.run):
//
//	the run                        the server
//	has recorded its end           does nothing
//	was stopped                    gives the job back, and other nodes may take it at once
//	returns fdbjobs.ErrHalt        releases what the run has in the store: the job was removed, changed or taken
//	is no longer held, or the      drops it: the activity monitor of another node queues the job
//	node drops everything
package jobserver

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
)

// Options are the options of [New]: what a server's jobs are, and when they make room. All functions are needed unless
// their comment says otherwise.
type Options[J Job] struct {
	Queue *fdbjobs.Queue
	// Config returns the current settings. Changed, if not nil, returns a channel that is closed when they change.
	Config  func() *config.Config
	Changed func() <-chan struct{}
	// Reconfigured is called when the settings have changed, and with nil before the first turn. It may be nil.
	Reconfigured func(ctx context.Context, before, now *config.Config)

	// Accept waits for due jobs and takes up to n of them. If yielding is not nil, it does not wait, and takes each job in
	// exchange for one of these: see fdbjobs.AcceptOptions. It may return both jobs and an error.
	Accept func(ctx context.Context, n int, yielding []J) ([]J, error)
	// Run runs a job until it has ended, or it is to stop ([Run.Stopping]). ctx ends when the job is no longer held. An error
	// means that the end could not be recorded.
	Run func(ctx context.Context, job J) (Outcome, error)
	// GiveBack puts the job of a stopped run back into its queue.
	GiveBack func(ctx context.Context, job J) error
	// Release ends a run that has returned fdbjobs.ErrHalt. It may be nil.
	Release func(ctx context.Context, job J)

	// Limiter decides how many jobs there may be.
	Limiter Limiter[J]
	// Interval returns the time between two turns.
	Interval func(*config.Config) time.Duration
	// BeforeTurn is called before each turn, and the turn follows also after an error. It may be nil.
	BeforeTurn func(ctx context.Context, cfg *config.Config) error
	// MakesRoom decides which runs make room, from all runs that are not stopping, the one that has run longest first, and
	// whether there may be no more. It is called under the lock of the server and must not wait.
	MakesRoom func(cfg *config.Config, runs []J, full bool, at time.Time) Turn[J]
	// Choose returns the ids of up to n of some runs to stop. Default: the first n.
	Choose func(ctx context.Context, runs []J, n int) ([]string, error)

	// Running, if not nil, is called with the number of jobs that run or are stopping, each time that it changes. It must
	// not wait.
	Running func(jobs int)
	Log     zerolog.Logger
}

// Outcome is how a run ended that returned no error.
type Outcome int

// The outcomes of runs.
const (
	// Recorded means that the run has recorded its end.
	Recorded Outcome = iota
	// Stopped means that the job goes back to the queue.
	Stopped
)

// Server runs jobs.
type Server[J Job] struct {
	opts Options[J]
	drain
	began      time.Time
	heartbeats heartbeats
	runs       sync.WaitGroup
	// looked is for the activity monitor, and turned for the turns.
	looked, turned deadline

	mu        sync.Mutex // guards the fields below and what Options.Limiter decides from; never held during I/O
	jobs      map[string]J
	closed    bool               // new runs stop at once
	cordoned  bool               // no jobs are taken
	drained   bool               // new runs stop at once; also cordoned
	allowance Allowance          // what the limiter has last said
	offered   int                // how many jobs accept may be waiting for
	withdraw  context.CancelFunc // makes accept ask again
	wakes     time.Time          // when the limiter is asked again although nothing changes; zero: never

	freed  chan struct{} // holds a token when there may be more jobs
	sooner chan struct{} // holds a token when the limiter is to be asked again earlier than wakes
	over   chan struct{} // holds a token when there are more jobs than there may be
}

// New returns a server. Run starts it.
func New[J Job](opts Options[J]) *Server[J] {
	return &Server[J]{
		opts: opts, drain: newDrain(), began: time.Now(), looked: newDeadline(), turned: newDeadline(),
		jobs: map[string]J{}, withdraw: func() {},
		freed: make(chan struct{}, 1), sooner: make(chan struct{}, 1), over: make(chan struct{}, 1),
	}
}

// Run takes and runs jobs until Shutdown, and then returns nil. When ctx ends, it drops everything at once, as if the node
// had died, and returns ctx's error. Run must be called only once.
func (s *Server[J]) Run(ctx context.Context) error {
	defer close(s.ended)
	accepting, cancel := Merge(ctx, s.accepting)
	defer cancel()
	var loops sync.WaitGroup
	loops.Go(func() { s.monitor(accepting) })
	loops.Go(func() {
		s.accept(ctx, accepting)
		<-accepting.Done()
		if ctx.Err() == nil {
			s.stopAll() // not before: this node would take the jobs again that it gives back
		}
	})
	loops.Go(func() { s.turns(ctx, accepting) })
	loops.Go(func() { s.settleInTime(accepting) })
	loops.Wait()
	s.runs.Wait()
	return ctx.Err()
}

// monitor queues the jobs of dead nodes again.
func (s *Server[J]) monitor(ctx context.Context) {
	_ = s.opts.Queue.RunMonitor(ctx, func(ids []string, next time.Duration, err error) {
		if len(ids) > 0 {
			s.opts.Log.Warn().Strs("jobs", ids).Msg("queued jobs again that no node kept alive")
		}
		if err != nil {
			s.opts.Log.Error().Err(err).Msg("the activity monitor failed, and tries again")
			return
		}
		s.looked.set(next)
	})
}

// Overdue returns how late the activity monitor or the turns are, whichever is later. It is 0 while both are on time. It
// grows while the store does not answer the monitor, and while a loop hangs.
func (s *Server[J]) Overdue() time.Duration { return max(s.looked.overdue(), s.turned.overdue()) }
