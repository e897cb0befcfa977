package scheduler

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/redact"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// errNoTime is the cause of the context's end when the node's shutdown runs out of time.
var errNoTime = errors.New("the node is shutting down")

// run runs a job once and records the result. ctx ends when the node drops its jobs.
func (s *Server) run(ctx context.Context, r *running) {
	run, log := r.run, s.logOf(r.run.Job())
	held, cancel := jobserver.Merge(run.Context(), ctx)
	defer cancel()

	var err error
	was := run.Job().State.Parked // Start forgets it
	parked := was != nil && !was.Since.IsZero()
	if paused(s.opts.Config(), run) {
		err = s.pause(held, run)
	} else if err = s.startRun(held, run); err == nil {
		s.started(parked, log)
		err = s.replicate(held, r, parked, log)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil: // dropped: the activity monitors of other nodes notice
	case errors.Is(err, fdbjobs.ErrHalt):
		last, cancel := s.stages.Last(ctx, run.Heartbeat())
		defer cancel()
		s.counter.add(func(c *Counts) { c.Stops++ })
		if err := run.Release(last); err != nil {
			log.Error().Err(err).Msg("a job could not be released; it will be taken up again")
		}
		log.Info().Msg("replication stopped: the job was removed, changed, or taken by another node")
	default:
		log.Error().Err(err).Msg("the end of a run could not be recorded; the job will be taken up again")
	}
}

// startRun starts a run on a stack of its own. The caller's goroutine waits for long, so its stack should grow little.
func (s *Server) startRun(ctx context.Context, run *jobs.Run) (err error) {
	var starting sync.WaitGroup
	starting.Go(func() { err = run.Start(ctx, s.opts.Node, s.pid()) })
	starting.Wait()
	return err
}

// started counts and logs the start of a run. That of a parked job is not news.
func (s *Server) started(parked bool, log *zerolog.Logger) {
	if parked {
		log.Debug().Msg("replication goes on, which was parked")
	} else {
		log.Info().Msg("replication started")
	}
	s.counter.add(func(c *Counts) {
		c.Starts++
		if parked {
			c.Wakes++
		}
	})
}

// logOf returns a log whose lines name a job, and its document or the mirror that has made it.
func (s *Server) logOf(job *jobs.Job) *zerolog.Logger {
	fields := s.opts.Log.With().Str("job", job.ID)
	if database, docID, ok := job.Document(); ok {
		fields = fields.Str("database", database).Str("doc_id", docID)
	}
	if mirror := job.Mirror(); mirror != "" {
		fields = fields.Str("mirror", mirror)
	}
	log := fields.Stringer("source", job.Args.Replication.Source).Stringer("target", job.Args.Replication.Target).Logger()
	return &log
}

// replicate performs a run and records its end. parked reports whether the job was parked. It returns an error if
// the end could not be recorded.
func (s *Server) replicate(ctx context.Context, job *running, parked bool, log *zerolog.Logger) error {
	cfg, run := s.opts.Config(), job.run
	r := run.Job().Args.Replication
	if invalid, err := s.refuse(ctx, run, cfg, log); invalid {
		return err
	}
	if r.Mirror != nil {
		return s.mirror(ctx, job, log)
	}

	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stages.Hurry, func() { cancel(errNoTime) })()

	counted := &statsCounter{to: &s.counter}
	health := &health{threshold: config.HealthThreshold.Get(cfg)}
	result, err := s.opts.Replicate(working, worker.Job{
		Replication:   r,
		ReplicationID: run.Job().State.ReplicationID,
		Stats:         run.Job().State.Stats,
		Attributes:    s.traced(run.Job()),
		Woken:         parked,
		Lacking:       run.Job().State.Lacking,
		Security:      run.Job().State.Security,
		Stop:          job.stop,
		Park:          &job.parker,
		Idle:          func(idle bool) { s.slots.idle(job, idle) },
		Parking:       run.Parking,
		Lost: func(ctx context.Context) error {
			err := run.Lost(ctx)
			switch {
			case errors.Is(err, jobs.ErrEnding):
				s.slots.stopRun(job)
			case errors.Is(err, fdbjobs.ErrHalt):
				return fdbjobs.ErrHalt
			}
			return nil // after another error the next report will tell
		},
	}, s.workerConfig(run, cfg), reporter{run: run, heartbeats: s.heartbeats, reported: new(time.Time), end: func() { s.slots.stopRun(job) }, log: log, health: health, counted: counted})
	counted.count(result.RunStats)

	return s.ended(ctx, job, result, err, health, log)
}

// traced returns how the traces of a job's runs name it.
func (s *Server) traced(job *jobs.Job) []attribute.KeyValue {
	if s.opts.Tracer == nil {
		return nil
	}
	names := []attribute.KeyValue{attribute.String("settee.job.id", job.ID)}
	if database, docID, ok := job.Document(); ok {
		names = append(names, attribute.String("settee.replication.database", database),
			attribute.String("settee.replication.doc_id", docID))
	}
	return names
}

