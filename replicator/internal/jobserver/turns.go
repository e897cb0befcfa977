package jobserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/config"
)

// Turn says which runs make room. The zero value says that none does.
type Turn[J any] struct {
	// Excess is the number of runs that stop, of Stop: one of a group only if all of the groups before it stop.
	Excess int
	Stop   [][]J
	// Yielding are runs that stop if a due job takes their place, at most Most of them.
	Yielding []J
	Most     int
}

// overTime is how long there may be too many jobs before some are stopped. Idle ones became busy, or a limit was
// lowered. The time also bounds how often jobs stop that are idle only for moments, in which others take their places.
const overTime = time.Second

// turns makes room at each interval, and reconsiders the limits when settings change. The turns of one node are exactly an
// interval apart, so that a job started at one turn has run for whole intervals at a later one. The first one is at a
// random time, which spreads the turns of different nodes.
func (s *Server[J]) turns(ctx, accepting context.Context) {
	cfg := s.opts.Config()
	s.reconfigured(accepting, nil, cfg)
	next := time.Now().Add(rand.N(s.opts.Interval(cfg)))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	var over <-chan time.Time
	for {
		var changed <-chan struct{}
		if s.opts.Changed != nil {
			changed = s.opts.Changed() // before the settings are read, so that no change is missed
		}
		before := cfg
		if cfg = s.opts.Config(); cfg != before {
			s.Update(func() { s.withdraw() }) // accept and the limiter use the new settings
			s.reconfigured(accepting, before, cfg)
			if interval := s.opts.Interval(cfg); interval != s.opts.Interval(before) {
				next = time.Now().Add(rand.N(interval))
				timer.Reset(time.Until(next))
			}
		}
		s.turned.set(time.Until(next))
		select {
		case <-accepting.Done():
			return
		case <-changed:
			continue
		case <-s.over:
			if over == nil {
				over = time.After(overTime)
			}
			continue
		case <-over:
			over = nil
			s.report(accepting, s.shrink(accepting, s.makesRoom(cfg, time.Now())))
			continue
		case <-timer.C:
		}
		s.report(accepting, s.turn(ctx, accepting, next))
		interval := s.opts.Interval(cfg)
		if next = next.Add(interval); next.Before(time.Now()) {
			next = time.Now().Add(interval)
		}
		timer.Reset(time.Until(next))
	}
}

// reconfigured calls Reconfigured.
func (s *Server[J]) reconfigured(ctx context.Context, before, now *config.Config) {
	if s.opts.Reconfigured != nil {
		s.opts.Reconfigured(ctx, before, now)
	}
}

// report logs an error of a turn. The next turn tries again.
func (s *Server[J]) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, fdbjobs.ErrClosed) {
		s.opts.Log.Error().Err(err).Msg("rescheduling failed, and is tried again")
	}
}

// turn does the work of a turn.
func (s *Server[J]) turn(ctx, accepting context.Context, at time.Time) error {
	cfg := s.opts.Config()
	var prepared error
	if s.opts.BeforeTurn != nil {
		prepared = s.opts.BeforeTurn(accepting, cfg)
	}
	turn := s.makesRoom(cfg, at)
	return errors.Join(prepared, s.shrink(accepting, turn), s.exchange(ctx, accepting, turn, at))
}

func (s *Server[J]) makesRoom(cfg *config.Config, at time.Time) Turn[J] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle() // with these settings
	return s.opts.MakesRoom(cfg, s.list(), s.full(), at)
}

// shrink stops runs that are too many.
func (s *Server[J]) shrink(ctx context.Context, turn Turn[J]) error {
	n := turn.Excess
	for _, group := range turn.Stop {
		if n <= 0 || len(group) == 0 {
			continue
		}
		ids, err := s.choose(ctx, group, n)
		if err != nil {
			return err
		}
		s.Stop(ErrTooMany, ids...)
		n -= len(ids)
	}
	return nil
}

// choose returns the ids of up to n runs to stop.
func (s *Server[J]) choose(ctx context.Context, runs []J, n int) ([]string, error) {
	if s.opts.Choose != nil {
		return s.opts.Choose(ctx, runs, n)
	}
	var ids []string
	for _, job := range runs[:min(n, len(runs))] {
		ids = append(ids, job.base().ID)
	}
	return ids, nil
}

// exchange starts due jobs in exchange for runs that yield.
func (s *Server[J]) exchange(ctx, accepting context.Context, turn Turn[J], at time.Time) error {
	yielding := turn.Yielding
	for most := turn.Most; most > 0 && len(yielding) > 0; {
		jobs, err := s.opts.Accept(accepting, most, yielding)
		gone := map[string]bool{}
		for _, job := range jobs {
			gone[job.base().Evicted] = true
			s.start(ctx, job, at)
		}
		if err != nil || len(jobs) == 0 {
			return err
		}
		most -= len(jobs)
		yielding = slices.DeleteFunc(yielding, func(job J) bool { return gone[job.base().ID] })
	}
	return nil
}
