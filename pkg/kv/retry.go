package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The delays between the runs of a transaction.
const (
	initialBackoff = time.Millisecond
	maxBackoff     = time.Second
)

// Retrier is the loop of [Database.Transact] for engines that have none of their
// own. The zero value works.
type Retrier struct {
	// Pause waits for a random time of at most most, or until ctx ends; nil draws
	// from the machine's randomness and waits by its clock. In a simulation both come
	// from a seed.
	Pause func(ctx context.Context, most time.Duration)
}

// Retry is [Retrier.Retry] of the zero value.
func Retry(ctx context.Context, attempt func() error) error { return Retrier{}.Retry(ctx, attempt) }

// Retry calls attempt until that succeeds, fails for good, or ctx ends. The delay
// doubles from 1 ms to 1 s, and a random part of it is waited.
//
// An attempt whose ctx ended while its commit was under way returns
// [ErrCommitUnknown]. When ctx ends after any attempt did, that may still be
// the truth, so the error is ErrCommitUnknown joined with ctx's.
func (r Retrier) Retry(ctx context.Context, attempt func() error) error {
	if r.Pause == nil {
		r.Pause = pause
	}
	backoff := initialBackoff
	var unknown error
	for ctx.Err() == nil {
		err := attempt()
		if err == nil || !Retryable(err) {
			return err
		}
		if errors.Is(err, ErrCommitUnknown) {
			unknown = err
		}
		r.Pause(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
	if unknown != nil {
		return errors.Join(unknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

func pause(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
