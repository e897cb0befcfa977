package couch

import (
	"context"
	"time"
)

// maxPause bounds the wait between two tries. An answer that asks for a longer wait is returned to the caller, which
// can do something else meanwhile.
const maxPause = time.Minute

// Backoff computes the waits between tries. The first is Base, and each further one is twice as long, up to a minute.
type Backoff struct {
	Base time.Duration
	next time.Duration // 0: Base
}

// Next returns the wait before the next try.
func (b *Backoff) Next() time.Duration {
	pause := max(b.next, b.Base)
	b.next = min(2*pause, maxPause)
	return pause
}

// Reset makes the next wait Base again.
func (b *Backoff) Reset() { b.next = 0 }

// Wait waits for d. If ctx ends first, it returns the cause.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
