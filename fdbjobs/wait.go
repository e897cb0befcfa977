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

// rowsAtOnce is the number of rows that one transaction reads.
const rowsAtOnce = 1_000

// Wait waits until one of some jobs has one of the statuses, Finished if none is given, and returns that job. A job that
// already has one is returned at once. A job that has had one since is returned even if it has changed again before it
// is read, unless it was removed and added again: its Status is the current one. To wait for all jobs, call Wait again
// without the job that was returned. It watches each job. With more than the store allows (kv.DefaultMaxWatches) it reads
// the others every second. The errors are ErrNotFound if a job does not exist or was removed, ctx's, ErrClosed, and the
// store's.
func (q *Queue) Wait(ctx context.Context, ids []string, statuses ...Status) (*Job, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to wait for", ErrInvalid)
	}
	if len(statuses) == 0 {
		statuses = []Status{Finished}
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	var job *Job
	err := q.layer.waiting(ctx, func(ctx context.Context) (err error) {
		w := waiter{queue: q, statuses: statuses, entered: map[string]int64{}, changed: make(chan string, len(ids))}
		job, err = w.wait(ctx, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	return job, nil
}

// waiter is a call of Wait.
type waiter struct {
	queue    *Queue
	statuses []Status
	entered  map[string]int64 // how often each job had entered one of statuses at the first look
	watching sync.WaitGroup
	changed  chan string // ids whose rows may have changed; has room for all
}

func (w *waiter) wait(ctx context.Context, ids []string) (*Job, error) {
	watched, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		w.watching.Wait()
		w.queue.layer.pass(ctx)
	}()
	for {
		for some := range slices.Chunk(ids, rowsAtOnce) {
			if job, err := w.look(watched, some); job != nil || err != nil {
				return job, err
			}
		}
		var err error
		if ids, err = w.next(ctx); err != nil {
			return nil, err
		}
	}
}

// next waits until rows may have changed, and returns the ids.
func (w *waiter) next(ctx context.Context) ([]string, error) {
	var ids []string
	select {
	case id := <-w.changed:
		ids = append(ids, id)
	case <-ctx.Done():
	}
	w.queue.layer.pass(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for len(w.changed) > 0 {
		ids = append(ids, <-w.changed)
	}
	slices.Sort(ids)
	return ids, nil
}

// look returns the first of some jobs that has, or has had, one of the statuses, or else watches them.
func (w *waiter) look(ctx context.Context, ids []string) (found *Job, err error) {
	q := w.queue
	var rows []*row
	var watches []kv.Watch
	err = q.layer.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		found, watches = nil, nil
		if rows, err = q.readRows(tx.Snapshot(), ids); err != nil {
			return err
		}
		for i, id := range ids {
			switch {
			case rows[i] == nil:
				return fmt.Errorf("%w: %q", ErrNotFound, id)
			case w.meets(id, rows[i]):
				found, err = q.Get(tx.Snapshot(), id)
				return err
			}
		}
		for _, id := range ids {
			watches = append(watches, tx.Watch(q.keys.data.Pack(id)))
		}
		return nil
	})
	if err != nil || found != nil {
		return found, err
	}
	for i, id := range ids {
		w.entered[id] = w.count(rows[i])
		ctx := q.layer.named(ctx, "watch of "+id)
		w.watching.Go(func() {
			q.layer.pass(ctx)
			q.layer.await(ctx, watches[i], time.Time{}, nil)
			w.changed <- id
		})
	}
	return nil, nil
}

// meets reports whether a job has one of the statuses, or has entered one since the first look.
func (w *waiter) meets(id string, r *row) bool {
	if slices.Contains(w.statuses, r.status) {
		return true
	}
	before, looked := w.entered[id]
	// A job that was removed and added again counts from zero, so one of its statuses can be missed.
	return looked && w.count(r) > 0 && w.count(r) != before
}

// count returns how often a job has entered one of the statuses.
func (w *waiter) count(r *row) (n int64) {
	for _, status := range w.statuses {
		n += *r.entered.of(status)
	}
	return n
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

// followRow calls read in a transaction with a job's row, nil if there is none, and then what read returned, again after
// each change of the row, until that returns true or an error.
func (q *Queue) followRow(
	ctx context.Context, id string, read func(kv.Transaction, *row) (then func() (done bool, err error), err error),
) error {
	return q.layer.waiting(ctx, func(ctx context.Context) error {
		for {
			var then func() (bool, error)
			var watch kv.Watch
			var err error
			kv.Apart(func() {
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
			})
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

// waiting runs f, whose context also ends when the layer is closed, and returns its error. That is ErrClosed then.
func (l *Layer) waiting(ctx context.Context, f func(context.Context) error) error {
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	err := f(waits)
	if errors.Is(err, kv.ErrClosed) || errors.Is(err, context.Canceled) && ctx.Err() == nil && l.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}
