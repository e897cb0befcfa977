package fdbjobs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
)

// poll is how often the store is read while no watch is to be had.
const poll = time.Second

// transitionsAtOnce is how many transitions one transaction reads.
const transitionsAtOnce = 1_000

// waiter is a call of WaitAny or Follow.
type waiter struct {
	ids      []string
	statuses []Status      // what it is told of; nil: everything
	changed  chan struct{} // holds a token when something is to be told
	ended    chan struct{} // closed when nothing will be told any more, for err
	err      error

	// Guarded by subscribers.mu.
	all   bool             // transitions are missing: any of the jobs may have changed
	which map[string]int64 // jobs that have changed: the version at which they took one of statuses
}

// concerns reports whether a waiter is told of a transition. That a job was removed all
// are told, and of one that was added again while it ran those who follow it.
func (w *waiter) concerns(status Status) bool {
	return w.statuses == nil || status == removed || slices.Contains(w.statuses, status)
}

// subscribers are the waiters of one type in this process. One goroutine reads the
// transitions for all of them, as long as there are any.
type subscribers struct {
	typ *Type

	mu      sync.Mutex
	waiting map[string]map[*waiter]struct{} // by job
	ready   chan struct{}                   // closed when the goroutine knows where to begin; nil: there is none
	wake    chan struct{}                   // holds a token when nobody waits any more
}

// subscribe registers a waiter: it is told of every transition of some jobs to one of
// the statuses, of all if statuses is nil, that is committed after subscribe has returned.
func (s *subscribers) subscribe(ctx context.Context, ids []string, statuses []Status) (*waiter, error) {
	w := &waiter{
		ids: ids, statuses: statuses, which: map[string]int64{},
		changed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	ready := s.register(w)
	if ready == nil {
		return nil, ErrClosed
	}
	select {
	case <-ready:
	case <-w.ended:
	case <-ctx.Done():
	}
	if err := s.told(ctx, w); err != nil {
		s.unsubscribe(w)
		return nil, err
	}
	return w, nil
}

// next waits until a waiter's job may have changed again.
func (s *subscribers) next(ctx context.Context, w *waiter) error {
	select {
	case <-w.changed:
	case <-w.ended:
	case <-ctx.Done():
	}
	return s.told(ctx, w)
}

// told returns why a waiter that has waited will not be told anything more, or nil.
func (s *subscribers) told(ctx context.Context, w *waiter) error {
	s.typ.layer.pass(ctx)
	select {
	case <-w.ended:
		return w.err
	default:
		return ctx.Err()
	}
}

func (s *subscribers) register(w *waiter) (ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == nil {
		begun := make(chan struct{})
		if !s.typ.layer.start("subscribers of "+s.typ.name, func(ctx context.Context) { s.run(ctx, begun) }) {
			return nil
		}
		s.ready = begun
	}
	for _, id := range w.ids {
		if s.waiting[id] == nil {
			s.waiting[id] = map[*waiter]struct{}{}
		}
		s.waiting[id][w] = struct{}{}
	}
	return s.ready
}

func (s *subscribers) unsubscribe(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range w.ids {
		delete(s.waiting[id], w)
		if len(s.waiting[id]) == 0 {
			delete(s.waiting, id)
		}
	}
	if len(s.waiting) == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// needed reports whether anybody waits. If not, the goroutine has to end: the next
// waiter starts another one.
func (s *subscribers) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.ready = nil
		return false
	}
	return true
}

// notify tells the waiters of transitions; if some are missing, that any job may have
// changed.
func (s *subscribers) notify(found []transition, missing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if missing {
		for _, waiters := range s.waiting {
			for w := range waiters {
				w.all = true
				w.wake()
			}
		}
	}
	for _, f := range found {
		for w := range s.waiting[f.id] {
			if w.concerns(f.status) {
				version := w.which[f.id]
				if f.status != removed {
					version = max(version, f.version)
				}
				w.which[f.id] = version
				w.wake()
			}
		}
	}
}

