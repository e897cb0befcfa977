package kv

import (
	"context"
	"errors"
	"time"

	"settee/pkg/retry"
)

const (
	// reread is the longest time to wait for a watch, because it may miss a change (see "Watches" in the package's doc
	// comment).
	reread = 30 * time.Second
	// poll is how long to wait without a watch.
	poll = time.Second
)

// AwaitOptions says what else ends [AwaitChange]. The zero value adds nothing.
type AwaitOptions struct {
	// Until is the latest time to wait until. Zero is no limit.
	Until time.Time
	// Wake ends the waiting when it can be received from.
	Wake <-chan struct{}
	// Pass is called in the calling goroutine after each wait, before anything else. It is for simulations: see
	// fdbjobs/internal/turnstile.
	Pass func(ctx context.Context)
}

// AwaitChange waits until the watch ends, opts say so, ctx ends, or 30 seconds have passed. If the watch could not be
// armed, it waits for a second instead. After any of these the caller reads the store again, and gets an error of the
// store there. AwaitChange reports whether the watch ended because the key has (or may have) changed. It cancels the
// watch.
func AwaitChange(ctx context.Context, watch Watch, opts AwaitOptions) (changed bool) {
	defer watch.Cancel()
	pass := opts.Pass
	if pass == nil {
		pass = func(context.Context) {}
	}
	began := time.Now()
	last := began.Add(reread)
	if !opts.Until.IsZero() && opts.Until.Before(last) {
		last = opts.Until
	}
	ctx, cancel := context.WithDeadline(ctx, last)
	defer cancel()
	woken, err := opts.wait(ctx, cancel, watch, pass)
	if woken || err == nil || errors.Is(err, ErrClosed) {
		return !woken && err == nil
	}
	if left := time.Until(began.Add(poll)); left > 0 && ctx.Err() == nil {
		_ = retry.WaitOr(ctx, left, opts.Wake)
		pass(ctx)
	}
	return false
}

// wait waits for the watch, or for Wake.
func (opts AwaitOptions) wait(
	ctx context.Context, cancel context.CancelFunc, watch Watch, pass func(context.Context),
) (woken bool, err error) {
	if opts.Wake == nil {
		err = watch.Wait(ctx)
		pass(ctx)
		return false, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = watch.Wait(ctx)
	}()
	select {
	case <-ended:
		pass(ctx)
		return false, err
	case <-opts.Wake:
		pass(ctx)
		cancel()
		<-ended
		pass(ctx)
		return true, nil
	}
}
