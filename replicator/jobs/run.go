package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/redact"
	"settee/replicator"
)

// Run is a job that this node holds. Its methods are called by one goroutine at a
// time. Those that write return fdbjobs.ErrHalt when the job is not held any more;
// nothing was written then.
type Run struct {
	store *Store
	held  *fdbjobs.Held
	job   *Job
	gone  bool // the job's database, or its document, does not exist any more
	meter meter
	// secrets are those of the job's definition. Nothing that is written of it has any.
	secrets redact.Set
}

// AcceptOptions say what [Store.Accept] takes.
type AcceptOptions struct {
	// Count is how many jobs to take at most. Default: 1.
	Count int
	// Yielding, if not nil, are this node's runs that can make room: see
	// fdbjobs.AcceptOptions. Then Accept does not wait.
	Yielding []*Run
}

// Accept waits for jobs that are due and takes them, or takes those that there are in
// exchange for others. The job of a database that was deleted is dropped. One that cannot be
// read, as no version of settee leaves one, fails and is passed over; one whose definition this
// node has not the key of goes back to the queue for a while. With an error there may be runs,
// too. The errors are those of fdbjobs.Type.Accept, and fdbjobs.ErrSealed.
func (s *Store) Accept(ctx context.Context, opts AcceptOptions) (runs []*Run, err error) {
	accept := fdbjobs.AcceptOptions{Count: opts.Count}
	if opts.Yielding != nil {
		accept.Wait = -1
		accept.Yielding = yielding(opts.Yielding)
	}
	for {
		held, err := s.jobs.Accept(ctx, accept)
		if err != nil {
			return nil, err
		}
		taken := time.Now() // which is when it begins to count: there may have been nothing to do for long
		var failed error
		for _, h := range held {
			run, err := s.take(ctx, h)
			if errors.Is(err, fdbjobs.ErrHalt) {
				continue
			}
			if err != nil {
				failed = err // the activity monitor queues it again
				continue
			}
			run.meter = meter{counted: taken}
			runs = append(runs, run)
		}
		if len(runs) > 0 || failed != nil || opts.Yielding != nil {
			return runs, failed
		}
	}
}

func yielding(runs []*Run) []fdbjobs.Yielding {
	out := make([]fdbjobs.Yielding, len(runs))
	for i, run := range runs {
		out[i] = fdbjobs.Yielding{ID: run.job.ID, Owner: run.job.owner()}
	}
	return out
}

// Yield returns the ids of up to n of this node's runs that are to go first when there is less
// room: see fdbjobs.Type.Yield.
func (s *Store) Yield(ctx context.Context, runs []*Run, n int) ([]string, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]string, error) {
		return s.jobs.Yield(tx.Snapshot(), yielding(runs), n)
	})
}

// Instead returns the id of the job that is to make room for this one: see
// [AcceptOptions].Yielding.
func (r *Run) Instead() string { return r.held.Instead() }

// take makes a run of a job that is held, unless there is nothing to run: the error is
// fdbjobs.ErrHalt then.
func (s *Store) take(ctx context.Context, held *fdbjobs.Held) (*Run, error) {
	if err := held.Job().ArgsErr; err != nil {
		return nil, errors.Join(err, s.setAside(ctx, held, err))
	}
	job, err := s.parse(held.Job())
	if err != nil {
		return nil, s.fail(ctx, held, err)
	}
	run := &Run{store: s, held: held, job: job, secrets: job.Args.Replication.Secrets()}
	if !job.Transient() {
		// Another error is none of the job's, which is held: its first update checks again.
		_ = s.db.Transact(ctx, func(tx kv.Transaction) error { return run.check(tx.Snapshot()) })
		if run.gone {
			return nil, run.drop(ctx)
		}
	}
	held.Forget()
	return run, nil
}

// asideFor is how long a job waits that this node has not the key of. Others may have it, and this
// one too, when it starts again.
const asideFor = time.Minute

