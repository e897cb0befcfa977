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
	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// running is a job that this node runs: what its beginning, its reports and its end share.
type running struct {
	jobserver.Run
	run        *jobs.Run
	continuous bool
	mirror     bool
	cfg        *config.Config // when it began
	parked     bool           // the job was parked
	health     *health
	counted    *statsCounter
	parker     worker.Parker      // asks the job to park
	flow       *serverbudget.Flow // takes turns in the budgets of servers

	// A run that goes back to the queue sets these.
	result *worker.Result
	why    error

	// The lock of the job server guards these.
	slotless bool // a mirror that takes no slot
	idleRun  idleRun
}

// newRunning returns a run that has not begun.
func (s *Server) newRunning(run *jobs.Run) *running {
	cfg, was := s.opts.Config(), run.Job().State.Parked // Start forgets that it was parked
	r := &running{
		Run: jobserver.NewRun(run.Job().ID, run.Evicted(), run, s.logOf(run.Job())),
		run: run, continuous: run.Job().Args.Replication.Continuous, mirror: run.Job().IsMirror(), cfg: cfg, parked: was != nil && !was.Since.IsZero(),
		health: &health{threshold: config.HealthThreshold.Get(cfg)}, counted: &statsCounter{to: &s.counter},
	}
	r.idleRun.of, r.flow = r, s.flow(r)
	return r
}

// errPaused is why jobs of a database with 0 shares stop.
var errPaused = errors.New("the database is paused")

// endCode returns the code for the history of a job whose run was stopped, or "" if it is not known why.
func endCode(why error) replicator.EndCode {
	switch {
	case errors.Is(why, jobserver.ErrMadeRoom):
		return replicator.EndMadeRoom
	case errors.Is(why, jobserver.ErrTooMany):
		return replicator.EndTooMany
	case errors.Is(why, jobserver.ErrNodeStops), errors.Is(why, jobserver.ErrDrained):
		return replicator.EndNodeStops
	case errors.Is(why, errPaused):
		return replicator.EndPaused
	}
	return ""
}

// run runs a job once and records its end, unless it is stopped.
func (s *Server) run(ctx context.Context, r *running) (jobserver.Outcome, error) {
	switch goesOn, err := s.begin(ctx, r); {
	case !goesOn:
		return jobserver.Recorded, err
	case r.mirror:
		return s.mirror(ctx, r)
	}
	return s.replicate(ctx, r)
}

// runUntilLost calls do, and stops the run when the job is removed or changed meanwhile, and not only at the next heartbeat. The
// context of do ends when the job is lost, or the node's time to shut down is over.
func (s *Server) runUntilLost(ctx context.Context, r *running, do func(context.Context)) {
	working, end := s.server.Working(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if errors.Is(r.run.Lost(working), jobs.ErrEnding) {
			s.server.StopRun(r, nil)
		}
	})
	do(working)
	end()
	watching.Wait()
}

// giveBack puts the job of a stopped run back into the queue.
func (s *Server) giveBack(ctx context.Context, r *running) error {
	s.counter.update(func(c *Counts) { c.Stops++ })
	code, text := endCode(r.why), ""
	if code != "" {
		text = r.why.Error()
	}
	return r.run.Stop(ctx, code, text, r.health.heal(r.result.CopyTo))
}

// release ends a run whose job was removed, changed, or taken by another node.
func (s *Server) release(ctx context.Context, r *running) {
	s.counter.update(func(c *Counts) { c.Stops++ })
	if err := r.run.Release(ctx); err != nil {
		r.Log.Error().Err(err).Msg("a job could not be released; it will be taken up again")
	}
	r.Log.Info().Msg("replication stopped: the job was removed, changed, or taken by another node")
}

// begin starts a run, and reports whether it goes on. If not, its end is recorded, unless there is an error.
func (s *Server) begin(ctx context.Context, r *running) (goesOn bool, _ error) {
	if paused(r.cfg, r.run) {
		return false, s.pause(ctx, r.run)
	}
	if err := r.run.Start(ctx, s.opts.Node, s.newRunName()); err != nil {
		return false, err
	}
	s.started(r.parked, r.Log)
	invalid, err := s.refuse(ctx, r)
	return !invalid, err
}

