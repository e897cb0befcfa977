package fdbjobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
)

// A call that waits for a job watches its row, which changes with the job's status and generation. It also changes when
// the holder renews its hold: the call reads the row again then, and nothing else. A row counts how often its job has
// entered each status, so a waiter learns of a status that has passed before it could read it.

// Wait waits until one of some jobs has one of the statuses, Finished if none is given, and returns that job. A job that
// already has one is returned at once. A job that has had one since is returned even if it has changed again before it
// is read, unless it was removed and added again: its Status is the current one. To wait for all jobs, call Wait again
// without the job that was returned. It reads and watches each job by itself. With more than the store allows
// (kv.DefaultMaxWatches) it reads the others every second. The errors are ErrNotFound if a job does not exist or was
// removed, ctx's, ErrClosed, and the store's.
func (q *Queue) Wait(ctx context.Context, ids []string, statuses ...Status) (job *Job, err error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to wait for", ErrInvalid)
	}
	if len(statuses) == 0 {
		statuses = []Status{Finished}
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.WaitGroup
	var first sync.Once
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		one := q.layer.named(waits, "waiting for "+id)
		waiting.Go(func() {
			q.layer.pass(one)
			found, failed := q.wait(one, id, statuses)
			first.Do(func() {
				job, err = found, failed
				cancel()
			})
		})
	}
	waiting.Wait()
	q.layer.pass(ctx)
	return job, err
}

// wait is Wait for one job.
func (q *Queue) wait(ctx context.Context, id string, statuses []Status) (job *Job, err error) {
	looked, before := false, int64(0) // how often the job had entered one of statuses at the latest look
	err = q.followRow(ctx, id, func(tx kv.Transaction, r *row) (then func() (bool, error), err error) {
		if r == nil {
			return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
		}
		entered := int64(0)
		for _, status := range statuses {
			entered += *r.entered.of(status)
		}
		job = nil
		// A job that was removed and added again counts from zero, so one of its statuses can be missed.
		if slices.Contains(statuses, r.status) || looked && entered > 0 && entered != before {
			job, err = q.Get(tx.Snapshot(), id)
		}
		return func() (bool, error) {
			looked, before = true, entered
			return job != nil, nil
		}, err
	})
	if err != nil {
		return nil, err
	}
	return job, nil
}

// Follow calls fn with a job, and again after each change of its status or its generation, until fn returns true or an
// error, which Follow returns. One call may stand for several changes. fn runs in the caller's goroutine. Other errors
// are Wait's.
func (q *Queue) Follow(ctx context.Context, id string, fn func(*Job) (done bool, err error)) error {
	var last *row
	return q.followRow(ctx, id, func(tx kv.Transaction, now *row) (func() (bool, error), error) {
		if now == nil {
			return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
		}
		if last != nil && now.generation == last.generation && now.entered == last.entered {
			return func() (bool, error) { return false, nil }, nil
		}
		job, err := q.Get(tx.Snapshot(), id)
		return func() (bool, error) {
			last = now
			return fn(job)
		}, err
	})
}

// rowReader reads more about a job with a row, nil if there is none, and returns what to do with that after the transaction.
type rowReader func(tx kv.Transaction, now *row) (then func() (done bool, err error), err error)

// followRow calls read in a transaction with a job's row, and then what read returned, again after each change of the row,
// until that returns true or an error.
func (q *Queue) followRow(ctx context.Context, id string, read rowReader) error {
	return q.layer.waiting(ctx, func(ctx context.Context) error {
		for {
			var then func() (bool, error)
			var watch kv.Watch
			var err error
			kv.Apart(func() { then, watch, err = q.watchRow(ctx, id, read) })
			q.layer.pass(ctx)
			if err != nil {
				return err
			}
			if done, err := then(); done || err != nil {
				watch.Cancel()
				return err
			}
			q.layer.await(ctx, watch, time.Time{}, nil)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
}

// watchRow calls read in a transaction with a job's row, and watches the row.
func (q *Queue) watchRow(
	ctx context.Context, id string, read rowReader,
) (then func() (done bool, err error), watch kv.Watch, err error) {
	err = q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		row, err := q.readRow(tx.Snapshot(), id).Await()
		if err != nil {
			return err
		}
		if then, err = read(tx, row); err == nil {
			watch = tx.Watch(q.keys.data.Pack(id))
		}
		return err
	})
	return then, watch, err
}

// waiting runs f, whose context also ends when the layer is closed, and returns its error. That is ErrClosed then.
func (l *Layer) waiting(ctx context.Context, f func(context.Context) error) error {
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	waits, end := l.whileOpen(ctx)
	defer end()
	return l.waited(ctx, f(waits))
}

// whileOpen returns a context that ends with ctx, when the layer is closed, and by end.
func (l *Layer) whileOpen(ctx context.Context) (waits context.Context, end func()) {
	waits, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel)
	return waits, func() {
		stop()
		cancel()
	}
}

// waited returns the error of something that waited in ctx until the layer was closed.
func (l *Layer) waited(ctx context.Context, err error) error {
	if errors.Is(err, kv.ErrClosed) || errors.Is(err, context.Canceled) && ctx.Err() == nil && l.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}