// setAside queues a job again whose definition cannot be opened.
func (s *Store) setAside(ctx context.Context, held *fdbjobs.Held, why error) error {
	state := new(replicator.JobState)
	if err := json.Unmarshal(held.Job().State, state); err != nil {
		return fmt.Errorf("reading the state of the replication job %q: %w", held.Job().ID, err)
	}
	state.State, state.LastUpdated = replicator.StateCrashing, time.Now()
	state.SetError("error", why.Error())
	state.History.Push(replicator.Event{
		Timestamp: state.LastUpdated, Type: replicator.EventCrashed, Reason: state.Error,
	}, s.settings().MaxHistory)
	text, err := encodeState(state)
	if err != nil {
		return fmt.Errorf("writing the state of the replication job %q: %w", held.Job().ID, err)
	}
	held.SetTag(tagCrashing)
	return held.Resubmit(ctx, state.LastUpdated.Add(asideFor), text, nil)
}

// fail ends a job that cannot be read.
func (s *Store) fail(ctx context.Context, held *fdbjobs.Held, why error) error {
	failed := &replicator.JobState{State: replicator.StateFailed, LastUpdated: time.Now()}
	failed.SetError("error", why.Error())
	state, err := json.Marshal(failed)
	if err != nil {
		return fmt.Errorf("writing the state of a replication job: %w", err)
	}
	held.SetTag(tagFailed)
	if err := held.Finish(ctx, state, nil); err != nil {
		return err
	}
	return fdbjobs.ErrHalt
}

// check returns fdbjobs.ErrHalt if the job's database was deleted. It is part of each
// transaction that writes the job, but for those that put it back: what they put back is
// dropped by whoever takes it.
func (r *Run) check(tx kv.ReadTransaction) error {
	alive, err := r.store.alive(tx, r.job.owner())
	if err == nil && !alive {
		r.gone = true // and never comes back
		err = fdbjobs.ErrHalt
	}
	return err
}

// drop removes the job, and returns fdbjobs.ErrHalt.
func (r *Run) drop(ctx context.Context) error {
	err := r.store.db.Transact(ctx, func(tx kv.Transaction) error { return r.store.remove(tx, r.job) })
	if err != nil {
		return err
	}
	return r.held.Update(ctx, nil, nil) // which lets go of it
}

// Job returns the job. Its State is as this run last wrote it, or may have written it.
func (r *Run) Job() *Job { return r.job }

// Redact returns an error whose text has none of the job's secrets: for logs.
func (r *Run) Redact(err error) error { return r.secrets.Error(err) }

// Context ends when the job must not be worked on any more: see
// fdbjobs.Held.Context.
func (r *Run) Context() context.Context { return r.held.Context() }

// Check returns fdbjobs.ErrHalt if the job may be another node's by now: see
// fdbjobs.Held.Check.
func (r *Run) Check() error { return r.held.Check() }

// Heartbeat returns the longest time between two updates: see
// fdbjobs.Held.Heartbeat.
func (r *Run) Heartbeat() time.Duration { return r.held.Heartbeat() }

// Lost waits until the job was cancelled, was given a new definition, or is with
// another node: see fdbjobs.Held.Lost.
func (r *Run) Lost(ctx context.Context) error { return r.held.Lost(ctx) }

// Start records that the run starts, on a node and under a name there. It belongs
// directly behind Accept. Unless UpdateDocs is set, the job's document loses that it is triggered or in error.
func (r *Run) Start(ctx context.Context, node, pid string) error {
	clearDocument := r.clearState()
	return r.update(ctx, func(state *replicator.JobState) {
		now := time.Now()
		if state.State == replicator.StateRunning {
			// Its last processor never said how it ended.
			r.event(state, now, replicator.EventCrashed, "the node "+state.Node+" stopped keeping the job alive")
		}
		state.State, state.Node, state.PID, state.StartTime = replicator.StateRunning, node, pid, now
		state.Activity = nil
		r.event(state, now, replicator.EventStarted, "")
	}, func(tx kv.Transaction, _ *replicator.JobState) error {
		if err := clearDocument(tx); err != nil {
			return err
		}
		if !r.job.anew || r.job.Transient() {
			return nil
		}
		return r.store.dropFailures(tx, r.job.ID) // of the job that it was
	})
}

