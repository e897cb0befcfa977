package jobserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/retry"
)

// Limiter decides how many jobs a server may have. The server calls its methods one at a time, under its lock. They must
// not wait.
type Limiter[J any] interface {
	// Enter is called when a run begins, and Leave once, when it is to stop or has ended.
	Enter(job J)
	Leave(job J)
	// Settle is called after each change of the runs and the settings, and at the time that it has last returned.
	Settle(now time.Time) Allowance
}

// Allowance says how many more jobs a server may have.
type Allowance struct {
	// Free is the number of jobs that may be taken now.
	Free int
	// Over means that there are more jobs than there may be. If that is so for a second, some stop, see [Turn].
	Over bool
	// Next is when Settle has something to do at the latest. The zero time means after the next change.
	Next time.Time
}

// AcceptFrom returns an Accept for [Options] that takes jobs from a queue. newRun returns the run of a job, and hold the job of a run.
func AcceptFrom[J any](
	queue *fdbjobs.Queue, newRun func(*fdbjobs.Held) J, hold func(J) *fdbjobs.Held,
) func(context.Context, int, []J) ([]J, error) {
	return func(ctx context.Context, n int, yielding []J) ([]J, error) {
		accept := fdbjobs.AcceptOptions{Count: n}
		if yielding != nil {
			accept.Wait = -1
		}
		for _, job := range yielding {
			accept.Evictable = append(accept.Evictable, hold(job))
		}
		held, err := queue.Accept(ctx, accept)
		taken := make([]J, len(held))
		for i, h := range held {
			taken[i] = newRun(h)
		}
		return taken, err
	}
}

// AtMost is a [Limiter] of jobs that are all alike: there may be Max of them.
type AtMost[J any] struct {
	Max  func() int
	held int // without those that are stopping
}

// Enter implements [Limiter].
func (l *AtMost[J]) Enter(J) { l.held++ }

// Leave implements [Limiter].
func (l *AtMost[J]) Leave(J) { l.held-- }

// Settle implements [Limiter].
func (l *AtMost[J]) Settle(time.Time) Allowance {
	free := l.Max() - l.held
	return Allowance{Free: free, Over: free < 0}
}

// acceptPause is the pause of accept after the allowance has changed. Runs that become idle and busy by turns change it all the
// time.
const acceptPause = 100 * time.Millisecond

// accept takes due jobs while the server may have more.
func (s *Server[J]) accept(ctx, accepting context.Context) {
	for s.mayAccept(accepting) {
		waiting, n := s.awaitFree(accepting)
		if n == 0 {
			return
		}
		jobs, err := s.opts.Accept(waiting, n, nil)
		changed := waiting.Err() != nil // checked first: accepting may end later
		for _, job := range jobs {
			s.start(ctx, job, time.Now())
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
		_ = retry.Wait(accepting, wait)
	}
}

// mayAccept waits until this node may take more jobs than it has: while heartbeats are late, it may not. It returns false
// if ctx ends.
func (s *Server[J]) mayAccept(ctx context.Context) bool {
	for said := false; ctx.Err() == nil; said = true {
		wait, by := s.heartbeats.late(time.Now())
		switch {
		case wait == 0 && said:
			s.opts.Log.Info().Msg("heartbeats are on time again, and this node takes jobs")
			return true
		case wait == 0:
			return true
		case !said:
			s.opts.Log.Warn().Str("late", by.Round(time.Millisecond).String()).
				Msg("this node takes no new jobs while heartbeats of those that it runs are late: its machine or its store is overloaded")
		}
		_ = retry.Wait(ctx, wait)
	}
	return false
}

// awaitFree waits until the server may have more jobs, and returns how many to take at once. The returned context ends when that
// number may have changed. If ctx ends, awaitFree returns 0.
func (s *Server[J]) awaitFree(ctx context.Context) (context.Context, int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		s.settle()
		if n := s.allowance.Free; n > 0 {
			s.withdraw() // release the previous context
			waiting, cancel := context.WithCancel(ctx)
			s.offered, s.withdraw = n, cancel
			s.mu.Unlock()
			return waiting, n
		}
		s.mu.Unlock()
		select {
		case <-s.freed:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withdraw()
	return ctx, 0
}

// settle asks the limiter, and wakes the loops that wait for what has changed. The caller holds s.mu.
func (s *Server[J]) settle() {
	s.allowance = s.opts.Limiter.Settle(time.Now())
	if s.cordoned {
		s.allowance.Free = 0
	}
	if s.allowance.Free < s.offered { // this many are not to be taken
		s.offered = 0
		s.withdraw()
	}
	if s.allowance.Free > 0 {
		poke(s.freed)
	}
	if s.allowance.Over {
		poke(s.over)
	}
	if next := s.allowance.Next; !next.IsZero() && (s.wakes.IsZero() || next.Before(s.wakes)) {
		poke(s.sooner)
	}
}

// settleInTime settles when the limiter has said that there will be something to do.
func (s *Server[J]) settleInTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.sooner:
		case <-timer.C:
		}
		s.mu.Lock()
		s.wakes = time.Now() // so that settle does not wake this loop
		s.settle()
		s.wakes = s.allowance.Next
		wakes := s.wakes
		s.mu.Unlock()
		timer.Stop()
		if !wakes.IsZero() {
			timer.Reset(time.Until(wakes))
		}
	}
}

// Update calls fn under the server's lock. fn changes what [Limiter] decides from.
func (s *Server[J]) Update(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	s.settle()
}

// View calls fn under the server's lock. fn reads what [Limiter] decides from.
func (s *Server[J]) View(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Full reports whether the server may take jobs only in exchange for others.
func (s *Server[J]) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full()
}

// full is Full for a caller that holds s.mu.
func (s *Server[J]) full() bool { return s.allowance.Free <= 0 && !s.cordoned }

// poke puts a token into a channel, unless the channel is full.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
