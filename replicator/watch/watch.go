package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/kv"
	"settee/pkg/retry"
	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/internal/jobserver"
	"settee/replicator/jobs"
)

const (
	// feedRetry is how long a server is asked until the watch looks for a feed again.
	feedRetry = 5 * time.Minute
	// deadFeeds is the number of feeds in a row that brought nothing, or could not be opened, after which the watch asks.
	deadFeeds = 3
	// emptyLimit is how long a watch stays without parked jobs.
	emptyLimit = time.Minute
	// storePause is the pause after an error of the store.
	storePause = time.Second
	// maxStoredSeq is the maximum size of a sequence in the state, in bytes. A watch without one compares all databases.
	maxStoredSeq = 50_000
)

// errEnded is the cause of the end of a watch that is no longer needed.
var errEnded = errors.New("the server has no parked jobs")

// state is the state of a watch's job. It has no secrets.
type state struct {
	jobs.WatchStatus
	// Seq is the sequence up to which all databases were woken, in the log that Log names (couch.UpdatesLog.Identity).
	// Both are empty before the first feed.
	Log string          `json:"log,omitempty"`
	Seq json.RawMessage `json:"seq,omitempty"`
	// JobID is the job whose source had the credentials of the feed, if they were a job's.
	JobID string `json:"job,omitempty"`
	// Walked is when all logins were last tried, and Tried the time since when the logins of jobs that parked were not. Both
	// are zero while the watch has a feed.
	Walked time.Time `json:"walked,omitzero"`
	Tried  time.Time `json:"tried,omitzero"`
	// Round is the current round of comparisons, and Targets the current one of looks at targets.
	Round   round `json:"round"`
	Targets round `json:"targets,omitzero"`
}

// watch is a watch of one server. One goroutine calls run.
type watch struct {
	jobserver.Run
	watcher *Watcher
	server  string // who answers, see route.Key
	held    *fdbjobs.Held
	log     zerolog.Logger

	kind    atomic.Int32
	feed    atomic.Pointer[couch.Updates] // nil unless the watch follows one
	woken   atomic.Int64                  // jobs
	writing chan struct{}                 // holds a token while the state is written; guards written
	written []byte                        // the state as the job has it
	late    lateness
	looks   securityLooks // at sources that are asked

	mu    sync.Mutex
	state state

	// Only the goroutine of run uses the rest.
	failures  int                 // feeds that failed in a row
	backoff   retry.Backoff       // after failures
	fromStart bool                // the feed begins without a place in the log, or after it was not followed
	lastLine  string              // the latest line in the log
	login     replicator.Endpoint // from the settings, when the watch last looked for a feed
	search    *search
	emptyFrom time.Time // since when there are no parked jobs; zero if there are some
	checkAt   time.Time // when to look whether there are any; zero: not before something happens
	paces     *paces    // of its owner on its host
	asked     asked
}

func (w *Watcher) newWatch(held *fdbjobs.Held) *watch {
	one := &watch{
		watcher: w, server: held.Job().ID, held: held, paces: w.acquirePaces(paceOf(held.Job().Owner, held.Job().ID)), checkAt: time.Now().Add(emptyLimit),
		backoff: retry.Backoff{First: time.Second}, writing: make(chan struct{}, 1),
		log: w.opts.Log.With().Str("server", held.Job().ID).Logger(),
	}
	one.Run = jobserver.NewRun(one.server, held.Job().Evicted, held, &one.log)
	one.search = newSearch(one)
	if err := json.Unmarshal(held.Job().State, &one.state); err != nil {
		one.state = state{} // it compares all databases
	}
	held.Job().Args, held.Job().State = nil, nil
	return one
}

// run runs a watch until its server has no parked jobs and no mirrors, or it is to stop.
func (w *Watcher) run(ctx context.Context, one *watch) (jobserver.Outcome, error) {
	working, cancel := context.WithCancelCause(serverbudget.WithFlow(ctx, &serverbudget.Flow{Job: one.server})) // beside the owners of jobs
	defer w.releasePaces(paceOf(one.held.Job().Owner, one.server))
	defer one.search.close()
	defer context.AfterFunc(one.Stopping(), func() { cancel(context.Cause(one.Stopping())) })()
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel(nil)
	others.Go(func() { one.keepTargets(working) })
	others.Go(func() { _ = w.server.KeepAlive(working, one, one.keepAlive) }) // ctx ends if the job is lost
	if errors.Is(one.work(working), errEnded) {
		return jobserver.Recorded, nil
	}
	return jobserver.Stopped, nil
}

