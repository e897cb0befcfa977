package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/kv"
	"settee/pkg/retry"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// listEvery is how often the list of databases is compared if nothing tells of new ones.
	listEvery = time.Minute
	// onceEvery is the time for which a mirror that is not continuous may wait for the end of its jobs until it compares the
	// list again.
	onceEvery = 24 * time.Hour
	// maxRetries is the maximum number of repetitions of a request. A later one comes anyway.
	maxRetries = 2
	// patience is how long a source may not answer until the run fails.
	patience = 5 * time.Minute
	// eventsAtOnce is the number of events that are followed together, and goneAtOnce the number of databases that are deleted together.
	eventsAtOnce = 200
	goneAtOnce   = 50

	turnCreated, turnList = 0, 1 // of databases that are created while the mirror runs, and of others
)

// ErrStopped is returned by Run if it was asked to stop.
var ErrStopped = errors.New("the mirror was stopped")

// errSameServer is the error of a mirror that would copy databases into themselves.
var errSameServer = errors.New("the source of the mirror is its target: both URLs lead to servers with one uuid. A mirror within a server needs " +
	"a \"prefix\". Two servers need different uuids ([couchdb] uuid)")

// Refused is the error of a mirror whose source does not let it list the databases.
type Refused struct{ err error }

// Error says what the user lacks.
func (e *Refused) Error() string { return e.err.Error() }

// Unwrap returns the server's answer.
func (e *Refused) Unwrap() error { return e.err }

// Options are the options of [Run].
type Options struct {
	// Run is the run of the mirror's job, which has started. Identify must have reserved its replication id.
	Run    jobs.MirrorRun
	Config func() *config.Config
	// Worker is the configuration with which requests are made.
	Worker worker.Config
	// Stop ends when the mirror is to go back to the queue.
	Stop context.Context
	// KeepAlive keeps the job alive with update until ctx ends, see jobserver.Server.KeepAlive.
	KeepAlive func(ctx context.Context, update func(context.Context) error) error
	Log       zerolog.Logger
}

// mirror is a run of a mirror. The goroutine of Run does the work, and another one keeps the job alive.
type mirror struct {
	Options
	r              *replicator.Replication
	source, target *couch.Server
	verifyNow      chan struct{} // somebody asks to compare both servers
	met            bool          // both servers have said which one they are
	same           bool          // the source is the target, as far as that is known

	mu       sync.Mutex // guards the job's state, which both goroutines write
	progress replicator.MirrorProgress

	lookAt time.Time // when the list is compared next
	// targetAt is when the target is compared next, and instancesFrom the database after which that goes on with the instances.
	targetAt      time.Time
	instancesFrom string
	secured       map[string][2]string // digests of `_security` at both ends that differed in the last look, by database
	left          leftOut              // by the last comparison of the list
	goneAt        time.Time            // when a database is to be deleted at the target; zero: never
	backoff       retry.Backoff
	failing       time.Time // since when the source does not answer; zero: it does
}

// Run runs a mirror until ctx or Stop ends, the job is lost, or a mirror that is not continuous has copied everything.
// Then it returns the summary. The other errors are ErrStopped, fdbjobs.ErrHalt, ctx's, a *[Refused], or why the source
// could not be listed.
func Run(ctx context.Context, o Options) (*replicator.MirrorSummary, error) {
	m := &mirror{Options: o, r: o.Run.Job().Args.Replication, backoff: retry.Backoff{First: time.Second}, verifyNow: make(chan struct{}, 1), secured: map[string][2]string{}}
	m.same = m.r.SameServer()
	if p := o.Run.Job().State.Mirror; p != nil {
		m.progress = *p
	}
	m.Worker.RetriesPerRequest = min(m.Worker.RetriesPerRequest, maxRetries)
	var err error
	if m.source, err = worker.OpenServer(m.r.Source, m.r.Source.URL, m.Worker); err != nil {
		return nil, fmt.Errorf("opening the source: %w", err)
	}
	defer m.source.Close()
	if m.target, err = worker.OpenServer(m.r.Target, m.r.Target.URL, m.Worker); err != nil {
		return nil, fmt.Errorf("opening the target: %w", err)
	}
	defer m.target.Close()

	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(o.Stop, func() { cancel(ErrStopped) })()
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel(nil)
	others.Go(func() {
		if err := o.KeepAlive(working, m.keepAlive); err != nil {
			cancel(fdbjobs.ErrHalt)
		}
	})
	others.Go(func() { m.keepVerified(working) })
	summary, err := m.work(working)
	if cause := context.Cause(working); cause != nil && err != nil {
		err = cause
	}
	return summary, err
}

// keepAlive keeps the job alive.
func (m *mirror) keepAlive(ctx context.Context) error {
	return m.writeProgress(ctx, func(*replicator.MirrorProgress) {})
}

