package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// maxComparisons is the number of jobs whose ends a node compares at a time.
	maxComparisons = 2
	// verifyWait is the time after which a revision that is missing is asked about again.
	verifyWait = 10 * time.Second
	// comparisonRetry is the time until a comparison starts again whose job could not be read: perhaps another node has the key.
	comparisonRetry = time.Minute
)

// comparison is a comparison of both ends of a job, for which somebody has asked.
type comparison struct {
	jobserver.Run
	held *fdbjobs.Held
}

// newComparisons returns the server of this node's comparisons. None makes room for another one.
func (s *Server) newComparisons() *jobserver.Server[*comparison] {
	log := s.opts.Log.With().Str("queue", "comparisons").Logger()
	queue := s.opts.Jobs.Verifications.Queue
	return jobserver.New(jobserver.Options[*comparison]{
		Queue: queue, Config: s.opts.Config,
		Accept: jobserver.AcceptFrom(queue, func(h *fdbjobs.Held) *comparison {
			return &comparison{Run: jobserver.NewRun(h.Job().ID, h.Job().Evicted, h, &log), held: h}
		}, func(c *comparison) *fdbjobs.Held { return c.held }),
		Run:       s.compare,
		GiveBack:  func(ctx context.Context, c *comparison) error { return c.held.Resubmit(ctx, time.Now(), nil, nil) },
		Limiter:   &jobserver.AtMost[*comparison]{Max: func() int { return maxComparisons }},
		Interval:  config.Interval.Get,
		MakesRoom: func(*config.Config, []*comparison, bool, time.Time) (none jobserver.Turn[*comparison]) { return none },
		Log:       log,
	})
}

// compare makes a comparison and records its result, unless it is stopped.
func (s *Server) compare(ctx context.Context, c *comparison) (jobserver.Outcome, error) {
	verifications := s.opts.Jobs.Verifications
	job, err := s.opts.Jobs.Lists.Get(ctx, c.held.Job().ID)
	if err == nil && job.Sealed {
		err = fdbjobs.ErrSealed
	}
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return jobserver.Recorded, verifications.Record(ctx, c.held, nil, nil)
	case err != nil:
		c.Log.Error().Err(err).Msg("a comparison could not begin, and is tried again")
		return jobserver.Recorded, c.held.Resubmit(ctx, time.Now().Add(comparisonRetry), nil, nil)
	}
	working, end := jobserver.Merge(ctx, c.Stopping())
	var beating sync.WaitGroup
	beating.Go(func() { // ctx ends if the comparison is lost
		_ = s.comparisons.KeepAlive(working, c, func(ctx context.Context) error { return c.held.Update(ctx, nil, nil) })
	})
	found := s.verifyJob(working, job)
	end()
	beating.Wait()
	if found == nil {
		return jobserver.Stopped, nil
	}
	return jobserver.Recorded, verifications.Record(ctx, c.held, job, found)
}

// verifyJob compares both ends of a job. It returns nil if ctx ended before.
func (s *Server) verifyJob(ctx context.Context, job *jobs.Job) *replicator.JobVerified {
	v, of := &replicator.JobVerified{Began: time.Now(), Node: s.opts.Node}, job.Args.Replication
	settings := s.Requests()
	settings.ReportInterval = time.Minute
	found, err := worker.Verify(serverbudget.WithFlow(ctx, &serverbudget.Flow{Owner: "verify", Weight: config.DefaultShares, Job: "verify " + job.ID}),
		worker.Verification{
			Replication: of, Wait: verifyWait, Found: func(worker.Difference) error { return nil }, Opened: func(ends *replicator.Ends) { v.Ends = ends },
		}, settings)
	if ctx.Err() != nil {
		return nil
	}
	v.Ended, v.Revisions, v.Missing = time.Now(), found.Checked, found.MissingAtTarget
	if err != nil {
		v.Error = of.Secrets().Error(err).Error()
	}
	s.logOf(job).Info().Int64("missing", v.Missing).Str("error", v.Error).Msg("both ends of a job were compared")
	return v
}
