package fdbjobs

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// workRetry is the time until a job whose function has failed runs again.
	workRetry = time.Minute
	// endingTime is the time limit for ending a job in the store after its function has returned.
	endingTime = 5 * time.Second
)

// Work takes jobs and calls fn with each, for at most n jobs at a time, until ctx ends. It keeps a job alive while fn runs.
// The context of fn also ends when the job is no longer held, so that fn must stop.
//
// If fn returns nil, the job is finished, unless fn has finished or resubmitted it. If fn returns an error, the job runs
// again after a minute, or at once, in another process, if ctx has ended. fn reports its errors itself.
//
// Work returns after the last call of fn. The error is ctx's, ErrClosed, or the store's.
func (q *Queue) Work(ctx context.Context, n int, fn func(context.Context, *Held) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	for range max(n, 1) {
		working.Go(func() {
			for {
				held, err := q.Accept(ctx, AcceptOptions{})
				for _, h := range held { // one
					err = h.work(ctx, fn)
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}

// work runs fn and ends the job. The error is the store's.
func (h *Held) work(ctx context.Context, fn func(context.Context, *Held) error) error {
	err := ctx.Err()
	if err == nil {
		err = h.keepAlive(ctx, fn)
	}
	if h.ctx.Err() != nil {
		return nil // fn has ended the job, or another process may hold it
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingTime)
	defer cancel()
	now := h.queue.layer.now()
	switch {
	case err == nil:
		err = h.Finish(ending, nil, nil)
	case ctx.Err() != nil:
		err = h.Resubmit(ending, now, nil, nil)
	default:
		err = h.Resubmit(ending, now.Add(workRetry), nil, nil)
	}
	if errors.Is(err, ErrHalt) {
		return nil
	}
	return err
}

// keepAlive runs fn and updates the job meanwhile. The context of fn ends when the job is no longer held.
func (h *Held) keepAlive(ctx context.Context, fn func(context.Context, *Held) error) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	detach := context.AfterFunc(h.Context(), func() { stop(context.Cause(h.Context())) })
	defer detach()
	l, kept := h.queue.layer, make(chan struct{})
	keeping := l.named(working, "keeping "+h.job.ID)
	go func() {
		defer close(kept)
		l.pass(keeping)
		for l.pause(keeping, h.Heartbeat(), nil) {
			// After an error the update is repeated until Context ends.
			_ = h.Update(keeping, nil, nil)
		}
	}()
	err := fn(working, h)
	stop(nil)
	<-kept
	l.pass(ctx)
	return err
}
