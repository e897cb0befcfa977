package worker

import (
	"context"
	"sync"
	"time"
)

// steps are what is done with a batch, one after the other. In each of them WorkerProcesses batches may be
// at a time, or portions of them: while one is written, the next one is read, and of the one after that the
// target is asked what it has, so that no step waits for the round trips of another.
//
// A batch stays in a step until there is room in the next, so that a database that is slow holds up what
// comes before it, and memory is bounded. Documents that are read singly have a step of their own: large
// ones are read and written there for as long as it takes.
type steps struct {
	diff, read, single, write step
}

func newSteps(size int) steps {
	return steps{diff: make(step, size), read: make(step, size), single: make(step, size), write: make(step, size)}
}

// step is a semaphore.
type step chan struct{}

// enter waits for room. The function that it returns may be called more than once.
func (s step) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	}
	inside := true
	return func() {
		if inside {
			inside = false
			<-s
		}
	}, nil
}

// copyBatch brings the target all that it is missing of a batch. It calls asked when the step of asking
// what that is has room for another one. What fails is told to fail at once; what is being written then is
// written, until writing ends.
func (r *run) copyBatch(ctx, writing context.Context, b *batch, asked func(), fail func(error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &writer{r: r, ctx: writing, fail: func(err error) {
		cancel(err)
		fail(err)
	}}
	err := r.carry(ctx, b, w, asked)
	if err != nil {
		w.fail(err)
	}
	w.writes.Wait()
	return context.Cause(ctx) // the first error, which ended the rest
}

// carry does all of it but for waiting for the last writes.
func (r *run) carry(ctx context.Context, b *batch, w *writer, asked func()) error {
	missing, err := r.missing(ctx, r.readable(b.rows))
	if err != nil || len(missing) == 0 {
		return err
	}
	leave, err := r.steps.read.enter(ctx)
	if err != nil {
		return err
	}
	defer func() { leave() }()
	asked()

	single := missing
	if r.useBulkGet && !r.noBulkGet.Load() {
		if single, err = r.copyInBulk(ctx, missing, w); err != nil {
			return err
		}
	}
	// What was read does not wait for what is large.
	if err := w.flush(ctx); err != nil || len(single) == 0 {
		return err
	}
	next, err := r.steps.single.enter(ctx)
	if err != nil {
		return err
	}
	leave()
	leave = next
	if err := r.copySingly(ctx, single, w); err != nil {
		return err
	}
	return w.flush(ctx)
}

// lasting returns a context that goes on for a while when ctx has ended, but no longer than whole. end is to
// be called when it is not needed any more.
func lasting(ctx, whole context.Context, d time.Duration) (longer context.Context, end func()) {
	longer, cancel := context.WithCancelCause(whole)
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			timer = time.AfterFunc(d, func() { cancel(context.Cause(ctx)) })
		}
	})
	return longer, func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}
