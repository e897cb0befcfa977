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
//
// If until is not nil, Wait calls it with the job instead, and again after each change of the job's status, or of its args
// while it runs, until it returns true. One call may stand for several changes. until runs in the caller's goroutine.
func (q *Queue) Wait(ctx context.Context, id string, until func(*Job) bool) (job *Job, err error) {
	wants := changed
	if until == nil {
		wants, until = ended, func(*Job) bool { return true }
	}
	var before, now *row
	err = q.eachChange(ctx, id, func(tx kv.Transaction, r *row) (err error) {
		if now, job = r, nil; now == nil {
			return fmt.Errorf("%w: %q", ErrNotFound, id)
		}
		if wants(before, now) {
			job, err = q.Get(tx.Snapshot(), id)
		}
		return err
	}, func() bool {
		before = now
		if job == nil || until(job) {
			return job != nil
		}
		job = nil // its args may be large
		return false
	})
	if err != nil {
		return nil, err
	}
	return job, nil
}

// ended reports whether a job has ended since its row was before, or before that if before is nil. A job that was removed and
// added again counts from zero, so an end can be missed.
func ended(before, now *row) bool {
	since := before != nil && now.entered.finished > 0 && now.entered.finished != before.entered.finished
	return since || now.status == Finished
}

// changed reports whether the status or the generation of a job have changed since its row was before.
func changed(before, now *row) bool {
	return before == nil || now.generation != before.generation || now.entered != before.entered
}

// eachChange calls read in a transaction with a job's row, nil if there is none, and then done. It does so again after each
// change of the row, until read returns an error, or done returns true.
func (q *Queue) eachChange(ctx context.Context, id string, read func(kv.Transaction, *row) error, done func() bool) error {
	if q.layer.ctx.Err() != nil {
		return ErrClosed
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(q.layer.ctx, cancel)
	defer stop()
	for {
		var watch kv.Watch
		var err error
		kv.OnOwnStack(func() { watch, err = q.watchRow(waits, id, read) })
		q.layer.pass(waits)
		if err != nil {
			return q.layer.waited(ctx, err)
		}
		if done() {
			watch.Cancel()
			return nil
		}
		q.layer.await(waits, watch, time.Time{}, nil)
		if waits.Err() != nil {
			return q.layer.waited(ctx, waits.Err())
		}
	}
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

// waited returns the error of something that waited in ctx until the layer was closed.
func (l *Layer) waited(ctx context.Context, err error) error {
	if errors.Is(err, kv.ErrClosed) || errors.Is(err, context.Canceled) && ctx.Err() == nil && l.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}
