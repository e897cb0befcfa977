package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/redact"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// putBack is how long a run that was ended for want of time may take to put its job
// back into the queue.
const putBack = 2 * time.Second

// errNoTime is the cause of a run's end when the node cannot wait any longer.
var errNoTime = errors.New("the node is shutting down")

// run runs a job once, and records what became of it. ctx ends when the node is
// dropped.
func (s *Server) run(ctx context.Context, r *running) {
	run, job := r.run, r.run.Job()
	log := s.opts.Log.With().Str("job", job.ID).
		Stringer("source", job.Args.Replication.Source).Stringer("target", job.Args.Replication.Target).Logger()
	held, cancel := merge(run.Context(), ctx)
	defer cancel()

	err := run.Start(held, s.opts.Node, s.pid())
	if err == nil {
		log.Info().Msg("replication started")
		s.counter.add(func(c *Counts) { c.Starts++ })
		err = s.replicate(held, r, log)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil: // dropped: others will find out
	case errors.Is(err, fdbjobs.ErrHalt):
		// A job with a new definition waits for this node to let go of it, and so does
		// one that this node could not keep alive but nobody has taken yet. For one
		// that was removed or taken this changes nothing.
		last, cancel := context.WithTimeout(ctx, putBack)
		defer cancel()
		s.counter.add(func(c *Counts) { c.Stops++ })
		if err := run.Stop(last, nil); err != nil && !errors.Is(err, fdbjobs.ErrHalt) {
			log.Error().Err(err).Msg("a job could not be put back; it will be taken up again")
		}
		log.Info().Msg("replication stopped: the job was removed, changed, or taken by another node")
	default:
		log.Error().Err(err).Msg("the end of a run could not be recorded; the job will be taken up again")
	}
}

// replicate is the run itself and its end. Its error is that of recording it.
func (s *Server) replicate(ctx context.Context, job *running, log zerolog.Logger) error {
	cfg, run := s.opts.Config(), job.run
	r := run.Job().Args.Replication
	if invalid, err := s.refuse(ctx, run, cfg, log); invalid {
		return err
	}

	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.hurry, func() { cancel(errNoTime) })()
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watching.Go(func() {
		if errors.Is(run.Lost(watched), fdbjobs.ErrHalt) {
			cancel(fdbjobs.ErrHalt)
		}
	})

	counted := &statsCounter{to: &s.counter, last: run.Job().State.Stats}
	health := &health{began: time.Now(), threshold: config.HealthThreshold.Get(cfg)}
	result, err := s.opts.Replicate(working, worker.Job{
		Replication:   r,
		ReplicationID: run.Job().State.ReplicationID,
		Stats:         run.Job().State.Stats,
		Stop:          job.stop,
	}, s.workerConfig(run, cfg), reporter{run: run, log: log, health: health, counted: counted})
	counted.count(result.Stats)

	return s.ended(ctx, run, result, err, health, log)
}

// refuse fails a job whose replication is not valid, any more, under this node's settings.
func (s *Server) refuse(
	ctx context.Context, run *jobs.Run, cfg *config.Config, log zerolog.Logger,
) (invalid bool, err error) {
	err = run.Job().Args.Replication.Check(replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(cfg),
	})
	if err == nil {
		return false, nil
	}
	log.Warn().Err(run.Redact(err)).Msg("replication failed")
	s.counter.add(func(c *Counts) { c.Failed++ })
	return true, run.Fail(ctx, "bad_request", err.Error())
}