// giveBack puts the job of a watch back into the queue.
func (w *Watcher) giveBack(ctx context.Context, one *watch) error {
	if err := one.beginWriting(ctx); err != nil {
		return err
	}
	defer one.endWriting()
	if err := one.held.Resubmit(ctx, time.Now(), one.unwritten(), nil); err != nil {
		return err
	}
	return w.opts.Jobs.Watches.Reown(ctx, one.server)
}

// work watches the server. It returns errEnded, or the reason why ctx ended.
func (w *watch) work(ctx context.Context) error {
	for ctx.Err() == nil {
		feed, why, err := w.open(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			err = w.failed(ctx, err, true)
		case feed == nil && why == nil:
			err = w.awaitJobs(ctx)
		case feed == nil:
			err = w.askSources(ctx, why, true)
		default:
			w.late.answered(true)
			w.logOnce("following the server's _db_updates", "")
			w.search.restart()
			err = w.follow(ctx, feed)
			if errors.Is(err, errFlood) {
				err = w.askSources(ctx, err, false)
				break
			}
			if feed.alive() && !errors.Is(err, errRefused) {
				w.failures = 0
				w.backoff.Reset()
			}
			if err != nil && !errors.Is(err, errEnded) {
				err = w.failed(ctx, err, false)
			}
		}
		if errors.Is(err, errEnded) {
			return err
		}
	}
	return context.Cause(ctx)
}

// failed waits after a feed has failed. After several in a row it asks for a while. seek says that it looks for a feed
// meanwhile.
func (w *watch) failed(ctx context.Context, err error, seek bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.watcher.counter.feedFailures.Add(1)
	w.late.answered(false)
	w.log.Debug().Err(err).Msg("a feed of database updates failed")
	if w.failures++; w.failures >= deadFeeds {
		w.failures = 0
		return w.askSources(ctx, fmt.Errorf("its feed fails: %w", err), seek)
	}
	wait := w.backoff.Next()
	_ = retry.Wait(ctx, wait+rand.N(wait/4+1))
	return nil
}

// logOnce writes a line to the log, unless it is the last one again.
func (w *watch) logOnce(text, why string) {
	if line := text + why; line != w.lastLine {
		w.lastLine = line
		event := w.log.Info()
		if why != "" {
			event = event.Str("reason", why)
		}
		event.Msg(text)
	}
}

// update changes the state.
func (w *watch) update(change func(*state)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
}

// currentState returns the state.
func (w *watch) currentState() state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// beginWriting waits until the state is not being written elsewhere. The caller calls endWriting.
func (w *watch) beginWriting(ctx context.Context) error {
	select {
	case w.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watch) endWriting() { <-w.writing }

// unwritten returns the state to write, or nil if the job has it already. The caller has begun to write.
func (w *watch) unwritten() json.RawMessage {
	s := w.currentState()
	if len(s.Seq) > maxStoredSeq {
		s.Seq, s.Log = nil, ""
	}
	text, err := json.Marshal(s)
	if err != nil || string(text) == string(w.written) { // the sequence was checked, so there is no error
		return nil
	}
	return text
}

// keepAlive keeps the job alive and writes its state.
func (w *watch) keepAlive(ctx context.Context) error {
	if err := w.beginWriting(ctx); err != nil {
		return err
	}
	defer w.endWriting()
	return w.writeState(ctx)
}

// writeState writes the state. The caller has begun to write.
func (w *watch) writeState(ctx context.Context) error {
	text := w.unwritten()
	err := w.held.Update(ctx, text, nil)
	if err == nil && text != nil {
		w.written = text
	}
	return err
}

// writeNow writes the state, unless it is being written. If that fails, the next heartbeat writes it.
func (w *watch) writeNow(ctx context.Context) {
	select {
	case w.writing <- struct{}{}:
	default:
		return
	}
	defer w.endWriting()
	if err := w.writeState(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, fdbjobs.ErrHalt) {
		w.log.Error().Err(err).Msg("the state of a watch could not be written, and is tried again")
	}
}

// wake makes the parked jobs of some databases due. It repeats that until it succeeds or ctx ends.
func (w *watch) wake(ctx context.Context, why cause, databases []string) {
	for ctx.Err() == nil && len(databases) > 0 {
		n, err := w.watcher.opts.Jobs.Watches.Wake(ctx, w.server, databases)
		w.watcher.counter.wakes[why].Add(int64(n))
		w.woken.Add(int64(n))
		if err == nil {
			return
		}
		w.storeFailed(ctx, err)
	}
}

// storeFailed pauses after an error of the store.
func (w *watch) storeFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.log.Error().Err(err).Msg("a watch could not use the store, and tries again")
	_ = retry.Wait(ctx, storePause+rand.N(storePause))
}

// checkNeededSoon makes checkNeeded look whether there are parked jobs, because some may have gone.
func (w *watch) checkNeededSoon() {
	if w.checkAt.IsZero() {
		w.checkAt = time.Now().Add(emptyLimit)
	}
}

