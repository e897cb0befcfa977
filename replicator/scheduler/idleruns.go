package scheduler

import (
	"container/heap"
	"container/list"
	"time"

	"settee/pkg/retry"
)

const (
	// lookTime is how long a run may take to park. After that it counts as one that does not park now.
	lookTime = 15 * time.Second
	// shortestRest and longestRest bound how long a run is left alone that did not park. The time doubles.
	shortestRest, longestRest = 5 * time.Second, 10 * time.Minute
)

// idleRuns are the idle runs of a node: which one is asked to park next, and when a run may be asked that did not park.
// The slots of runs that are ready or asked count as free. The zero value has no runs. Its methods take the current time,
// and are not safe for concurrent use.
type idleRuns struct {
	ready list.List // of *idleRun, the one that has been idle longest in front
	timed byTime    // those that are asked, and those that rest
	asked int
}

// idleRun is the part of a run that idleRuns change.
type idleRun struct {
	of    *running
	state idleState
	since time.Time // since when it is ready
	// until is when an asked run counts as one that does not park, and when one that rests is ready again. It is kept
	// while the run is busy.
	until  time.Time
	failed int           // how often in a row it was asked and did not park
	place  *list.Element // in ready
	index  int           // in timed
}

type idleState int

const (
	busy    idleState = iota
	ready             // idle, and may be asked to park
	asked             // asked to park
	resting           // idle, and not asked again for a while
)

// slotIsFree reports whether the slot of the run counts as free.
func (r *idleRun) slotIsFree() bool { return r.state == ready || r.state == asked }

// count is the number of idle runs.
func (s *idleRuns) count() int { return s.ready.Len() + len(s.timed) }

// free is the number of idle runs whose slots count as free.
func (s *idleRuns) free() int { return s.ready.Len() + s.asked }

// idle records that a run has nothing to do. If it was asked to park, it does not.
func (s *idleRuns) idle(r *idleRun, now time.Time) {
	switch {
	case r.state == asked:
		s.fail(r, now)
	case r.state != busy:
	case r.until.After(now):
		s.schedule(r, resting)
	default:
		if now.Sub(r.until) > longestRest {
			r.failed = 0
		}
		s.admit(r, now)
	}
}

// busy records that a run has something to do. If it was asked to park, it does not.
func (s *idleRuns) busy(r *idleRun, now time.Time) {
	if r.state == asked {
		s.fail(r, now)
	}
	s.forget(r)
}

// forget removes a run that ends or is busy.
func (s *idleRuns) forget(r *idleRun) {
	switch r.state {
	case ready:
		s.ready.Remove(r.place)
		r.place = nil
	case asked:
		s.asked--
		heap.Remove(&s.timed, r.index)
	case resting:
		heap.Remove(&s.timed, r.index)
	}
	r.state = busy
}

// askNext asks the run that has been ready longest, and returns nil if there is none.
func (s *idleRuns) askNext(now time.Time) *idleRun {
	front := s.ready.Front()
	if front == nil {
		return nil
	}
	r := front.Value.(*idleRun)
	s.forget(r)
	r.until = now.Add(lookTime)
	s.asked++
	s.schedule(r, asked)
	return r
}

// advance moves the runs whose time has come: those that were asked long ago rest, and those that have rested are ready.
func (s *idleRuns) advance(now time.Time) {
	for len(s.timed) > 0 && !s.timed[0].until.After(now) {
		r := s.timed[0]
		if r.state == asked {
			s.fail(r, now)
			continue
		}
		s.forget(r)
		s.admit(r, now)
	}
}

// next returns when advance has something to do, or a run has been ready for timeout, whichever is earlier. A timeout of 0
// is infinite. The zero time means never.
func (s *idleRuns) next(timeout time.Duration) time.Time {
	var at time.Time
	if len(s.timed) > 0 {
		at = s.timed[0].until
	}
	if front := s.ready.Front(); front != nil && timeout > 0 {
		if late := front.Value.(*idleRun).since.Add(timeout); at.IsZero() || late.Before(at) {
			at = late
		}
	}
	return at
}

// late reports whether a run has been ready for timeout. A timeout of 0 is infinite.
func (s *idleRuns) late(now time.Time, timeout time.Duration) bool {
	front := s.ready.Front()
	return front != nil && timeout > 0 && now.Sub(front.Value.(*idleRun).since) >= timeout
}

// fail makes a run rest that was asked and does not park.
func (s *idleRuns) fail(r *idleRun, now time.Time) {
	s.forget(r)
	r.until = now.Add(retry.Backoff{First: shortestRest, Most: longestRest}.After(r.failed, 0))
	r.failed++
	s.schedule(r, resting)
}

func (s *idleRuns) admit(r *idleRun, now time.Time) {
	r.state, r.since = ready, now
	r.place = s.ready.PushBack(r)
}

func (s *idleRuns) schedule(r *idleRun, state idleState) {
	r.state = state
	heap.Push(&s.timed, r)
}

// byTime is a heap of runs by until.
type byTime []*idleRun

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].until.Before(h[j].until) }

func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byTime) Push(x any) {
	r := x.(*idleRun)
	r.index = len(*h)
	*h = append(*h, r)
}

func (h *byTime) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
