package worker

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

// times has the points in time from which a run's activity is derived. progress.mu guards them.
type times struct {
	began    bool      // begin is done
	opened   time.Time // the changes feed was opened
	live     bool      // the feed waits for changes
	row      time.Time // the latest row was read
	busy     time.Time // the first row was read after all earlier ones were dealt with
	passed   time.Time // the latest batch was dealt with
	tried    time.Time // the latest document was written or refused
	finished time.Time // the feed ended and all of it was dealt with
	stopping time.Time // the run was asked to stop
}

// feedOpened records that the changes feed was opened.
func (r *run) feedOpened(live bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live != live {
		r.tellSoon()
	}
	r.opened, r.live = time.Now(), live
	if live {
		r.liveOpened()
	}
}

// activity returns what the run is doing. The caller holds run.mu.
func (r *run) activity() *replicator.Activity {
	a := &replicator.Activity{
		BatchesInFlight: int(r.inFlight.Load()), LastProgress: r.progressed(), LastMoved: r.moved.last(),
		Waiting: r.repeats.waiting(), Refusing: r.refusals.refusing(),
	}
	if r.flow != nil {
		if w, ok := r.flow.Waiting(); ok {
			a.Budget = &replicator.BudgetWait{Server: w.Server, Since: w.Since, Before: w.Before}
		}
	}
	a.Doing, a.Since = r.doing(a)
	return a
}

// progressed returns the latest progress of the run, zero if it has made none. The caller holds run.mu.
func (r *run) progressed() time.Time { return later(r.finished, later(r.passed, r.tried)) }

// doing returns the first value that applies, in the order of the list in package replicator.
func (r *run) doing(a *replicator.Activity) (replicator.Doing, time.Time) {
	held := slices.IndexFunc(a.Waiting, func(w replicator.Wait) bool { return w.RateLimited })
	idle := later(r.opened, later(r.row, r.passed))
	switch {
	case !r.stopping.IsZero():
		return replicator.DoingStopping, r.stopping
	case held >= 0:
		return replicator.DoingRateLimited, a.Waiting[held].Since
	case len(a.Waiting) > 0:
		return replicator.DoingRetrying, a.Waiting[0].Since
	case a.Budget != nil:
		return replicator.DoingBudget, a.Budget.Since
	case !r.began:
		return replicator.DoingStarting, r.started
	case r.rowsRead > r.rowsPassed && a.Refusing != nil:
		return replicator.DoingRefused, a.Refusing.Since
	case r.rowsRead > r.rowsPassed:
		return replicator.DoingCopying, r.busy
	case !r.finished.IsZero():
		return replicator.DoingFinishing, r.finished
	case r.filtered && (!r.live || r.left != nil && *r.left > 0):
		return replicator.DoingFiltering, later(idle, r.started)
	case !r.live:
		return replicator.DoingReading, later(idle, r.started)
	}
	return replicator.DoingWaiting, idle
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// repeats are the failed requests of a run that are being repeated.
type repeats struct {
	changed func() // called when one begins or is over
	mu      sync.Mutex
	all     map[*replicator.Wait]struct{}
}

// add adds a request. The caller removes it with over.
func (t *repeats) add(w replicator.Wait) (over func()) {
	defer t.changed()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[*replicator.Wait]struct{}{}
	}
	t.all[&w] = struct{}{}
	return func() {
		defer t.changed()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.all, &w)
	}
}

