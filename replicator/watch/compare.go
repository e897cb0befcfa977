package watch

import (
	"context"
	"errors"
	"slices"
	"time"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// pageRows is the number of parked jobs whose sources are compared at a time.
	pageRows = couch.MaxDatabasesInfo
	// A round that is to find at once what a feed has lost pauses between pages for pauseFactor times as long as the last
	// page took, but at least for shortPause. So it takes a fifth of the time of one connection. A round that has more pages
	// than the last one pauses so after them: the pauses before follow from the number of the last one's pages.
	shortPause  = 100 * time.Millisecond
	pauseFactor = 4
	// mirrorPause is the least time between two pages of a round that is shorter because of mirrors. So 15,000 databases are compared
	// within worker.SecurityEvery, and others later.
	mirrorPause = 2 * time.Second
	// pageRetry is the pause after a page that failed.
	pageRetry = 30 * time.Second
)

// round is where a round of comparisons is.
type round struct {
	// Database and JobID name the row after which the next page begins.
	Database string `json:"database,omitempty"`
	JobID    string `json:"job,omitempty"`
	// Pages is the number of pages so far, and Last the number of pages of the round before.
	Pages int `json:"pages,omitempty"`
	Last  int `json:"last,omitempty"`
	// Mirrors says that jobs of mirrors are among the rows of the round before or of this one, and Seen that they are among the rows of
	// this one.
	Mirrors bool `json:"mirrors,omitempty"`
	Seen    bool `json:"seen,omitempty"`
	// Unthrottled gives the round short pauses, see shortPause.
	Unthrottled bool `json:"unthrottled,omitempty"`
	// Next is when the next page is due.
	Next time.Time `json:"next,omitzero"`
}

// restarted returns an unthrottled round that begins now.
func (r round) restarted() round {
	return round{Last: max(r.Last, r.Pages), Mirrors: r.Mirrors, Unthrottled: true}
}

// time returns the time of a round: max_idle_sec, or worker.SecurityEvery if that compares the `_security` objects of mirrors, but at
// least mirrorPause for each page.
func (r round) time(maxIdle time.Duration) time.Duration {
	if !r.Mirrors {
		return maxIdle
	}
	return min(maxIdle, max(worker.SecurityEvery, time.Duration(r.Last)*mirrorPause))
}

// sees records whether jobs of mirrors are among the rows of a page.
func (r round) sees(rows []jobs.ParkedRow) round {
	if slices.ContainsFunc(rows, ofMirror) {
		r.Mirrors, r.Seen = true, true
	}
	return r
}

// ofMirror reports whether a mirror has made the job of a row.
func ofMirror(row jobs.ParkedRow) bool {
	_, is := replicator.MirrorOf(row.JobID)
	return is
}

// after returns the round after a page that took a time and ended with a row. whole says that the page was the last one.
// every is the time of a round.
func (r round) after(row jobs.ParkedRow, whole bool, now time.Time, took, every time.Duration) round {
	r.Database, r.JobID = row.Database, row.JobID
	r.Pages++
	if whole {
		r = round{Last: r.Pages, Mirrors: r.Seen}
	}
	pause := r.pause(every)
	if r.Unthrottled || r.Pages >= max(r.Last, 1) {
		pause = min(max(shortPause, pauseFactor*took), pause)
	} else {
		pause = max(pause-took, 0) // a page whose databases are read one by one takes long
	}
	r.Next = now.Add(pause)
	return r
}

// pause returns the time between two pages of a round that is not unthrottled. It follows from the number of pages of the round
// before.
func (r round) pause(every time.Duration) time.Duration { return every / time.Duration(max(r.Last, 1)) }

// hastened is the time after which shortenRound has an effect, at most.
const hastened = time.Minute

// seeMirrors makes rounds shorter if a mirror has made the job of one of some rows, which are read more often than rounds compare them.
func (w *watch) seeMirrors(rows []jobs.ParkedRow) {
	if before := w.currentState().Round; before.Mirrors || !before.sees(rows).Mirrors {
		return
	}
	w.update(func(s *state) { s.Round = s.Round.sees(rows) })
	w.shortenRound()
}

// shortenRound makes the next page come earlier, if the time of a round has become shorter. A round that another node has begun
// may have a time of another clock.
func (w *watch) shortenRound() {
	maxIdle := config.MaxIdle.Get(w.settings())
	w.update(func(s *state) {
		if latest := time.Now().Add(s.Round.pause(s.Round.time(maxIdle))); s.Round.Next.After(latest) {
			s.Round.Next = latest
		}
	})
}

