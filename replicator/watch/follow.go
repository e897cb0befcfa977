package watch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
	"settee/replicator/jobs"
)

const (
	// feedHeartbeat is the time between two heartbeats of a feed. A feed that is silent for three times as long has failed.
	feedHeartbeat = 20 * time.Second
	// shortFeed is the time within which a feed that ends is not opened again at once.
	shortFeed = time.Second
	// maxRetries is the maximum number of repetitions of a request to a server. A later one comes anyway.
	maxRetries = 2

	// Names are gathered until there was none for gatherQuiet, or for as long as the last ones took to be woken, and at
	// most for gatherTime or until there are gatherNames.
	gatherQuiet = 20 * time.Millisecond
	gatherTime  = 200 * time.Millisecond
	gatherNames = 100

	// keepNames is the number of names after which the place in the feed is written at once, and not with the next
	// heartbeat: the node that takes over the watch of a dead node wakes again all jobs that were named after that place.
	keepNames = 100
)

// gathered are databases that a feed has named and whose jobs are to be woken.
type gathered struct {
	names map[string]struct{}
	types map[string]string // of the latest events of databases that were created or deleted
	seq   json.RawMessage   // of the last one
	began time.Time         // when the first one came
}

func (g *gathered) addUpdate(update couch.Update) {
	if len(g.names) == 0 {
		g.names, g.types, g.began = map[string]struct{}{}, map[string]string{}, time.Now()
	}
	if update.Type == jobs.EventCreated || update.Type == jobs.EventDeleted {
		g.types[update.Database] = update.Type
	}
	g.names[update.Database] = struct{}{}
	if len(update.Seq) > 0 {
		g.seq = update.Seq
	}
}

// untilFlush returns how long to wait for more names.
func (g *gathered) untilFlush(now time.Time, took time.Duration) time.Duration {
	return min(max(gatherQuiet, took), g.began.Add(max(gatherTime, took)).Sub(now))
}

// takeAll returns the names and the events, and empties g.
func (g *gathered) takeAll() (names []string, events []jobs.MirrorEvent, seq json.RawMessage) {
	for name := range g.names {
		names = append(names, name)
	}
	for name, what := range g.types {
		events = append(events, jobs.MirrorEvent{Database: name, Type: what})
	}
	seq = g.seq
	*g = gathered{}
	return names, events, seq
}

// follow wakes the jobs whose databases the feed names, and compares all databases from time to time. It returns nil
// when a feed is to be opened again, errEnded, or why the feed failed.
func (w *watch) follow(outer context.Context, f *feed) error {
	w.showStatus(outer, jobs.WatchStatus{By: replicator.ByFeed})
	w.asked = asked{}
	w.feed.Store(f.Updates)
	w.kind.Store(int32(following))
	defer func() {
		w.kind.Store(int32(beginning))
		w.feed.Store(nil)
	}()
	ctx, cancel := context.WithCancel(outer)
	rows, broken := make(chan couch.Update), make(chan error, 1)
	var others sync.WaitGroup
	defer f.close()
	defer others.Wait()
	defer f.cancel()
	defer cancel()
	others.Go(func() { broken <- w.read(ctx, f, rows) })

	if w.fromStart {
		w.publishMissed(ctx) // what happened before the feed began
		w.fromStart = false
	}
	l := &follower{watch: w, feed: f, others: &others, compared: make(chan error, 1), began: time.Now()}
	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	var seen *config.Config
	for {
		changed := w.watcher.changed() // before the settings are read, so that no change is missed
		if cfg := w.settings(); cfg != seen {
			seen = cfg
			if w.newLogin() {
				return nil
			}
			w.shortenRound()
		}
		l.timer.Reset(time.Until(l.next()))
		in := rows
		if len(l.gathered.names) >= gatherNames {
			in = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case row := <-in:
			l.addRow(row)
		case err := <-l.compared:
			if again, err := l.wasCompared(err); again || err != nil {
				return err
			}
		case err := <-broken:
			l.flush(outer)
			return l.ended(outer, err)
		case <-l.timer.C:
			if err := l.doWhatIsDue(ctx); err != nil {
				return err
			}
		}
	}
}

