package fdbjobs

import (
	"context"
	"fmt"
	"slices"

	"settee/pkg/kv"
)

// rowsAtOnce is how many jobs' rows one transaction of WaitAny reads.
const rowsAtOnce = 1_000

// Wait waits until a job has one of the statuses, Finished if none is given, and
// returns it. A job that already has one is returned at once. So is one that takes one
// after that was seen, even if it has moved on before it could be read: its Status says
// what it has become. The error is ErrNotFound if there is no such job, or no more; ctx's;
// ErrClosed; or the store's.
func (t *Type) Wait(ctx context.Context, id string, statuses ...Status) (*Job, error) {
	return t.WaitAny(ctx, []string{id}, statuses...)
}

// WaitAny is Wait for the first of several jobs. Whoever wants all of them leaves out
// the one that is returned and waits again.
func (t *Type) WaitAny(ctx context.Context, ids []string, statuses ...Status) (*Job, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to wait for", ErrInvalid)
	}
	if len(statuses) == 0 {
		statuses = []Status{Finished}
	}
	w, err := t.subscribers.subscribe(ctx, ids, statuses)
	if err != nil {
		return nil, err
	}
	defer t.subscribers.unsubscribe(w)
	told := map[string]bool{}
	began := int64(0) // the version of the first look: what was before, that has seen
	for {
		for some := range slices.Chunk(ids, rowsAtOnce) {
			job, version, err := t.firstOf(ctx, some, statuses, told)
			if job != nil || err != nil {
				return job, err
			}
			if began == 0 {
				began = version
			}
		}
		if err := t.subscribers.next(ctx, w); err != nil {
			return nil, err
		}
		ids, told = t.subscribers.changes(w, began)
	}
}

// firstOf returns the first of some jobs that has one of the statuses, or has had it,
// nil if none has, and the version at which it looked.
func (t *Type) firstOf(
	ctx context.Context, ids []string, statuses []Status, told map[string]bool,
) (job *Job, version int64, err error) {
	job, err = kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (*Job, error) {
		at := tx.ReadVersion()
		rows := make([]kv.Future[[]byte], len(ids))
		for i, id := range ids {
			rows[i] = t.readRow(tx.Snapshot(), id)
		}
		for i, id := range ids {
			row, err := awaitRow(rows[i])
			switch {
			case err != nil:
				return nil, err
			case row == nil:
				return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
			case told[id] || slices.Contains(statuses, row.status):
				return t.Get(tx.Snapshot(), id)
			}
		}
		version, err = at.Await()
		return nil, err
	})
	return job, version, err
}

// Follow calls fn with a job as it is, and again after each change of its status or
// its generation, until fn returns true or an error, which it returns. Several changes
// in a short time may be one call. fn is called in this goroutine; further errors are
// Wait's.
func (t *Type) Follow(ctx context.Context, id string, fn func(*Job) (done bool, err error)) error {
	w, err := t.subscribers.subscribe(ctx, []string{id}, nil)
	if err != nil {
		return err
	}
	defer t.subscribers.unsubscribe(w)
	for {
		job, err := kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (*Job, error) {
			return t.Get(tx.Snapshot(), id)
		})
		if err != nil {
			return err
		}
		if done, err := fn(job); done || err != nil {
			return err
		}
		if err := t.subscribers.next(ctx, w); err != nil {
			return err
		}
	}
}
