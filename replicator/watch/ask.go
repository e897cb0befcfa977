package watch

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/kv"
	"settee/pkg/retry"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// A source is asked again after askFactor of the time since its job was parked, but at least after askFirst and at
	// most after askLast. Up to askJitter of that is taken off.
	askFactor = 0.25
	askFirst  = 5 * time.Second
	askLast   = jobs.LastAsk
	askJitter = 0.2

	// askedAtOnce is the number of questions that wait for answers at a time, and askedRows the number of rows that are
	// read for them.
	askedAtOnce = 4
	askedRows   = 20
	// unknownSeq is the sequence of a job whose checkpoint has a sequence that was too large for its state.
	unknownSeq = "null"
)

// nextAsk returns how long to wait before a source is asked again whose job has been parked for a time. random is between
// 0 and 1.
func nextAsk(parked time.Duration, random float64) time.Duration {
	wait := min(max(time.Duration(askFactor*float64(parked)), askFirst), askLast)
	return wait - time.Duration(askJitter*random*float64(wait))
}

// askSources asks for each parked job whether its source has changed, until it is time to look for a feed again, or earlier if the
// server answers again. seek says that it looks for one meanwhile, and ends when there is one. It returns errEnded, ctx's
// error, or nil.
func (w *watch) askSources(outer context.Context, why error, seek bool) error {
	ctx, cancel := context.WithCancel(outer)
	var seeking sync.WaitGroup
	defer seeking.Wait()
	defer cancel()
	if seek {
		seeking.Go(func() {
			w.search.seek(ctx)
			cancel()
		})
	}
	if err := w.askUntil(ctx, why); outer.Err() != nil || errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func (w *watch) askUntil(ctx context.Context, why error) error {
	w.logOnce("asking for changes of each parked job's source, because the server's _db_updates cannot be used", why.Error())
	w.showStatus(ctx, jobs.WatchStatus{By: replicator.ByQuestions, Why: shortened(why.Error()), Pause: w.asked.longestPause(0), Late: w.currentState().Late})
	w.asked.begin(time.Now())
	w.kind.Store(int32(asking))
	defer w.kind.Store(int32(beginning))
	defer w.late.due(nil)
	w.checkNeededSoon()
	until := time.Now().Add(feedRetry - rand.N(feedRetry/10))
	silences := 0 // in a row
	backoff := retry.Backoff{First: askFirst}
	for ctx.Err() == nil && time.Now().Before(until) {
		w.showLate(ctx, why)
		changed := w.watcher.changed()
		if w.newLogin() {
			return nil
		}
		parks, err := w.watchParked(ctx)
		if err != nil {
			return err
		}
		rows, next, err := w.watcher.opts.Jobs.Watches.Asks(ctx, w.server, time.Now(), askedRows)
		w.late.due(rows)
		if err == nil && len(rows) == 0 {
			w.awaitAsk(ctx, parks, changed, next, until)
			continue
		}
		parks.Cancel()
		if err != nil {
			w.storeFailed(ctx, err)
			continue
		}
		if pause, silent := w.askAll(ctx, rows); silent {
			silences++
			_ = retry.WaitOr(ctx, max(pause, backoff.After(silences, rand.Float64())), changed)
		} else if silences > 0 {
			return nil // the server may have a feed, too
		}
	}
	return nil
}

// awaitAsk waits until a question is due or a job parks, at least for a second.
func (w *watch) awaitAsk(ctx context.Context, parks kv.Watch, changed <-chan struct{}, next, until time.Time) {
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	if !w.checkAt.IsZero() && w.checkAt.Before(until) {
		until = w.checkAt
	}
	began := time.Now()
	kv.AwaitChange(ctx, parks, kv.AwaitOptions{Until: until, Wake: changed})
	if left := time.Until(began.Add(time.Second)); left > 0 {
		_ = retry.Wait(ctx, left)
	}
}

// answer is the answer to a question.
type answer int

const (
	quiet   answer = iota // no change
	wakes                 // a change, or something that a run must report
	unwell                // the source could not answer
	silence               // the server did not answer, or wants fewer questions
	unasked               // the job is gone or runs, or the store failed
)

// askAll asks the sources of some rows, and sets when to ask them next. silent reports that the server answers no
// question, or wants fewer. pause is for how long at least.
func (w *watch) askAll(ctx context.Context, rows []jobs.ParkedRow) (pause time.Duration, silent bool) {
	var asking sync.WaitGroup
	var answered, unanswered atomic.Bool
	var longest atomic.Int64
	places := make(chan struct{}, askedAtOnce)
	parked, asked := make([]time.Duration, len(rows)), make([]bool, len(rows))
	waits := map[string]time.Duration{} // by job
	for i, row := range rows {
		if unanswered.Load() && !answered.Load() || !w.paces.questions.awaitTurn(ctx, config.MaxQuestions.Get(w.settings())) {
			rows = rows[:i]
			break
		}
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			said, since, wait := w.askSource(ctx, row)
			parked[i], asked[i] = since, said != unasked
			switch said {
			case quiet, unwell:
				answered.Store(true)
			case wakes:
				answered.Store(true)
				w.wake(ctx, byQuestion, []string{row.Database})
			case silence:
				unanswered.Store(true)
				for old := longest.Load(); int64(wait) > old && !longest.CompareAndSwap(old, int64(wait)); old = longest.Load() {
				}
			case unasked:
			}
		})
	}
	asking.Wait()
	now := time.Now()
	for i, row := range rows {
		waits[row.JobID] = nextAsk(parked[i], rand.Float64())
		if asked[i] {
			w.asked.recordQuestion(now, parked[i], now.Sub(row.Ask))
			w.asked.plan(now, waits[row.JobID])
		}
	}
	err := w.watcher.opts.Jobs.Watches.Ask(ctx, rows, func(row jobs.ParkedRow) time.Time { return now.Add(waits[row.JobID]) })
	if err != nil {
		w.storeFailed(ctx, err)
	}
	w.checkNeededSoon()
	silent = unanswered.Load() && !answered.Load()
	w.late.answered(!silent)
	return time.Duration(longest.Load()), silent
}