// writeProgress changes the progress of the job, and keeps the job alive.
func (m *mirror) writeProgress(ctx context.Context, change func(*replicator.MirrorProgress)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.progress)
	return m.Run.Update(ctx, func(state *replicator.JobState) {
		progress := m.progress
		state.Mirror = &progress
	})
}

// work follows the source.
func (m *mirror) work(ctx context.Context) (*replicator.MirrorSummary, error) {
	if m.r.Continuous {
		if err := m.Run.Subscribe(ctx); err != nil {
			return nil, err
		}
	}
	for ctx.Err() == nil {
		watch, err := m.Run.AwaitEvents(ctx) // before anything is read, so that no change is missed
		if err != nil {
			return nil, err
		}
		summary, err := m.runOnce(ctx)
		if err != nil || summary != nil {
			watch.Cancel()
			return summary, err
		}
		next := m.nextRun()
		waiting, cancel := context.WithDeadline(ctx, next)
		kv.AwaitChange(waiting, watch, kv.AwaitOptions{})
		cancel()
	}
	return nil, context.Cause(ctx)
}

// nextRun returns when runOnce has something to do at the latest.
func (m *mirror) nextRun() time.Time {
	next := m.lookAt
	if !m.goneAt.IsZero() && m.goneAt.Before(next) {
		next = m.goneAt
	}
	if m.r.Continuous && m.targetAt.Before(next) {
		next = m.targetAt
	}
	return next
}

// runOnce does what is to be done. It returns a summary if the mirror has completed.
func (m *mirror) runOnce(ctx context.Context) (*replicator.MirrorSummary, error) {
	steps := []func(context.Context) error{m.identifyServers, m.followEvents, m.startJobs, m.lookAtSource, m.startJobs, m.lookAtTarget, m.deleteGone}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if m.progress.LastLook.IsZero() || !m.failing.IsZero() {
		return nil, nil
	}
	if err := m.recordOpened(ctx); err != nil || m.r.Continuous {
		return nil, err
	}
	summary, err := m.Run.Summary(ctx)
	if err != nil || !completed(&summary) {
		return nil, err
	}
	return m.progress.WithLeftOut(&summary), nil
}

// identifyServers finds out whether the two servers are one, by what they say and not by the spelling of their URLs. Until both have
// answered, the URLs decide: the looks at the two servers report why they do not, and no database is copied into itself,
// because each job asks both servers.
func (m *mirror) identifyServers(ctx context.Context) error {
	if m.met || time.Now().Before(m.targetAt) {
		return nil
	}
	source, err := m.source.Identity(ctx)
	target := ""
	if err == nil {
		target, err = m.target.Identity(ctx)
	}
	if err != nil {
		return context.Cause(ctx)
	}
	m.met, m.same = true, m.same || source != "" && source == target
	if m.same && m.r.Mirror.Prefix == "" {
		return errSameServer
	}
	return nil
}

func (m *mirror) selects(database string) bool { return m.r.Mirror.SelectsAt(database, m.same) }

// recordOpened records that the source lets the mirror list its databases.
func (m *mirror) recordOpened(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Run.Opened(ctx)
}

// completed reports whether the job of each database has ended.
func completed(s *replicator.MirrorSummary) bool {
	ended := s.States[replicator.MirroredCurrent] + s.States[replicator.MirroredFailed] + s.States[replicator.MirroredElsewhere]
	return ended == s.Known
}

// startJobs makes jobs due as long as there may be more first runs.
func (m *mirror) startJobs(ctx context.Context) error {
	for {
		n, err := m.Run.StartDatabases(ctx, config.MirrorStarts.Get(m.Config()))
		if err != nil || n == 0 {
			return err
		}
	}
}

// followEvents follows the events that the watch and requests have published. Without a feed the watch publishes none.
func (m *mirror) followEvents(ctx context.Context) error {
	for {
		n, err := m.Run.FollowEvents(ctx, eventsAtOnce, func(events []jobs.MirrorEvent) error { return m.followSome(ctx, events) })
		if err != nil {
			return m.sourceFailed(ctx, err) // the events stay
		}
		if n == 0 {
			return nil
		}
	}
}

func (m *mirror) followSome(ctx context.Context, events []jobs.MirrorEvent) error {
	var created, deleted []string
	for _, e := range events {
		switch {
		case e.Type == jobs.EventMissed:
			m.lookAt, m.targetAt = time.Time{}, time.Time{}
		case e.Type == jobs.EventVerify:
			select {
			case m.verifyNow <- struct{}{}:
			default: // it is asked already
			}
		case e.Type == jobs.EventRunNow:
			m.lookAt, m.targetAt = time.Time{}, time.Time{}
			if err := m.compareContents(ctx); err != nil {
				return err
			}
		case !m.selects(e.Database):
		case e.Type == jobs.EventDeleted:
			deleted = append(deleted, e.Database)
		case replicator.Unmirrorable(e.Database) == "":
			created = append(created, e.Database)
		}
	}
	if err := m.addDatabases(ctx, created, turnCreated); err != nil {
		return err
	}
	return m.endGone(ctx, deleted)
}

