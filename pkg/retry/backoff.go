// Package retry says how long to wait before something that has failed is tried again.
package retry

import (
	"context"
	"time"
)

// Backoff computes the waits between tries. The first is First, and each further one is twice as long. No wait is longer
// than Most.
type Backoff struct {
	First time.Duration
	Most  time.Duration // 0 means a minute
	waits int           // since Reset
}

// Next returns the next wait.
func (b *Backoff) Next() time.Duration {
	b.waits++
	return b.After(b.waits-1, 0)
}

// Reset makes the next wait First again.
func (b *Backoff) Reset() { b.waits = 0 }

// After returns the wait that follows the given number of waits, less up to a quarter of it. jitter, from 0 to below 1,
// says how much of that quarter.
func (b Backoff) After(waits int, jitter float64) time.Duration {
	most := b.Most
	if most == 0 {
		most = time.Minute
	}
	wait := min(b.First, most)
	for ; waits > 0 && wait > 0 && wait < most; waits-- {
		wait += min(wait, most-wait)
	}
	return wait - time.Duration(float64(wait/4)*jitter)
}

// Wait waits for d. If ctx ends first, it returns the cause.
func Wait(ctx context.Context, d time.Duration) error { return WaitOr(ctx, d, nil) }

// WaitOr is [Wait], and also ends when wake can be received from.
func WaitOr(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
