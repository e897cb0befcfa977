package fdbjobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"settee/pkg/kv"
)

// Held is a job that this process holds. Its calls change the job only while that
// is so, and return ErrHalt otherwise. They may be made by several goroutines,
// but what the later of two concurrent ones wrote is not defined.
type Held struct {
	typ  *Type
	job  *Job
	lock string

	ctx    context.Context
	cancel context.CancelCauseFunc

	tag     string // after the end
	instead string // the id of a job

	mu    sync.Mutex // guards the timer's place; never held during I/O
	until time.Time  // when this process stops believing that it holds the job
	every time.Duration
	timer *time.Timer
}

func newHeld(t *Type, job *Job, lock string, began time.Time, timeout time.Duration) *Held {
	h := &Held{typ: t, job: job, lock: lock}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.until, h.every = began.Add(patience(timeout)), heartbeat(timeout)
	h.timer = t.layer.afterFunc(h.ctx, "expiry of "+lock, time.Until(h.until), h.expire)
	return h
}

// patience is how long after the start of its last successful update a processor
// goes on. Others may take the job after the whole timeout.
func patience(timeout time.Duration) time.Duration { return timeout / 4 * 3 }

// heartbeat is how often a job of that timeout is to be updated.
func heartbeat(timeout time.Duration) time.Duration { return timeout / 3 }

// Heartbeat returns the longest time between two updates: a third of the timeout as
// this process last read it.
func (h *Held) Heartbeat() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.every
}

func (h *Held) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := time.Until(h.until); left > 0 {
		h.timer.Reset(left) // an update came in between
		return
	}
	h.cancel(ErrHalt)
}

// Check returns ErrHalt, and ends Context, if no update has succeeded in time. The timer that ends Context by
// itself comes late in a process that was stopped for a while (SIGSTOP, a frozen container). By then another
// process may hold the job, so whoever changes something outside of the store asks here directly before.
func (h *Held) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil && time.Until(h.until) <= 0 {
		h.cancel(ErrHalt)
	}
	return context.Cause(h.ctx)
}

// renew counts the patience from the start of an update that succeeded.
func (h *Held) renew(began time.Time, timeout time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until, h.every = began.Add(patience(timeout)), heartbeat(timeout)
	h.timer.Reset(time.Until(h.until))
}

func (h *Held) release(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
	h.cancel(cause)
}

// SetTag sets the tag that the job has when it is finished or resubmitted: see [Part]. It
// belongs before that, and is at most a hundred bytes, which the end of the job checks.
// Without it there is none.
func (h *Held) SetTag(tag string) { h.tag = tag }

// Job returns the job as it was when it was taken. It must not be changed.
func (h *Held) Job() *Job { return h.job }

// Instead returns the id of the job that is to make room for this one: see
// [AcceptOptions].Yielding.
func (h *Held) Instead() string { return h.instead }

// Forget drops the args and the state of Job, which may be large, when the holder
// has made of them what it needs.
func (h *Held) Forget() { h.job.Args, h.job.State = nil, nil }

// Context ends when the job must not be worked on any more: it was finished or
// resubmitted (the cause is context.Canceled), one of the calls returned ErrHalt,
// or no update succeeded in time (the cause is ErrHalt).
func (h *Held) Context() context.Context { return h.ctx }

// Update writes the job's state, nil for the one it has, and thereby says that the
// job is being worked on. also, if not nil, adds writes of the caller's to the
// transaction, but does not change the job itself; like any transaction's function
// it may run again after an earlier run of it was committed.
//
// The error is ErrHalt if the job is not held any more; nothing was written then,
// but a job that was added again while it ran is queued. (It can also be the answer
// of a Finish or Resubmit whose commit's result was unknown, and whose job has
// another holder or is gone by the time of the repetition.) Another error leaves
// open whether the job is still held; Context tells when to give up.
func (h *Held) Update(ctx context.Context, state json.RawMessage, also func(kv.Transaction) error) error {
	if err := checkState(state); err != nil {
		return err
	}
	began := time.Now()
	timeout := DefaultTimeout
	err := h.transact(ctx, func(tx kv.Transaction, old *row) error {
		reading := tx.Snapshot().Get(h.typ.keys.timeout)
		if err := call(also, tx); err != nil {
			return err
		}
		var err error
		if timeout, err = awaitTimeout(reading); err != nil {
			return err
		}
		next := *old
		next.sequence, next.timeout = stamp(0), timeout
		h.setState(tx, state)
		h.typ.put(tx, h.job.ID, old, &next, 0)
		return nil
	})
	if err == nil {
		h.renew(began, timeout)
	}
	return err
}

// Lost waits until the job is not held any more, or was added again, and returns
// ErrHalt then. It is only faster than the next Update, which says the same. Other
// errors are those of Type.Follow.
func (h *Held) Lost(ctx context.Context) error {
	w, err := h.typ.subscribers.subscribe(ctx, []string{h.job.ID}, nil)
	if err != nil {
		return err
	}
	defer h.typ.subscribers.unsubscribe(w)
	for {
		again, err := h.IsResubmitted(ctx)
		if err != nil {
			return err
		}
		if again {
			return ErrHalt
		}
		if err := h.typ.subscribers.next(ctx, w); err != nil {
			return err
		}
	}
}