// waiting returns one request per endpoint, chosen as replicator.Activity says, the source's first.
func (t *repeats) waiting() []replicator.Wait {
	t.mu.Lock()
	defer t.mu.Unlock()
	var told []replicator.Wait
	for w := range t.all {
		i := slices.IndexFunc(told, func(other replicator.Wait) bool { return other.Endpoint == w.Endpoint })
		switch {
		case i < 0:
			told = append(told, *w)
		case w.RateLimited != told[i].RateLimited:
			if w.RateLimited {
				told[i] = *w
			}
		case w.Until.After(told[i].Until):
			told[i] = *w
		}
	}
	slices.SortFunc(told, func(a, b replicator.Wait) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return told
}

// aside is the context key of requests whose failure delays nothing.
type aside struct{}

// retrying returns the couch.Config.Retrying of a peer.
func (r *run) retrying(p *peer) func(context.Context, couch.Retry) func() {
	return func(ctx context.Context, retry couch.Retry) func() {
		if ctx.Value(aside{}) != nil {
			return func() {}
		}
		return r.repeats.add(p.waitFor(retry))
	}
}

// repeating records, until over is called, that an operation on p that failed with err is repeated after wait. attempt
// counts from the first failure at since.
func (r *run) repeating(p *peer, err error, attempt, attempts int, since time.Time, wait time.Duration) (over func()) {
	e, ok := errors.AsType[*couch.Error](err)
	if !ok {
		return func() {}
	}
	return r.repeats.add(p.waitFor(couch.Retry{
		Err: e, Attempt: attempt, Attempts: attempts, Since: since, Until: time.Now().Add(wait),
	}))
}

// waitFor returns what is told about a request that is repeated.
func (p *peer) waitFor(retry couch.Retry) replicator.Wait {
	f := p.fault(p.requestOf(retry.Err), retry.Err)
	f.RetryAfter, f.Attempt, f.Attempts = wholeSeconds(pauseOf(retry.Err)), retry.Attempt, retry.Attempts
	return replicator.Wait{
		Endpoint: p.side, Method: f.Method, Path: f.Path, Error: retry.Err.Cause(),
		RateLimited: errors.Is(retry.Err, couch.ErrTooManyRequests) || retry.Err.RetryAfter > 0,
		Attempt:     retry.Attempt, Attempts: retry.Attempts, Since: retry.Since, Until: retry.Until,
		Fault: f,
	}
}

// requestOf returns what a request asks this database for, by its method and path.
func (p *peer) requestOf(e *couch.Error) replicator.RequestCode {
	path, read := p.below(e), e.Method == http.MethodGet
	name, _, _ := strings.Cut(path, "/")
	if code, ok := requestsByPath[name]; ok {
		return code.of(read)
	}
	switch {
	case errors.Is(e, couch.ErrToken):
		return replicator.RequestToken
	case strings.HasSuffix(e.URL, "/_session"):
		return replicator.RequestLogin
	case path == "" && e.URL != p.db.URL():
		return replicator.RequestReadServer
	case path == "":
		return readOrWrite{replicator.RequestOpen, replicator.RequestCreate}.of(read)
	case strings.HasPrefix(path, "_local/"+markID):
		return readOrWrite{replicator.RequestReadMark, replicator.RequestWriteMark}.of(read)
	case name == "_local":
		return readOrWrite{replicator.RequestReadCheckpoint, replicator.RequestCheckpoint}.of(read)
	}
	return readOrWrite{replicator.RequestReadDocument, replicator.RequestWriteDocument}.of(read)
}

// readOrWrite are the codes of the requests to a path.
type readOrWrite struct{ read, write replicator.RequestCode }

func (c readOrWrite) of(read bool) replicator.RequestCode {
	if read {
		return c.read
	}
	return c.write
}

// requestsByPath has the requests to what is below a database, except documents.
var requestsByPath = map[string]readOrWrite{
	"_changes":            {replicator.RequestReadChanges, replicator.RequestReadChanges},
	"_revs_diff":          {replicator.RequestCompare, replicator.RequestCompare},
	"_bulk_docs":          {replicator.RequestWriteDocuments, replicator.RequestWriteDocuments},
	"_bulk_get":           {replicator.RequestReadDocuments, replicator.RequestReadDocuments},
	"_all_docs":           {replicator.RequestReadDocuments, replicator.RequestReadDocuments},
	"_security":           {replicator.RequestReadSecurity, replicator.RequestWriteSecurity},
	"_ensure_full_commit": {replicator.RequestFlush, replicator.RequestFlush},
}
