package worker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// mostPerBatch is the largest number of requests at a time with which a batch is read. On CouchDB each document costs
// several operations on a file, each of which wakes a thread. Requests side by side keep the threads awake, and CouchDB
// commits what several of them write at once.
const mostPerBatch = 4

// steps are the stages of a batch. Each admits WorkerProcesses batches or portions at a time: while one is written, the
// next is read, and the one after that is compared with the target.
//
// A batch stays in a step until the next has room. So a slow database holds up the steps before it, and memory is
// bounded. Reading documents singly is a step of its own, because large documents take long.
//
// Within the step single, all batches share the revisions that are copied at the same time.
type steps struct {
	read, single step
	write        writeStep
	revision     step
}

func newSteps(s *settings) steps {
	return steps{
		read: make(step, s.workers), single: make(step, s.workers), write: newWriteStep(s.workers, s.requestsPerBatch()),
		revision: make(step, max(1, s.connections-2)), // two connections are kept for short requests
	}
}

// step is a semaphore.
type step chan struct{}

// enter waits for room. leave may be called more than once.
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

// writeStep admits portions by their size: as many of the largest size as there are workers, or up to perWorker times as
// many small ones, which take no more memory.
type writeStep struct {
	room      *semaphore.Weighted // parts of a portion, of which each worker has perWorker
	perWorker int
}

func newWriteStep(workers, perWorker int) writeStep {
	return writeStep{semaphore.NewWeighted(int64(workers * perWorker)), perWorker}
}

// parts returns how many parts a portion of size bytes takes if the largest size is limit.
func (s writeStep) parts(size, limit int) int64 {
	return int64(min(max(1, (size*s.perWorker+limit-1)/limit), s.perWorker))
}

// enter waits for room for a portion of size bytes if the largest size is limit. leave must be called once.
func (s writeStep) enter(ctx context.Context, size, limit int) (leave func(), err error) {
	n := s.parts(size, limit)
	if s.room.Acquire(ctx, n) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { s.room.Release(n) }, nil
}

// copyBatch copies everything in a batch that the target is missing. It calls asked when the next batch may ask the
// target. On an error it calls fail at once; writes that have begun continue until writing ends. If ctx ends with
// ErrStopped, it also writes the documents that it has read.
func (r *run) copyBatch(ctx, writing context.Context, b *batch, asked func(), fail func(error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := r.newSetAside()
	ctx, writing = withSetAside(ctx, failed), withSetAside(writing, failed)
	w := &writer{r: r, ctx: writing, adding: make(step, 1), fail: func(err error) {
		cancel(err)
		fail(err)
	}}
	err := r.startCopy(ctx, b, w, asked)
	if err != nil && errors.Is(context.Cause(ctx), ErrStopped) {
		err = cmp.Or(w.flush(writing), err)
	}
	if err != nil {
		w.fail(err)
	}
	w.writes.Wait()
	if err := context.Cause(ctx); err != nil {
		return err // the first one
	}
	return r.copySetAside(ctx, failed)
}

// startCopy is copyBatch without the wait for the last writes.
func (r *run) startCopy(ctx context.Context, b *batch, w *writer, asked func()) error {
	questions := &r.unasked
	if b.live {
		questions = &r.unaskedLive
	}
	missing, notAsked, err := r.lacking(ctx, r.readable(b.rows), questions)
	if err != nil || len(missing) == 0 {
		return err
	}
	leave, err := r.steps.read.enter(ctx)
	if err != nil {
		return err
	}
	defer func() { leave() }()
	asked()

	single, small := missing, []smallRef(nil)
	if r.bulkGets() {
		if single, small, err = r.copyInBulk(ctx, missing, notAsked, w); err != nil {
			return err
		}
	}
	if notAsked {
		if single, small, err = r.askLate(ctx, single, small, questions); err != nil {
			return err
		}
	}
	left, err := r.copySmall(ctx, small, w)
	if err != nil {
		return err
	}
	single = append(single, left...)
	// Documents already read do not wait for large ones.
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

// lasting returns a context that lasts d longer than ctx, but not longer than whole. It has the values of whole, and the
// span of ctx. The caller must call end.
func lasting(ctx, whole context.Context, d time.Duration) (longer context.Context, end func()) {
	longer, cancel := context.WithCancelCause(withSpanOf(whole, ctx))
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
