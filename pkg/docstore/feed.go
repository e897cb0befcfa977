package docstore

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"settee/pkg/kv"
)

// ticker tracks the last change of what feeds follow, for all feeds that wait for it.
type ticker struct {
	store  *Store
	id     uuid.UUID // in Store.tickers
	ctx    context.Context
	stop   context.CancelFunc
	linger time.Duration // as in tickerKind

	// The fields below are guarded by Store.mu.
	waiting int
	wanted  chan struct{} // closed while a feed waits
	leaving *time.Timer   // stops the ticker; nil while a feed waits
	next    chan struct{} // closed when one of the following changes
	known   bool
	last    Sequence
	version int64 // of the store when last was read, if the ticker is told of it
	err     error // set once the ticker has stopped
}

// tickerKind is what a ticker does.
type tickerKind struct {
	// run tells the ticker of changes until its context ends. It may return before, see follow.
	run func(t *ticker)
	// linger is how long the ticker stays when no feed waits any longer.
	linger time.Duration
}

// source reads the last change, and watches for the next.
type source func(tx kv.Transaction) (tick, error)

// tick is what one transaction of a source has read.
type tick struct {
	last  Sequence
	watch kv.Watch // ends with the next change
}

// WaitChange returns when there are changes after a sequence, at once if there are some already. A continuous feed
// reads [Database.Changes], waits for changes after [Changes.Last], and reads again. The error is [ErrDatabaseNotFound]
// when the database is deleted, [ErrClosed], ctx's, or the store's.
func (db *Database) WaitChange(ctx context.Context, since Sequence) error {
	return db.store.await(ctx, since, db.joinTicker())
}

func (db *Database) joinTicker() *ticker {
	return db.store.join(db.instance, tickerKind{run: func(t *ticker) { t.follow(db.tick) }})
}

// await waits for a change after since, in a ticker that join has returned. Thousands of feeds wait here, so the stack should
// be small.
func (s *Store) await(ctx context.Context, since Sequence, t *ticker) error {
	if t == nil {
		return ErrClosed
	}
	defer s.leave(t)
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
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.known && t.last.Compare(since) > 0, t.next, t.err
}

// join returns the ticker with an id, or nil if the store is closed. It starts one if there is none.
func (s *Store) join(id uuid.UUID, kind tickerKind) *ticker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	t := s.tickers[id]
	if t == nil {
		t = &ticker{store: s, id: id, linger: kind.linger, next: make(chan struct{}), wanted: make(chan struct{})}
		t.ctx, t.stop = context.WithCancel(s.ctx)
		s.tickers[id] = t
		s.wg.Go(func() { kind.run(t) })
	}
	if t.waiting++; t.waiting == 1 {
		close(t.wanted)
		if t.leaving != nil {
			t.leaving.Stop()
			t.leaving = nil
		}
	}
	return t
}

// leave stops the ticker after a time when no feed waits for it.
func (s *Store) leave(t *ticker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waiting--; t.waiting > 0 {
		return
	}
	if t.linger == 0 || s.tickers[t.id] != t {
		s.forget(t)
		return
	}
	t.wanted = make(chan struct{})
	t.leaving = time.AfterFunc(t.linger, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.waiting == 0 {
			s.forget(t)
		}
	})
}

// isWanted returns a channel that is closed when a feed waits.
func (t *ticker) isWanted() <-chan struct{} {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.wanted
}

// forget stops a ticker at once. The next feed that waits starts another. The caller holds mu.
func (s *Store) forget(t *ticker) {
	t.stop()
	if s.tickers[t.id] == t {
		delete(s.tickers, t.id)
	}
}

// follow tells the ticker of changes until its context ends. It returns before: there are thousands of tickers, and while
// they wait they have no goroutine.
func (t *ticker) follow(from source) {
	read, err := kv.TransactValue(t.ctx, t.store.kv, from)
	if err != nil {
		t.fail(err)
		return
	}
	t.tell(read.last, 0)
	t.store.wg.Add(1)
	kv.AfterChange(t.ctx, read.watch, func() {
		defer t.store.wg.Done()
		t.follow(from)
	})
}

// tick reads the last change and watches for the next. A change that is committed before the read is in last, and one
// that is committed after it ends the watch.
func (db *Database) tick(tx kv.Transaction) (out tick, err error) {
	exists, last := db.exists(tx.Snapshot()), db.lastChange(tx.Snapshot())
	if err := exists.await(); err != nil {
		return out, err
	}
	if out.last, err = last.Await(); err != nil {
		return out, err
	}
	out.watch = tx.Watch(db.keys.watch)
	return out, nil
}

// tell passes on the last change, which was read at a version of the store.
func (t *ticker) tell(last Sequence, version int64) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.known && last.Compare(t.last) <= 0 {
		return
	}
	t.known, t.last, t.version = true, last, version
	close(t.next)
	t.next = make(chan struct{})
}

// fail passes the first error to the waiting feeds and stops the ticker.
func (t *ticker) fail(err error) {
	s := t.store
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
