package watch

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/pkg/kv"
	"settee/pkg/retry"
	"settee/replicator/jobs"
)

// A watch without a feed searches for a login that may read one. It tries the login of the settings, of the job whose login
// was good before, and of all mirrors and parked jobs on the server, whatever their order: each once in triedFor, and not
// faster than triesPerSec. So 10,000 users are tried in less than a minute. While it asks questions, the search goes on:
//
//   - with the logins of jobs that park now. Their questions are due firstAsk later, so they are the rows whose questions
//     become due next.
//   - every againEvery, with a few logins for which the server only lacks the feed, or has failed.
//   - through all jobs again, after walkEvery: a user may have become an administrator.
//
// A watch that another node has begun does not know why there was no feed. So it tries a page of logins before walkEvery is over.
const (
	triesAtOnce = 8
	triesPerSec = 200
	// firstTries is the number of logins that are tried before questions are asked, and firstTime how long that may take.
	firstTries = 20
	firstTime  = time.Second
	// walkPage is the number of parked jobs whose logins are read at a time.
	walkPage  = 100
	walkEvery = time.Hour
	triedFor  = 50 * time.Minute
	failedFor = time.Minute // of a login that the server answered with a failure
	// maxTried is the number of logins that are remembered. With more of them some are tried again.
	maxTried = 200_000
	// againEvery is how often up to maxAgain logins are tried that may become good at any time.
	againEvery = 10 * time.Second
	maxAgain   = 5
	// enoughLacking is the number of logins after which a server that had the feed for none of them counts as one without it,
	// and enoughSilent the number of tries in a row after which it does not answer. Then the walk pauses.
	enoughLacking = 20
	enoughSilent  = 3
	// freshSlack is added to both ends of the time in which rows are new, for clocks of other nodes.
	freshSlack = 10 * time.Second
)

// attempt is a server and the login with which a feed can be opened there.
type attempt struct {
	server *couch.Server
	using  credentials
	log    couch.UpdatesLog
}

func (a *attempt) close() {
	if a != nil {
		a.server.Close()
	}
}

// search finds a login for a watch. One goroutine at a time calls its methods.
type search struct {
	watch *watch
	seed  seed

	mu      sync.Mutex // guards the fields below: tries are concurrent
	found   *attempt   // nil until there is one
	tried   map[uint64]time.Time
	again   []credentials // may become good at any time, the latest first
	tries   int
	lacking int   // tries in a row without a refusal for which the server lacked the feed
	silent  int   // tries in a row without an answer
	refused error // the latest refusal
	why     error // why there was no feed lately for a login that was not refused
	failed  error // the latest failure of the server

	walked      bool           // a page at least
	afterMirror string         // in the walk, the mirror after which it goes on
	mirrors     bool           // in the walk, all mirrors were tried
	after       jobs.ParkedRow // in the walk, the row after which it goes on
	seen        map[string]time.Time
}

func newSearch(w *watch) *search {
	return &search{watch: w, seed: newSeed(), tried: map[uint64]time.Time{}}
}

// seed is the seed of hashes of credentials.
type seed struct{ maphash.Seed }

func newSeed() seed { return seed{maphash.MakeSeed()} }

// hash returns a hash of what of credentials says who asks.
func (s seed) hash(c credentials) uint64 {
	var h maphash.Hash
	h.SetSeed(s.Seed)
	write := func(text string) {
		_, _ = h.WriteString(text)
		_ = h.WriteByte(0)
	}
	write(c.endpoint.Username)
	write(c.endpoint.Password)
	write(c.endpoint.Proxy)
	if a := c.endpoint.Auth; a != nil {
		write(a.Kind)
		for _, name := range slices.Sorted(maps.Keys(a.Members)) {
			write(name)
			write(a.Members[name])
		}
	}
	for _, header := range c.endpoint.Headers {
		write(header.Name)
		write(header.Value)
	}
	return h.Sum64()
}

// markTried records that credentials are tried now, and reports whether they were not tried lately.
func (s *search) markTried(c credentials) bool {
	key, now := s.seed.hash(c), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.tried[key]; ok && now.Sub(at) < triedFor {
		return false
	}
	if len(s.tried) >= maxTried {
		clear(s.tried)
	}
	s.tried[key] = now
	return true
}

