package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// slots are the running jobs of this node. A job that is stopping gives up its slot at once, while it still writes its
// last checkpoint. An idle job's slot counts as free, see idleRuns: if a job takes it, the idle one is asked to park.
//
// The first max_mirrors mirrors take no slots.
//
// An idle job that was asked to park has given its slot to another one, also while it ends.
//
// Invariant: no more than max_jobs slots are in use, unless more jobs are busy: idle ones have become busy after others took
// their slots. The node then stops some after overfullTime. At most max_jobs plus parkAtOnce jobs are held.
type slots struct {
	limits func() limits
	tell   func(jobs int) // see Options.Running

	mu       sync.Mutex
	jobs     map[string]*running
	held     int // jobs that are not stopping, without mirrors that take no slot
	mirrors  int // mirrors that take no slot and are not stopping
	idleRuns idleRuns
	closed   bool               // new jobs stop at once
	given    int                // what room returned last
	wait     context.CancelFunc // ends the context that room returned last
	wakes    time.Time          // when turn is called next; zero: never

	change   chan struct{} // holds a token when the room may have changed
	sooner   chan struct{} // holds a token when turn is to be called earlier
	overfull chan struct{} // holds a token when more slots are taken than there may be
}

// limits are the settings of slots.
type limits struct {
	running     int           // max_jobs
	mirrors     int           // max_mirrors
	atOnce      int           // max_acceptors
	idleTimeout time.Duration // 0: infinite
}

// parkAtOnce is the most jobs that are held beyond max_jobs while idle ones park for them, and the most that park at a
// time because they have been idle for long.
func (l limits) parkAtOnce() int { return max(l.atOnce, l.running/10) }

// running is a running job.
type running struct {
	id     string
	run    *jobs.Run
	began  time.Time
	stop   context.Context    // ends when the job is to stop
	cancel context.CancelFunc // of stop
	parker worker.Parker      // asks the job to park
	flow   *serverbudget.Flow // takes turns in the budgets of servers

	// These are guarded by the mutex of slots.
	stopping bool       // or ended
	why      stopReason // it is stopping; zero if that is not known
	slotless bool       // a mirror that takes no slot
	idleRun  idleRun
}

func newRunning(id string, run *jobs.Run, began time.Time) *running {
	r := &running{id: id, run: run, began: began}
	r.stop, r.cancel = context.WithCancel(context.Background())
	r.idleRun.of = r
	return r
}

func (r *running) continuous() bool { return r.run.Job().Args.Replication.Continuous }

func (r *running) mirror() bool { return r.run != nil && r.run.Job().IsMirror() }

func newSlots(limits func() limits, tell func(jobs int)) *slots {
	if tell == nil {
		tell = func(int) {}
	}
	return &slots{
		limits: limits, tell: tell, jobs: map[string]*running{}, wait: func() {},
		change: make(chan struct{}, 1), sooner: make(chan struct{}, 1), overfull: make(chan struct{}, 1),
	}
}

// leave gives up the job's slot. The caller holds s.mu.
func (s *slots) leave(job *running) {
	switch {
	case job.stopping:
	case job.slotless:
		job.stopping = true
		s.mirrors--
	default:
		job.stopping = true
		s.held--
		s.idleRuns.forget(&job.idleRun)
	}
}

// stopReason says in the history of a job why its run was stopped.
type stopReason struct {
	code replicator.EndCode
	text string
}

var (
	madeRoom       = stopReason{replicator.EndMadeRoom, "it made room for another job"}
	tooManyJobs    = stopReason{replicator.EndTooMany, "more jobs ran than the node may run"}
	nodeStops      = stopReason{replicator.EndNodeStops, "its node stops"}
	databasePaused = stopReason{replicator.EndPaused, "the database is paused"}
)

// why returns why a job was stopped, or a zero reason.
func (s *slots) why(job *running) stopReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return job.why
}

// end stops the job. The first call decides why. The caller holds s.mu.
func (s *slots) end(job *running, why stopReason) {
	if !job.stopping {
		job.why = why
	}
	s.leave(job)
	job.cancel()
}

// free is the number of jobs that may be taken at once. The caller holds s.mu.
func (s *slots) free(l limits) int {
	return min(l.atOnce, l.running-s.taken(), l.running+l.parkAtOnce()-s.held)
}

// taken is the number of slots that do not count as free. The caller holds s.mu.
func (s *slots) taken() int { return s.held - s.idleRuns.free() }

// used is the number of slots in use, also by idle jobs. The caller holds s.mu.
func (s *slots) used() int { return s.held - s.idleRuns.asked }