// Finish ends the job with its last state. also and the errors are Update's; but
// an also that was committed does not run again.
func (h *Held) Finish(ctx context.Context, state json.RawMessage, also func(kv.Transaction) error) error {
	return h.finish(ctx, nil, state, also)
}

func (h *Held) finish(ctx context.Context, expires *int64, state json.RawMessage, also func(kv.Transaction) error) error {
	if err := checkState(state); err != nil {
		return err
	}
	return h.end(ctx, func(tx kv.Transaction, old *row) error {
		if err := call(also, tx); err != nil {
			return err
		}
		next := *old
		next.status, next.tag, next.sequence, next.expires = Finished, h.tag, nil, expires
		h.setState(tx, state)
		h.typ.put(tx, h.job.ID, old, &next, 0)
		return nil
	})
}

// FinishFor is Finish, and lets the job be removed when a time has passed since
// ([Type.RemoveExpired]), in whole seconds.
func (h *Held) FinishFor(ctx context.Context, keep time.Duration, state json.RawMessage, also func(kv.Transaction) error) error {
	expires := time.Now().Add(keep).Unix()
	return h.finish(ctx, &expires, state, also)
}

// Resubmit queues the job again, to run at a time; one that has passed is now. also and
// the errors are Finish's.
func (h *Held) Resubmit(ctx context.Context, at time.Time, state json.RawMessage, also func(kv.Transaction) error) error {
	if err := checkState(state); err != nil {
		return err
	}
	return h.end(ctx, func(tx kv.Transaction, old *row) error {
		if err := call(also, tx); err != nil {
			return err
		}
		h.setState(tx, state)
		next := queued(*old, at.Unix(), time.Now().Unix(), 0)
		next.tag = h.tag
		return h.typ.queue(tx, h.typ.line(tx), h.job.ID, old, next, 0)
	})
}

// IsResubmitted reports whether the job was added again while it ran, and will be
// queued at its next update.
func (h *Held) IsResubmitted(ctx context.Context) (bool, error) {
	return kv.TransactValue(ctx, h.typ.layer.db, func(tx kv.Transaction) (bool, error) {
		row, err := awaitRow(h.typ.readRow(tx.Snapshot(), h.job.ID))
		if err != nil {
			return false, err
		}
		if row == nil || !row.heldBy(h.lock) {
			return false, ErrHalt
		}
		return row.generation != h.job.Generation, nil
	})
}

// end is transact for what lets go of the job.
func (h *Held) end(ctx context.Context, fn func(kv.Transaction, *row) error) error {
	if len(h.tag) > maxLabelSize {
		return fmt.Errorf("%w: the job's tag: %d bytes, at most %d", ErrTooLarge, len(h.tag), maxLabelSize)
	}
	err := h.transact(ctx, fn)
	if err == nil {
		h.release(context.Canceled)
	}
	return err
}

// transact runs fn with the job's row, if the job is held.
//
// The holder's own end of the job leaves its lock in the row; whoever else takes
// the job away from it clears the lock, or sets another. So a row that an earlier
// run of the function found held, and that is not but has the lock still, shows
// that the earlier run was committed.
func (h *Held) transact(ctx context.Context, fn func(kv.Transaction, *row) error) error {
	attempted := false
	halted, err := kv.TransactValue(ctx, h.typ.layer.db, func(tx kv.Transaction) (bool, error) {
		old, err := awaitRow(h.typ.readRow(tx, h.job.ID))
		switch {
		case err != nil:
			return false, err
		case old == nil || old.lock != h.lock:
			return true, nil
		case old.status != Running:
			return !attempted, nil
		case old.generation == h.job.Generation:
			attempted = true
			return false, fn(tx, old)
		}
		// Added again. The next run is to have the new args.
		return true, h.typ.requeue(tx, h.typ.line(tx), h.job.ID, old, 0)
	})
	if err == nil && halted {
		err = ErrHalt
	}
	if errors.Is(err, ErrHalt) {
		h.release(ErrHalt)
	}
	return err
}

// requeue takes a running job from its holder and queues it.
func (t *Type) requeue(tx kv.Transaction, line *line, id string, old *row, order uint16) error {
	next, now := *old, time.Now().Unix()
	next.lock = ""
	at := now
	if old.resubmit != nil {
		at = *old.resubmit
	}
	return t.queue(tx, line, id, old, queued(next, at, now, order), order)
}

// setState writes the state, if there is one to write.
func (h *Held) setState(tx kv.Transaction, state json.RawMessage) {
	if state != nil {
		h.typ.setState(tx, h.job.ID, state)
	}
}

func call(also func(kv.Transaction) error, tx kv.Transaction) error {
	if also == nil {
		return nil
	}
	return also(tx)
}
