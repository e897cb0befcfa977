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

// Retry is the loop of [Database.Transact] for engines that have none of their
// own: it calls attempt until that succeeds, fails for good, or ctx ends. The
// delay doubles from 1 ms to 1 s, and a random part of it is waited.
//
// An attempt whose ctx ended while its commit was under way returns
// [ErrCommitUnknown]. When ctx ends after any attempt did, that may still be
// the truth, so the error is ErrCommitUnknown joined with ctx's.
func Retry(ctx context.Context, attempt func() error) error {
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
		sleep(ctx, rand.N(backoff))
		backoff = min(2*backoff, maxBackoff)
	}
	if unknown != nil {
		return errors.Join(unknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