// room waits until a slot is free, and returns how many jobs to take at once. The returned context ends when that
// number may have changed. If ctx ends, room returns 0. Only one goroutine calls it.
func (s *slots) room(ctx context.Context) (context.Context, int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		if n := s.free(s.limits()); n > 0 {
			s.wait() // release the previous context
			waiting, cancel := context.WithCancel(ctx)
			s.given, s.wait = n, cancel
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

// reconsider applies changed limits.
func (s *slots) reconsider() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
	s.settle(time.Now())
}

// settle does what follows from a change of the jobs, their idleness or the limits: it asks idle jobs to park whose
// slots are in use, and wakes those that wait for something else. The caller holds s.mu.
func (s *slots) settle(now time.Time) {
	l := s.limits()
	for s.used() > l.running && s.ask(now) {
	}
	free := s.free(l)
	if free < s.given { // this many are not to be taken
		s.given = 0
		s.wait()
	}
	if free > 0 {
		jobserver.Poke(s.change)
	}
	if s.taken() > l.running {
		jobserver.Poke(s.overfull)
	}
	if at := s.next(l); !at.IsZero() && (s.wakes.IsZero() || at.Before(s.wakes)) {
		jobserver.Poke(s.sooner)
	}
}

// ask asks the job that has been idle longest to park, and reports whether there is one. The caller holds s.mu.
func (s *slots) ask(now time.Time) bool {
	idle := s.idleRuns.ask(now)
	if idle != nil {
		idle.of.parker.Ask()
	}
	return idle != nil
}

// next returns when turn has something to do; the zero time means never. The caller holds s.mu.
func (s *slots) next(l limits) time.Time {
	if s.idleRuns.asked >= l.parkAtOnce() {
		return s.idleRuns.next(0)
	}
	return s.idleRuns.next(l.idleTimeout)
}

// turn asks jobs to park that have been idle for too long, and returns when to call it again; the zero time means when
// sooner has a token.
func (s *slots) turn() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, l := time.Now(), s.limits()
	s.idleRuns.pass(now)
	for s.idleRuns.asked < l.parkAtOnce() && s.idleRuns.late(now, l.idleTimeout) {
		s.ask(now)
	}
	s.wakes = s.next(l)
	s.settle(now)
	return s.wakes
}

// idle notes whether a job has something to do.
func (s *slots) idle(job *running, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case job.stopping:
		return
	case idle:
		s.idleRuns.idle(&job.idleRun, now)
	default:
		s.idleRuns.busy(&job.idleRun, now)
	}
	s.settle(now)
}

// Running returns the number of slots of this node that are in use: the jobs that run now, without those that are stopping or
// were asked to park.
func (s *Server) Running() int {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.used()
}

// Idle returns how many of the jobs that Running counts have nothing to do.
func (s *Server) Idle() int {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.idleRuns.count() - s.slots.idleRuns.asked
}

// add gives a job a slot. It stops the job whose id is instead, if there is one, which made room for it.
func (s *slots) add(job *running, instead string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.jobs[instead]; other != nil {
		s.end(other, madeRoom)
	}
	s.jobs[job.id] = job
	if job.mirror() && s.mirrors < s.limits().mirrors {
		job.slotless = true
		s.mirrors++
	} else {
		s.held++
	}
	s.tell(len(s.jobs))
	if s.closed {
		s.end(job, nodeStops)
	}
	s.settle(time.Now())
}

func (s *slots) remove(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(job)
	if s.jobs[job.id] == job { // this node may have taken the job again already
		delete(s.jobs, job.id)
		s.tell(len(s.jobs))
	}
	s.settle(time.Now())
}

// stop stops jobs by id, and says why. It ignores ids of jobs that have ended.
func (s *slots) stop(why stopReason, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if job := s.jobs[id]; job != nil {
			s.end(job, why)
		}
	}
	s.settle(time.Now())
}

// stopRun stops a run that was added, even if this node has taken its job again.
func (s *slots) stopRun(job *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(job, stopReason{})
	s.settle(time.Now())
}

// close stops all jobs, including those added later.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, job := range s.jobs {
		s.end(job, nodeStops)
	}
}

// all returns the jobs that are not stopping.
func (s *slots) all() []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*running, 0, s.held+s.mirrors)
	for _, job := range s.jobs {
		if !job.stopping {
			out = append(out, job)
		}
	}
	return out
}

// occupied are the jobs whose slots do not count as free, in each list the one that has run longest first.
type occupied struct {
	resting []*running // idle, but they did not park when they were asked
	busy    []*running
}

func (o occupied) count() int { return len(o.resting) + len(o.busy) }

// all returns the jobs of both lists, the one that has run longest first.
func (o occupied) all() []*running { return longestFirst(slices.Concat(o.resting, o.busy)) }

func longestFirst(list []*running) []*running {
	slices.SortFunc(list, func(a, b *running) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.id, b.id))
	})
	return list
}

// list returns the jobs whose slots do not count as free, and whether no job can be taken.
func (s *slots) list() (list occupied, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range s.jobs {
		switch {
		case job.stopping, job.slotless:
		case job.idleRun.state == resting:
			list.resting = append(list.resting, job)
		case job.idleRun.state == busy:
			list.busy = append(list.busy, job)
		}
	}
	longestFirst(list.resting)
	longestFirst(list.busy)
	return list, s.free(s.limits()) <= 0
}