// tryLogin tries credentials. If they are good, they are in found.
func (s *search) tryLogin(ctx context.Context, c credentials) {
	if !s.watch.paces.tries.awaitTurn(ctx, triesPerSec) {
		return
	}
	a, err := s.watch.probe(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil && err != nil {
		delete(s.tried, s.seed.hash(c)) // it was not tried
		return
	}
	s.tries++
	s.again = without(c, s.again)
	switch {
	case err == nil && s.found == nil:
		s.found = a
		s.silent, s.lacking, s.failed = 0, 0, nil
		return
	case err == nil:
		a.close()
		return
	case isRefusal(err):
		s.refused, s.silent, s.lacking = err, 0, 0
		return
	case errors.Is(err, couch.ErrNoUpdates):
		s.why, s.silent = err, 0
		s.lacking++
	default:
		s.failed = err
		key := s.seed.hash(c)
		if request, ok := errors.AsType[*couch.Error](err); ok && request.Status != 0 {
			s.tried[key] = time.Now().Add(failedFor - triedFor)
			s.silent = 0
		} else {
			delete(s.tried, key)
			s.silent++
		}
	}
	s.again = prepended(c, s.again[:min(len(s.again), maxAgain-1)])
}

// without returns the list without the credentials of one.
func without(one credentials, list []credentials) []credentials {
	return slices.DeleteFunc(slices.Clone(list), func(other credentials) bool { return sameEndpoint(other.endpoint, one.endpoint) })
}

// prepended returns the list with one at its beginning.
func prepended(one credentials, list []credentials) []credentials {
	return append([]credentials{one}, without(one, list)...)
}

// isRefusal reports whether err means that another user may get a feed.
func isRefusal(err error) bool {
	return errors.Is(err, couch.ErrNoUpdates) && (errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden))
}

// tryJobs tries the logins of jobs that were not tried lately. It reports whether it came to the last one and the search goes
// on: a server that came back meanwhile answers the tries that still ran, but not those that were left out.
func (s *search) tryJobs(ctx context.Context, ids []string) (more bool) {
	trying, stop := context.WithCancel(ctx)
	defer stop()
	var tries sync.WaitGroup
	places := make(chan struct{}, triesAtOnce)
	for _, id := range ids {
		places <- struct{}{}
		if s.over(ctx) {
			tries.Wait()
			return false
		}
		tries.Go(func() {
			defer func() { <-places }()
			if s.tryJob(trying, id); s.hasFound() {
				stop()
			}
		})
	}
	tries.Wait()
	return !s.over(ctx)
}

func (s *search) tryJob(ctx context.Context, id string) {
	c, ok, err := s.watch.jobCredentials(ctx, id)
	switch {
	case err != nil:
		s.watch.storeFailed(ctx, err)
	case ok && s.markTried(c):
		s.tryLogin(ctx, c)
	}
}

func (s *search) hasFound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found != nil
}

// over reports whether the search tries no further login now.
func (s *search) over(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ctx.Err() != nil || s.found != nil || s.silent >= enoughSilent || s.lacking >= enoughLacking
}

// takeAttempt returns what was found, once.
func (s *search) takeAttempt() *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.found
	s.found = nil
	return a
}

// close closes what was found.
func (s *search) close() { s.takeAttempt().close() }

// tryLikely tries the likeliest logins, and then some others. It returns nil with why there is none, which is nil if no login was
// tried so far, or with the server's failure.
func (s *search) tryLikely(ctx context.Context) (a *attempt, why, failed error) {
	if a := s.takeAttempt(); a != nil {
		return a, nil, nil
	}
	w := s.watch
	began := time.Now()
	s.mu.Lock()
	s.tries, s.silent, s.lacking, s.failed, s.why = 0, 0, 0, nil, nil
	likely := slices.Clone(s.again)
	s.mu.Unlock()
	if id := w.currentState().JobID; id != "" {
		if c, ok, err := w.jobCredentials(ctx, id); err != nil {
			w.storeFailed(ctx, err)
		} else if ok {
			s.markTried(c)
			likely = prepended(c, likely)
		}
	}
	c, set := w.configuredLogin()
	if w.login = c.endpoint; set {
		likely = prepended(c, likely)
	}
	s.tryAgain(ctx, likely)
	for !s.over(ctx) && s.tries < firstTries && time.Since(began) < firstTime && s.walk(ctx, firstTries) {
	}
	if a := s.takeAttempt(); a != nil {
		return a, nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.why != nil:
		return nil, s.why, nil
	case s.failed != nil:
		return nil, nil, s.failed
	}
	return nil, s.refused, nil
}

// tryAgain tries credentials that may be good now, as long as they are still in their job.
func (s *search) tryAgain(ctx context.Context, again []credentials) {
	for _, c := range again {
		if s.over(ctx) {
			return
		}
		good, err := s.watch.stillGood(ctx, c)
		if err != nil {
			s.watch.storeFailed(ctx, err)
			continue
		}
		if good {
			s.tryLogin(ctx, c)
			continue
		}
		s.mu.Lock()
		s.again = without(c, s.again)
		s.mu.Unlock()
	}
}

