package scheduler

import (
	"time"

	"settee/replicator/internal/jobserver"
)

// slots says how many jobs this node may have: it is the jobserver.Limiter of the running jobs, and is guarded by the lock of
// that server. A job that is stopping gives up its slot at once, while it still writes its last checkpoint. An idle job's slot
// counts as free, see idleRuns: if a job takes it, the idle one is asked to park.
//
// The first max_mirrors mirrors take no slots.
//
// An idle job that was asked to park has given its slot to another one, also while it ends.
//
// Invariant: no more than max_jobs slots are in use, unless more jobs are busy: idle ones have become busy after others took
// their slots. The node then stops some after a second. At most max_jobs plus parkAtOnce jobs are held.
type slots struct {
	limits func() limits

	held     int // jobs that are not stopping, without mirrors that take no slot
	mirrors  int // mirrors that take no slot and are not stopping
	idleRuns idleRuns
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

func newSlots(limits func() limits) *slots { return &slots{limits: limits} }

// Enter gives a job a slot, or none if it is a mirror that needs none.
func (s *slots) Enter(job *running) {
	if job.mirror && s.mirrors < s.limits().mirrors {
		job.slotless = true
		s.mirrors++
		return
	}
	s.held++
}

// Leave takes the job's slot back.
func (s *slots) Leave(job *running) {
	if job.slotless {
		s.mirrors--
		return
	}
	s.held--
	s.idleRuns.forget(&job.idleRun)
}

// Settle asks idle jobs to park whose slots are in use, and those that have been idle for too long.
func (s *slots) Settle(now time.Time) jobserver.Allowance {
	l := s.limits()
	s.idleRuns.advance(now)
	for s.idleRuns.asked < l.parkAtOnce() && s.idleRuns.late(now, l.idleTimeout) {
		s.askNext(now)
	}
	for s.used() > l.running && s.askNext(now) {
	}
	return jobserver.Allowance{Free: s.free(l), Over: s.taken() > l.running, Next: s.next(l)}
}

// free is the number of jobs that may be taken at once.
func (s *slots) free(l limits) int {
	return min(l.atOnce, l.running-s.taken(), l.running+l.parkAtOnce()-s.held)
}

// taken is the number of slots that do not count as free.
func (s *slots) taken() int { return s.held - s.idleRuns.free() }

// used is the number of slots in use, also by idle jobs.
func (s *slots) used() int { return s.held - s.idleRuns.asked }

// askNext asks the job that has been idle longest to park, and reports whether there is one.
func (s *slots) askNext(now time.Time) bool {
	idle := s.idleRuns.askNext(now)
	if idle != nil {
		idle.of.parker.Ask()
	}
	return idle != nil
}

// next returns when Settle has something to do; the zero time means never.
func (s *slots) next(l limits) time.Time {
	if s.idleRuns.asked >= l.parkAtOnce() {
		return s.idleRuns.next(0)
	}
	return s.idleRuns.next(l.idleTimeout)
}

// setIdle records whether a job has something to do. The caller settles then.
func (s *slots) setIdle(job *running, idle bool, now time.Time) {
	switch {
	case job.Stopping().Err() != nil, job.slotless:
	case idle:
		s.idleRuns.idle(&job.idleRun, now)
	default:
		s.idleRuns.busy(&job.idleRun, now)
	}
}

// Running returns the number of slots of this node that are in use: the jobs that run now, without those that are stopping or
// were asked to park.
func (s *Server) Running() (used int) {
	s.server.View(func() { used = s.slots.used() })
	return used
}

// Idle returns how many of the jobs that Running counts have nothing to do.
func (s *Server) Idle() (idle int) {
	s.server.View(func() { idle = s.slots.idleRuns.count() - s.slots.idleRuns.asked })
	return idle
}
