package engine

import (
	"context"
	"sync"
)

// Outcome is the end of a watch, which comes once.
type Outcome struct {
	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

// NewOutcome returns the outcome of a watch that has not ended.
func NewOutcome() *Outcome { return &Outcome{done: make(chan struct{})} }

// Finish ends the watch with err. Only the first call counts.
func (o *Outcome) Finish(err error) {
	o.once.Do(func() {
		o.err = err
		close(o.done)
	})
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