// started counts and logs the start of a run. That of a parked job is not news.
func (s *Server) started(parked bool, log *zerolog.Logger) {
	if parked {
		log.Debug().Msg("replication goes on, which was parked")
	} else {
		log.Info().Msg("replication started")
	}
	s.counter.update(func(c *Counts) {
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
func (s *Server) replicate(ctx context.Context, r *running) (jobserver.Outcome, error) {
	var result worker.Result
	var err error
	s.runUntilLost(ctx, r, func(ctx context.Context) {
		result, err = s.opts.Replicate(ctx, s.workerJob(r), s.workerConfig(r), reporter{running: r, server: s.server})
	})
	return s.ended(ctx, r, &result, err)
}

// workerJob returns what the worker is to do.
func (s *Server) workerJob(r *running) worker.Job {
	run, state := r.run, r.run.Job().State
	return worker.Job{
		Replication:   run.Job().Args.Replication,
		ReplicationID: state.ReplicationID,
		Stats:         state.Stats,
		Flow:          r.flow,
		Attributes:    s.traced(run.Job()),
		Woken:         r.parked,
		Lacking:       state.Lacking,
		Security:      state.Security,
		Target:        state.Target,
		Stop:          r.Stopping(),
		Park:          &r.parker,
		Idle:          func(idle bool) { s.server.Update(func() { s.slots.setIdle(r, idle, time.Now()) }) },
		Opened:        run.Opened,
		Parking:       run.Parking,
	}
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
func (s *Server) refuse(ctx context.Context, r *running) (invalid bool, err error) {
	err = r.run.Job().Args.Replication.Check(replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(r.cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(r.cfg),
	})
	if err == nil {
		return false, nil
	}
	failure := worker.Failed(&replicator.Fault{Code: replicator.FaultInvalid, Detail: err.Error(), At: time.Now()})
	return true, s.crashed(ctx, r, failure, replicator.Ending{Outcome: replicator.RunFailed})
}

// ended records the end of a run, unless it is stopped.
func (s *Server) ended(ctx context.Context, r *running, result *worker.Result, err error) (jobserver.Outcome, error) {
	r.counted.count(result.RunStats)
	if r.run.Ending() {
		r.run.Last(result.RunStats.DocCounts, r.health.heal(result.CopyTo))
		r.Log.Debug().Err(r.run.Redact(err)).Msg("the job was removed or changed, and its run has ended")
		return jobserver.Recorded, fdbjobs.ErrHalt
	}
	r.run.Last(result.RunStats.DocCounts, nil)
	if errors.Is(err, worker.ErrStopped) && s.isStuck(r, result) {
		err = r.health.failure()
	}
	switch {
	case err == nil:
		return jobserver.Recorded, s.copied(ctx, r, result)
	case ctx.Err() != nil:
		return jobserver.Recorded, context.Cause(ctx)
	case errors.Is(err, jobserver.ErrNoTime):
		r.Log.Warn().Err(r.run.Redact(err)).Msg("replication goes back to the queue")
		r.result, r.why = result, jobserver.ErrNodeStops
		return jobserver.Stopped, nil
	case errors.Is(err, worker.ErrStopped):
		r.Log.Info().Msg("replication goes back to the queue") // its turn has ended, or the node stops
		r.result, r.why = result, context.Cause(r.Stopping())
		return jobserver.Stopped, nil
	}
	return jobserver.Recorded, s.failed(ctx, r, result, err)
}

// isStuck reports whether the turns of a job are shorter than the repetitions of a request. Without this it would never fail
// and never back off.
func (s *Server) isStuck(r *running, result *worker.Result) bool {
	why := context.Cause(r.Stopping())
	turn := errors.Is(why, jobserver.ErrMadeRoom) || errors.Is(why, jobserver.ErrTooMany)
	return turn && !s.server.Leaving() && !replicator.Awaited(r.run.Job().Args) && r.health.stuck(result.RunStats)
}

// copied ends a run that has copied everything: until its source changes, until its next time, or for good.
func (s *Server) copied(ctx context.Context, r *running, result *worker.Result) error {
	if result.Parked {
		woken, err := r.run.Park(ctx, result.CopyTo)
		if err != nil {
			return err
		}
		s.counter.update(func(c *Counts) { c.Parks++ })
		r.Log.Debug().Bool("woken", woken).Msg("replication is parked until its source changes")
		return nil
	}
	r.Log.Info().Int64("docs_written", result.RunStats.DocsWritten).Msg("replication completed")
	s.counter.update(func(c *Counts) { c.Completed++ })
	return r.run.Complete(ctx, func(state *replicator.JobState) {
		result.CopyTo(state)
		state.Result = result.History
		if r.run.Job().Args.Replication.Periodic() {
			state.LastRun = &result.RunStats
		}
	})
}

// failed ends a run that returned an error for another reason than that it was stopped.
func (s *Server) failed(ctx context.Context, r *running, result *worker.Result, err error) error {
	var collision *jobs.Collision
	switch {
	case errors.Is(err, fdbjobs.ErrHalt):
		return err
	case errors.Is(err, worker.ErrIDChanged):
		r.Log.Info().Msg("the filter function has changed: replication starts anew")
		s.counter.update(func(c *Counts) { c.Stops++ })
		return r.run.Restart(ctx, "the replication id has changed")
	case errors.As(err, &collision):
		return s.collided(ctx, r, collision)
	}
	// Keep the statistics since the last report.
	if err := r.run.Update(ctx, result.CopyTo); err != nil {
		return err
	}
	failure, ok := errors.AsType[*worker.Error](err)
	if !ok {
		failure = worker.Failed(replicator.TextFault("error", err.Error()))
	}
	return s.crashed(ctx, r, failure, replicator.Ending{Outcome: replicator.RunCrashed, Healthy: r.health.healthy, RetryAfter: failure.RetryAfter})
}

// collided ends a run whose replication id belongs to another job (RFC 016, "Replication ID Collisions").
func (s *Server) collided(ctx context.Context, r *running, c *jobs.Collision) error {
	run := r.run
	r.Log.Warn().Str("other", c.JobID).Msg("another job has the same replication id")
	fault, rival := &replicator.Fault{Code: replicator.FaultCollision, Text: c.Explain(run.Job()), At: time.Now()}, replicator.DocumentRival
	if c.Transient {
		rival = replicator.PostedRival
	}
	if run.Job().Transient() || run.Job().Mirror() != "" { // the mirror knows the code
		fault.Word = jobs.CollisionCode
	}
	return s.crashed(ctx, r, worker.Failed(fault), replicator.Ending{Outcome: replicator.RunCrashed, Rival: rival})
}

// crashed records the end of a run that failed, and what replicator.Ending.Again decides of its job.
func (s *Server) crashed(ctx context.Context, r *running, failure *worker.Error, ending replicator.Ending) error {
	run, cfg, job, fault := r.run, s.opts.Config(), r.run.Job(), failure.Fault
	if fault == nil { // only its texts are known
		fault = replicator.TextFault(failure.Code, failure.Reason)
	}
	penalties := replicator.Penalties{Min: config.MinBackoffPenalty.Get(cfg), Max: config.MaxBackoffPenalty.Get(cfg)}
	again, err := ending.Again(job.Args, job.State, penalties, time.Now(), rand.Float64())
	if err != nil {
		return err
	}
	if again.State == replicator.StateFailed {
		r.Log.Warn().Err(run.Redact(failure)).Msg("replication failed")
		s.counter.update(func(c *Counts) { c.Failed++ })
		return run.Fail(ctx, fault)
	}
	r.Log.Warn().Err(run.Redact(failure)).Int("errors", again.ErrorCount).Time("again", again.At).Msg("replication crashed")
	s.counter.update(func(c *Counts) { c.Crashes++ })
	return run.Crash(ctx, again.At, again.ErrorCount, fault)
}

func (s *Server) workerConfig(r *running) worker.Config {
	cfg := s.requests(r.cfg)
	cfg.ListRefused = r.run.ListRefused
	cfg.Sending = r.run.Check
	cfg.ReportInterval = r.run.Heartbeat()
	return cfg
}

// Requests returns the configuration with which the runs of this node make requests to endpoints, and what they share. It
// is for requests outside of runs.
func (s *Server) Requests() worker.Config { return s.requests(s.opts.Config()) }

func (s *Server) requests(current *config.Config) worker.Config {
	cfg := WorkerConfig(current)
	cfg.ServerUUID = s.opts.Jobs.ServerUUID
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
	*running
	server *jobserver.Server[*running]
}

func (r reporter) Identify(ctx context.Context, id replicator.ID) error {
	return r.run.Identify(ctx, id)
}

// Report keeps the job alive. A single failure does not end the run: the job's context ends after it has failed for too
// long. A run that is about to make the target of a mirror ends: if it died then, the job would not know whose the target is.
func (r reporter) Report(ctx context.Context, progress worker.Progress) error {
	r.counted.count(progress.RunStats)
	r.health.observe(progress.Activity, time.Now())
	err := r.server.Beat(r.running, func() error { return r.run.Update(ctx, r.health.heal(progress.CopyTo)) })
	if errors.Is(err, jobs.ErrEnding) {
		r.server.StopRun(r.running, nil)
		return nil
	}
	if err == nil || errors.Is(err, fdbjobs.ErrHalt) || ctx.Err() != nil || progress.Target.Claim == replicator.TargetMaking {
		return err
	}
	r.Log.Error().Err(err).Msg("the progress of a run could not be recorded")
	return nil
}
