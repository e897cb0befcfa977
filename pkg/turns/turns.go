// Package turns gives a number of places to callers that take turns by key.
//
// A place that becomes free goes to the waiting key that holds the fewest places, and among these to the one that has not
// had a turn for longest. So one key has at most half of the places while another one waits, except for places that it had
// before. The number of callers that wait is bounded. If it is reached, the last caller of the key with the most of them
// makes room.
package turns

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// ErrFull is the error of a caller that does not wait, because too many do.
var ErrFull = errors.New("too many callers wait")

// Turns has the places. It is safe for concurrent use.
type Turns struct {
	most int // callers that may wait

	mu      sync.Mutex
	free    int
	waiting *list.List // of *waiter, in the order in which they came
	keys    map[string]*state
	turn    uint64
}

// state is what is known of a key that has callers.
type state struct {
	held, queued int    // callers with a place, and callers that wait
	since        uint64 // the turn in which a caller of the key last left, or the first one came
}

// before reports whether a waiting caller of s is served before one of other.
func (s *state) before(other *state) bool {
	return s.held < other.held || s.held == other.held && s.since < other.since
}

// waiter is a caller that waits.
type waiter struct {
	*state
	key  string
	told chan error // gets nil with a place, or ErrFull
}

// New returns places that are free. most is how many callers may wait for one.
func New(places, most int) *Turns {
	return &Turns{most: most, free: places, waiting: list.New(), keys: map[string]*state{}}
}

// Enter waits for a place, and returns a function that gives it back, to be called once. The error is ErrFull or ctx's
// cause.
func (t *Turns) Enter(ctx context.Context, key string) (leave func(), err error) {
	w := &waiter{key: key, told: make(chan error, 1)}
	element := t.add(w)
	select {
	case err = <-w.told:
	case <-ctx.Done():
		if t.remove(element) {
			return nil, context.Cause(ctx)
		}
		err = <-w.told
	}
	if err != nil {
		return nil, err
	}
	return func() { t.leave(w) }, nil
}

// add adds a caller, and tells it at once if it need not wait.
func (t *Turns) add(w *waiter) *list.Element {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys[w.key] == nil {
		t.turn++
		t.keys[w.key] = &state{since: t.turn}
	}
	w.state = t.keys[w.key]
	w.queued++
	element := t.waiting.PushBack(w)
	t.serve()
	if t.waiting.Len() > t.most {
		t.tell(t.last(), ErrFull)
	}
	return element
}

// serve gives free places to callers that wait.
func (t *Turns) serve() {
	for t.free > 0 && t.waiting.Len() > 0 {
		next := t.waiting.Front()
		for element := next; element != nil; element = element.Next() {
			if of(element).before(of(next).state) {
				next = element
			}
		}
		t.free--
		of(next).held++
		t.tell(next, nil)
	}
}

// last returns the last caller of the key with the most that wait.
func (t *Turns) last() *list.Element {
	last := t.waiting.Back()
	for element := last; element != nil; element = element.Prev() {
		if of(element).queued > of(last).queued {
			last = element
		}
	}
	return last
}

// tell ends the wait of a caller.
func (t *Turns) tell(element *list.Element, err error) {
	w := of(element)
	t.drop(element)
	w.told <- err
}

// remove takes a caller out that no longer waits. It reports false if the caller was told something.
func (t *Turns) remove(element *list.Element) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := of(element)
	if len(w.told) > 0 {
		return false
	}
	t.drop(element)
	return true
}

func (t *Turns) drop(element *list.Element) {
	t.waiting.Remove(element)
	w := of(element)
	w.queued--
	t.forget(w)
}

// forget forgets the key of a caller if it has no callers.
func (t *Turns) forget(w *waiter) {
	if w.held == 0 && w.queued == 0 {
		delete(t.keys, w.key)
	}
}

func (t *Turns) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.turn++
	w.held--
	w.since = t.turn
	t.forget(w)
	t.serve()
}

func of(element *list.Element) *waiter {
	w, _ := element.Value.(*waiter)
	return w
}
