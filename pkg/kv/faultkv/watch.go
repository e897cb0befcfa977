package faultkv

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/kv"
)

// watch is one watch of one run.
type watch struct {
	db    *DB
	inner kv.Watch
	fault Fault
	lag   time.Duration // of a LateWatch

	// armed is closed once the run is the one whose result the caller gets. discarded is set if it is not.
	armed     chan struct{}
	discarded atomic.Bool

	// gone ends with kv.ErrWatchCancelled when the watch is cancelled.
	gone   context.Context
	cancel context.CancelCauseFunc

	mu  sync.Mutex
	due time.Time // when a LateWatch that has noticed the change ends
}

// Watch implements kv.Transaction.
func (tx *transaction) Watch(key []byte) kv.Watch {
	db := tx.transact.db
	p := db.decide(tx.call(Watch, key))
	w := &watch{db: db, inner: tx.inner.Watch(key), fault: p.fault, armed: make(chan struct{})}
	w.gone, w.cancel = context.WithCancelCause(context.Background())
	if p.fault == LateWatch {
		w.lag = time.Duration((1 - p.part) * float64(db.opts.MaxLag))
	}
	if p.fault != None {
		db.hit(p.call, p.fault, w.lag)
	}
	tx.mu.Lock()
	ended := tx.ended
	if !ended {
		tx.watches = append(tx.watches, w)
	}
	tx.mu.Unlock()
	if ended {
		w.discard()
	}
	return w
}

// Cancel implements kv.Watch.
func (w *watch) Cancel() {
	w.inner.Cancel()
	w.cancel(kv.ErrWatchCancelled)
}

// discard cancels the watch of a discarded run, even if it has fired.
func (w *watch) discard() {
	w.discarded.Store(true)
	w.Cancel()
}

// Wait implements kv.Watch.
func (w *watch) Wait(ctx context.Context) error {
	if w.fault == SpuriousWatch {
		return w.waitSpurious(ctx)
	}
	err := w.inner.Wait(ctx)
	switch {
	case w.discarded.Load():
		return kv.ErrWatchCancelled
	case err != nil || w.fault == None:
		return err
	}
	ctx, release := w.until(ctx)
	defer release()
	if w.fault == LostWatch {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	w.db.opts.Sleep(ctx, w.remaining())
	return context.Cause(ctx)
}

// waitSpurious ends as soon as the watch is armed, and frees its place like a watch that has fired.
func (w *watch) waitSpurious(ctx context.Context) error {
	select {
	case <-w.db.life.Done():
		return context.Cause(w.db.life)
	case <-w.gone.Done():
		return context.Cause(w.gone)
	default:
	}
	select {
	case <-w.armed:
	case <-w.gone.Done():
	case <-ctx.Done():
	}
	// If several are ready already, the choice must not be random.
	select {
	case <-w.armed:
		w.inner.Cancel()
		return nil
	default:
		return cmp.Or(context.Cause(w.gone), context.Cause(ctx))
	}
}

// remaining returns the time until the watch ends, counted from the first Wait that noticed the change.
func (w *watch) remaining() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.db.opts.Now()
	if w.due.IsZero() {
		w.due = now.Add(w.lag)
	}
	return max(0, w.due.Sub(now))
}

// until returns a context that ends with ctx, the watch or the store, with the cause of the first.
func (w *watch) until(ctx context.Context) (joined context.Context, release func()) {
	joined, cancel := context.WithCancelCause(ctx)
	var releases []func()
	for _, other := range []context.Context{w.gone, w.db.life} {
		told := make(chan struct{})
		stop := context.AfterFunc(other, func() {
			cancel(context.Cause(other))
			close(told)
		})
		releases = append(releases, func() {
			if !stop() {
				<-told
			}
		})
	}
	return joined, func() {
		for _, release := range releases {
			release()
		}
		cancel(nil)
	}
}