func (w *waiter) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// changes returns which of a waiter's jobs to read, and which of them have taken one
// of its statuses since the last time, after a version.
func (s *subscribers) changes(w *waiter, after int64) (ids []string, told map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told = map[string]bool{}
	for id, version := range w.which {
		told[id] = version > after
	}
	ids = w.ids
	if !w.all {
		ids = slices.Sorted(maps.Keys(told))
	}
	w.all, w.which = false, map[string]int64{}
	return ids, told
}

// fail ends all waiting.
func (s *subscribers) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiters := range s.waiting {
		for w := range waiters {
			if w.err == nil { // it may wait for several jobs
				w.err = err
				close(w.ended)
			}
		}
	}
	clear(s.waiting)
	s.ready = nil
}

func (s *subscribers) run(ctx context.Context, ready chan struct{}) {
	seen, err := kv.TransactValue(ctx, s.typ.layer.db, func(tx kv.Transaction) (int64, error) {
		return tx.ReadVersion().Await()
	})
	if err == nil {
		close(ready)
		err = s.follow(ctx, seen)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, kv.ErrClosed):
		s.fail(ErrClosed)
	default:
		s.fail(err)
	}
}

// follow reads the transitions after a version while anybody waits for them.
func (s *subscribers) follow(ctx context.Context, seen int64) error {
	position := s.typ.keys.transitions.Pack(stampAfter(seen))
	for s.needed() {
		found, err := s.read(ctx, position)
		if err != nil {
			return err
		}
		s.notify(found.transitions, found.trimmed > seen)
		if found.watch == nil {
			position = found.next
			continue
		}
		// All that was committed up to version has been seen.
		seen = found.version
		position = s.typ.keys.transitions.Pack(stampAfter(seen))
		s.typ.layer.await(ctx, found.watch, reread, s.wake)
	}
	return nil
}

// transition is a change of a job's status, or of its generation while it runs.
type transition struct {
	id      string
	status  Status
	version int64
}

// transitionsRead is what one reading found.
type transitionsRead struct {
	transitions []transition
	next        []byte   // where to go on, if there are more
	watch       kv.Watch // of the next one, if there are none
	version     int64    // at which this was read
	trimmed     int64
}

func (s *subscribers) read(ctx context.Context, position []byte) (transitionsRead, error) {
	keys := &s.typ.keys
	return kv.TransactValue(ctx, s.typ.layer.db, func(tx kv.Transaction) (out transitionsRead, err error) {
		version, trimmed := tx.ReadVersion(), tx.Snapshot().Get(keys.trimmed)
		pairs, err := tx.Snapshot().GetRange(from(keys.transitions, position),
			kv.RangeOptions{Limit: transitionsAtOnce, Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return out, err
		}
		for _, pair := range pairs {
			stamp, id, err := stampAndID(keys.transitions, pair.Key)
			if err != nil {
				return out, err
			}
			out.transitions = append(out.transitions, transition{
				id: id, status: Status(pair.Value), version: stampVersion(stamp),
			})
		}
		if out.trimmed, err = awaitTrimmed(trimmed); err != nil {
			return out, err
		}
		if len(pairs) == transitionsAtOnce {
			out.next = kv.KeyAfter(pairs[len(pairs)-1].Key)
			return out, nil
		}
		out.watch = tx.Watch(keys.watchTransitions)
		out.version, err = version.Await()
		return out, err
	})
}

// awaitTrimmed returns the version up to which transitions may be gone.
func awaitTrimmed(f kv.Future[[]byte]) (int64, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("reading how far transitions are trimmed: %d bytes", len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// await returns when the watch ends, a token is in wake, d is over or ctx ends.
// Whatever it was, the store is read again then; an error of the store's comes up
// there. A watch that could not be had is made up for by reading every second.
func (l *Layer) await(ctx context.Context, watch kv.Watch, d time.Duration, wake <-chan struct{}) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = watch.Wait(ctx)
	}()
	select {
	case <-ended:
		l.pass(ctx)
		if err != nil && !errors.Is(err, kv.ErrClosed) {
			l.sleep(ctx, time.Until(began.Add(poll)), wake)
		}
	case <-wake:
		l.pass(ctx)
		cancel()
		<-ended
		l.pass(ctx)
	}
	watch.Cancel()
}

// sleep returns when d is over, a token is in wake, or ctx ends.
func (l *Layer) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	if d <= 0 || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	l.pass(ctx)
}
