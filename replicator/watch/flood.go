package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"settee/pkg/couch"
	"settee/pkg/retry"
)

const (
	// A feed is read without a pause for up to floodBurst updates, and then floodRate of them a second. An update of more than
	// floodBytes counts as several. A server keeps the latest update of a database only, so a feed that is read more slowly has
	// fewer.
	floodRate  = 2_000
	floodBurst = 50_000
	floodBytes = 4 << 10
	// A feed that has had to wait for floodTime, and has woken fewer than one job for floodPerWake updates in that time, costs
	// more than questions.
	floodTime    = time.Minute
	floodPerWake = 100
)

// errFlood says that a feed costs more than questions.
var errFlood = errors.New("its feed has too many updates of databases for which no job waits")

// flood bounds how fast a feed is read.
type flood struct {
	tokens float64 // updates that may be read at once
	at     time.Time
	since  time.Time // since when the feed has had to wait; zero: it has not
	rows   int64     // since then
	woken  int64     // what woken returned then
}

// admit waits until an update may be read. woken is how many jobs the watch has woken. The error is errFlood or ctx's.
func (f *flood) admit(ctx context.Context, update couch.Update, woken int64) error {
	now := time.Now()
	if f.at.IsZero() {
		f.tokens = floodBurst
	} else {
		f.tokens = min(floodBurst, f.tokens+floodRate*now.Sub(f.at).Seconds())
	}
	f.at = now
	f.tokens -= 1 + float64(update.Size/floodBytes)
	f.rows++
	switch {
	case f.tokens > floodRate:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since, f.rows, f.woken = now, 0, woken
	case now.Sub(f.since) > floodTime:
		if (woken-f.woken)*floodPerWake < f.rows {
			return fmt.Errorf("%w: %d in %s", errFlood, f.rows, now.Sub(f.since).Round(time.Second))
		}
		f.since = time.Time{}
	}
	if f.tokens < 0 {
		// A pause for some updates at a time: a timer for each would cost more than they do.
		_ = retry.Wait(ctx, max(time.Duration(-f.tokens/floodRate*float64(time.Second)), 50*time.Millisecond))
	}
	return ctx.Err()
}