// checkNeeded looks whether there are parked jobs, if it is time for that. It returns errEnded if the watch has ended, because
// there have been none for a while.
func (w *watch) checkNeeded(ctx context.Context) error {
	if w.checkAt.IsZero() || time.Now().Before(w.checkAt) {
		return nil
	}
	w.checkAt = time.Time{}
	needed, err := w.needed(ctx)
	switch {
	case err != nil:
		w.checkNeededSoon()
		w.storeFailed(ctx, err)
		return nil
	case needed:
		w.emptyFrom = time.Time{}
		return nil
	case w.emptyFrom.IsZero():
		w.emptyFrom = time.Now()
		w.checkNeededSoon()
		return nil
	case time.Since(w.emptyFrom) < emptyLimit:
		w.checkNeededSoon()
		return nil
	}
	errNeeded := errors.New("a job was parked")
	w.held.Expires = time.Now()
	err = w.held.Finish(ctx, nil, func(tx kv.Transaction) error {
		ended, err := w.watcher.opts.Jobs.Watches.Unwatch(tx, w.server)
		if err == nil && !ended {
			err = errNeeded
		}
		return err
	})
	switch {
	case err == nil:
		return errEnded
	case errors.Is(err, errNeeded):
		w.emptyFrom = time.Time{}
	case ctx.Err() == nil && !errors.Is(err, fdbjobs.ErrHalt):
		w.checkNeededSoon()
		w.storeFailed(ctx, err)
	}
	return nil
}

// needed reports whether there are parked jobs or mirrors.
func (w *watch) needed(ctx context.Context) (bool, error) {
	rows, err := w.watcher.opts.Jobs.Watches.ParkedOf(ctx, w.server, jobs.ParkedRow{}, 1)
	if err != nil || len(rows) > 0 {
		return true, err
	}
	mirrors, more, err := w.watcher.opts.Jobs.Watches.Mirrors(ctx, w.server, "", 1)
	return len(mirrors) > 0 || more, err
}

// watchParked returns a watch that ends when a job is about to be parked, or a mirror begins. It looks first whether there are any,
// if it is time for that. It returns errEnded if there have been none for a while, or ctx's error.
func (w *watch) watchParked(ctx context.Context) (kv.Watch, error) {
	for ctx.Err() == nil {
		if err := w.checkNeeded(ctx); err != nil {
			return nil, err
		}
		parks, err := w.watcher.opts.Jobs.Watches.AwaitParked(ctx, w.server)
		if err == nil {
			return parks, nil
		}
		w.storeFailed(ctx, err)
	}
	return nil, ctx.Err()
}

// awaitJobs waits until the server has a parked job or a mirror. It returns errEnded if there has been none for a while, ctx's
// error, or nil.
func (w *watch) awaitJobs(ctx context.Context) error {
	w.checkNeededSoon()
	for {
		parks, err := w.watchParked(ctx)
		if err != nil {
			return err
		}
		needed, err := w.needed(ctx)
		switch {
		case err != nil:
			parks.Cancel()
			w.storeFailed(ctx, err)
		case needed:
			parks.Cancel()
			return nil
		default:
			kv.AwaitChange(ctx, parks, kv.AwaitOptions{Until: w.checkAt})
		}
	}
}

// publish publishes events to the mirrors of the server. It repeats that until it succeeds or ctx ends.
func (w *watch) publish(ctx context.Context, events []jobs.MirrorEvent) {
	for ctx.Err() == nil && len(events) > 0 {
		err := w.watcher.opts.Jobs.Watches.Publish(ctx, w.server, events)
		if err == nil {
			return
		}
		w.storeFailed(ctx, err)
	}
}

// publishMissed publishes to the mirrors of the server that databases may have been created and deleted without notice.
func (w *watch) publishMissed(ctx context.Context) {
	w.publish(ctx, []jobs.MirrorEvent{{Type: jobs.EventMissed}})
}

// settings returns the current configuration.
func (w *watch) settings() *config.Config { return w.watcher.opts.Config() }

// showStatus writes what people see of the watch into the state, and the state at once if another one was seen before. If that
// fails, or an update is under way, a heartbeat writes it.
func (w *watch) showStatus(ctx context.Context, status jobs.WatchStatus) {
	if w.currentState().WatchStatus == status {
		return
	}
	w.update(func(s *state) { s.WatchStatus = status })
	w.writeNow(ctx)
}

// maxWhy is the maximum size of a reason in the state, in bytes.
const maxWhy = 500

// shortened returns a reason for the state.
func shortened(why string) string { return strings.ToValidUTF8(why[:min(len(why), maxWhy)], "") }