// refuse fails a job whose replication is not valid under this node's current settings.
func (s *Server) refuse(
	ctx context.Context, run *jobs.Run, cfg *config.Config, log *zerolog.Logger,
) (invalid bool, err error) {
	err = run.Job().Args.Replication.Check(replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(cfg),
	})
	if err == nil {
		return false, nil
	}
	failure := &worker.Error{Code: "bad_request", Reason: err.Error()}
	return true, s.crashed(ctx, run, failure, replicator.Ending{Outcome: replicator.RunFailed}, log)
}

// ended records the end of a run. It is separate from replicate to keep the stack small while thousands of jobs wait
// for changes.
func (s *Server) ended(
	ctx context.Context, job *running, result worker.Result, err error, health *health, log *zerolog.Logger,
) error {
	run := job.run
	if run.Ending() {
		run.Last(result.RunStats, health.heal(result.CopyTo))
		log.Debug().Err(run.Redact(err)).Msg("the job was removed or changed, and its run has ended")
		return fdbjobs.ErrHalt
	}
	run.Copied(result.RunStats.DocCounts)
	turn := errors.Is(err, worker.ErrStopped) && s.stages.Accepting.Err() == nil
	if turn && !replicator.Awaited(run.Job().Args) && health.stuck(result.RunStats) {
		// The job's turns are shorter than a request's retries. Without this it would never fail and never back off.
		err = health.failure()
	}
	var collision *jobs.Collision
	switch {
	case err == nil && result.Parked:
		return s.parked(ctx, run, result, log)
	case err == nil:
		log.Info().Int64("docs_written", result.RunStats.DocsWritten).Msg("replication completed")
		s.counter.add(func(c *Counts) { c.Completed++ })
		return run.Complete(ctx, func(state *replicator.JobState) {
			result.CopyTo(state)
			state.Result = result.History
			if run.Job().Args.Replication.Periodic() {
				state.LastRun = &result.RunStats
			}
		})
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, worker.ErrStopped), errors.Is(err, errNoTime):
		reason := s.slots.why(job)
		if errors.Is(err, errNoTime) {
			reason = nodeStops
			log.Warn().Err(run.Redact(err)).Msg("replication goes back to the queue")
		} else {
			log.Info().Msg("replication goes back to the queue") // its turn has ended, or the node stops
		}
		s.counter.add(func(c *Counts) { c.Stops++ })
		ctx, cancel := s.stages.Last(ctx, run.Heartbeat()) // another node waits for longer
		defer cancel()
		return run.StopFor(ctx, reason, health.heal(result.CopyTo))
	case errors.Is(err, fdbjobs.ErrHalt):
		return err
	case errors.Is(err, worker.ErrIDChanged):
		log.Info().Msg("the filter function has changed: replication starts anew")
		s.counter.add(func(c *Counts) { c.Stops++ })
		return run.Restart(ctx, "the replication id has changed")
	case errors.As(err, &collision):
		return s.collided(ctx, run, collision, log)
	}
	// Keep the statistics since the last report.
	if err := run.Update(ctx, result.CopyTo); err != nil {
		return err
	}
	return s.failed(ctx, run, err, health, log)
}

// parked ends a run that has copied everything, until its source changes.
func (s *Server) parked(ctx context.Context, run *jobs.Run, result worker.Result, log *zerolog.Logger) error {
	woken, err := run.Park(ctx, result.CopyTo)
	if err != nil {
		return err
	}
	s.counter.add(func(c *Counts) { c.Parks++ })
	log.Debug().Bool("woken", woken).Msg("replication is parked until its source changes")
	return nil
}

// collided ends a run whose replication id belongs to another job (RFC 016, "Replication ID Collisions").
func (s *Server) collided(ctx context.Context, run *jobs.Run, c *jobs.Collision, log *zerolog.Logger) error {
	log.Warn().Str("other", c.JobID).Msg("another job has the same replication id")
	failure, rival := &worker.Error{Reason: c.Explain(run.Job())}, replicator.DocumentRival
	if c.Transient {
		rival = replicator.PostedRival
	}
	if run.Job().Transient() || run.Job().Mirror() != "" { // the mirror knows the code
		failure.Code = jobs.CollisionCode
	}
	return s.crashed(ctx, run, failure, replicator.Ending{Outcome: replicator.RunCrashed, Rival: rival}, log)
}

// failed ends a run that returned an error.
func (s *Server) failed(ctx context.Context, run *jobs.Run, err error, health *health, log *zerolog.Logger) error {
	failure := &worker.Error{Code: "error", Reason: redact.Text(err.Error())}
	errors.As(err, &failure)
	ending := replicator.Ending{Outcome: replicator.RunCrashed, Healthy: health.healthy, RetryAfter: failure.RetryAfter}
	return s.crashed(ctx, run, failure, ending, log)
}

