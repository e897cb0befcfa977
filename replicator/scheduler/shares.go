package scheduler

import (
	"context"
	"fmt"
	"maps"

	"settee/pkg/config"
	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/jobs"
)

// What a node does with the configured shares: it sets the weights of the databases in the store, and stops the jobs of
// databases that are paused. Package replicator/shares says what weights decide.

// rollUp applies the decay of usage when it is due.
func (s *Server) rollUp(ctx context.Context, cfg *config.Config) error {
	err := s.opts.Jobs.Shares.RollUp(ctx, config.Interval.Get(cfg), config.UsageCoeff.Get(cfg), weights(cfg))
	if err != nil {
		return fmt.Errorf("rolling up usage: %w", err)
	}
	return nil
}

// reconfigured applies the settings of shares at the beginning and when they have changed.
func (s *Server) reconfigured(ctx context.Context, before, now *config.Config) {
	var err error
	switch {
	case before == nil:
		err = s.rollUp(ctx, now)
	case !maps.Equal(weights(now), weights(before)):
		err = s.opts.Jobs.Shares.SetWeights(ctx, weights(now))
		s.stopPaused(now)
	}
	if err != nil && ctx.Err() == nil { // the next roll-up tries again
		s.opts.Log.Error().Err(err).Msg("shares could not be applied")
	}
}

// stopPaused stops the jobs of databases with 0 shares, which are paused.
func (s *Server) stopPaused(cfg *config.Config) {
	for _, job := range s.server.List() {
		if paused(cfg, job.run) {
			s.server.Stop(errPaused, job.ID)
		}
	}
}

// paused reports whether the database of a job has 0 shares.
func paused(cfg *config.Config, run *jobs.Run) bool {
	database := run.Job().Args.Database
	if database == nil {
		return false
	}
	shares, ok := config.Shares.Value(cfg, *database)
	return ok && shares == 0
}

// pause queues a job again that was taken although its database has 0 shares: the database was created after they were
// configured, so its weight was not set.
func (s *Server) pause(ctx context.Context, run *jobs.Run) error {
	if err := s.opts.Jobs.Shares.SetWeights(ctx, weights(s.opts.Config())); err != nil {
		return err // the job is queued again when nothing has kept it alive
	}
	return run.Stop(ctx, replicator.EndPaused, errPaused.Error(), nil)
}

// flow returns with whom a job takes turns in the budgets of servers: owners by their shares.
func (s *Server) flow(job *running) *serverbudget.Flow {
	of, weight, owner := job.run.Job(), config.DefaultShares, ""
	if user := of.Args.User; user != nil {
		owner = "user:" + *user // no database has a colon in its name
	}
	if database := of.Args.Database; database != nil {
		owner = *database
		if shares, ok := config.Shares.Value(s.opts.Config(), *database); ok {
			weight = shares
		}
	}
	return &serverbudget.Flow{Owner: owner, Weight: weight, Job: of.ID, Park: job.parker.Ask}
}

// weights returns the weights of databases by name: their shares divided by the default.
func weights(cfg *config.Config) map[string]float64 {
	weights := map[string]float64{}
	for name, n := range config.Shares.Get(cfg) {
		weights[name] = float64(n) / config.DefaultShares
	}
	return weights
}
