package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// hold begins the lease of a run that holds its job.
func (r *Run) hold() {
	t := &r.lease
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.deciding = make(chan struct{}, 1)
	t.identifying(r.job.held.replicationID)
	context.AfterFunc(r.held.Context(), func() {
		switch cause := context.Cause(r.held.Context()); {
		case !errors.Is(cause, fdbjobs.ErrHalt): // the run has ended the job
			t.cancel(cause)
		case errors.Is(cause, fdbjobs.ErrExpired):
			t.expire(cause)
		default:
			_ = r.lose(t.ctx)
		}
	})
}

// Context returns a context that ends when the job must no longer be worked on: when the hold has ended (see
// fdbjobs.Held.Context), except that after an ErrEnding the run has three quarters of the timeout for its end.
func (r *Run) Context() context.Context { return r.lease.ctx }

// Check returns fdbjobs.ErrHalt if another run may have the job or its replication id, see fdbjobs.Held.Check.
func (r *Run) Check() error {
	err := r.held.Check()
	if err == nil {
		return nil
	}
	if !errors.Is(err, fdbjobs.ErrExpired) && errors.Is(err, fdbjobs.ErrHalt) {
		_ = r.lose(r.lease.ctx)
	}
	t := &r.lease
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(t.lost, ErrEnding) {
		return t.may()
	}
	return err
}

// halted is lose after a write of the job that returned fdbjobs.ErrHalt. It returns another err as it is.
func (r *Run) halted(ctx context.Context, err error) error {
	if errors.Is(err, fdbjobs.ErrHalt) {
		return r.lose(ctx)
	}
	return err
}

// Lost waits until the job was cancelled, got a new definition, or is held by another node. It returns ErrEnding if the
// run may write a last checkpoint, and else fdbjobs.ErrHalt. fdbjobs.Held.Lost names the other errors.
func (r *Run) Lost(ctx context.Context) error {
	return r.halted(ctx, r.held.Lost(ctx))
}

// Ending reports whether the run goes on only for its last checkpoint. There is nothing to record of its end.
func (r *Run) Ending() bool {
	r.lease.mu.Lock()
	defer r.lease.mu.Unlock()
	return errors.Is(r.lease.lost, ErrEnding)
}

// lose is called when the job is no longer held, or has a new definition. It returns ErrEnding if the run may go on, and
// else ErrHalt, and then its context has ended. The first call decides.
func (r *Run) lose(ctx context.Context) error {
	t := &r.lease
	t.deciding <- struct{}{}
	defer func() { <-t.deciding }()
	t.mu.Lock()
	lost, begun := t.lost, t.begun
	t.mu.Unlock()
	if lost != nil {
		return lost
	}
	var until time.Time
	var named bool
	var err error
	if begun {
		until, named, err = r.claimEnding(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.lost != nil: // the hold has expired meanwhile
	case err != nil || !named:
		t.end(fdbjobs.ErrHalt)
	default:
		t.lost, t.until = ErrEnding, until
		t.timer = time.AfterFunc(time.Until(until), func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.end(fdbjobs.ErrExpired)
		})
	}
	return t.lost
}

// claimEnding writes the row in endings that names the run again, if there is one, so that runs that wait for it begin
// to measure its timeout anew. It returns until when the run may go on.
func (r *Run) claimEnding(ctx context.Context) (until time.Time, named bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, kv.MaxTransactionAge)
	defer cancel()
	began := time.Now()
	timeout, err := kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (timeout time.Duration, err error) {
		return timeout, r.eachEnding(tx, func(key []byte, row ending) {
			row.since, timeout = began, row.timeout
			tx.Set(key, row.pack())
		})
	})
	return began.Add(timeout / 4 * 3), timeout > 0, err
}

// eachEnding calls do with the rows in endings that name the run.
func (r *Run) eachEnding(tx kv.ReadTransaction, do func(key []byte, row ending)) error {
	r.lease.mu.Lock()
	ids := slices.Clone(r.lease.ids)
	r.lease.mu.Unlock()
	values, err := kv.Each(ids, func(id string) kv.Future[[]byte] { return tx.Get(r.store.reservations.endingKey(id)) })
	for i, value := range values {
		if row, err := parseEnding(value); value != nil && err == nil && row.lock == r.held.Job().Lock {
			do(r.store.reservations.endingKey(ids[i]), row)
		}
	}
	return err
}

