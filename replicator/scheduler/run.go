package scheduler

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// errNoTime is the cause of the context's end when the node's shutdown runs out of time.
var errNoTime = errors.New("the node is shutting down")

// attempt is a run while this node performs it: what its beginning, its reports and its end share.
type attempt struct {
	job     *running
	run     *jobs.Run // of job
	log     *zerolog.Logger
	cfg     *config.Config // when it began
	parked  bool           // the job was parked
	health  *health
	counted *statsCounter
}

// newAttempt returns an attempt that has not begun.
func (s *Server) newAttempt(r *running) *attempt {
	cfg, was := s.opts.Config(), r.run.Job().State.Parked // Start forgets it
	return &attempt{
		job: r, run: r.run, log: s.logOf(r.run.Job()), cfg: cfg, parked: was != nil && !was.Since.IsZero(),
		health: &health{threshold: config.HealthThreshold.Get(cfg)}, counted: &statsCounter{to: &s.counter},
	}
}

// run runs a job once and records the result. ctx ends when the node drops its jobs.
func (s *Server) run(ctx context.Context, r *running) {
	held, cancel := jobserver.Merge(r.run.Context(), ctx)
	defer cancel()
	a := s.newAttempt(r)
	if err := s.perform(held, a); err != nil {
		s.unrecorded(ctx, a, err)
	}
}

// unrecorded ends an attempt whose end could not be recorded because of err.
func (s *Server) unrecorded(ctx context.Context, a *attempt, err error) {
	switch {
	case ctx.Err() != nil: // dropped: the activity monitors of other nodes notice
	case errors.Is(err, fdbjobs.ErrHalt):
		last, cancel := s.stages.Last(ctx, a.run.Heartbeat())
		defer cancel()
		s.counter.add(func(c *Counts) { c.Stops++ })
		if err := a.run.Release(last); err != nil {
			a.log.Error().Err(err).Msg("a job could not be released; it will be taken up again")
		}
		a.log.Info().Msg("replication stopped: the job was removed, changed, or taken by another node")
	default:
		a.log.Error().Err(err).Msg("the end of a run could not be recorded; the job will be taken up again")
	}
}

// perform performs a run and records its end. It returns an error if the end could not be recorded.
func (s *Server) perform(ctx context.Context, a *attempt) error {
	switch goesOn, err := s.begin(ctx, a); {
	case !goesOn:
		return err
	case a.run.Job().IsMirror():
		return s.mirror(ctx, a)
	}
	return s.replicate(ctx, a)
}

// begin starts a run, and reports whether it goes on. If not, its end is recorded, unless there is an error.
func (s *Server) begin(ctx context.Context, a *attempt) (goesOn bool, _ error) {
	if paused(a.cfg, a.run) {
		return false, s.pause(ctx, a.run)
	}
	if err := a.run.Start(ctx, s.opts.Node, s.pid()); err != nil {
		return false, err
	}
	s.started(a.parked, a.log)
	invalid, err := s.refuse(ctx, a)
	return !invalid, err
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
	with := s.opts.Log.With().Str("job", job.ID)
	if database, docID, ok := job.Document(); ok {
		with = with.Str("database", database).Str("doc_id", docID)
	}
	if mirror := job.Mirror(); mirror != "" {
		with = with.Str("mirror", mirror)
	}
	log := with.Stringer("source", job.Args.Replication.Source).Stringer("target", job.Args.Replication.Target).Logger()
	return &log
}

// replicate replicates, and records the end of the run.
func (s *Server) replicate(ctx context.Context, a *attempt) error {
	working, end := s.working(ctx)
	result, err := s.opts.Replicate(working, s.workerJob(a), s.workerConfig(a), s.reporter(a))
	end()
	return s.ended(ctx, a, &result, err)
}

// working returns a context that ends with errNoTime when the node's shutdown runs out of time, and by end.
func (s *Server) working(ctx context.Context) (_ context.Context, end func()) {
	working, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stages.Hurry, func() { cancel(errNoTime) })
	return working, func() {
		stop()
		cancel(nil)
	}
}

