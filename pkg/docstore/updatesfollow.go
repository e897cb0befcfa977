package docstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

const (
	// lookInterval is the time from a look that has found updates to the next one. So what following costs does not depend
	// on the number of writes.
	lookInterval = 50 * time.Millisecond
	// followerLinger is how long a follower keeps its state when nobody waits. It looks at nothing meanwhile.
	followerLinger = time.Minute
)

// WaitUpdate returns when there are updates after a sequence that [Updates.Last] has returned, at once if there are some
// already. The first update after a pause is reported at once, others after at most 50 milliseconds. All calls of a
// process share one follower. The error is [ErrClosed], ctx's, or the store's.
func (s *Store) WaitUpdate(ctx context.Context, since Sequence) error {
	return s.await(ctx, since, uuid.Nil, tickerKind{run: s.followUpdates, linger: followerLinger})
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
	store  *Store
	ticker *ticker
	looked bool              // at least once
	last   [stripes]Sequence // the last rows that were seen
	armed  [stripes]bool
	ended  chan int // the stripes whose watches have ended
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
			kv.Sleep(ctx, time.Until(next))
		}
		if err := f.await(ctx); err != nil {
			return err
		}
	}
}

// await returns when there is a stripe to look at and somebody waits.
func (f *updatesFollower) await(ctx context.Context) error {
	f.disarm()
	if !slices.Contains(f.armed[:], false) {
		select {
		case i := <-f.ended:
			f.armed[i] = false
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-f.ticker.isWanted():
		f.disarm()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// disarm notes whose watches have ended.
func (f *updatesFollower) disarm() {
	for len(f.ended) > 0 {
		f.armed[<-f.ended] = false
	}
}

// updatesLook is what one look has read.
type updatesLook struct {
	version int64             // of the store
	last    [stripes]Sequence // of the stripes that were not armed
	watches [stripes]kv.Watch // of the stripes that the look has armed
}

// look looks at all stripes that are not armed, in one transaction. If they have no new rows, it arms them. A write
// that is committed before this transaction is seen by its reads, or makes it run again. A later one finds the stripe
// armed, because it would conflict with it otherwise.
func (f *updatesFollower) look(tx kv.Transaction) (out updatesLook, err error) {
	snap := tx.Snapshot()
	version := snap.ReadVersion()
	var ends [stripes]kv.RangeResult
	var values [stripes]kv.Future[[]byte]
	for i, armed := range f.armed {
		if !armed {
			stripe := &f.store.keys.stripes[i]
			ends[i], values[i] = stripe.last(snap), snap.Get(stripe.armed)
		}
	}
	if out.version, err = version.Await(); err != nil {
		return out, err
	}
	found := false
	var after [stripes]kv.KeyRange // the last rows
	for i := range ends {
		if ends[i] == nil {
			continue
		}
		pairs, err := ends[i].Slice()
		if err != nil {
			return out, err
		}
		after[i] = rows.Range(f.store.keys.stripes[i].rows)
		if len(pairs) > 0 {
			row, err := f.store.keys.parseUpdate(pairs[0])
			if err != nil {
				return out, err
			}
			out.last[i], after[i].Begin = row.Sequence, kv.KeyAfter(row.key)
		}
		found = found || f.looked && out.last[i].Compare(f.last[i]) > 0
	}
	for i := range values {
		if values[i] == nil || found {
			continue
		}
		if out.watches[i], err = f.store.keys.stripes[i].arm(tx, values[i], after[i]); err != nil {
			return out, err
		}
	}
	return out, nil
}

// arm asks the writer of the next row to wake those who wait for the watch. after is the range of later rows than those
// that were read. Other followers may have armed the stripe, and share its row. They do not write it again, because
// writers in progress would conflict with that. The value is drawn at random, because a watch may miss a value that
// changes and changes back.
func (k *stripeKeys) arm(tx kv.Transaction, armed kv.Future[[]byte], after kv.KeyRange) (kv.Watch, error) {
	value, err := armed.Await()
	if err != nil {
		return nil, err
	}
	if value == nil {
		tx.AddReadConflictKey(k.armed)
		tx.AddReadConflictRange(after)
		tx.Set(k.armed, rows.Int(rand.Int64()))
	}
	return tx.Watch(k.armed), nil
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
		f.armed[i] = true
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