// Release ends a run whose methods have returned fdbjobs.ErrHalt. The worker must have ended. It queues a job with a new
// definition, and one that this node could not keep alive and no other node has taken yet. Then it lets the run begin
// that waits for the end of this one.
func (r *Run) Release(ctx context.Context) error {
	err := r.Stop(ctx, "", "", nil)
	if errors.Is(err, fdbjobs.ErrHalt) {
		err = nil
	}
	err = errors.Join(err, r.left(ctx))
	r.lease.close()
	return errors.Join(err, r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		return r.eachEnding(tx, func(key []byte, _ ending) { tx.Clear(key) })
	}))
}

// listEnding is ListRefused for some rows of a run that is ending. They are listed if the job has been posted again or
// has a new definition: the statistics of that job will count them.
func (r *Run) listEnding(ctx context.Context, rows [][]byte, unlisted int64, token string) error {
	if !r.job.posted() {
		return nil // its list goes when the new definition starts
	}
	return r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		named := false
		if err := r.eachEnding(tx, func([]byte, ending) { named = true }); err != nil {
			return err
		}
		if !named {
			return fdbjobs.ErrHalt
		}
		there, err := r.store.jobs.Read(tx, r.job.ID).Await()
		if err != nil || there == nil {
			return err
		}
		return r.store.records.addFailures(tx, r.job.ID, rows, unlisted, token)
	})
}

// Last says what the run alone has copied, for the record of its end. change sets its last progress, for the case that it has lost its
// job, which was paused. It may be nil.
func (r *Run) Last(copied replicator.DocCounts, change func(*replicator.JobState)) {
	r.copied, r.last = copied, change
}

// left writes the end of this run into the state of a job that has been paused or resumed while it ran, and tags a job
// that is paused. Other jobs stay as they are.
func (r *Run) left(ctx context.Context) error {
	return r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		raw, err := r.store.jobs.Get(tx, r.job.ID)
		if errors.Is(err, fdbjobs.ErrNotFound) || errors.Is(err, fdbjobs.ErrSealed) {
			return nil
		}
		// A run that stops with an unknown result may still hold the job.
		held := err == nil && raw.Status == fdbjobs.Running && raw.Lock == r.job.held.lock
		if err != nil || raw.Status != fdbjobs.Pending && !held {
			return err
		}
		var was replicator.JobState
		job, err := r.store.parse(raw)
		if err != nil || json.Unmarshal(raw.State, &was) != nil {
			return nil //nolint:nilerr // the next run fails, and says why
		}
		mine := r.started && !job.redefined && was.State == replicator.StateRunning && was.PID == r.job.State.PID &&
			was.StartTime.Equal(r.job.State.StartTime.UTC().Truncate(time.Second))
		spec := fdbjobs.Spec{Scheduled: raw.Scheduled, Tag: raw.Tag}
		switch {
		case job.Args.Paused != nil && held:
			spec.Scheduled, spec.Tag = time.Now().Add(pausedFor), tagPaused
		case job.Args.Paused != nil && raw.Tag == "":
			spec.Tag = tagPaused
		case held || !mine:
			return nil
		}
		next, state := *job, *job.State
		if next.State = &state; mine {
			if err := r.recordLeft(tx, &next); err != nil {
				return err
			}
		}
		job.Status, job.held = fdbjobs.Pending, holding{} // this run has ended
		return r.store.writer.put(tx, job, &next, spec)
	})
}

// recordLeft sets the state of a job after this run, and records its end.
func (r *Run) recordLeft(tx kv.Transaction, job *Job) error {
	next := job.State
	next.History = slices.Clone(next.History)
	if r.last != nil {
		r.last(next)
	}
	reason := "the document was paused and resumed"
	if job.Args.Paused != nil {
		reason = "the document is paused"
	}
	if job.Mirror() != "" {
		reason = strings.Replace(reason, "document", "mirror", 1)
	}
	next.State, next.Parked, next.LastUpdated = replicator.StatePending, nil, time.Now()
	next.SetError("", "")
	next.Runs++
	next.FollowErrors(next.LastUpdated)
	r.event(next, next.LastUpdated, replicator.EventStopped, replicator.EndPaused, reason)
	next.Redact(r.secrets)
	if err := r.recordEnd(tx, replicator.RunStopped, next); err != nil {
		return err
	}
	return r.store.parking.unparkExcept(tx, job.ID, source{}, r.parkedAt...)
}