// read sends the rows of a feed, not faster than flood allows, and returns its error.
func (w *watch) read(ctx context.Context, f *feed, rows chan<- couch.Update) error {
	var bound flood
	for {
		row, err := f.Next()
		if err == nil {
			err = bound.admit(ctx, row, w.woken.Load())
		}
		if err != nil {
			return err
		}
		select {
		case rows <- row:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follower is the state of follow.
type follower struct {
	watch    *watch
	feed     *feed
	timer    *time.Timer
	others   *sync.WaitGroup
	began    time.Time
	gathered gathered
	flushAt  time.Time     // zero: nothing was gathered
	took     time.Duration // how long the last wake took
	unkept   int           // names since the place in the feed was last written for them

	comparing  bool
	compared   chan error // the result of a page
	pageFailed time.Time  // when the last page failed; zero: it did not
}

// next returns when turn may have something to do, hastened from now at the latest.
func (l *follower) next() time.Time {
	next := time.Now().Add(hastened)
	sooner := func(at time.Time) {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	sooner(l.flushAt)
	sooner(l.watch.checkAt)
	if !l.comparing {
		sooner(l.pageAt())
	}
	return next
}

// pageAt returns when the next page is to be compared. It is never zero.
func (l *follower) pageAt() time.Time {
	at := l.watch.currentState().Round.Next
	if at.Before(l.began) {
		at = l.began
	}
	if retry := l.pageFailed.Add(pageRetry); !l.pageFailed.IsZero() && at.Before(retry) {
		return retry
	}
	return at
}

// addRow adds a row of the feed.
func (l *follower) addRow(row couch.Update) {
	l.gathered.addUpdate(row)
	if l.feed.Rewound() && !l.watch.currentState().Round.Unthrottled {
		l.watch.update(func(s *state) { s.Round = s.Round.restarted() })
		l.gathered.types[""] = jobs.EventMissed
	}
	now := time.Now()
	l.flushAt = now.Add(l.gathered.untilFlush(now, l.took))
}

// doWhatIsDue flushes, compares and checks, as far as it is time for that.
func (l *follower) doWhatIsDue(ctx context.Context) error {
	now := time.Now()
	if !l.flushAt.IsZero() && !now.Before(l.flushAt) {
		l.flush(ctx)
	}
	if !l.comparing && !now.Before(l.pageAt()) {
		l.comparing = true
		l.others.Go(func() { l.compared <- l.watch.compare(ctx, l.feed) })
	}
	return l.watch.checkNeeded(ctx)
}

// flush wakes what was gathered.
func (l *follower) flush(ctx context.Context) {
	l.flushAt = time.Time{}
	names, events, seq := l.gathered.takeAll()
	if len(names) == 0 {
		return
	}
	began := time.Now()
	l.watch.wake(ctx, byFeed, names)
	l.watch.publish(ctx, events)
	l.took = min(time.Since(began), time.Second)
	if ctx.Err() == nil && seq != nil {
		l.watch.update(func(s *state) { s.Seq = seq })
	}
	if l.unkept += len(names); l.unkept >= keepNames {
		l.unkept = 0
		l.watch.writeNow(ctx)
	}
	l.watch.checkNeededSoon()
}

// wasCompared takes the result of a page. again says that the feed is to be opened again.
func (l *follower) wasCompared(err error) (again bool, failed error) {
	l.comparing, l.pageFailed = false, time.Time{}
	switch {
	case err == nil:
		l.watch.checkNeededSoon()
	case errors.Is(err, errRefused) && time.Since(l.began) < pageRetry:
		return false, err // the next feed may end at once, too
	case errors.Is(err, errRefused):
		return true, nil
	default:
		l.pageFailed = time.Now()
		l.watch.log.Debug().Err(err).Msg("a comparison of databases failed, and is tried again")
	}
	return false, nil
}

// ended returns the result of a feed that has ended. A server may end a feed at any time.
func (l *follower) ended(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		if left := shortFeed - time.Since(l.began); left > 0 {
			_ = retry.Wait(ctx, left)
		}
		return nil
	}
	return err
}