// walk tries the logins of the next mirrors or parked jobs. It reports whether there are more, unless it is over.
func (s *search) walk(ctx context.Context, page int) (more bool) {
	w := s.watch
	if now := w.currentState(); s.walked && !now.Walked.IsZero() && time.Since(now.Walked) < walkEvery {
		return false
	}
	s.walked = true
	var ids []string
	if !s.mirrors {
		found, more, err := w.watcher.opts.Jobs.Watches.Mirrors(ctx, w.server, s.afterMirror, page)
		if err != nil {
			w.storeFailed(ctx, err)
			return ctx.Err() == nil
		}
		for _, mirror := range found {
			ids = append(ids, mirror.ID)
		}
		if !s.tryJobs(ctx, ids) {
			return true
		}
		if s.mirrors = !more || len(found) == 0; !s.mirrors {
			s.afterMirror = ids[len(ids)-1]
			return true
		}
		ids = nil
	}
	rows, err := w.watcher.opts.Jobs.Watches.ParkedOf(ctx, w.server, s.after, page)
	if err != nil {
		w.storeFailed(ctx, err)
		return ctx.Err() == nil
	}
	for _, row := range rows {
		ids = append(ids, row.JobID)
	}
	if !s.tryJobs(ctx, ids) {
		return true // it goes on with the same rows: those that were tried are skipped
	}
	if len(rows) == page {
		s.after = rows[len(rows)-1]
		return true
	}
	s.rewind()
	w.update(func(s *state) { s.Walked = time.Now() })
	return false
}

// rewind makes the next walk begin with the first mirror and the first row.
func (s *search) rewind() { s.afterMirror, s.mirrors, s.after = "", false, jobs.ParkedRow{} }

// restart makes the next walk come at once, and try all.
func (s *search) restart() {
	s.rewind()
	s.mu.Lock()
	clear(s.tried)
	s.refused = nil
	s.mu.Unlock()
	s.watch.update(func(s *state) { s.Walked, s.Tried = time.Time{}, time.Time{} })
}

// seek searches until it has found a login or ctx ends.
func (s *search) seek(ctx context.Context) {
	againAt := time.Now().Add(againEvery)
	for ctx.Err() == nil {
		parks, err := s.watch.watcher.opts.Jobs.Watches.AwaitParked(ctx, s.watch.server)
		if err != nil {
			s.watch.storeFailed(ctx, err)
			continue
		}
		began := time.Now()
		if s.hasFound() {
			parks.Cancel()
			return
		}
		s.mu.Lock()
		s.silent, s.lacking = 0, 0
		s.mu.Unlock()
		s.tryFresh(ctx, began)
		for !s.over(ctx) && s.walk(ctx, walkPage) {
		}
		if s.hasFound() {
			parks.Cancel()
			return
		}
		s.mu.Lock()
		again := slices.Clone(s.again)
		s.mu.Unlock()
		until := began.Add(feedRetry)
		if len(again) > 0 {
			until = againAt
		}
		kv.AwaitChange(ctx, parks, kv.AwaitOptions{Until: until})
		_ = retry.Wait(ctx, time.Until(began.Add(time.Second)))
		if now := time.Now(); !now.Before(againAt) {
			againAt = now.Add(againEvery)
			s.tryAgain(ctx, again)
		}
	}
}

// tryFresh tries the logins of the jobs that were parked since it was last called.
func (s *search) tryFresh(ctx context.Context, now time.Time) {
	w := s.watch
	from := w.currentState().Tried
	if oldest := now.Add(-walkEvery); from.Before(oldest) {
		from = now.Add(-freshSlack) // a walk finds the others
	}
	to := now.Add(jobs.FirstAsk + freshSlack)
	seen := map[string]time.Time{}
	for after := (jobs.ParkedRow{Ask: from.Add(-freshSlack)}); !s.over(ctx); {
		rows, err := w.watcher.opts.Jobs.Watches.AskedAfter(ctx, w.server, after, to, walkPage)
		if err != nil {
			w.storeFailed(ctx, err)
			return
		}
		var ids []string
		for _, row := range rows {
			if at, ok := s.seen[row.JobID]; !ok || !at.Equal(row.Ask) {
				ids = append(ids, row.JobID)
			}
			seen[row.JobID] = row.Ask
		}
		if !s.tryJobs(ctx, ids) {
			return // the next call repeats them
		}
		if len(rows) < walkPage {
			break
		}
		after = rows[len(rows)-1]
	}
	s.seen = seen
	if now.Sub(from) > time.Minute || w.currentState().Tried.IsZero() {
		w.update(func(s *state) { s.Tried = now })
	}
}

// probe asks whether credentials may read a feed. It returns an error that matches couch.ErrNoUpdates, or the server's
// failure.
func (w *watch) probe(ctx context.Context, c credentials) (*attempt, error) {
	server, err := w.openServer(w.server, c.endpoint)
	if err != nil {
		return nil, err
	}
	log, err := server.UpdatesLog(ctx)
	if err != nil {
		server.Close()
		return nil, err
	}
	return &attempt{server: server, using: c, log: log}, nil
}
