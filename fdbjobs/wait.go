package fdbjobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
)

// A call that waits for a job watches its row, which changes with the job's status and generation, and with what follows
// from its state, but not with the renewals of its hold. A row counts how often its job has entered each status, so a
// waiter learns of a status that has passed before it could read it.

// Wait waits until a job has ended, and returns it. A job that has ended before is returned at once. A job that has ended
// since is returned even if it was added again before it is read, unless it was removed in between: its Status is the
// current one. The errors are ErrNotFound if the job does not exist or was removed, ctx's, ErrClosed, and the store's.
func (q *Queue) Wait(ctx context.Context, id string) (job *Job, err error) {
	err = q.follow(ctx, id, func(before, now *row) bool {
		// A job that was removed and added again counts from zero, so an end can be missed.
		ended := before != nil && now.entered.finished > 0 && now.entered.finished != before.entered.finished
		return ended || now.status == Finished
	}, func(found *Job) (bool, error) {
		job = found
		return true, nil
	})
	return job, err
}

// Follow calls fn with a job, and again after each change of its status or its generation, until fn returns true or an
// error, which Follow returns. One call may stand for several changes. fn runs in the caller's goroutine. Other errors
// are Wait's.
func (q *Queue) Follow(ctx context.Context, id string, fn func(*Job) (done bool, err error)) error {
	return q.follow(ctx, id, func(before, now *row) bool {
		return before == nil || now.generation != before.generation || now.entered != before.entered
	}, fn)
}

// follow reads a job's row, and again after each change of it. If wants returns true for the previous row, nil at first,
// and this one, it calls fn with the job, until fn returns true or an error.
func (q *Queue) follow(
	ctx context.Context, id string, wants func(before, now *row) bool, fn func(*Job) (done bool, err error),
) error {
	return q.layer.waiting(ctx, func(ctx context.Context) error {
		for before := (*row)(nil); ; {
			var now *row
			var job *Job
			var watch kv.Watch
			var err error
			kv.OnOwnStack(func() {
				watch, err = q.watchRow(ctx, id, func(tx kv.Transaction, r *row) (err error) {
					if now, job = r, nil; now == nil {
						return fmt.Errorf("%w: %q", ErrNotFound, id)
					}
					if wants(before, now) {
						job, err = q.Get(tx.Snapshot(), id)
					}
					return err
				})
			})
			q.layer.pass(ctx)
			if err != nil {
				return err
			}
			if before = now; job != nil {
				if done, err := fn(job); done || err != nil {
					watch.Cancel()
					return err
				}
			}
			q.layer.await(ctx, watch, time.Time{}, nil)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
}

// watchRow calls read in a transaction with a job's row, nil if there is none, and watches the row.
func (q *Queue) watchRow(ctx context.Context, id string, read func(kv.Transaction, *row) error) (watch kv.Watch, err error) {
	err = q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		row, err := q.readRow(tx.Snapshot(), id).Await()
		if err == nil {
			err = read(tx, row)
		}
		if err == nil {
			watch = tx.Watch(q.keys.data.Pack(id))
		}
		return err
	})
	return watch, err
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
