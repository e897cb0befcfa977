package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/pkg/redact"
	"settee/pkg/serverbudget"
	"settee/replicator"
)

// errAbandoned ends the batches that are still in flight StopTimeout after a stop.
var errAbandoned = errors.New("the batch was abandoned")

// run is one run of a job.
type run struct {
	settings
	rep        *replicator.Replication
	secrets    redact.Set // of rep
	serverUUID string
	refusals   refusals
	woken      bool     // Job.Woken
	parking    *parking // nil if the run cannot park
	parked     bool     // the run ends because it was asked to park
	security   security // what is known of `_security`
	identities *identities
	// mirrorTarget is what is known of the target of a mirrored replication; progress.mu guards it.
	mirrorTarget replicator.MirrorTarget
	stop         context.Context                 // ends when the run is asked to stop
	noteOpened   func(ctx context.Context) error // Job.Opened

	databases
	checkpoints

	filtered bool // the feed may omit changes
	resumed  bool // the run goes on from the checkpoint with which its job was parked

	// handle does what there is to do for a batch: copyBatch, or the comparison of a Verification. It calls asked when
	// the next batch may ask the target. An error ends the run; fail does so before the end of handle.
	handle func(ctx, writing context.Context, b *batch, asked func(), fail func(error)) error
	// reject returns what is missing of a row whose id the target rejects.
	reject func(row couch.Row, err error) []ref

	pipeline
	flow    *serverbudget.Flow // Job.Flow
	moved   moved
	repeats repeats

	traces

	reporter Reporter
	telling  step                    // in which the Reporter is called
	end      context.CancelCauseFunc // ends the run

	ended error // of the Reporter or of lost; progress.mu guards it

	progress
}

// Run runs a job once: a one-shot replication to the end of the changes feed, a continuous one until something ends it.
// The package comment lists the errors. The Result is valid even if there is an error.
func Run(ctx context.Context, job Job, cfg Config, reporter Reporter) (Result, error) {
	r, err := newRun(&job, &cfg, reporter)
	if err != nil {
		return Result{Progress: Progress{
			ReplicationID: job.ReplicationID, Stats: job.Stats, Lacking: job.Lacking, Security: job.Security, Target: job.Target,
		}}, err
	}
	defer r.databases.close()
	if r.parking != nil && job.Park != nil {
		defer job.Park.Listen(r.parking.ask)()
	}
	if r.flow = job.Flow; r.flow != nil {
		r.flow.Changed = r.tellActivity
		ctx = serverbudget.WithFlow(ctx, r.flow)
	}
	r.beginTrace(ctx, cfg.Tracer, &job)
	err = r.reporting(ctx, r.replicate)
	result := r.result(err)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.endTrace(ctx, &result, err)
	return result, err
}

// replicate opens both databases, finds the place where earlier runs have ended, copies the changes after it, and writes a
// checkpoint.
func (r *run) replicate(ctx context.Context) error {
	if err := r.untilStopped(ctx, r.begin); err != nil {
		return err
	}
	complete, err := r.copy(ctx)
	switch {
	case err != nil || r.parked:
		return err
	case complete:
		r.note(&r.finished)
		_, err = r.checkpoint(ctx, ctx)
		return err
	}
	return r.stopped(ctx)
}

// reporting calls do, and the Reporter meanwhile. It returns the error of the run.
func (r *run) reporting(ctx context.Context, do func(context.Context) error) error {
	inner, end := context.WithCancelCause(ctx)
	r.end = end
	r.beginReports(inner)
	err := verdict(do(inner))
	r.reports.end()
	end(nil)
	switch {
	case r.ended != nil:
		return r.ended
	case ctx.Err() == nil:
		// Refused revisions are listed even if the run failed.
		return cmp.Or(r.refusals.tell(ctx), err)
	}
	return err
}

// result returns the results of a run that ended with err.
func (r *run) result(err error) Result {
	result := Result{Progress: r.snapshot()}
	result.Activity = nil
	switch {
	case err == nil && r.parked:
		result.Parked = true
	case err == nil:
		result.History = r.history()
	}
	return result
}

