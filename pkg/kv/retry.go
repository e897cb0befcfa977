package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"settee/pkg/retry"
)

// Retrier is the loop of [Database.Transact] for engines without one of their own. The zero value works.
type Retrier struct {
	// Pause waits for a random time up to most, or until ctx ends. nil uses random numbers and the clock of the
	// machine. A simulation draws both from a seed.
	Pause func(ctx context.Context, most time.Duration)
	// Options say what to do when the calls take long.
	Options Options
}

// Retry calls attempt until it succeeds, returns an error that is not retryable, or ctx ends. Between two calls it
// waits for a random part of a delay that doubles from 1 ms to 1 s.
//
// If ctx ends during a commit, attempt returns [ErrCommitUnknown]. If ctx ends later and any attempt returned
// ErrCommitUnknown, the result is still unknown, and the error is ErrCommitUnknown joined with ctx's.
func (r Retrier) Retry(ctx context.Context, attempt func() error) error {
	if r.Pause == nil {
		r.Pause = pause
	}
	backoff, runs := retry.Backoff{First: time.Millisecond, Most: time.Second}, r.Options.Runs()
	var unknown error
	for ctx.Err() == nil {
		err := attempt()
		if err == nil || !Retryable(err) {
			return err
		}
		runs.Failed(err)
		if errors.Is(err, ErrCommitUnknown) {
			unknown = err
		}
		r.Pause(ctx, backoff.Next())
	}
	if unknown != nil {
		return errors.Join(unknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

func pause(ctx context.Context, most time.Duration) { _ = retry.Wait(ctx, rand.N(most)) }