// compareContents compares the target, and makes the jobs of all databases that count as up to date compare everything. While the
// target does not answer they stay as they are: their runs could only fail, or fill another server than before.
func (m *mirror) compareContents(ctx context.Context) error {
	refused := m.progress.Target.Refused // it never lists its databases
	if err := m.lookAtTarget(ctx); err != nil {
		return err
	}
	if m.progress.Target.Error != "" && !(refused && m.progress.Target.Refused) {
		return nil
	}
	for after := ""; ; {
		known, err := m.Run.Databases(ctx, after, knownAtOnce)
		if err != nil || len(known) == 0 {
			return err
		}
		names := make([]string, len(known))
		for i, d := range known {
			names[i] = d.Database
		}
		if err := m.Run.CompareDatabases(ctx, names); err != nil {
			return err
		}
		after = names[len(names)-1]
	}
}

// endGone ends the jobs of databases that seem to be deleted at the source, if the source says so. An error is the source's or
// the store's.
func (m *mirror) endGone(ctx context.Context, databases []string) error {
	var gone []string
	var failed error
	for _, database := range databases {
		exists, err := m.source.Exists(ctx, database)
		if errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden) {
			continue // its job reports that
		}
		if err != nil {
			failed = &sourceError{err}
			break
		}
		if !exists {
			gone = append(gone, database)
		}
	}
	var at time.Time
	if m.r.Mirror.Deleted == replicator.MirrorDeletes {
		at = time.Now().Add(config.MirrorDeleteAfter.Get(m.Config()))
		if len(gone) > 0 && (m.goneAt.IsZero() || at.Before(m.goneAt)) {
			m.goneAt = at
		}
	}
	if err := m.Run.EndDatabases(ctx, gone, at); err != nil {
		return err
	}
	return failed
}

// sourceError is an error of a request to the source, and not of the store.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// sourceFailed returns nil after an error of the source that may pass, and then the next look comes later.
func (m *mirror) sourceFailed(ctx context.Context, err error) error {
	failed, is := errors.AsType[*sourceError](err)
	if !is || ctx.Err() != nil {
		return err
	}
	err = m.Run.Redact(failed.err)
	if errors.Is(err, couch.ErrTokenRefused) {
		return worker.RequestFailed(replicator.SideSource, m.r.Source, replicator.RequestListDatabases, err)
	}
	if errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden) {
		return &Refused{fmt.Errorf("the source does not let %s list its databases, which a mirror needs: %w", userOf(m.r.Source), err)}
	}
	now := time.Now()
	if m.failing.IsZero() {
		m.failing = now
	}
	if now.Sub(m.failing) > patience {
		return fmt.Errorf("the databases of the source cannot be listed: %w", err)
	}
	m.lookAt = now.Add(min(m.backoff.Next(), listEvery))
	return m.writeProgress(ctx, func(p *replicator.MirrorProgress) {
		p.Error = "the databases of the source cannot be listed: " + err.Error()
		if p.ErrorSince.IsZero() {
			p.ErrorSince = now
		}
	})
}

func userOf(e replicator.Endpoint) string {
	switch {
	case e.Auth != nil:
		return "requests with its access token"
	case e.Username == "":
		return "requests without a user"
	}
	return fmt.Sprintf("the user %q", e.Username)
}

// lookAtSource compares the list of databases, if it is time for that.
func (m *mirror) lookAtSource(ctx context.Context) error {
	// Asked before the list is read: a feed that begins meanwhile tells the mirror to look again.
	feed, err := m.Run.HasFeed(ctx)
	if err != nil {
		return err
	}
	if sooner := m.progress.LastLook.Add(listEvery); m.progress.By == replicator.ByFeed && !feed && sooner.Before(m.lookAt) {
		m.lookAt = sooner // nothing tells of new databases any more
	}
	if time.Now().Before(m.lookAt) {
		return nil
	}
	if err := m.compareAll(ctx); err != nil {
		return m.sourceFailed(ctx, err)
	}
	m.failing = time.Time{}
	m.backoff.Reset()
	by, every := replicator.ByList, listEvery
	switch {
	case !m.r.Continuous: // it is read once
		every = onceEvery
	case feed:
		by, every = replicator.ByFeed, max(config.MaxIdle.Get(m.Config()), listEvery)
	}
	now := time.Now()
	m.lookAt = now.Add(every)
	return m.writeProgress(ctx, func(p *replicator.MirrorProgress) {
		*p = replicator.MirrorProgress{
			By: by, LastLook: now, Target: p.Target,
			LeftOut: m.left.count, FirstLeftOut: m.left.withSince(p.FirstLeftOut), Replicators: m.left.replicators,
			Verified: p.Verified, Verifying: p.Verifying,
		}
	})
}

