package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"settee/replicator/jobs"
)

// slots are the running jobs of this node. A job that is stopping gives up its slot at once, while it still writes its
// last checkpoint.
type slots struct {
	mu     sync.Mutex
	jobs   map[string]*running
	closed bool               // new jobs stop at once
	change chan struct{}      // holds a token when the room may have changed
	wait   context.CancelFunc // ends the context that room returned last
	tell   func(jobs int)     // see Options.Running
}

// running is a running job.
type running struct {
	run    *jobs.Run
	began  time.Time
	stop   context.Context    // ends when the job is to stop
	cancel context.CancelFunc // of stop
	// stopping is guarded by the mutex of slots.
	stopping bool
}

func (r *running) id() string       { return r.run.Job().ID }
func (r *running) continuous() bool { return r.run.Job().Args.Replication.Continuous }

func newSlots(tell func(jobs int)) *slots {
	if tell == nil {
		tell = func(int) {}
	}
	return &slots{jobs: map[string]*running{}, change: make(chan struct{}, 1), wait: func() {}, tell: tell}
}

// end stops the job. The caller holds the mutex of slots.
func (r *running) end() {
	if !r.stopping {
		r.stopping = true
		r.cancel()
	}
}

// poke wakes room.
func (s *slots) poke() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// room waits until a slot is free, and returns how many jobs to take at once. The returned context ends when that
// number may have changed. If ctx ends, room returns 0. Only one goroutine calls it.
func (s *slots) room(ctx context.Context, limits func() (running, atOnce int)) (context.Context, int) {
	for ctx.Err() == nil {
		most, atOnce := limits()
		s.mu.Lock()
		if n := min(most-s.taken(), atOnce); n > 0 {
			s.wait() // release the previous context
			waiting, cancel := context.WithCancel(ctx)
			s.wait = cancel
			s.mu.Unlock()
			return waiting, n
		}
		s.mu.Unlock()
		select {
		case <-s.change:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
	return ctx, 0
}

// reconsider ends the context that room returned last, because the limits may have changed.
func (s *slots) reconsider() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
	s.poke()
}

// taken is the number of slots in use. The caller holds s.mu.
func (s *slots) taken() int {
	n := 0
	for _, job := range s.jobs {
		if !job.stopping {
			n++
		}
	}
	return n
}

// Running returns the number of jobs that run on this node now, without those that are stopping.
func (s *Server) Running() int {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.taken()
}

func (s *slots) add(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.id()] = job
	s.tell(len(s.jobs))
	if s.closed {
		job.end()
	}
}

func (s *slots) remove(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[job.id()] == job { // this node may have taken the job again already
		delete(s.jobs, job.id())
		s.tell(len(s.jobs))
	}
	s.poke()
}

// stop stops jobs by id. It ignores ids of jobs that have ended.
func (s *slots) stop(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if job := s.jobs[id]; job != nil {
			job.end()
		}
	}
	s.poke()
}

// end stops a job that has been added.
func (s *slots) end(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job.end()
	s.poke()
}

// close stops all jobs, including those added later.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, job := range s.jobs {
		job.end()
	}
}

// list returns the jobs that are not stopping, the one that has run longest first.
func (s *slots) list() []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*running, 0, len(s.jobs))
	for _, job := range s.jobs {
		if !job.stopping {
			out = append(out, job)
		}
	}
	slices.SortFunc(out, func(a, b *running) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.id(), b.id()))
	})
	return out
}