// Update changes the job's state and says that it is being worked on. It is called
// at least every third of the type's timeout.
func (r *Run) Update(ctx context.Context, change func(*replicator.JobState)) error {
	return r.update(ctx, change, func(kv.Transaction, *replicator.JobState) error { return nil })
}

func (r *Run) update(
	ctx context.Context, change func(*replicator.JobState), also func(kv.Transaction, *replicator.JobState) error,
) error {
	return r.write(change, func(state *replicator.JobState, text json.RawMessage, b bill) error {
		return r.held.Update(ctx, text, func(tx kv.Transaction) error {
			if err := r.check(tx); err != nil {
				return err
			}
			r.store.charge(tx, b)
			return also(tx, state)
		})
	})
}

// Identify claims the replication id for this run, before any checkpoint is read.
// Statistics of another id are dropped. The error is a *Collision if another job
// has it. With UpdateDocs the job's document says that it is triggered.
func (r *Run) Identify(ctx context.Context, id replicator.ID) error {
	name := id.String()
	change := func(state *replicator.JobState) {
		if state.ReplicationID != name {
			dropProgress(state)
		}
		state.ReplicationID = name
	}
	say := r.say()
	return r.update(ctx, change, func(tx kv.Transaction, state *replicator.JobState) error {
		if err := r.store.unclaim(tx, r.job, name); err != nil {
			return err
		}
		if err := r.store.claim(tx, name, r.job.ID); err != nil {
			return err
		}
		return say(tx, state)
	})
}

func dropProgress(state *replicator.JobState) {
	state.Stats = replicator.Stats{}
	state.SourceSeq, state.ThroughSeq, state.CheckpointedSourceSeq, state.ChangesPending = nil, nil, nil, nil
}

// Complete ends the job: it has done what was asked for. change, if not nil, sets
// its last progress and its result.
func (r *Run) Complete(ctx context.Context, change func(*replicator.JobState)) error {
	return r.finish(ctx, func(state *replicator.JobState) {
		if change != nil {
			change(state)
		}
		state.State = replicator.StateCompleted
		state.ErrorCount = 0
		state.SetError("", "")
		r.event(state, time.Now(), replicator.EventStopped, "")
	})
}

// Fail ends the job: it cannot run, or is not tried again.
func (r *Run) Fail(ctx context.Context, code, reason string) error {
	return r.finish(ctx, func(state *replicator.JobState) {
		state.State = replicator.StateFailed
		state.ErrorCount++
		state.SetError(code, reason)
		r.event(state, time.Now(), replicator.EventCrashed, state.Error)
	})
}

// Crash queues the job again for a time, after a run that failed. Its errors in a
// row are counted in ErrorCount. With UpdateDocs the job's document says why.
func (r *Run) Crash(ctx context.Context, at time.Time, errorCount int, code, reason string) error {
	return r.resubmit(ctx, at, func(state *replicator.JobState) {
		state.State = replicator.StateCrashing
		state.ErrorCount = errorCount
		state.SetError(code, reason)
		r.event(state, time.Now(), replicator.EventCrashed, state.Error)
	})
}

// Stop queues the job again, to be gone on with as soon as there is room. change,
// if not nil, sets its last progress. Errors in a row before this run still count, unless
// change says otherwise: that it was stopped is no success.
func (r *Run) Stop(ctx context.Context, change func(*replicator.JobState)) error {
	return r.resubmit(ctx, time.Now(), func(state *replicator.JobState) {
		if change != nil {
			change(state)
		}
		state.State = replicator.StatePending
		state.SetError("", "")
		r.event(state, time.Now(), replicator.EventStopped, "")
	})
}