// compareAll reads the whole list and follows it, page by page. It starts jobs on the way.
func (m *mirror) compareAll(ctx context.Context) error {
	var names []string
	var known []jobs.MirroredDatabase
	place, knownPlace, lastNames, lastKnown, listed := "", "", false, false, 0
	m.left = leftOut{}
	turn := int64(turnList)
	if !m.progress.LastLook.IsZero() {
		turn = turnCreated // the first list was read to its end: these have been created since
	}
	for {
		for !lastNames && len(names) == 0 {
			page, err := m.source.Databases(ctx, place)
			if err != nil {
				return &sourceError{err}
			}
			if listed += len(page.Names); listed > maxListed*config.MirrorDatabases.Get(m.Config()) {
				return &sourceError{fmt.Errorf("it lists more than %d databases", listed-len(page.Names))}
			}
			if len(page.Names) > 0 {
				place = page.Names[len(page.Names)-1]
			}
			names, lastNames = m.mirrorable(page.Names), page.Last
		}
		if !lastKnown && len(known) == 0 {
			page, err := m.Run.Databases(ctx, knownPlace, knownAtOnce)
			if err != nil {
				return err
			}
			known, lastKnown = page, len(page) < knownAtOnce
			if len(known) > 0 {
				knownPlace = known[len(known)-1].Database
			}
		}
		n, k := knownPrefix(names, lastNames, known, lastKnown)
		if err := m.applyPlan(ctx, compare(names[:n], known[:k], m.selects), turn); err != nil {
			return err
		}
		names, known = names[n:], known[k:]
		if lastNames && lastKnown && len(names) == 0 && len(known) == 0 {
			return nil
		}
	}
}

// knownAtOnce is the number of databases that the mirror reads of its own list at a time.
const knownAtOnce = 1_000

func (m *mirror) applyPlan(ctx context.Context, p plan, turn int64) error {
	if err := m.addDatabases(ctx, p.add, turn); err != nil {
		return err
	}
	if err := m.startJobs(ctx); err != nil {
		return err
	}
	if err := m.Run.RedefineDatabases(ctx, p.redefine); err != nil {
		return err
	}
	if err := m.Run.EndDatabases(ctx, p.end, time.Time{}); err != nil {
		return err
	}
	return m.endGone(ctx, p.missing)
}

// deleteGone deletes databases at the target whose time has come.
func (m *mirror) deleteGone(ctx context.Context) error {
	if m.r.Mirror.Deleted != replicator.MirrorDeletes {
		return nil
	}
	for {
		now := time.Now()
		databases, next, err := m.Run.GoneDatabases(ctx, now, goneAtOnce)
		m.goneAt = next
		if err != nil || len(databases) == 0 {
			return err
		}
		for _, database := range databases {
			done, err := m.deleteOne(ctx, database)
			if err != nil {
				return err
			}
			if !done { // the server fails: later again
				m.goneAt = now.Add(listEvery)
				return nil
			}
		}
	}
}

// deleteOne deletes a database at the target, unless the source has it again. done is false if it must be tried again.
func (m *mirror) deleteOne(ctx context.Context, database string) (done bool, err error) {
	exists, err := m.source.Exists(ctx, database)
	if err == nil && exists {
		m.lookAt = time.Time{} // the database is mirrored again
		return true, m.Run.EndDatabases(ctx, []string{database}, time.Time{})
	}
	if err == nil {
		if err := m.Run.Check(); err != nil {
			return false, err
		}
		var made bool
		if made, err = worker.MadeByMirror(ctx, m.r.Child(database), m.Worker); err == nil && !made {
			m.Log.Info().Str("target_database", m.r.Mirror.TargetName(database)).Msg("a mirror deletes only databases that a mirror has made: it is left at the target")
			return true, m.Run.EndDatabases(ctx, []string{database}, time.Time{})
		}
		if err == nil {
			err = m.target.Delete(ctx, m.r.Mirror.TargetName(database))
		}
	}
	if err == nil {
		m.Log.Warn().Str("target_database", m.r.Mirror.TargetName(database)).Msg("a mirror has deleted a database at the target")
		return true, m.Run.EndDatabases(ctx, []string{database}, time.Time{})
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	err = m.Run.Redact(err)
	now := time.Now()
	return false, m.writeProgress(ctx, func(p *replicator.MirrorProgress) {
		p.Error, p.ErrorSince = fmt.Sprintf("the database %q cannot be deleted at the target: %s", m.r.Mirror.TargetName(database), err), now
	})
}
