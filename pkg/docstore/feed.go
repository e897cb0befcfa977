package docstore

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"settee/pkg/kv"
)

// ticker tracks the last change of what feeds follow, for all feeds that wait for it, with one goroutine and one watch
// for each of its sources.
type ticker struct {
	store *Store
	id    uuid.UUID // in Store.tickers
	ctx   context.Context
	stop  context.CancelFunc

	// The fields below are guarded by Store.mu.
	waiting int
	next    chan struct{} // closed when one of the following changes
	known   bool
	last    Sequence
	err     error // set once the ticker has stopped
}

// source reads the last change, and watches for the next.
type source func(tx kv.Transaction) (tick, error)

// tick is what one transaction of a source has read.
type tick struct {
	last  Sequence
	watch kv.Watch // ends with the next change; nil: it has to be read again now
}

// WaitChange returns when there are changes after a sequence, at once if there are some already. A continuous feed
// reads [Database.Changes], waits for changes after [Changes.Last], and reads again. The error is [ErrDatabaseNotFound]
// when the database is deleted, [ErrClosed], ctx's, or the store's.
func (db *Database) WaitChange(ctx context.Context, since Sequence) error {
	return db.store.await(ctx, since, db.instance, db.tick)
}

// await waits for a change after since, in the ticker with an id.
func (s *Store) await(ctx context.Context, since Sequence, id uuid.UUID, sources ...source) error {
	t := s.join(id, sources)
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
func (s *Store) join(id uuid.UUID, sources []source) *ticker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	t := s.tickers[id]
	if t == nil {
		t = &ticker{store: s, id: id, next: make(chan struct{})}
		t.ctx, t.stop = context.WithCancel(s.ctx)
		s.tickers[id] = t
		for _, from := range sources {
			s.wg.Go(func() { t.run(from) })
		}
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
	if s.tickers[t.id] == t {
		delete(s.tickers, t.id)
	}
}

func (t *ticker) run(from source) {
	for {
		read, err := kv.TransactValue(t.ctx, t.store.kv, from)
		if err != nil {
			t.fail(err)
			return
		}
		if read.watch != nil {
			t.tell(read.last)
			kv.AwaitChange(t.ctx, read.watch, kv.AwaitOptions{})
		}
	}
}

// tick reads the last change and watches for the next. A change that is committed before the read is in last, and one
// that is committed after it ends the watch.
func (db *Database) tick(tx kv.Transaction) (out tick, err error) {
	exists, last := db.exists(tx.Snapshot()), db.lastChange(tx.Snapshot())
	if err := exists.await(); err != nil {
		return out, err
	}
	if out.last, err = last.await(); err != nil {
		return out, err
	}
	out.watch = tx.Watch(db.keys.watch)
	return out, nil
}

func (t *ticker) tell(last Sequence) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.known && last.Compare(t.last) <= 0 {
		return
	}
	t.known, t.last = true, last
	close(t.next)
	t.next = make(chan struct{})
}

// fail passes the first error to the waiting feeds and stops the ticker.
func (t *ticker) fail(err error) {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		return // of another source
	}
	if s.closed || errors.Is(err, kv.ErrClosed) {
		err = ErrClosed
	}
	t.err = err
	close(t.next)
	t.next = make(chan struct{})
	s.forget(t)
}
