package docstore

import (
	"context"
	"errors"
	"time"

	"settee/pkg/kv"
)

const (
	// reread is how long a change is waited for before the store is read again: a watch may
	// miss one (package kv, "Watches").
	reread = 30 * time.Second
	// poll is how often the store is read while no watch is to be had.
	poll = time.Second
)

// ticker knows the last change of a database while anybody waits for one. One goroutine and
// one watch do that for all who wait.
type ticker struct {
	db   *Database
	ctx  context.Context
	stop context.CancelFunc

	// Guarded by Store.mu.
	waiting int
	next    chan struct{} // closed when one of the following changes
	known   bool
	last    Sequence
	err     error // why nothing will be known any more
}

// WaitChange returns when there are changes after a sequence: at once, if there are. So a
// feed that goes on reads [Database.Changes], waits for what is behind [Changes.Last], and
// reads again. The error is [ErrDatabaseNotFound] when the database is deleted,
// [ErrClosed], ctx's, or the store's.
func (db *Database) WaitChange(ctx context.Context, since Sequence) error {
	t := db.store.join(db)
	if t == nil {
		return ErrClosed
	}
	defer db.store.leave(t)
	for {
		done, next, err := t.told(since)
		if done || err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// told reports whether there are changes after since, as far as is known; if not, next is
// closed when more is.
func (t *ticker) told(since Sequence) (done bool, next <-chan struct{}, err error) {
	t.db.store.mu.Lock()
	defer t.db.store.mu.Unlock()
	return t.known && t.last.Compare(since) > 0, t.next, t.err
}

// join returns the ticker of a database, nil if the store was closed.
func (s *Store) join(db *Database) *ticker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	t := s.tickers[db.instance]
	if t == nil {
		t = &ticker{db: db, next: make(chan struct{})}
		t.ctx, t.stop = context.WithCancel(s.ctx)
		s.tickers[db.instance] = t
		s.wg.Go(t.run)
	}
	t.waiting++
	return t
}

// leave ends the ticker when nobody waits for it any more.
func (s *Store) leave(t *ticker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		s.forget(t)
	}
}

// forget ends a ticker. The next one who waits makes another. The caller holds mu.
func (s *Store) forget(t *ticker) {
	t.stop()
	if s.tickers[t.db.instance] == t {
		delete(s.tickers, t.db.instance)
	}
}

func (t *ticker) run() {
	for {
		read, err := t.read()
		if err != nil {
			t.fail(err)
			return
		}
		t.tell(read.last)
		t.await(read.watch)
	}
}

// tick is what one transaction has read.
type tick struct {
	last  Sequence
	watch kv.Watch // of the next change
}

// read reads the last change and watches for the next: what is committed before the read is
// in last, and what is after it ends the watch.
func (t *ticker) read() (tick, error) {
	return kv.TransactValue(t.ctx, t.db.store.kv, func(tx kv.Transaction) (out tick, err error) {
		exists, last := t.db.exists(tx.Snapshot()), t.db.lastChange(tx.Snapshot())
		if err := exists.await(); err != nil {
			return out, err
		}
		if out.last, err = last.await(); err != nil {
			return out, err
		}
		out.watch = tx.Watch(t.db.keys.watch)
		return out, nil
	})
}

// await returns when the watch ends, it is time to read again, or nobody waits any more.
func (t *ticker) await(watch kv.Watch) {
	defer watch.Cancel()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.ctx, reread)
	defer cancel()
	err := watch.Wait(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, kv.ErrClosed) {
		return
	}
	timer := time.NewTimer(poll - time.Since(began))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (t *ticker) tell(last Sequence) {
	t.db.store.mu.Lock()
	defer t.db.store.mu.Unlock()
	if t.known && t.last == last {
		return
	}
	t.known, t.last = true, last
	close(t.next)
	t.next = make(chan struct{})
}

// fail tells those who wait that there is nothing more to know.
func (t *ticker) fail(err error) {
	s := t.db.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || errors.Is(err, kv.ErrClosed) {
		err = ErrClosed
	}
	t.err = err
	close(t.next)
	t.next = make(chan struct{})
	s.forget(t)
}
