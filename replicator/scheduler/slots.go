package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"settee/replicator/jobs"
)

// slots are the jobs that run on this node. One that is to stop gives its slot to the next
// one at once, while it still writes its last checkpoint.
type slots struct {
	mu     sync.Mutex
	jobs   map[string]*running
	closed bool               // what is added is to stop
	change chan struct{}      // holds a token when there may be more room, or less
	wait   context.CancelFunc // ends what was begun with the room that there was
}

// running is a job that runs.
type running struct {
	run   *jobs.Run
	began time.Time
	stop  chan struct{} // closed when it is to stop
	// stopping is guarded by the mutex of slots.
	stopping bool
}

func (r *running) id() string       { return r.run.Job().ID }
func (r *running) continuous() bool { return r.run.Job().Args.Replication.Continuous }

func newSlots() *slots {
	return &slots{jobs: map[string]*running{}, change: make(chan struct{}, 1), wait: func() {}}
}

// end has the job stop. The mutex of slots is held.
func (r *running) end() {
	if !r.stopping {
		r.stopping = true
		close(r.stop)
	}
}

// poke has room look again.
func (s *slots) poke() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// room waits until fewer jobs run than may, and returns how many of them to take at once. The
// context that it returns ends when that may be different. Without any more room to come, for
// ctx has ended, it returns 0. One goroutine calls it.
func (s *slots) room(ctx context.Context, limits func() (running, atOnce int)) (context.Context, int) {
	for ctx.Err() == nil {
		most, atOnce := limits()
		s.mu.Lock()
		if n := min(most-s.taken(), atOnce); n > 0 {
			s.wait() // what it ended has ended
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

// reconsider ends the waiting for jobs that was begun with other limits.
func (s *slots) reconsider() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
	s.poke()
}

// taken is how many slots are. s.mu is held.
func (s *slots) taken() int {
	n := 0
	for _, job := range s.jobs {
		if !job.stopping {
			n++
		}
	}
	return n
}

func (s *slots) add(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.id()] = job
	if s.closed {
		job.end()
	}
}

func (s *slots) remove(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[job.id()] == job { // this node may have taken it again already
		delete(s.jobs, job.id())
	}
	s.poke()
}

// stop has jobs stop, by id. Some may have ended.
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

// close has all jobs stop, and those that come.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, job := range s.jobs {
		job.end()
	}
}

// list returns the jobs that run and are not to stop, the one that has run for the longest
// time first.
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
