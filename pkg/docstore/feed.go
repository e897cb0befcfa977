package docstore

import (
	"context"
	"errors"

	"settee/pkg/kv"
)

// ticker tracks the last change of a database, with one goroutine and one watch for all feeds that wait for it.
type ticker struct {
	db   *Database
	ctx  context.Context
	stop context.CancelFunc

	// The fields below are guarded by Store.mu.
	waiting int
	next    chan struct{} // closed when one of the following changes
	known   bool
	last    Sequence
	err     error // set once the ticker has stopped
}

// WaitChange returns when there are changes after a sequence, at once if there are some already. A continuous feed
// reads [Database.Changes], waits for changes after [Changes.Last], and reads again. The error is [ErrDatabaseNotFound]
// when the database is deleted, [ErrClosed], ctx's, or the store's.
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

// told reports whether there are known changes after since. If not, next is closed when more is known.
func (t *ticker) told(since Sequence) (done bool, next <-chan struct{}, err error) {
	t.db.store.mu.Lock()
	defer t.db.store.mu.Unlock()
	return t.known && t.last.Compare(since) > 0, t.next, t.err
}

// join returns the ticker of a database, or nil if the store is closed.
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

// leave stops the ticker when no feed waits for it.
func (s *Store) leave(t *ticker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		s.forget(t)
	}
}

// forget stops a ticker. The next feed that waits starts another. The caller holds mu.
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
		kv.AwaitChange(t.ctx, read.watch, kv.AwaitOptions{})
	}
}

// tick is what one transaction has read.
type tick struct {
	last  Sequence
	watch kv.Watch // ends with the next change
}

// read reads the last change and watches for the next. A change that is committed before the read is in last, and one
// that is committed after it ends the watch.
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

// fail passes the error to the waiting feeds and stops the ticker.
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
