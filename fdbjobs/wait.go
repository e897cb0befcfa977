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

// Wait waits until a job has one of the statuses, Finished if none is given, and
// returns it as it is then. A job that already has one is returned at once. The
// error is ErrNotFound if there is no such job, or no more; ctx's; ErrClosed; or
// the store's.
func (t *Type) Wait(ctx context.Context, id string, statuses ...Status) (*Job, error) {
	if len(statuses) == 0 {
		statuses = []Status{Finished}
	}
	var result *Job
	err := t.Follow(ctx, id, func(job *Job) (bool, error) {
		result = job
		return slices.Contains(statuses, job.Status), nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Follow calls fn with a job as it is, and again after each change of its status or
// its generation, until fn returns true or an error, which it returns. Several changes in a short
// time may be one call. fn is called in this goroutine; further errors are Wait's.
func (t *Type) Follow(ctx context.Context, id string, fn func(*Job) (done bool, err error)) error {
	w, err := t.subscribers.subscribe(ctx, id)
	if err != nil {
		return err
	}
	defer t.subscribers.unsubscribe(w)
	for {
		job, err := kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (*Job, error) {
			return t.Get(tx.Snapshot(), id)
		})
		if err != nil {
			return err
		}
		if done, err := fn(job); done || err != nil {
			return err
		}
		if err := w.next(ctx); err != nil {
			return err
		}
	}
}

// waiter is a call of Follow.
type waiter struct {
	id      string
	changed chan struct{} // holds a token when the job's status may have changed
	ended   chan struct{} // closed when nothing will be told any more, for err
	err     error
}

// next waits until the job may have changed again.
func (w *waiter) next(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.changed:
		return nil
	case <-w.ended:
		return w.err
	}
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

// subscribe registers a waiter: it is told of every transition that is committed
// after subscribe has returned.
func (s *subscribers) subscribe(ctx context.Context, id string) (*waiter, error) {
	w := &waiter{id: id, changed: make(chan struct{}, 1), ended: make(chan struct{})}
	ready := s.register(w)
	if ready == nil {
		return nil, ErrClosed
	}
	select {
	case <-ready:
		return w, nil
	case <-w.ended:
		return nil, w.err
	case <-ctx.Done():
		s.unsubscribe(w)
		return nil, ctx.Err()
	}
}

func (s *subscribers) register(w *waiter) (ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == nil {
		begun := make(chan struct{})
		if !s.typ.layer.start(func(ctx context.Context) { s.run(ctx, begun) }) {
			return nil
		}
		s.ready = begun
	}
	if s.waiting[w.id] == nil {
		s.waiting[w.id] = map[*waiter]struct{}{}
	}
	s.waiting[w.id][w] = struct{}{}
	return s.ready
}

func (s *subscribers) unsubscribe(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting[w.id], w)
	if len(s.waiting[w.id]) == 0 {
		delete(s.waiting, w.id)
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

// notify tells the waiters of a job that it may have changed; those of all jobs if
// all is set.
func (s *subscribers) notify(ids []string, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all {
		ids = slices.Collect(maps.Keys(s.waiting))
	}
	for _, id := range ids {
		for w := range s.waiting[id] {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// fail ends all waiting.
func (s *subscribers) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiters := range s.waiting {
		for w := range waiters {
			w.err = err
			close(w.ended)
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
		s.notify(found.ids, found.trimmed > seen)
		if found.watch == nil {
			position = found.next
			continue
		}
		// All that was committed up to version has been seen.
		seen = found.version
		position = s.typ.keys.transitions.Pack(stampAfter(seen))
		await(ctx, found.watch, reread, s.wake)
	}
	return nil
}

// transitions are what one reading found.
type transitions struct {
	ids     []string
	next    []byte   // where to go on, if there are more
	watch   kv.Watch // of the next one, if there are none
	version int64    // at which this was read
	trimmed int64
}

func (s *subscribers) read(ctx context.Context, position []byte) (transitions, error) {
	keys := &s.typ.keys
	return kv.TransactValue(ctx, s.typ.layer.db, func(tx kv.Transaction) (out transitions, err error) {
		version, trimmed := tx.ReadVersion(), tx.Snapshot().Get(keys.trimmed)
		pairs, err := tx.Snapshot().GetRange(from(keys.transitions, position),
			kv.RangeOptions{Limit: transitionsAtOnce, Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return out, err
		}
		for _, pair := range pairs {
			_, id, err := stampAndID(keys.transitions, pair.Key)
			if err != nil {
				return out, err
			}
			out.ids = append(out.ids, id)
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
func await(ctx context.Context, watch kv.Watch, d time.Duration, wake <-chan struct{}) {
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
		if err != nil && !errors.Is(err, kv.ErrClosed) {
			unwatched := time.NewTimer(time.Until(began.Add(poll)))
			defer unwatched.Stop()
			select {
			case <-unwatched.C:
			case <-wake:
			case <-ctx.Done():
			}
		}
	case <-wake:
		cancel()
		<-ended
	}
	watch.Cancel()
}
