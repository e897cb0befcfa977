package jobserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
)

// Job is a job that a server runs. A type is one if it embeds [Run].
type Job interface{ base() *Run }

// Run is the server's part of a run. Its fields must not be changed.
type Run struct {
	ID string
	// Evicted is the id of the job that makes room for this one, or empty.
	Evicted string
	// Began is when the run counts as started. Start sets it.
	Began time.Time
	Log   *zerolog.Logger

	held     Held
	stopping context.Context
	stop     context.CancelCauseFunc
	beaten   time.Time // when the latest heartbeat began; zero before the first
}

// Held is a held job: a *fdbjobs.Held or what keeps one alive.
type Held interface {
	// Context ends when the job is no longer held.
	Context() context.Context
	// Heartbeat returns the longest time between two updates.
	Heartbeat() time.Duration
}

// NewRun returns the server's part of a run.
func NewRun(id, evicted string, held Held, log *zerolog.Logger) Run {
	r := Run{ID: id, Evicted: evicted, Log: log, held: held}
	r.stopping, r.stop = context.WithCancelCause(context.Background())
	return r
}

func (r *Run) base() *Run { return r }

// Stopping returns a context that ends when the run is to stop, or has ended. Its cause says why.
func (r *Run) Stopping() context.Context { return r.stopping }

// Why runs are stopped.
var (
	ErrMadeRoom  = errors.New("it made room for another job")
	ErrTooMany   = errors.New("more jobs ran than the node may run")
	ErrNodeStops = errors.New("its node stops")
	ErrDrained   = errors.New("its node is drained")
)

// start runs a job in a goroutine, and stops the one that makes room for it. at is when the run counts as started.
func (s *Server[J]) start(ctx context.Context, job J, at time.Time) {
	r := job.base()
	r.Began = at
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.jobs[r.Evicted]; ok {
		s.stopOne(other, ErrMadeRoom)
	}
	s.jobs[r.ID] = job
	s.opts.Limiter.Enter(job)
	switch {
	case s.closed:
		s.stopOne(job, ErrNodeStops)
	case s.drained:
		s.stopOne(job, ErrDrained)
	}
	s.changed()
	s.runs.Go(func() {
		defer s.remove(job)
		s.run(ctx, job)
	})
}

// run runs a job once and sees to its end. ctx ends when the node drops its jobs.
func (s *Server[J]) run(ctx context.Context, job J) {
	r := job.base()
	held, cancel := Merge(r.held.Context(), ctx)
	defer cancel()
	outcome, err := s.opts.Run(held, job)
	last, end := s.last(ctx, r.held.Heartbeat()) // another node waits for longer
	defer end()
	if err == nil && outcome == Stopped {
		err = s.opts.GiveBack(last, job)
	}
	switch {
	case err == nil, ctx.Err() != nil: // ended, or dropped
	case errors.Is(err, fdbjobs.ErrHalt):
		if s.opts.Release != nil {
			s.opts.Release(last, job)
		}
	default:
		r.Log.Error().Err(err).Msg("the end of a run could not be recorded; the job will be taken up again")
	}
}

// remove forgets a run that has ended.
func (s *Server[J]) remove(job J) {
	r := job.base()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopOne(job, nil)
	if current, ok := s.jobs[r.ID]; ok && current.base() == r { // this node may have taken the job again already
		delete(s.jobs, r.ID)
	}
	s.changed()
}

// stopOne stops a run, which gives up its place. The first call decides why. The caller holds s.mu.
func (s *Server[J]) stopOne(job J, why error) {
	if r := job.base(); r.stopping.Err() == nil {
		r.stop(why)
		s.opts.Limiter.Leave(job)
	}
}

// stopAll stops all runs, including those that start later.
func (s *Server[J]) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, job := range s.jobs {
		s.stopOne(job, ErrNodeStops)
	}
}

// Cordon sets whether the server takes no jobs, and with drained gives back those that it has. It does not wait for that. It may
// be called before Run.
func (s *Server[J]) Cordon(cordoned, drained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cordoned, s.drained = cordoned, cordoned && drained
	if s.drained {
		for _, job := range s.jobs {
			s.stopOne(job, ErrDrained)
		}
	}
	s.settle()
}

// Stop stops runs by the ids of their jobs, and says why. It ignores ids of runs that have ended.
func (s *Server[J]) Stop(why error, ids ...string) {
	s.Update(func() {
		for _, id := range ids {
			if job, ok := s.jobs[id]; ok {
				s.stopOne(job, why)
			}
		}
	})
}

// StopRun stops a run, even if this node has taken its job again. A nil why means that it need not be known.
func (s *Server[J]) StopRun(job J, why error) { s.Update(func() { s.stopOne(job, why) }) }

// List returns the runs that are not stopping, the one that has run longest first.
func (s *Server[J]) List() []J {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// list is List for a caller that holds s.mu.
func (s *Server[J]) list() []J {
	list := make([]J, 0, len(s.jobs))
	for _, job := range s.jobs {
		if job.base().stopping.Err() == nil {
			list = append(list, job)
		}
	}
	slices.SortFunc(list, func(a, b J) int {
		return cmp.Or(a.base().Began.Compare(b.base().Began), cmp.Compare(a.base().ID, b.base().ID))
	})
	return list
}

// changed says how many jobs run, and settles. The caller holds s.mu.
func (s *Server[J]) changed() {
	if s.opts.Running != nil {
		s.opts.Running(len(s.jobs))
	}
	s.settle()
}
