package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/mirror"
	"settee/replicator/worker"
)

// mirror runs a mirror and records its end, as replicate does for other jobs.
func (s *Server) mirror(ctx context.Context, r *running) (jobserver.Outcome, error) {
	var summary *replicator.MirrorSummary
	var err error
	s.runUntilLost(serverbudget.WithFlow(ctx, r.flow), r, func(ctx context.Context) { summary, err = s.runMirror(ctx, r) })
	switch {
	case err == nil:
		text, err := json.Marshal(mirrorResult{OK: true, MirrorSummary: summary})
		if err != nil {
			return jobserver.Recorded, fmt.Errorf("writing the result of a mirror: %w", err)
		}
		r.Log.Info().Int64("docs_written", summary.DocsWritten).Int64("databases", summary.Known).Msg("mirror completed")
		s.counter.update(func(c *Counts) { c.Completed++ })
		return jobserver.Recorded, r.run.Complete(ctx, func(state *replicator.JobState) {
			state.Result = text
			if state.Mirror != nil {
				progress := *state.Mirror
				progress.Summary = summary
				state.Mirror = &progress
			}
		})
	case errors.Is(err, mirror.ErrStopped):
		err = worker.ErrStopped
	}
	result := new(worker.Result) // without progress of its own
	result.ReplicationID = r.run.Job().State.ReplicationID
	return s.ended(ctx, r, result, err)
}

// mirrorResult is the body of the response of POST /_replicate for a mirror that has completed.
type mirrorResult struct {
	OK bool `json:"ok"`
	*replicator.MirrorSummary
}

// runMirror reserves the replication id and runs the mirror.
func (s *Server) runMirror(ctx context.Context, r *running) (*replicator.MirrorSummary, error) {
	run := r.run
	id, err := run.Job().Args.Replication.ID(s.opts.Jobs.ServerUUID, "")
	if err != nil {
		return nil, err
	}
	if err := run.Identify(ctx, id); err != nil {
		return nil, err
	}
	summary, err := mirror.Run(ctx, mirror.Options{
		Run: jobs.MirrorRun{Run: run}, Config: s.opts.Config, Worker: s.Requests(), Stop: r.Stopping(), Log: *r.Log,
		KeepAlive: func(ctx context.Context, update func(context.Context) error) error {
			return s.server.KeepAlive(ctx, r, update)
		},
	})
	if refused, ok := errors.AsType[*mirror.Refused](err); ok {
		return nil, worker.Failed(replicator.FaultAt(replicator.FaultUnlistable, replicator.SideSource, run.Job().Args.Replication.Source,
			replicator.RequestListDatabases, refused.Error()))
	}
	return summary, err
}
