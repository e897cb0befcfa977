package script

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"settee/pkg/retry"
)

const (
	// failuresMost is how many calls of a program may run out of time or memory in succession.
	failuresMost = 3
	// firstPause and longestPause are how long a program is refused after so many failures. Each further failure doubles
	// the pause.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// failingMost is the largest number of programs whose failures are known. The program that was called last is
	// forgotten last.
	failingMost = 1000
)

// breaker refuses calls of programs that have repeatedly run out of time or memory (a circuit breaker). It knows programs
// by their keys. A program is
//
//   - closed: it is called. It is forgotten when a call of it does not fail;
//   - open: it is refused until its pause is over;
//   - half open: its pause is over. One call is tried, and the others are refused until that one ends.
type breaker struct {
	mu      sync.Mutex
	byKey   map[string]*list.Element
	recency *list.List // of *failing; the program that was called last at the end
}

// failing is a program whose last call has failed.
type failing struct {
	key    string
	times  int       // failures in succession
	last   error     // ErrTime or ErrMemory
	until  time.Time // zero: closed
	trying bool      // half open, and a call is tried
}

func newBreaker() *breaker { return &breaker{byKey: map[string]*list.Element{}, recency: list.New()} }

// begin returns whether a call of a program is the trial call, or a *RefusedError.
func (b *breaker) begin(key string) (trial bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.known(key)
	switch {
	case f == nil || f.until.IsZero():
		return false, nil
	case f.trying:
		return false, &RefusedError{Reason: f.last}
	case time.Now().Before(f.until):
		return false, &RefusedError{Reason: f.last, Until: f.until}
	}
	f.trying = true
	return true, nil
}

// refuses returns a *RefusedError if a program has been refused since a call of it began, which is not the trial.
func (b *breaker) refuses(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.known(key); f != nil && !f.until.IsZero() {
		return &RefusedError{Reason: f.last, Until: f.until}
	}
	return nil
}

// verdict is what a call says about its program.
type verdict int

const (
	none   verdict = iota // it did not run to its end for a reason outside of the program
	passed                // it ended within the bounds
	failed                // it ran out of time or memory
)

// verdictOf returns the verdict of a call that had all the time and memory that there is for a call.
func verdictOf(err error) verdict {
	switch {
	case err == nil, errors.Is(err, ErrStack), errors.As(err, new(*Exception)):
		return passed
	case errors.Is(err, ErrTime), errors.Is(err, ErrMemory):
		return failed
	}
	return none
}

// end notes the end of a call.
func (b *breaker) end(key string, trial bool, v verdict, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.known(key)
	if f != nil && trial {
		f.trying = false
	}
	switch {
	case key == "" || v == none:
	case v == passed && f != nil && (trial || f.until.IsZero()):
		b.recency.Remove(b.byKey[key])
		delete(b.byKey, key)
	case v == failed:
		if f == nil {
			f = b.add(key)
		}
		b.fail(f, trial, err)
	}
}

// fail notes a failure. Calls that began before the program was refused do not prolong the pause.
func (b *breaker) fail(f *failing, trial bool, err error) {
	if !f.until.IsZero() && !trial {
		return
	}
	if f.last = ErrMemory; errors.Is(err, ErrTime) {
		f.last = ErrTime
	}
	if f.times++; f.times >= failuresMost {
		f.until = time.Now().Add(retry.Backoff{First: firstPause, Most: longestPause}.After(f.times-failuresMost, 0))
	}
}

// known returns what is known of a program, or nil.
func (b *breaker) known(key string) *failing {
	element := b.byKey[key]
	if element == nil {
		return nil
	}
	b.recency.MoveToBack(element)
	f, _ := element.Value.(*failing)
	return f
}

func (b *breaker) add(key string) *failing {
	f := &failing{key: key}
	b.byKey[key] = b.recency.PushBack(f)
	if b.recency.Len() > failingMost {
		oldest, _ := b.recency.Remove(b.recency.Front()).(*failing)
		delete(b.byKey, oldest.key)
	}
	return f
}