// ended records the end of a run. It is apart from replicate, so that what is on the stack here is not there
// while thousands of jobs wait for changes.
func (s *Server) ended(
	ctx context.Context, run *jobs.Run, result worker.Result, err error, health *health, log zerolog.Logger,
) error {
	if errors.Is(err, worker.ErrStopped) && s.accepting.Err() == nil && !run.Job().Transient() && health.stuck() {
		// Its turns are shorter than a request's repetitions: it would never be known to fail, and never be put off.
		err = health.failure()
	}
	var collision *jobs.Collision
	switch {
	case err == nil:
		log.Info().Int64("docs_written", result.Stats.DocsWritten).Msg("replication completed")
		s.counter.add(func(c *Counts) { c.Completed++ })
		return run.Complete(ctx, func(state *replicator.JobState) {
			result.CopyTo(state)
			state.Result = result.History
		})
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, worker.ErrStopped), errors.Is(err, errNoTime):
		log.Info().Err(run.Redact(err)).Msg("replication goes back to the queue")
		s.counter.add(func(c *Counts) { c.Stops++ })
		ctx, cancel := context.WithTimeout(ctx, putBack)
		defer cancel()
		return run.Stop(ctx, health.heal(result.CopyTo))
	case errors.Is(err, fdbjobs.ErrHalt):
		return err
	case errors.Is(err, worker.ErrIDChanged):
		log.Info().Msg("the filter function has changed: replication starts anew")
		s.counter.add(func(c *Counts) { c.Stops++ })
		return run.Restart(ctx, "the replication id has changed")
	case errors.As(err, &collision):
		return s.collided(ctx, run, collision, log)
	}
	// What was counted since the last report is not to be lost with the run.
	if err := run.Update(ctx, result.CopyTo); err != nil {
		return err
	}
	return s.crashed(ctx, run, err, health, log)
}

// health is that of a run: one that is well for longer than a threshold is taken for a success, and
// the errors in a row before it are forgotten. To wait for an endpoint that does not answer is not to be well, which a run
// with the default settings does for three minutes.
type health struct {
	began, well time.Time
	threshold   time.Duration
	failing     *replicator.Wait // the request that failed at the last report and is repeated
}

// saw notes what the run is doing: it is well once it has opened its databases, and while no request is repeated.
func (h *health) saw(a *replicator.Activity) {
	if h.failing = nil; a == nil {
		return
	}
	if i := slices.IndexFunc(a.Waiting, func(w replicator.Wait) bool { return !w.RateLimited }); i >= 0 {
		h.failing = &a.Waiting[i]
	} else if a.Doing != replicator.DoingStarting {
		h.well = time.Now()
	}
}

func (h *health) good() bool { return h.well.Sub(h.began) > h.threshold }

// stuck reports whether the run was held up by a request that had been failing for a while.
func (h *health) stuck() bool {
	return h.failing != nil && time.Since(h.failing.Since) >= reportInterval
}

// failure is the error of a run that is stuck.
func (h *health) failure() error {
	w := h.failing
	return &worker.Error{
		Code: "error", Reason: fmt.Sprintf("http_request_failed: %s: %s %s: %s", w.Endpoint, w.Method, w.Path, w.Error),
	}
}

// heal returns what changes the state of a job as change does, and forgets its errors if the
// run is in good health.
func (h *health) heal(change func(*replicator.JobState)) func(*replicator.JobState) {
	return func(state *replicator.JobState) {
		change(state)
		if h.good() {
			state.ErrorCount = 0
		}
	}
}

// collided ends a run whose replication id another job has (RFC 016, "Replication
// ID Collisions").
func (s *Server) collided(ctx context.Context, run *jobs.Run, c *jobs.Collision, log zerolog.Logger) error {
	log.Warn().Str("other", c.JobID).Msg("another job has the same replication id")
	failure := &worker.Error{Reason: c.Explain(run.Job())}
	switch {
	case run.Job().Transient():
		failure.Code = jobs.CollisionCode
	case c.Transient:
		return s.crash(ctx, run, failure, run.Job().State.ErrorCount+1)
	}
	s.counter.add(func(c *Counts) { c.Failed++ })
	return run.Fail(ctx, failure.Code, failure.Reason)
}

// crashed ends a run that failed.
func (s *Server) crashed(ctx context.Context, run *jobs.Run, err error, health *health, log zerolog.Logger) error {
	failure := &worker.Error{Code: "error", Reason: redact.Text(err.Error())}
	errors.As(err, &failure)
	if run.Job().Transient() && failure.RetryAfter == 0 {
		log.Warn().Err(run.Redact(failure)).Msg("replication failed")
		s.counter.add(func(c *Counts) { c.Failed++ })
		return run.Fail(ctx, failure.Code, failure.Reason)
	}
	errorCount := run.Job().State.ErrorCount + 1
	if health.good() {
		errorCount = 1
	}
	log.Warn().Err(run.Redact(failure)).Int("errors", errorCount).Msg("replication crashed")
	return s.crash(ctx, run, failure, errorCount)
}

