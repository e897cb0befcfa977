package scheduler

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/replicator/jobs"
)

// tick reschedules jobs at each interval, and reconsiders the limits when settings change. The ticks of one node are
// exactly an interval apart, so that a job started at one tick has run for min_run_time at a later one. The first tick
// is at a random time, which spreads the ticks of different nodes.
func (s *Server) tick(ctx, accepting context.Context) {
	cfg := s.opts.Config()
	if err := s.rollUp(accepting, cfg); err != nil && accepting.Err() == nil { // the next tick tries again
		s.opts.Log.Error().Err(err).Msg("usage could not be rolled up")
	}
	next := time.Now().Add(rand.N(config.Interval.Get(cfg)))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	var overfull <-chan time.Time
	for {
		var changed <-chan struct{}
		if s.opts.Changed != nil {
			changed = s.opts.Changed() // before the settings are read, so that no change is missed
		}
		before := cfg
		if cfg = s.opts.Config(); cfg != before {
			s.slots.reconsider()
			if !maps.Equal(weights(cfg), weights(before)) {
				s.share(accepting, cfg)
			}
			if interval := config.Interval.Get(cfg); interval != config.Interval.Get(before) {
				next = time.Now().Add(rand.N(interval))
				timer.Reset(time.Until(next))
			}
		}
		s.ticked.set(time.Until(next))
		select {
		case <-accepting.Done():
			return
		case <-changed:
			continue
		case <-s.slots.overfull:
			if overfull == nil {
				overfull = time.After(overfullTime)
			}
			continue
		case <-overfull:
			overfull = nil
			list, _ := s.slots.list()
			if err := s.shrink(accepting, list, cfg); err != nil && accepting.Err() == nil { // the next tick tries again
				s.opts.Log.Error().Err(err).Msg("too many jobs run, and stopping some failed")
			}
			continue
		case <-timer.C:
		}
		if err := s.reschedule(ctx, accepting, next); err != nil && accepting.Err() == nil && !errors.Is(err, fdbjobs.ErrClosed) {
			s.opts.Log.Error().Err(err).Msg("rescheduling failed, and is tried again")
		}
		interval := config.Interval.Get(cfg)
		if next = next.Add(interval); next.Before(time.Now()) {
			next = time.Now().Add(interval)
		}
		timer.Reset(time.Until(next))
	}
}

// reschedule does the work of a tick.
func (s *Server) reschedule(ctx, accepting context.Context, at time.Time) error {
	cfg := s.opts.Config()
	rolled := s.rollUp(accepting, cfg)
	list, full := s.slots.list()
	if full && list.count() <= config.MaxJobs.Get(cfg) {
		return errors.Join(rolled, s.rotate(ctx, accepting, list, at, cfg))
	}
	return errors.Join(rolled, s.shrink(accepting, list, cfg))
}

// overfullTime is how long more than max_jobs jobs may be busy before some are stopped. Idle ones became busy, or max_jobs
// was lowered. The time also bounds how often jobs stop that are idle only for moments, in which others take their slots.
const overfullTime = time.Second

// shrink stops jobs if more than max_jobs are busy, or do not park: first idle ones, and one-shot jobs only if there are
// not enough others.
func (s *Server) shrink(ctx context.Context, list occupied, cfg *config.Config) error {
	var continuous, others []*running
	for _, job := range list.busy {
		if job.continuous() {
			continuous = append(continuous, job)
		} else {
			others = append(others, job)
		}
	}
	n := list.count() - config.MaxJobs.Get(cfg)
	for _, jobs := range [][]*running{list.resting, continuous, others} {
		if n <= 0 {
			return nil
		}
		ids, err := s.opts.Jobs.Runs.Yield(ctx, runsOf(jobs), n)
		if err != nil {
			return err
		}
		s.slots.stop(tooManyJobs, ids...)
		n -= len(ids)
	}
	return nil
}

func runsOf(list []*running) []*jobs.Run {
	runs := make([]*jobs.Run, len(list))
	for i, job := range list {
		runs[i] = job.run
	}
	return runs
}

// rotate starts due jobs in exchange for continuous ones that have run for min_run_time, as fair share decides, and at
// most max_churn of them. Idle jobs take part only if they do not park.
func (s *Server) rotate(ctx, accepting context.Context, list occupied, at time.Time, cfg *config.Config) error {
	var yielding []*jobs.Run
	for _, job := range list.all() {
		if job.continuous() && at.Sub(job.began) >= config.MinRunTime.Get(cfg) {
			yielding = append(yielding, job.run)
		}
	}
	for churn := config.MaxChurn.Get(cfg); churn > 0 && len(yielding) > 0; {
		runs, err := s.opts.Jobs.Runs.Accept(accepting, churn, yielding)
		gone := map[string]bool{}
		for _, run := range runs {
			s.start(ctx, run, at)
			gone[run.Instead()] = true
		}
		if err != nil || len(runs) == 0 {
			return err
		}
		churn -= len(runs)
		yielding = slices.DeleteFunc(yielding, func(run *jobs.Run) bool { return gone[run.Job().ID] })
	}
	return nil
}
