package scheduler

import (
	"context"
	"time"

	"settee/pkg/config"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
)

// makesRoom decides which jobs make room at a turn, from those that are not stopping, the one that has run longest first.
//
// If no more than max_jobs slots are in use and none is free, continuous jobs that have run for min_run_time may be stopped
// for due jobs, at most max_churn of them. Idle jobs take part only if they do not park. If more than max_jobs are busy, or
// do not park, some stop: first idle ones, and one-shot jobs only if there are not enough others.
func makesRoom(cfg *config.Config, list []*running, full bool, at time.Time) jobserver.Turn[*running] {
	var unparked, continuous, oneShot, yielding []*running
	for _, job := range list {
		switch {
		case job.slotless, job.idleRun.slotIsFree():
			continue
		case job.idleRun.state == resting:
			unparked = append(unparked, job)
		case job.continuous:
			continuous = append(continuous, job)
		default:
			oneShot = append(oneShot, job)
		}
		if job.continuous && at.Sub(job.Began) >= config.MinRunTime.Get(cfg) {
			yielding = append(yielding, job)
		}
	}
	excess := len(unparked) + len(continuous) + len(oneShot) - config.MaxJobs.Get(cfg)
	switch {
	case excess > 0:
		return jobserver.Turn[*running]{Excess: excess, Stop: [][]*running{unparked, continuous, oneShot}}
	case full:
		return jobserver.Turn[*running]{Yielding: yielding, Most: config.MaxChurn.Get(cfg)}
	}
	return jobserver.Turn[*running]{}
}

// choose returns the ids of up to n jobs to stop first: those of the owners with the most usage.
func (s *Server) choose(ctx context.Context, list []*running, n int) ([]string, error) {
	return s.opts.Jobs.Runs.Yield(ctx, runsOf(list), n)
}

// runsOf returns the runs of jobs, and nil for nil.
func runsOf(list []*running) []*jobs.Run {
	if list == nil {
		return nil
	}
	runs := make([]*jobs.Run, len(list))
	for i, job := range list {
		runs[i] = job.run
	}
	return runs
}