// workerJob returns what the worker is to do.
func (s *Server) workerJob(a *attempt) worker.Job {
	job, run := a.job, a.run
	state := run.Job().State
	return worker.Job{
		Replication:   run.Job().Args.Replication,
		ReplicationID: state.ReplicationID,
		Stats:         state.Stats,
		Flow:          job.flow,
		Attributes:    s.traced(run.Job()),
		Woken:         a.parked,
		Lacking:       state.Lacking,
		Security:      state.Security,
		Target:        state.Target,
		Stop:          job.stop,
		Park:          &job.parker,
		Idle:          func(idle bool) { s.slots.idle(job, idle) },
		Opened:        run.Opened,
		Parking:       run.Parking,
		Lost:          func(ctx context.Context) error { return s.lost(job, run.Lost(ctx)) },
	}
}

func (s *Server) reporter(a *attempt) worker.Reporter {
	return reporter{attempt: a, heartbeats: s.heartbeats, reported: new(time.Time), stop: func() { s.slots.stopRun(a.job) }}
}

// lost returns the error with which a run ends whose Run.Lost has returned err, or nil if it goes on.
func (s *Server) lost(job *running, err error) error {
	switch {
	case errors.Is(err, jobs.ErrEnding):
		s.slots.stopRun(job)
	case errors.Is(err, fdbjobs.ErrHalt):
		return fdbjobs.ErrHalt
	}
	return nil // after another error the next report will tell
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
func (s *Server) refuse(ctx context.Context, a *attempt) (invalid bool, err error) {
	err = a.run.Job().Args.Replication.Check(replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(a.cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(a.cfg),
	})
	if err == nil {
		return false, nil
	}
	failure := worker.Failed(&replicator.Fault{Code: replicator.FaultInvalid, Detail: err.Error(), At: time.Now()})
	return true, s.crashed(ctx, a.run, failure, replicator.Ending{Outcome: replicator.RunFailed}, a.log)
}

// ended records the end of a run.
func (s *Server) ended(ctx context.Context, a *attempt, result *worker.Result, err error) error {
	job, run, health, log := a.job, a.run, a.health, a.log
	a.counted.count(result.RunStats)
	if run.Ending() {
		run.Last(result.RunStats, health.heal(result.CopyTo))
		log.Debug().Err(run.Redact(err)).Msg("the job was removed or changed, and its run has ended")
		return fdbjobs.ErrHalt
	}
	run.Copied(result.RunStats.DocCounts)
	why := s.slots.why(job)
	turn := errors.Is(err, worker.ErrStopped) && s.stages.Accepting.Err() == nil && why != databasePaused
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
		if errors.Is(err, errNoTime) {
			why = nodeStops
			log.Warn().Err(run.Redact(err)).Msg("replication goes back to the queue")
		} else {
			log.Info().Msg("replication goes back to the queue") // its turn has ended, or the node stops
		}
		s.counter.add(func(c *Counts) { c.Stops++ })
		ctx, cancel := s.stages.Last(ctx, run.Heartbeat()) // another node waits for longer
		defer cancel()
		return run.Stop(ctx, why.code, why.text, health.heal(result.CopyTo))
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
func (s *Server) parked(ctx context.Context, run *jobs.Run, result *worker.Result, log *zerolog.Logger) error {
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
	fault, rival := &replicator.Fault{Code: replicator.FaultCollision, Text: c.Explain(run.Job()), At: time.Now()}, replicator.DocumentRival
	if c.Transient {
		rival = replicator.PostedRival
	}
	if run.Job().Transient() || run.Job().Mirror() != "" { // the mirror knows the code
		fault.Word = jobs.CollisionCode
	}
	return s.crashed(ctx, run, worker.Failed(fault), replicator.Ending{Outcome: replicator.RunCrashed, Rival: rival}, log)
}

// failed ends a run that returned an error.
func (s *Server) failed(ctx context.Context, run *jobs.Run, err error, health *health, log *zerolog.Logger) error {
	failure, ok := errors.AsType[*worker.Error](err)
	if !ok {
		failure = worker.Failed(replicator.TextFault("error", err.Error()))
	}
	ending := replicator.Ending{Outcome: replicator.RunCrashed, Healthy: health.healthy, RetryAfter: failure.RetryAfter}
	return s.crashed(ctx, run, failure, ending, log)
}

// crashed records the end of a run that failed, and what replicator.Ending.Again decides of its job.
func (s *Server) crashed(
	ctx context.Context, run *jobs.Run, failure *worker.Error, ending replicator.Ending, log *zerolog.Logger,
) error {
	cfg, job, fault := s.opts.Config(), run.Job(), failure.Fault
	if fault == nil { // only its texts are known
		fault = replicator.TextFault(failure.Code, failure.Reason)
	}
	penalties := replicator.Penalties{Min: config.MinBackoffPenalty.Get(cfg), Max: config.MaxBackoffPenalty.Get(cfg)}
	again, err := ending.Again(job.Args, job.State, penalties, time.Now(), rand.Float64())
	if err != nil {
		return err
	}
	if again.State == replicator.StateFailed {
		log.Warn().Err(run.Redact(failure)).Msg("replication failed")
		s.counter.add(func(c *Counts) { c.Failed++ })
		return run.Fail(ctx, fault)
	}
	log.Warn().Err(run.Redact(failure)).Int("errors", again.ErrorCount).Time("again", again.At).Msg("replication crashed")
	s.counter.add(func(c *Counts) { c.Crashes++ })
	return run.Crash(ctx, again.At, again.ErrorCount, fault)
}

func (s *Server) workerConfig(a *attempt) worker.Config {
	cfg := s.requests(a.cfg)
	cfg.ListRefused = a.run.ListRefused
	cfg.Sending = a.run.Check
	cfg.ReportInterval = a.run.Heartbeat()
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
	cfg.Budgets = s.opts.Budgets
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
	c.IBMTokenURL = config.IBMTokenURL.Get(cfg)
	c.SessionRefresh = config.SessionRefreshInterval.Get(cfg)
	c.SessionMinAge = config.SessionMinUpdateInterval.Get(cfg)
	c.CheckpointInterval = config.CheckpointInterval.Get(cfg)
	c.NoCheckpoints = !config.UseCheckpoints.Get(cfg)
	c.NoBulkGet = !config.UseBulkGet.Get(cfg)
	c.PropagateTrace = config.PropagateTrace.Get(cfg)
	c.NoCompression = !config.CompressRequests.Get(cfg)
	c.MissingDocRetry = config.MissingDocRetry.Get(cfg)
	c.SecurityInterval = min(config.MaxIdle.Get(cfg), worker.SecurityEvery)
	c.MaxDocument = int(config.MaxReplicatedDocument.Get(cfg))
	c.MaxDocumentIDLength = config.MaxDocumentIDLength.Get(cfg)
	return c
}

// reporter records the reports of a run in its job.
type reporter struct {
	*attempt
	heartbeats *heartbeats
	reported   *time.Time // when the latest report began, zero before the first
	stop       func()     // stops the run
}

func (r reporter) Identify(ctx context.Context, id replicator.ID) error {
	return r.run.Identify(ctx, id)
}

// Report keeps the job alive. A single failure does not end the run: the job's context ends after it has failed for too
// long. A run that is about to make the target of a mirror ends: if it died then, the job would not know whose the target is.
func (r reporter) Report(ctx context.Context, progress worker.Progress) error {
	r.counted.count(progress.RunStats)
	r.health.saw(progress.Activity, time.Now())
	began := time.Now()
	err := r.run.Update(ctx, r.health.heal(progress.CopyTo))
	r.heartbeats.saw(*r.reported, began, time.Now(), r.run.Heartbeat())
	*r.reported = began
	if errors.Is(err, jobs.ErrEnding) {
		r.stop()
		return nil
	}
	if err == nil || errors.Is(err, fdbjobs.ErrHalt) || ctx.Err() != nil || progress.Target.Claim == replicator.TargetMaking {
		return err
	}
	r.log.Error().Err(err).Msg("the progress of a run could not be recorded")
	return nil
}