// crashed records the end of a run that failed, and what replicator.Ending.Again decides of its job.
func (s *Server) crashed(
	ctx context.Context, run *jobs.Run, failure *worker.Error, ending replicator.Ending, log *zerolog.Logger,
) error {
	cfg, job := s.opts.Config(), run.Job()
	penalties := replicator.Penalties{Min: config.MinBackoffPenalty.Get(cfg), Max: config.MaxBackoffPenalty.Get(cfg)}
	again, err := ending.Again(job.Args, job.State, penalties, time.Now(), rand.Float64())
	if err != nil {
		return err
	}
	if again.State == replicator.StateFailed {
		log.Warn().Err(run.Redact(failure)).Msg("replication failed")
		s.counter.add(func(c *Counts) { c.Failed++ })
		return run.Fail(ctx, failure.Code, failure.Reason)
	}
	log.Warn().Err(run.Redact(failure)).Int("errors", again.ErrorCount).Time("again", again.At).Msg("replication crashed")
	s.counter.add(func(c *Counts) { c.Crashes++ })
	return run.Crash(ctx, again.At, again.ErrorCount, failure.Code, failure.Reason)
}

func (s *Server) workerConfig(run *jobs.Run, current *config.Config) worker.Config {
	cfg := s.requests(current)
	cfg.ListRefused = run.ListRefused
	cfg.Sending = run.Check
	cfg.ReportInterval = run.Heartbeat()
	return cfg
}

// Requests returns the configuration with which the runs of this node make requests to endpoints, and what they share. It
// is for requests outside of runs.
func (s *Server) Requests() worker.Config { return s.requests(s.opts.Config()) }

func (s *Server) requests(current *config.Config) worker.Config {
	cfg := WorkerConfig(current)
	cfg.ServerUUID = s.opts.Jobs.ServerUUID()
	cfg.UserAgent = cmp.Or(config.UserAgent.Get(current), s.opts.UserAgent, cfg.UserAgent)
	cfg.Transport = s.opts.Transport
	cfg.Shared = &s.shared
	cfg.Tracer = s.opts.Tracer
	return cfg
}

// WorkerConfig returns the configuration's settings for runs.
func WorkerConfig(cfg *config.Config) worker.Config {
	c := worker.DefaultConfig()
	c.WorkerProcesses = config.WorkerProcesses.Get(cfg)
	c.WorkerBatchSize = config.WorkerBatchSize.Get(cfg)
	c.HTTPConnections = config.HTTPConnections.Get(cfg)
	c.RetriesPerRequest = config.RetriesPerRequest.Get(cfg)
	c.ConnectionTimeout = config.ConnectionTimeout.Get(cfg)
	c.RequestTimeout = config.RequestTimeout.Get(cfg)
	c.BasicAuth = !config.SessionAuth.Get(cfg)
	c.SessionRefresh = config.SessionRefreshInterval.Get(cfg)
	c.SessionMinAge = config.SessionMinUpdateInterval.Get(cfg)
	c.CheckpointInterval = config.CheckpointInterval.Get(cfg)
	c.NoCheckpoints = !config.UseCheckpoints.Get(cfg)
	c.NoBulkGet = !config.UseBulkGet.Get(cfg)
	c.PropagateTrace = config.PropagateTrace.Get(cfg)
	c.NoCompression = !config.CompressRequests.Get(cfg)
	c.MissingDocRetry = config.MissingDocRetry.Get(cfg)
	c.SecurityInterval = config.MaxIdle.Get(cfg)
	c.MaxDocument = int(config.MaxReplicatedDocument.Get(cfg))
	c.MaxDocumentIDLength = config.MaxDocumentIDLength.Get(cfg)
	return c
}

// reporter records the reports of a run in its job.
type reporter struct {
	run        *jobs.Run
	heartbeats *heartbeats
	reported   *time.Time // when the latest report began, zero before the first
	end        func()     // stops the run
	log        *zerolog.Logger
	health     *health
	counted    *statsCounter
}

func (r reporter) Identify(ctx context.Context, id replicator.ID) error {
	return r.run.Identify(ctx, id)
}

// Report keeps the job alive. A single failure does not end the run: the job's context ends after it has failed for too
// long.
func (r reporter) Report(ctx context.Context, progress worker.Progress) error {
	r.counted.count(progress.RunStats)
	r.health.saw(progress.Activity, time.Now())
	began := time.Now()
	err := r.run.Update(ctx, r.health.heal(progress.CopyTo))
	r.heartbeats.saw(*r.reported, began, time.Now(), r.run.Heartbeat())
	*r.reported = began
	if errors.Is(err, jobs.ErrEnding) {
		r.end()
		return nil
	}
	if err == nil || errors.Is(err, fdbjobs.ErrHalt) || ctx.Err() != nil {
		return err
	}
	r.log.Error().Err(err).Msg("the progress of a run could not be recorded")
	return nil
}