func newRun(job *Job, given *Config, reporter Reporter) (*run, error) {
	cfg := *given
	r := &run{
		settings: newSettings(cfg, job.Replication),
		rep:      job.Replication, secrets: job.Replication.Secrets(), serverUUID: cfg.ServerUUID,
		stop:       cmp.Or(job.Stop, context.Background()),
		noteOpened: job.Opened,
		woken:      job.Woken, mirrorTarget: job.Target,
		filtered:    job.Replication.DocIDs != nil || job.Replication.Selector != nil || job.Replication.Filter != "",
		checkpoints: checkpoints{session: newSessionID()},
		reporter:    reporter,
		telling:     make(step, 1),
	}
	r.pipeline.init(&r.settings, job)
	r.progress.init(&r.settings, job)
	if m := job.Replication.Mirrored; m != nil && m.Security {
		// A run that resumes relies on what the run before was allowed. Others ask.
		copies := !job.Woken || job.Target.Claim == replicator.TargetMade
		r.security = security{copies: copies, one: make(step, 1), known: job.Security}
	}
	r.handle, r.reject = r.copyBatch, r.refuseRow
	r.parking = newParking(job, r.useCheckpoints)
	r.repeats.changed = r.tellActivity
	r.refusals.told, r.refusals.list = cfg.Refused, cfg.ListRefused
	if cfg.Shared == nil {
		cfg.Shared = &Shared{}
	}
	r.identities = &cfg.Shared.identities
	var err error
	if r.source, err = r.openPeer("source", r.rep.Source, cfg); err != nil {
		return nil, err
	}
	if r.target, err = r.openPeer("target", r.rep.Target, cfg); err != nil {
		r.source.db.Close()
		return nil, err
	}
	return r, nil
}

// tellActivity reports soon that the activity has changed.
func (r *run) tellActivity() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellSoon()
}

func (r *run) snapshot() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Progress{
		ReplicationID: r.known, Stats: r.allStats(), RunStats: r.stats,
		SourceSeq: r.read, ThroughSeq: r.through, CheckpointedSourceSeq: r.committed,
		ChangesPending: r.changesPending(),
		Ends:           r.ends,
		Lacking:        r.learned(),
		Security:       r.security.known,
		Target:         r.mirrorTarget,
		Activity:       r.activity(),
		Progressed:     r.progressed(),
	}
}

// history returns the answer to POST /_replicate.
func (r *run) history() json.RawMessage {
	r.mu.Lock()
	idle := r.rowsRead == 0
	r.mu.Unlock()
	if !r.useCheckpoints && !idle {
		return json.RawMessage(`{"ok":true,"use_checkpoints":false}`)
	}
	return r.latest.result(idle)
}

// untilStopped calls do, and cancels it with ErrStopped when the run is asked to stop.
func (r *run) untilStopped(ctx context.Context, do func(context.Context) error) error {
	until, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(r.stop, func() { end(ErrStopped) })()
	err := do(until)
	if err != nil && ctx.Err() == nil && until.Err() != nil {
		return ErrStopped
	}
	return err
}

// verdict turns err into an *Error unless it is one of the errors that Run returns unchanged.
func verdict(err error) error {
	if err == nil || errors.Is(err, ErrStopped) || errors.Is(err, ErrIDChanged) {
		return err
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return newError(replicator.TextFault(codePlain, err.Error()), err)
}

// begin does everything before the first change. The id comes first, because two jobs with the same id must find that
// out even while neither can reach its databases.
func (r *run) begin(ctx context.Context) (err error) {
	ctx, span := r.first(ctx)
	defer func() { r.endSpan(span, err) }()
	open := r.openBoth
	if r.rep.NeedsFilterCode() {
		if err := r.source.open(ctx); err != nil {
			return err
		}
		open = r.openTarget
	}
	if err := r.identify(ctx); err != nil {
		return err
	}
	if !r.resume(ctx) {
		if err := open(ctx); err != nil {
			return err
		}
		ends := r.said()
		r.mu.Lock()
		r.ends = ends
		r.mu.Unlock()
	}
	if r.noteOpened != nil {
		if err := r.tell(ctx, r.noteOpened); err != nil {
			return err
		}
	}
	if r.parking != nil {
		r.parking.target = r.openedTarget(ctx)
	}
	if err := r.copySecurity(ctx); err != nil {
		return err
	}
	return r.readCheckpoints(ctx)
}

// identify computes the replication id and passes it to the Reporter.
func (r *run) identify(ctx context.Context) error {
	id, err := r.computeID(ctx, r.rep)
	if err != nil {
		return err
	}
	r.id = id
	r.identified(id.String())
	r.mu.Lock()
	if name := id.String(); r.known != name {
		r.known, r.base = name, replicator.Stats{}
	}
	r.mu.Unlock()
	return r.tell(ctx, func(ctx context.Context) error { return r.reporter.Identify(ctx, id) })
}

// stopped writes the last checkpoint of a run that was asked to stop.
func (r *run) stopped(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, r.stopTimeout,
		fmt.Errorf("it took longer than %s", r.stopTimeout))
	defer cancel()
	if _, err := r.checkpoint(bounded, bounded); err != nil {
		return fmt.Errorf("%w; its last checkpoint failed: %w", ErrStopped, err)
	}
	return ErrStopped
}

