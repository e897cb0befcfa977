// Package jobserver has what the job servers of a node share: how they end. A job server takes jobs from a queue and works
// on them. A node has one for replications (package scheduler) and one for watches (package watch).
package jobserver

import (
	"context"
	"fmt"
	"time"
)

// Stages are the stages in which a job server ends. First it takes no more jobs, and those that it has get time to go back
// to the queue. Then they are cut off.
type Stages struct {
	// Accepting ends when the server must take no more jobs.
	Accepting context.Context
	// Hurry ends when the time for shutting down is over.
	Hurry context.Context

	stopAccepting, hurryUp context.CancelFunc
	ended                  chan struct{}
}

// NewStages returns the stages of a server that has not begun to end.
func NewStages() *Stages {
	s := &Stages{ended: make(chan struct{})}
	s.Accepting, s.stopAccepting = context.WithCancel(context.Background())
	s.Hurry, s.hurryUp = context.WithCancel(context.Background())
	return s
}

// Ended must be called once, when the server has ended.
func (s *Stages) Ended() { close(s.ended) }

// Leave ends Accepting. It does not wait.
func (s *Stages) Leave() { s.stopAccepting() }

// Shutdown ends Accepting and waits for Ended. If ctx ends before, it ends Hurry, goes on waiting, and returns ctx's error.
func (s *Stages) Shutdown(ctx context.Context) error {
	s.stopAccepting()
	defer s.hurryUp()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
	}
	s.hurryUp()
	<-s.ended
	return ctx.Err()
}

// hurried is how long a job may still be put back after the end of Hurry.
const hurried = 2 * time.Second

// Last returns a context for the last write of a held job, which puts it back into its queue. It ends with ctx, after the
// time most, and 2 seconds after the end of Hurry. In the last two cases the cause says so and wraps
// context.DeadlineExceeded, so that the write counts as one that may have been committed.
func (s *Stages) Last(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelMost := context.WithTimeoutCause(ctx, most,
		fmt.Errorf("%w: the job could not be put back into its queue for %s", context.DeadlineExceeded, most))
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.Hurry, func() {
		select {
		case <-ctx.Done():
		case <-time.After(hurried):
			cancel(fmt.Errorf("%w: the job could not be put back into its queue within %s after the node's time to shut down",
				context.DeadlineExceeded, hurried))
		}
	})
	return ctx, func() {
		stop()
		cancel(context.Canceled)
		cancelMost()
	}
}

// Merge returns a context that ends when either a or b ends.
func Merge(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// Poke puts a token into a channel, unless the channel is full.
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
