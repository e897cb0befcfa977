package engine

import (
	"context"
	"sync"
)

// Outcome is the end of a watch, which comes once.
type Outcome struct {
	done chan struct{}
	err  error // set before done is closed

	mu    sync.Mutex // guards the fields below; not held while told is called
	ended bool
	told  func(error) // see AfterEnd
}

// NewOutcome returns the outcome of a watch that has not ended.
func NewOutcome() *Outcome { return &Outcome{done: make(chan struct{})} }

// Finish ends the watch with err. Only the first call counts.
func (o *Outcome) Finish(err error) {
	o.mu.Lock()
	told, before := o.told, o.ended
	if !before {
		o.ended, o.err = true, err
		close(o.done)
	}
	o.mu.Unlock()
	if !before && told != nil {
		told(err)
	}
}

// AfterEnd calls told with the error of the watch when it ends, or now if it has ended. told must not wait: the engine may
// call it while it commits. There is one told, that of the last call.
func (o *Outcome) AfterEnd(told func(error)) {
	o.mu.Lock()
	ended := o.ended
	o.told = told
	o.mu.Unlock()
	if ended {
		told(o.err)
	}
}

// Wait implements kv.Watch. If both the watch and ctx have ended, the watch counts.
func (o *Outcome) Wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	default:
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