// copying is the state of copy.
type copying struct {
	r        *run
	whole    context.Context // outlives a failure
	ctx      context.Context // ends at the first failure
	reading  context.Context // ends at the end of the feed
	intake   *intake
	batches  sync.WaitGroup
	question pendingQuestion

	abandon, fail, endReading context.CancelCauseFunc // of the contexts

	checkpoints *recurring
}

// copy copies changes until the feed ends or the run is asked to stop. complete reports that the feed ended and that
// all of it was dealt with.
//
// While a live feed waits for changes there is only the goroutine that called Run. Periodic work has timers.
func (r *run) copy(ctx context.Context) (complete bool, err error) {
	c := r.newCopying(ctx)
	defer c.abandon(nil)
	c.checkpoints = recur(atWhole(r.checkpointInterval), c.keepCheckpoint)
	questions := recur(min(r.reportInterval, firstQuestion), c.askPending)
	if r.security.copies && r.rep.Continuous {
		defer recur(atWhole(r.securityInterval), c.keepSecurity).end()
	}
	complete = c.read()
	unfinished := c.finish()
	c.endReading(nil) // stops a pending count, too
	c.checkpoints.end()
	questions.end()
	switch {
	case unfinished:
		return false, nil
	case c.ctx.Err() != nil:
		return false, context.Cause(c.ctx)
	}
	return complete, nil
}

func (r *run) newCopying(ctx context.Context) *copying {
	c := &copying{r: r, intake: newIntake(r)}
	c.whole, c.abandon = context.WithCancelCause(ctx)
	c.ctx, c.fail = context.WithCancelCause(c.whole)
	c.reading, c.endReading = context.WithCancelCause(c.ctx)
	c.intake.start = func(b *batch) {
		c.batches.Go(func() {
			ctx, span := r.rootOfBatch(c.ctx, b)
			writing, end := lasting(ctx, c.whole, r.stopTimeout)
			defer end()
			err := c.intake.copy(ctx, writing, b, c.fail)
			if err != nil {
				c.fail(err)
			}
			r.endSpan(span, err)
		})
	}
	return c
}

// read reads the feed until it ends, or the run parks or is asked to stop. complete reports that it ended.
func (c *copying) read() (complete bool) {
	defer context.AfterFunc(c.r.stop, func() { c.endReading(ErrStopped) })()
	f := &reader{r: c.r, to: c.intake, checkpoints: c.checkpoints, whole: c.whole}
	err := f.readFeed(c.reading)
	f.over()
	c.intake.end(err)
	if err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, errParked) { // after a stop the batches may still finish
		c.fail(err)
	}
	return err == nil && !c.r.rep.Continuous
}

// finish waits for the batches. When the run is asked to stop, they have half of StopTimeout to end. Then they read no
// more, and have the other half to write what they have read. After that they are abandoned. unfinished reports that some
// did not end.
func (c *copying) finish() (unfinished bool) {
	select {
	case <-c.intake.copied:
	case <-c.r.stop.Done():
	}
	if c.r.stop.Err() != nil {
		c.r.note(&c.r.stopping)
		for _, end := range []func(){func() { c.fail(ErrStopped) }, func() { c.abandon(errAbandoned) }} {
			select {
			case <-c.intake.copied:
				continue
			case <-time.After(c.r.stopTimeout / 2):
				unfinished = true
				end()
			}
		}
	}
	<-c.intake.copied
	c.batches.Wait()
	return unfinished
}

func (c *copying) keepCheckpoint(again func(time.Duration)) {
	if err := c.r.keepCheckpoint(c.ctx, c.whole); err != nil {
		c.fail(err)
	}
	again(atWhole(c.r.checkpointInterval))
}

func (c *copying) askPending(again func(time.Duration)) {
	c.question.ask(c.reading, c.r)
	again(atWhole(pendingInterval))
}
