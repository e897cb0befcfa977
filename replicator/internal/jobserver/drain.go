package jobserver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// drain has the stages in which a server ends. First it stops taking jobs, and its runs get time to go back to the queue.
// Then they are cut off.
type drain struct {
	accepting context.Context // ends when the server must stop taking jobs
	hurry     context.Context // ends when the time for shutting down is over

	stopAccepting, hurryUp context.CancelFunc
	ended                  chan struct{} // closed when the server has ended
}

func newDrain() drain {
	d := drain{ended: make(chan struct{})}
	d.accepting, d.stopAccepting = context.WithCancel(context.Background())
	d.hurry, d.hurryUp = context.WithCancel(context.Background())
	return d
}

// Leave stops taking jobs, and tells the runs to stop and give their jobs back to the queue, where other nodes take them. It
// does not wait for that.
func (d *drain) Leave() { d.stopAccepting() }

// Leaving reports whether the server has stopped taking jobs.
func (d *drain) Leaving() bool { return d.accepting.Err() != nil }

// Shutdown is Leave, and waits until Run has returned. The runs have until ctx ends to give their jobs back. After that
// they are cut off (Working). It returns ctx's error if ctx ended first. Run must have been called.
func (d *drain) Shutdown(ctx context.Context) error {
	d.stopAccepting()
	defer d.hurryUp()
	select {
	case <-d.ended:
		return nil
	case <-ctx.Done():
	}
	d.hurryUp()
	<-d.ended
	return ctx.Err()
}

// ErrNoTime is the cause of the end of a context of Working.
var ErrNoTime = errors.New("the node is shutting down")

// Working returns a context for the work of a run, without the record of its end. It ends with ErrNoTime when the time for
// shutting down is over.
func (d *drain) Working(ctx context.Context) (context.Context, context.CancelFunc) {
	working, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.hurry, func() { cancel(ErrNoTime) })
	return working, func() {
		stop()
		cancel(nil)
	}
}

// hurried is how long a job may still be given back after the time for shutting down.
const hurried = 2 * time.Second

// last returns a context for the last write of a held job. It ends with ctx, after the time most, and 2 seconds after the
// time for shutting down. In the last two cases the cause says so and wraps context.DeadlineExceeded, so that the write
// counts as one that may have been committed.
func (d *drain) last(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelMost := context.WithTimeoutCause(ctx, most,
		fmt.Errorf("%w: the job could not be put back into its queue for %s", context.DeadlineExceeded, most))
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.hurry, func() {
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
