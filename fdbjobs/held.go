package fdbjobs

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"settee/pkg/kv"
)

// Held is a job that this process holds. Its methods change the job only while it is held, and return ErrHalt
// otherwise. Several goroutines may call them, but it is not defined which of two concurrent writes remains.
type Held struct {
	// Tag is the tag that the job gets when it is finished or resubmitted: see [Part]. It has at most a hundred bytes, which
	// Finish and Resubmit check.
	Tag string
	// Expires, if it is not zero, is the time from which [Queue.RemoveExpired] removes the job after Finish, in whole
	// seconds.
	Expires time.Time

	queue *Queue
	job   *Job
	lock  string

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below; never held during I/O
	began time.Time  // start of the latest update that has renewed the hold
	until time.Time  // when this process stops working on the job
	timer *time.Timer
}

func newHeld(q *Queue, job *Job, began time.Time) *Held {
	h := &Held{queue: q, job: job, lock: job.Lock}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.began, h.until = began, began.Add(q.patience())
	h.timer = q.layer.afterFunc(h.ctx, "expiry of "+h.lock, h.left(), h.expire)
	return h
}

// left returns how long this process may continue to work on the job. The monotonic clock stands still while the
// machine is suspended, so the other one counts too, if it has advanced further. The caller holds mu.
func (h *Held) left() time.Duration {
	now := h.queue.layer.now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0))) // Round strips the monotonic reading
}

// patience is how long a processor continues after the start of its last successful update. The job is queued again
// after the whole timeout.
func (q *Queue) patience() time.Duration { return q.Timeout() / 4 * 3 }

// Heartbeat returns the longest time between two updates: a third of the timeout.
func (h *Held) Heartbeat() time.Duration { return h.queue.Timeout() / 3 }

func (h *Held) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.left(); left > 0 {
		h.timer.Reset(left) // there was an update
		return
	}
	h.cancel(ErrExpired)
}

// Check returns ErrExpired, and ends Context, if no update has succeeded in time. Call it directly before a change outside
// of the store: in a process that was stopped for a while (SIGSTOP, a frozen container, a suspended machine) the timer
// that ends Context fires late, and another process may hold the job by then.
func (h *Held) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil && h.left() <= 0 {
		h.cancel(ErrExpired)
	}
	return context.Cause(h.ctx)
}

// isFresh reports whether an update that begins now need not renew the hold: for a sixth of the timeout after a renewal.
func (h *Held) isFresh(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.began) < h.queue.Timeout()/6
}

// renew restarts the patience at the start of a successful update, unless a later one has succeeded.
func (h *Held) renew(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if began.Before(h.began) {
		return
	}
	h.began, h.until = began, began.Add(h.queue.patience())
	h.timer.Reset(h.left())
}

func (h *Held) release(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
	h.cancel(cause)
}

// Job returns the job as it was when it was taken. A caller that has read its args and state, which may be large, may set
// them to nil. It must not change anything else.
func (h *Held) Job() *Job { return h.job }

// Context ends when the holder must stop working on the job: after the job was finished or resubmitted (the cause is
// context.Canceled), after a call returned ErrHalt, or if no update succeeded in time (the cause is ErrExpired).
func (h *Held) Context() context.Context { return h.ctx }

// Update writes the job's state, or keeps it if state is nil, and keeps the job alive: the first update after a sixth of
// the timeout renews the hold, and those before only write the state, and what follows from it ([Derivation]). also, if not nil, adds
// writes of the caller to the transaction, but must not change the job. Like any transaction's function it may run
// again after an earlier run was committed. It runs in another goroutine, but not after Update has returned.
//
// The error is ErrHalt if the job is no longer held. Nothing is written then, except that a job that was added again
// while it ran is queued. A Finish or Resubmit can also return ErrHalt if the result of its commit was unknown, and the
// job has another holder or is gone when it is repeated. After any other error the job may still be held, until Context
// ends.
func (h *Held) Update(ctx context.Context, state json.RawMessage, also func(kv.Transaction) error) error {
	began := h.queue.layer.now()
	renews := !h.isFresh(began)
	err := h.write(ctx, &write{also: also, renews: renews, next: func(old *row) *row {
		next := *old
		next.renews = renews
		return &next
	}}, state)
	if err == nil && renews {
		h.renew(began)
	}
	return err
}

// Lost waits until the job is no longer held, or was added again, and returns ErrHalt then. It only learns that earlier than
// the next Update would. The other errors are ctx's, ErrClosed, and the store's.
func (h *Held) Lost(ctx context.Context) error {
	return h.queue.eachChange(ctx, h.job.ID, func(_ kv.Transaction, row *row) error {
		if row == nil || !row.heldBy(h.lock) || row.generation != h.job.generation {
			return ErrHalt
		}
		return nil
	}, func() bool { return false })
}

// Finish ends the job with its last state. also and the errors are as for Update, except that an also that was
// committed does not run again.
func (h *Held) Finish(ctx context.Context, state json.RawMessage, also func(kv.Transaction) error) error {
	return h.end(ctx, &write{also: also, next: func(old *row) *row {
		next := *old
		next.status, next.tag, next.sequence, next.expires = Finished, h.Tag, nil, nil
		if !h.Expires.IsZero() {
			expires := h.Expires.Unix()
			next.expires = &expires
		}
		return &next
	}}, state)
}

// Resubmit queues the job again, to run at a time. A time in the past means now. also and the errors are as for Finish.
func (h *Held) Resubmit(ctx context.Context, at time.Time, state json.RawMessage, also func(kv.Transaction) error) error {
	scheduled := at.Unix()
	return h.end(ctx, &write{also: also, resubmits: &scheduled, next: func(old *row) *row {
		next := queued(*old, scheduled, h.queue.layer.now().Unix())
		next.tag = h.Tag
		h.queue.derivation.tagDue(next)
		return next
	}}, state)
}

// end is write for the end of a holding.
func (h *Held) end(ctx context.Context, w *write, state json.RawMessage) error {
	if err := checkTag(h.Tag); err != nil {
		return err
	}
	w.ends = true
	err := h.write(ctx, w, state)
	if err == nil {
		h.release(context.Canceled)
	}
	return err
}

// write runs a write of the job, in a transaction with others. state is nil to keep the state.
func (h *Held) write(ctx context.Context, w *write, state json.RawMessage) error {
	if err := checkState(state); err != nil {
		return err
	}
	w.ctx, w.held = ctx, h
	if w.state = state; state != nil {
		var err error
		if w.facts, err = h.queue.derivation.factsOfState(h.job.version, state); err != nil {
			return err
		}
	}
	w.size = rowsSize + 12*(len(h.job.ID)+len(h.job.Owner)) + len(state)
	err := h.queue.writer.do(w)
	if errors.Is(err, ErrHalt) {
		h.release(ErrHalt)
	}
	return err
}