// crash queues the job for later.
func (s *Server) crash(ctx context.Context, run *jobs.Run, failure *worker.Error, errorCount int) error {
	s.counter.add(func(c *Counts) { c.Crashes++ })
	wait := s.penalty(run.Job().Transient(), errorCount, failure.RetryAfter, rand.Float64())
	return run.Crash(ctx, time.Now().Add(wait), errorCount, failure.Code, failure.Reason)
}

// penalty returns how long a job waits after so many errors in a row, less what jitter takes
// off, and no shorter than the endpoint asked for. For a transient one that was asked to wait
// somebody waits, too: it is back when the endpoint wants to see it again, if that is not
// with the same words each time.
func (s *Server) penalty(transient bool, errorCount int, retryAfter time.Duration, jitter float64) time.Duration {
	cfg := s.opts.Config()
	longest := config.MaxBackoffPenalty.Get(cfg)
	if transient && retryAfter > 0 {
		return replicator.Backoff(errorCount-1, retryAfter, longest, 0)
	}
	wait := replicator.Backoff(errorCount, config.MinBackoffPenalty.Get(cfg), longest, jitter)
	return max(wait, min(retryAfter, longest))
}

// reportInterval is how often the progress of a run is recorded at least.
const reportInterval = 10 * time.Second

func (s *Server) workerConfig(run *jobs.Run, current *config.Config) worker.Config {
	cfg := WorkerConfig(current)
	cfg.ListRefused = run.ListRefused
	cfg.Sending = run.Check
	cfg.ServerUUID = s.opts.Jobs.ServerUUID()
	cfg.ReportInterval = min(reportInterval, run.Heartbeat())
	cfg.UserAgent = s.opts.UserAgent
	cfg.Transport = s.opts.Transport
	cfg.Shared = &s.shared
	return cfg
}

// WorkerConfig returns what the configuration says of how a job runs.
func WorkerConfig(cfg *config.Config) worker.Config {
	retries := config.RetriesPerRequest.Get(cfg)
	if retries == 0 {
		retries = -1 // 0 is the default there
	}
	missing := config.MissingDocRetry.Get(cfg)
	if missing == 0 {
		missing = -1
	}
	minAge := config.SessionMinUpdateInterval.Get(cfg)
	if minAge == 0 {
		minAge = -1
	}
	return worker.Config{
		WorkerProcesses:     config.WorkerProcesses.Get(cfg),
		WorkerBatchSize:     config.WorkerBatchSize.Get(cfg),
		HTTPConnections:     config.HTTPConnections.Get(cfg),
		RetriesPerRequest:   retries,
		ConnectionTimeout:   config.ConnectionTimeout.Get(cfg),
		RequestTimeout:      config.RequestTimeout.Get(cfg),
		BasicAuth:           !config.SessionAuth.Get(cfg),
		SessionRefresh:      config.SessionRefreshInterval.Get(cfg),
		SessionMinAge:       minAge,
		CheckpointInterval:  config.CheckpointInterval.Get(cfg),
		NoCheckpoints:       !config.UseCheckpoints.Get(cfg),
		NoBulkGet:           !config.UseBulkGet.Get(cfg),
		NoCompression:       !config.CompressRequests.Get(cfg),
		MissingDocRetry:     missing,
		MaxDocument:         int(config.MaxReplicatedDocument.Get(cfg)),
		MaxDocumentIDLength: config.MaxDocumentIDLength.Get(cfg),
	}
}

// reporter records what a run reports in its job.
type reporter struct {
	run     *jobs.Run
	log     zerolog.Logger
	health  *health
	counted *statsCounter
}

func (r reporter) Identify(ctx context.Context, id replicator.ID) error {
	return r.run.Identify(ctx, id)
}

// Report keeps the job alive. That it fails once is no reason to end the run: the
// job's context ends when it has failed for too long.
func (r reporter) Report(ctx context.Context, progress worker.Progress) error {
	r.counted.count(progress.Stats)
	r.health.saw(progress.Activity)
	err := r.run.Update(ctx, r.health.heal(progress.CopyTo))
	if err == nil || errors.Is(err, fdbjobs.ErrHalt) || ctx.Err() != nil {
		return err
	}
	r.log.Error().Err(err).Msg("the progress of a run could not be recorded")
	return nil
}