// Restart queues the job again, to start anew without what it has counted: its
// replication id has changed.
func (r *Run) Restart(ctx context.Context, reason string) error {
	return r.resubmit(ctx, time.Now(), func(state *replicator.JobState) {
		dropProgress(state)
		state.State = replicator.StatePending
		state.SetError("", "")
		r.event(state, time.Now(), replicator.EventPending, reason)
	})
}

func (r *Run) event(state *replicator.JobState, at time.Time, what, reason string) {
	state.History.Push(replicator.Event{Timestamp: at, Type: what, Reason: reason}, r.store.settings().MaxHistory)
}

// finish ends the job: a transient one for a time, that of a document together with what
// the document says of it.
func (r *Run) finish(ctx context.Context, change func(*replicator.JobState)) error {
	writeDocument := r.documentWriter()
	return r.write(change, func(state *replicator.JobState, text json.RawMessage, b bill) error {
		r.held.SetTag(part("", state.State).Tag)
		if r.job.Transient() {
			return r.held.FinishFor(ctx, r.store.settings().TransientMaxAge, text, func(tx kv.Transaction) error {
				r.store.charge(tx, b)
				return nil
			})
		}
		return r.held.Finish(ctx, text, func(tx kv.Transaction) error {
			r.store.charge(tx, b)
			return writeDocument(tx, state)
		})
	})
}

// resubmit queues the job again, unless it is none any more.
func (r *Run) resubmit(ctx context.Context, at time.Time, change func(*replicator.JobState)) error {
	if r.gone {
		return r.drop(ctx)
	}
	say := r.say()
	return r.write(change, func(state *replicator.JobState, text json.RawMessage, b bill) error {
		r.held.SetTag(part("", state.State).Tag)
		return r.held.Resubmit(ctx, at, text, func(tx kv.Transaction) error {
			r.store.charge(tx, b)
			return say(tx, state)
		})
	})
}

// write changes a copy of the state, and keeps it if it could be stored, or may have been.
// The job's owner is charged for the time that it ran.
func (r *Run) write(
	change func(*replicator.JobState), store func(*replicator.JobState, json.RawMessage, bill) error,
) error {
	next := *r.job.State
	next.History = slices.Clone(next.History)
	change(&next)
	next.Redact(r.secrets)
	next.LastUpdated = time.Now()
	text, err := encodeState(&next)
	if err != nil {
		return fmt.Errorf("writing the state of the replication job %q: %w", r.job.ID, err)
	}
	b := r.meter.bill(r.job.owner())
	err = store(&next, text, b)
	if err == nil || mayBeMade(err) {
		r.meter.counted = b.at
	}
	if err == nil || mayBeMade(err) && next.State == replicator.StateRunning && next.ReplicationID == r.job.State.ReplicationID {
		r.job.State = &next
	}
	return err
}

// mayBeMade reports whether a write may have been made that ended with an error. What comes
// after such an update goes on from it, and takes none of its progress back.
func mayBeMade(err error) bool {
	return errors.Is(err, kv.ErrCommitUnknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// encodeState writes a state in the size that the job layer takes. Servers choose
// the length of sequences and of reasons: what can be spared is dropped, the oldest
// events first, rather than that the job cannot go on.
func encodeState(state *replicator.JobState) (json.RawMessage, error) {
	for {
		text, err := json.Marshal(state)
		if err != nil || len(text) <= fdbjobs.MaxStateSize {
			return text, err
		}
		switch {
		case len(state.History) > 1:
			state.History = state.History[:len(state.History)/2]
		case state.SourceSeq != nil || state.ThroughSeq != nil || state.CheckpointedSourceSeq != nil:
			state.SourceSeq, state.ThroughSeq, state.CheckpointedSourceSeq = nil, nil, nil
		case len(state.Result) > len(resultWithoutHistory):
			state.Result = json.RawMessage(resultWithoutHistory)
		default:
			return text, nil // what the job layer says to that
		}
	}
}

const resultWithoutHistory = `{"ok":true}`
