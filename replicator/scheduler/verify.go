package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/retry"
	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// verifiedAtOnce is the number of jobs whose ends a node compares at a time.
	verifiedAtOnce = 2
	// verifyWait is the time after which a revision that is missing is asked about again.
	verifyWait = 10 * time.Second
	// verifyPause is the time after which a node that takes no comparisons looks whether it may.
	verifyPause = 5 * time.Second
)

// verify compares both ends of jobs for which somebody has asked that, until ctx ends or the node leaves. A node that is cordoned
// gives back its comparisons, which other nodes start again.
func (s *Server) verify(ctx context.Context) {
	accepting, cancel := jobserver.Merge(ctx, s.server.Accepting())
	var monitoring sync.WaitGroup
	defer monitoring.Wait()
	defer cancel()
	monitoring.Go(func() {
		_ = s.opts.Jobs.Verifications.Queue().RunMonitor(accepting, func([]string, time.Duration, error) {}) // it tries again
	})
	for accepting.Err() == nil {
		taking := s.server.Taking()
		working, end := jobserver.Merge(accepting, taking)
		err := s.opts.Jobs.Verifications.Work(working, verifiedAtOnce, s.verifyJob)
		end()
		switch {
		case accepting.Err() != nil, errors.Is(err, fdbjobs.ErrClosed):
			return
		case taking.Err() == nil:
			s.opts.Log.Error().Err(err).Msg("taking a comparison of a job failed, and is tried again")
		}
		_ = retry.Wait(accepting, verifyPause)
	}
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