// askSource asks the source of a row. parked is how long its job has been parked. pause is how long the server wants to be
// left alone.
func (w *watch) askSource(ctx context.Context, row jobs.ParkedRow) (said answer, parked, pause time.Duration) {
	job, err := w.job(ctx, row.JobID)
	switch {
	case err != nil:
		w.storeFailed(ctx, err)
		return unasked, 0, 0
	case job == nil:
		return unasked, time.Hour, 0 // upkeep will remove the row, or another node will ask
	case job.Parked().IsZero():
		return unasked, 0, 0 // its run is about to park it, or it is due
	}
	parked = time.Since(job.Parked())
	since := job.State.CheckpointedSourceSeq
	if len(since) == 0 || string(since) == unknownSeq {
		since = json.RawMessage(row.UpdateSeq)
	}
	r := job.Args.Replication
	if len(since) == 0 || !w.allowed(r) {
		return wakes, parked, 0
	}
	w.watcher.counter.questions.Add(1)
	changed, err := worker.Changed(ctx, r, since, w.watcher.opts.Worker())
	if err == nil && !changed {
		changed, err = w.askSecurity(ctx, job, parked)
	}
	if ctx.Err() != nil {
		return unasked, parked, 0
	}
	said, pause = classify(changed, err)
	return said, parked, pause
}

// classify returns what the answer to a question means, and for how long the server wants to be left alone.
func classify(changed bool, err error) (said answer, pause time.Duration) {
	if err == nil {
		if changed {
			return wakes, 0
		}
		return quiet, 0
	}
	request, ok := errors.AsType[*couch.Error](err)
	switch {
	case !ok:
		return wakes, 0 // it cannot even be made
	case errors.Is(err, couch.ErrTooManyRequests):
		if failure, ok := errors.AsType[*worker.Error](err); ok {
			pause = failure.RetryAfter
		}
		return silence, min(pause, askLast)
	case request.Status == 0 && request.Temporary():
		return silence, 0
	case request.Status >= http.StatusInternalServerError, request.Status == http.StatusRequestTimeout:
		return unwell, 0
	}
	return wakes, 0
}