// errRefused says that the credentials of a feed are no longer enough, or no longer in their job.
var errRefused = errors.New("the credentials of the feed are no longer good")

// compare compares the next page of parked jobs with their sources, and wakes those that have changed. At its end it says
// how long it took. It runs in a goroutine of its own, one at a time. The error is errRefused, or the server's.
func (w *watch) compare(ctx context.Context, f *feed) error {
	began := time.Now()
	good, err := w.stillGood(ctx, f.using)
	if err == nil && !good {
		return errRefused
	}
	place := w.currentState().Round
	var rows []jobs.ParkedRow
	if err == nil {
		rows, err = w.watcher.opts.Jobs.Watches.ParkedOf(ctx, w.server, jobs.ParkedRow{Database: place.Database, JobID: place.JobID}, pageRows)
	}
	if err != nil {
		w.storeFailed(ctx, err)
		return ctx.Err()
	}
	changed, err := w.changedOf(ctx, f.server, rows)
	w.wake(ctx, bySafety, changed) // also those that were found before an error
	if err != nil || ctx.Err() != nil {
		return err
	}
	var last jobs.ParkedRow
	if len(rows) > 0 {
		last = rows[len(rows)-1]
	}
	maxIdle := config.MaxIdle.Get(w.settings())
	w.update(func(s *state) {
		if s.Round.Database == place.Database && s.Round.JobID == place.JobID && s.Round.Unthrottled == place.Unthrottled { // otherwise it has been restarted
			now := s.Round.sees(rows)
			s.Round = now.after(last, len(rows) < pageRows, time.Now(), time.Since(began), now.time(maxIdle))
		}
	})
	return nil
}

// changedOf returns the databases of some rows that have changed since they were recorded, or are gone. With an error it
// returns those that were found before.
func (w *watch) changedOf(ctx context.Context, server *couch.Server, rows []jobs.ParkedRow) (changed []string, err error) {
	var names []string
	for _, row := range rows {
		if !row.Woken && !slices.Contains(names, row.Database) {
			names = append(names, row.Database)
		}
	}
	listed, err := server.DatabasesInfo(ctx, names)
	if err != nil {
		return nil, refused(err)
	}
	infos := make(map[string]couch.DatabaseInfo, len(listed))
	for _, info := range listed {
		infos[info.Name] = info
	}
	for _, row := range rows {
		info := infos[row.Database]
		switch {
		case row.Woken, slices.Contains(changed, row.Database):
		default:
			is, err := w.differs(ctx, server, row, info)
			if err != nil {
				return changed, err
			}
			if is {
				changed = append(changed, row.Database)
			}
		}
	}
	return changed, nil
}

// differs reports whether a database has something new for a parked job: a change, or another `_security` object if the
// job copies that. A database that is said to be missing is asked, because CouchDB says so of each that it fails to open.
func (w *watch) differs(ctx context.Context, server *couch.Server, row jobs.ParkedRow, info couch.DatabaseInfo) (bool, error) {
	if info.Missing || info.UpdateSeq != nil && string(info.UpdateSeq) != row.UpdateSeq {
		if is, err := w.changedSince(ctx, server, row); is || err != nil {
			return is, err
		}
	}
	if !mayDiffer(server, row, info.UpdateSeq) {
		return false, nil
	}
	return w.securityDiffers(ctx, server, row, info.SecurityDigest)
}

// changedSince reports whether a database has a change after the sequence that a row has. An answer other than
// success counts as a change, so that a run finds what it means. It returns an error if the server does not answer.
func (w *watch) changedSince(ctx context.Context, server *couch.Server, row jobs.ParkedRow) (bool, error) {
	if row.UpdateSeq == "" {
		return true, nil
	}
	if err := w.mayAsk(ctx); err != nil {
		return false, err
	}
	changes, err := server.Changes(ctx, row.Database, couch.ChangesOptions{Since: []byte(row.UpdateSeq), Limit: 1})
	changed := false
	if err == nil {
		changed, err = changes.Any()
	}
	if err != nil {
		return answered(err)
	}
	return changed, nil
}

// refused returns err, as errRefused if the server does not let the user read what the feed needs.
func refused(err error) error {
	for _, refusal := range []error{couch.ErrUnauthorized, couch.ErrForbidden, couch.ErrNotFound} {
		if errors.Is(err, refusal) {
			return errors.Join(errRefused, err)
		}
	}
	return err
}
