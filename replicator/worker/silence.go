package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"settee/pkg/couch"
)

const (
	// filterTime is the longest time that a filter is expected to take for one change. CouchDB's take a
	// hundredth of that.
	filterTime = 100 * time.Millisecond
	// longestSilence bounds what a source can have by saying how many changes are left.
	longestSilence = 24 * time.Hour
)

// silence is the time in which the reader of a feed waits for its source.
type silence struct {
	mu    sync.Mutex
	since time.Time // zero while the reader does something else
}

func (s *silence) begin() { s.set(time.Now()) }
func (s *silence) end()   { s.set(time.Time{}) }

func (s *silence) set(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// lasts returns how long the silence has lasted; 0 if there is none.
func (s *silence) lasts() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}

// onceFiltered is once for a filtered feed that is to end. It may have nothing but heartbeats while the source looks
// at changes that the filter leaves out. So it is given up only when the source could have looked at all that it says
// are left.
func (f *reader) onceFiltered(ctx context.Context) error {
	reading, end := context.WithCancelCause(ctx)
	f.silence = &silence{}
	var watch sync.WaitGroup
	var given error
	watch.Go(func() {
		if given = f.r.outlast(reading, f.silence); given != nil {
			end(given)
		}
	})
	err := f.read(ctx, reading, false)
	end(nil)
	watch.Wait()
	f.silence = nil
	if err != nil && given != nil && ctx.Err() == nil {
		return given
	}
	return err
}

// outlast waits until a filtered feed is silent for too long, and returns the error that says so, or nil when ctx has
// ended.
func (r *run) outlast(ctx context.Context, s *silence) error {
	for allowed := quietFor; ; {
		lasts := s.lasts()
		if lasts < quietFor {
			allowed = quietFor // what was allowed was so before the latest row
		}
		if lasts < allowed {
			if wait(ctx, min(allowed-lasts, quietFor)) != nil {
				return nil //nolint:nilerr // the feed has ended
			}
			continue
		}
		left, known := r.leftToFilter(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // likewise
		}
		longest := longestSilence
		words := "how many changes are left is not known"
		if known {
			longest = quietFor + filterTime*time.Duration(min(left, int64((longestSilence-quietFor)/filterTime)))
			words = fmt.Sprintf("%d changes are left", left)
		}
		if lasts = s.lasts(); lasts >= longest {
			return newError(codePlain, couch.ErrStalled,
				"http_request_failed: %s: the changes feed of %s has had nothing but heartbeats for %s, which is too long for a filter: %s",
				r.source.side, r.source.uri, lasts.Round(time.Minute), words)
		}
		allowed = longest
	}
}

// leftToFilter asks the source how many changes there are after those that were read, or else how many documents it
// has: a feed has at most one row for each. known is false if it does not say.
func (r *run) leftToFilter(ctx context.Context) (left int64, known bool) {
	ctx = context.WithValue(ctx, aside{}, true)
	left, known, err := r.pendingSince(ctx, r.readSince())
	if err == nil && known {
		return left, true
	}
	info, err := r.source.db.Info(ctx)
	left = info.DocCount + info.DocDelCount
	return left, err == nil && left > 0
}
