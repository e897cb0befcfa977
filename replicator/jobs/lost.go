package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// ErrEnding is an fdbjobs.ErrHalt: the job was removed or has a new definition, and the run may go on to write its last
// checkpoint. No other run begins with its replication id before [Run.Release]. [Run.Context] ends if that takes too
// long.
var ErrEnding = fmt.Errorf("%w: it was removed or changed", fdbjobs.ErrHalt)

// tenure is how long a run may work on its job.
type tenure struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	deciding chan struct{} // holds a token while the store is asked whether the run may go on

	mu    sync.Mutex // guards the fields below; never held during I/O
	ids   []string   // replication ids whose row in endings may name the run
	begun bool       // Identify has succeeded
	lost  error      // ErrEnding or ErrHalt, once the job is lost
	until time.Time  // of an ErrEnding
	timer *time.Timer
}

// hold begins the tenure of a run that holds its job.
func (r *Run) hold() {
	t := &r.tenure
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

// expire ends a tenure whose job was not kept alive, unless the run may go on.
func (t *tenure) expire(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.end(cause)
	}
}

// end ends the tenure. The caller holds mu.
func (t *tenure) end(cause error) {
	t.lost = fdbjobs.ErrHalt
	t.cancel(cause)
}

// may returns nil while an ErrEnding lets the run go on, and else ErrHalt. Both clocks count, as for a hold. The caller
// holds mu.
func (t *tenure) may() error {
	now := time.Now()
	if t.ctx.Err() == nil && (t.until.Before(now) || t.until.Round(0).Before(now.Round(0))) {
		t.end(fdbjobs.ErrExpired)
	}
	return context.Cause(t.ctx)
}

// Context returns a context that ends when the job must no longer be worked on: when the hold has ended (see
// fdbjobs.Held.Context), except that after an ErrEnding the run has three quarters of the timeout for its end.
func (r *Run) Context() context.Context { return r.tenure.ctx }

// Check returns fdbjobs.ErrHalt if another run may have the job or its replication id, see fdbjobs.Held.Check.
func (r *Run) Check() error {
	err := r.held.Check()
	if err == nil {
		return nil
	}
	if !errors.Is(err, fdbjobs.ErrExpired) && errors.Is(err, fdbjobs.ErrHalt) {
		_ = r.lose(r.tenure.ctx)
	}
	t := &r.tenure
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
// run may write a last checkpoint, and else fdbjobs.ErrHalt. fdbjobs.Held.AfterLost names the other errors.
func (r *Run) Lost(ctx context.Context) error {
	lost := make(chan error, 1)
	r.AfterLost(ctx, func(err error) { lost <- err })
	return <-lost
}

// AfterLost calls fn once with the error that Lost would return, see fdbjobs.Held.AfterLost.
func (r *Run) AfterLost(ctx context.Context, fn func(error)) {
	r.held.AfterLost(ctx, func(err error) { fn(r.halted(ctx, err)) })
}

// Ending reports whether the run goes on only for its last checkpoint. There is nothing to record of its end.
func (r *Run) Ending() bool {
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	return errors.Is(r.tenure.lost, ErrEnding)
}

// lose is called when the job is no longer held, or has a new definition. It returns ErrEnding if the run may go on, and
// else ErrHalt, and then its context has ended. The first call decides.
func (r *Run) lose(ctx context.Context) error {
	t := &r.tenure
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
			row.noted, timeout = began, row.timeout
			tx.Set(key, row.pack())
		})
	})
	return began.Add(timeout / 4 * 3), timeout > 0, err
}

// eachEnding calls do with the rows in endings that name the run.
func (r *Run) eachEnding(tx kv.ReadTransaction, do func(key []byte, row ending)) error {
	r.tenure.mu.Lock()
	ids := slices.Clone(r.tenure.ids)
	r.tenure.mu.Unlock()
	reads := make([]kv.Future[[]byte], len(ids))
	for i, id := range ids {
		reads[i] = tx.Get(r.store.reservations.endingKey(id))
	}
	for i, id := range ids {
		value, err := reads[i].Await()
		if err != nil {
			return err
		}
		if row, err := parseEnding(value); value != nil && err == nil && row.lock == r.held.Job().Lock {
			do(r.store.reservations.endingKey(id), row)
		}
	}
	return nil
}

// identifying notes that the run is about to reserve a replication id.
func (t *tenure) identifying(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" && !slices.Contains(t.ids, id) {
		t.ids = append(t.ids, id)
	}
}

// identified notes that the run begins.
func (t *tenure) identified() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = true
}

// close ends the tenure, and waits for a decision that is being made.
func (t *tenure) close() {
	t.mu.Lock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.end(context.Canceled)
	t.mu.Unlock()
	t.deciding <- struct{}{}
	<-t.deciding
}

// Release ends a run whose methods have returned fdbjobs.ErrHalt. The worker must have ended. It queues a job with a new
// definition, and one that this node could not keep alive and no other node has taken yet. Then it lets the run begin
// that waits for the end of this one.
func (r *Run) Release(ctx context.Context) error {
	err := r.Stop(ctx, nil)
	if errors.Is(err, fdbjobs.ErrHalt) {
		err = nil
	}
	err = errors.Join(err, r.left(ctx))
	r.tenure.close()
	return errors.Join(err, r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		return r.eachEnding(tx, func(key []byte, _ ending) { tx.Clear(key) })
	}))
}

// listEnding is ListRefused for some rows of a run that is ending. They are listed if the job has been posted again or
// has a new definition: the statistics of that job will count them.
func (r *Run) listEnding(ctx context.Context, rows [][]byte, unlisted int64, token string) error {
	if !r.job.Transient() {
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
		there, err := r.store.jobs.Index().Read(tx, r.job.ID).Await()
		if err != nil || there == nil {
			return err
		}
		return r.store.records.addFailures(tx, r.job.ID, rows, unlisted, token)
	})
}

// unchanged changes nothing in a state.
func unchanged(*replicator.JobState) {}
