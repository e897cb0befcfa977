package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// Runs takes jobs from the queue for the scheduler. Each [Run] uses it, too.
type Runs struct {
	*core
	reservations *reservations
	parking      *parkedRows
	records      *jobRecords
	mirrors      *mirrorRows
	writer       *writer
}

// Accept waits for jobs that are due and returns runs for up to n of them. If yielding is not nil, it does not wait: these are runs of
// this node that can be stopped for other jobs, see fdbjobs.AcceptOptions. It drops the job of a deleted
// database, and fails a job that cannot be parsed. If this node does not have the key of a job, it
// queues the job again for later. It returns the errors of fdbjobs.Queue.Accept, and
// fdbjobs.ErrSealed. It may return both runs and an error.
func (s *Runs) Accept(ctx context.Context, n int, yielding []*Run) (runs []*Run, err error) {
	accept := fdbjobs.AcceptOptions{Count: n}
	if yielding != nil {
		accept.Wait, accept.Evictable = -1, holdsOf(yielding)
	}
	for {
		held, err := s.jobs.Accept(ctx, accept)
		if err != nil {
			return nil, err
		}
		taken := time.Now() // the time waiting for a job is not charged
		var failed error
		for _, h := range held {
			run, err := s.take(ctx, h)
			if errors.Is(err, fdbjobs.ErrHalt) {
				continue
			}
			if err != nil {
				failed = err // the activity monitor will queue it again
				continue
			}
			run.charged = taken
			runs = append(runs, run)
		}
		if len(runs) > 0 || failed != nil || yielding != nil {
			return runs, failed
		}
	}
}

// holdsOf returns the holds of runs.
func holdsOf(runs []*Run) []*fdbjobs.Held {
	out := make([]*fdbjobs.Held, len(runs))
	for i, run := range runs {
		out[i] = run.held
	}
	return out
}

// Yield returns the ids of up to n of this node's runs to stop first when fewer may run, see
// fdbjobs.Queue.EvictFirst.
func (s *Runs) Yield(ctx context.Context, runs []*Run, n int) ([]string, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]string, error) {
		return s.jobs.EvictFirst(tx.Snapshot(), holdsOf(runs), n)
	})
}

// Evicted returns the id of the job to stop in exchange for this one, see [Runs.Accept].
func (r *Run) Evicted() string { return r.held.Job().Evicted }

// take makes a run of a held job. It returns fdbjobs.ErrHalt if there is nothing to run.
func (s *Runs) take(ctx context.Context, held *fdbjobs.Held) (*Run, error) {
	if err := held.Job().ArgsErr; err != nil {
		return nil, errors.Join(err, s.setAside(ctx, held, err))
	}
	job, err := s.parse(held.Job())
	if err != nil {
		return nil, s.fail(ctx, held, err)
	}
	if job.Args.Paused != nil {
		return nil, s.putAside(ctx, held)
	}
	run := &Run{store: s, held: held, job: job, parkedAt: job.parkedAt.row(), secrets: job.Args.Replication.Secrets()}
	run.hold()
	if !job.Transient() {
		// Other errors are ignored: the first update checks again.
		_ = s.db.Transact(ctx, func(tx kv.Transaction) error { return run.check(tx.Snapshot()) })
		if run.gone {
			return nil, run.drop(ctx)
		}
	}
	held.Job().Args, held.Job().State = nil, nil // they may be large
	return run, nil
}

// setAsideDelay is how long a job waits if this node does not have its key. Another node may have
// it, or this one after a restart.
const setAsideDelay = time.Minute

// setAside queues a job for later because its definition cannot be opened.
func (s *Runs) setAside(ctx context.Context, held *fdbjobs.Held, why error) error {
	state := new(replicator.JobState)
	if err := json.Unmarshal(held.Job().State, state); err != nil {
		return fmt.Errorf("reading the state of the replication job %q: %w", held.Job().ID, err)
	}
	parkedAt := sourceOf(state.Parked)
	state.State, state.LastUpdated = replicator.StateCrashing, time.Now()
	state.Parked = nil
	state.FollowErrors(state.LastUpdated)
	state.SetFault(&replicator.Fault{Code: replicator.FaultSealed, Word: "error", Text: why.Error(), At: state.LastUpdated})
	state.History.Push(replicator.Event{
		Timestamp: state.LastUpdated, Type: replicator.EventCrashed, Reason: state.Error, Code: state.Fault.EndCode(),
	}, s.settings().MaxHistory)
	state.FollowMirrored(state.LastUpdated)
	text, err := encodeState(held.Job().ID, state)
	if err != nil {
		return err
	}
	held.Tag = tagCrashing
	return held.Resubmit(ctx, state.LastUpdated.Add(setAsideDelay), text, func(tx kv.Transaction) error {
		return s.parking.unpark(tx, place{parkedAt, held.Job().ID})
	})
}

// fail ends a job that cannot be parsed.
func (s *Runs) fail(ctx context.Context, held *fdbjobs.Held, why error) error {
	var was replicator.JobState
	_ = json.Unmarshal(held.Job().State, &was) // as much as can be read
	failed := &replicator.JobState{State: replicator.StateFailed, LastUpdated: time.Now(), Runs: was.Runs}
	failed.SetFault(replicator.TextFault("error", why.Error()))
	if _, made := replicator.MirrorOf(held.Job().ID); made {
		failed.Mirrored, failed.Behind = cmp.Or(was.Mirrored, new(replicator.MirroredJob)), was.Behind
		failed.FollowMirrored(failed.LastUpdated)
	}
	state, err := encodeState(held.Job().ID, failed)
	if err != nil {
		return err
	}
	held.Tag = tagFailed
	err = held.Finish(ctx, state, func(tx kv.Transaction) error {
		return s.parking.unpark(tx, place{sourceOf(was.Parked), held.Job().ID})
	})
	if err != nil {
		return err
	}
	return fdbjobs.ErrHalt
}

// putAside queues a job again that is paused, and returns fdbjobs.ErrHalt. A paused job is taken only if its run
// has died, or has stopped with an unknown result.
func (s *Runs) putAside(ctx context.Context, held *fdbjobs.Held) error {
	held.Tag = tagPaused
	if err := held.Resubmit(ctx, time.Now().Add(pausedFor), nil, nil); err != nil {
		return err
	}
	return fdbjobs.ErrHalt
}
