package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
)

// silence measures how long the reader of a feed waits for its source.
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

// lasts returns how long the silence has lasted, or 0 if there is none.
func (s *silence) lasts() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}

// onceFiltered is once for a filtered feed that ends. The feed may send nothing but heartbeats while the filter leaves
// changes out, so it is given up only when the source could have filtered all changes that it says are left.
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

// outlast waits until a filtered feed has been silent for too long and returns the error for that. It returns nil when
// ctx ends.
func (r *run) outlast(ctx context.Context, s *silence) error {
	for allowed := quietFor; ; {
		lasts := s.lasts()
		if lasts < quietFor {
			allowed = quietFor // a row has come since
		}
		if lasts < allowed {
			if retry.Wait(ctx, min(allowed-lasts, quietFor)) != nil {
				return nil //nolint:nilerr // the feed has ended
			}
			continue
		}
		left, known := r.leftToFilter(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // likewise
		}
		longest := replicator.FilterMayTake(nil)
		words := "how many changes are left is not known"
		if known {
			longest = replicator.FilterMayTake(&left)
			words = fmt.Sprintf("%d changes are left", left)
		}
		if lasts = s.lasts(); lasts >= longest {
			return newError(r.source.coded(replicator.FaultFilterSilent, replicator.RequestReadChanges, fmt.Sprintf(
				"the changes feed of %s has had nothing but heartbeats for %s, which is too long for a filter: %s",
				r.source.uri, lasts.Round(time.Minute), words)), couch.ErrStalled)
		}
		allowed = longest
	}
}

// leftToFilter asks the source how many changes are left, or else how many documents it has, because a feed has at most
// one row per document. known is false if the source does not say.
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
