package docstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/retry"
)

const (
	// lookInterval is the time from a look that has found updates to the next one. So what following costs does not depend
	// on the number of writes.
	lookInterval = 50 * time.Millisecond
	// followerLinger is how long a follower keeps its state without a waiting reader. It does not read the store in that time.
	followerLinger = time.Minute
)

// WaitUpdate returns when there are updates after a sequence that [Updates.Last] has returned, at once if there are some
// already. The first update after a pause is reported at once, others after at most 50 milliseconds. All calls of a
// process share one follower. The error is [ErrClosed], ctx's, or the store's.
func (s *Store) WaitUpdate(ctx context.Context, since Sequence) error {
	return s.await(ctx, since, s.join(uuid.Nil, tickerKind{run: s.followUpdates, linger: followerLinger}))
}

// noneAfter notes that a pass has found no update after last, at a version of the store. If the follower has seen one
// before, it was removed, and those who wait must not look for it again.
func (s *Store) noneAfter(last Sequence, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tickers[uuid.Nil]; t != nil && t.known && version >= t.version && last.Compare(t.last) < 0 {
		t.last, t.version = last, version
	}
}

// updatesFollower tells a ticker of updates. While rows come, it looks every lookInterval at the stripes that have got
// some. When a look finds none, it arms these stripes, and looks again when a writer wakes it.
type updatesFollower struct {
	store   *Store
	ticker  *ticker
	looked  bool              // at least once
	last    [stripes]Sequence // the last rows that were seen
	watched [stripes]bool
	ended   chan int // the stripes whose watches have ended
}

func (s *Store) followUpdates(t *ticker) {
	f := updatesFollower{store: s, ticker: t, ended: make(chan int, stripes)}
	t.fail(f.run())
}

// run returns why it ended.
func (f *updatesFollower) run() error {
	ctx := f.ticker.ctx
	for {
		next := time.Now().Add(lookInterval)
		look, err := kv.TransactValue(ctx, f.store.kv, f.look)
		if err != nil {
			return err
		}
		if found := f.note(look); found {
			_ = retry.Wait(ctx, time.Until(next))
		} else if look.armed {
			continue
		}
		if err := f.await(ctx); err != nil {
			return err
		}
	}
}

// await returns when there is a stripe to look at and somebody waits.
func (f *updatesFollower) await(ctx context.Context) error {
	f.noteEnds()
	if !slices.Contains(f.watched[:], false) {
		select {
		case i := <-f.ended:
			f.watched[i] = false
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-f.ticker.isWanted():
		f.noteEnds()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noteEnds notes whose watches have ended.
func (f *updatesFollower) noteEnds() {
	for len(f.ended) > 0 {
		f.watched[<-f.ended] = false
	}
}

// updatesLook is what one look has read and done.
type updatesLook struct {
	version int64             // of the store
	last    [stripes]Sequence // of the stripes without a watch
	watches [stripes]kv.Watch // nil: the stripe had a watch before, or still has none
	armed   bool              // it has armed a stripe: the next look watches it, or sees a row that came meanwhile
}

// look looks at all stripes without a watch, in one transaction. If they have no new rows, it watches those that are
// armed and arms the others. It sees each write that is committed before the arming, or else before a watch. A later
// one finds the stripe armed, because it would conflict with the arming otherwise.
func (f *updatesFollower) look(tx kv.Transaction) (out updatesLook, err error) {
	snap := tx.Snapshot()
	version := snap.ReadVersion()
	var ends [stripes]kv.RangeResult
	var armed [stripes]kv.Future[[]byte]
	for i, watched := range f.watched {
		if !watched {
			stripe := &f.store.keys.stripes[i]
			ends[i], armed[i] = stripe.last(snap), snap.Get(stripe.armed)
		}
	}
	if out.version, err = version.Await(); err != nil {
		return out, err
	}
	found := false
	for i, end := range ends {
		if end == nil {
			continue
		}
		if out.last[i], err = f.store.keys.awaitLast(end); err != nil {
			return out, err
		}
		found = found || f.looked && out.last[i].Compare(f.last[i]) > 0
	}
	for i, read := range armed {
		if read == nil || found {
			continue
		}
		value, err := read.Await()
		if err != nil {
			return out, err
		}
		if value == nil {
			f.store.keys.stripes[i].arm(tx)
			out.armed = true
		} else {
			out.watches[i] = tx.Watch(f.store.keys.stripes[i].armed)
		}
	}
	return out, nil
}

// arm asks the writer of the next row to wake the followers. Followers of other processes share the row, and the first
// one writes it: the others would only make writers in progress conflict once more. The value is drawn at random, because
// a watch may miss a value that changes and changes back.
func (k *stripeKeys) arm(tx kv.Transaction) {
	tx.AddReadConflictKey(k.armed)
	tx.Set(k.armed, rows.Int(rand.Int64())) //nolint:gosec // it keeps no secret
}

// note tells the ticker of what a look has read, waits for the watches, and reports whether there were new rows.
func (f *updatesFollower) note(look updatesLook) (found bool) {
	var last Sequence
	for i, seen := range look.last {
		if seen.Compare(f.last[i]) > 0 {
			f.last[i], found = seen, true
			last = later(last, seen)
		}
	}
	if !f.looked || found {
		f.ticker.tell(last, look.version)
	}
	f.looked = true
	for i, watch := range look.watches {
		if watch == nil {
			continue
		}
		f.watched[i] = true
		f.store.wg.Go(func() {
			kv.AwaitChange(f.ticker.ctx, watch, kv.AwaitOptions{})
			f.ended <- i
		})
	}
	return found
}

// later returns the later one of two sequences.
func later(a, b Sequence) Sequence {
	if b.Compare(a) > 0 {
		return b
	}
	return a
}
