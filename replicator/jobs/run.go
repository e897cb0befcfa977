package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/redact"
	"settee/replicator"
)

// Run is a job that this node holds. Its methods must not be called concurrently. Methods that
// write return fdbjobs.ErrHalt if the job is no longer held; then nothing was written.
type Run struct {
	store *Runs
	held  *fdbjobs.Held
	job   *Job
	gone  bool // the job's database or document no longer exists
	// stored reports that job.State is what the store has.
	stored  bool
	charged time.Time // the time up to which the owner was charged for this run
	// parkedAt are the sources for which the job may have a row of a parked job: that of the state in the store, and those of
	// writes whose result is unknown since.
	parkedAt []source
	started  bool                       // Start has succeeded
	copied   replicator.DocCounts       // see Last
	last     func(*replicator.JobState) // see Last
	// secrets are the secrets of the job's definition. They are masked in everything that is
	// written.
	secrets redact.Set
	lease   lease
	// lost is since when the target has lost what it had, as the row of the parked job or a mirror has said it. It is zero if it has not, and
	// after the write that has put it into the state.
	lost time.Time
}

// check returns fdbjobs.ErrHalt if the job's database was deleted. It is part of each transaction
// that writes the job, except those that queue it again: such a job is dropped when it is
// accepted.
func (r *Run) check(tx kv.ReadTransaction) error {
	exists, err := r.store.ownerExists(tx, r.job.owner())
	if err == nil && !exists { // an error may be ErrHalt as the cause of a context, which says nothing of the owner
		r.gone = true // an instance never comes back
		err = fdbjobs.ErrHalt
	}
	return err
}

// drop removes the job, and returns fdbjobs.ErrHalt. A job that another run has taken since, or that has another definition,
// stays: its next run finds whether it is gone, too. The error is fdbjobs.ErrSealed if this node can no longer open the definition.
func (r *Run) drop(ctx context.Context) error {
	err := r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		job, err := r.store.find(tx, r.job.ID) // with the rows that it has in the store, which this run may not know
		switch {
		case err != nil || job == nil:
			return err
		case job.held.lock != r.job.held.lock:
			return nil
		case job.Args.Replication == nil:
			return fdbjobs.ErrSealed // it may have another definition
		case job.Args.Definition != r.job.Args.Definition:
			return nil
		}
		job.held = holding{} // this run has ended
		return r.store.writer.remove(tx, job)
	})
	if err != nil {
		return err
	}
	return r.held.Update(ctx, nil, nil) // releases the job
}

// Job returns the job. Its State is what this run last wrote, or may have written.
func (r *Run) Job() *Job { return r.job }

// Redact returns an error with the job's secrets masked, for logs.
func (r *Run) Redact(err error) error { return r.secrets.Error(err) }

// Heartbeat returns the longest time between two updates, see fdbjobs.Held.Heartbeat.
func (r *Run) Heartbeat() time.Duration { return r.held.Heartbeat() }

// Start records that the run has started: the node, and the run's name there. It must be the
// first call after Accept. Unless UpdateDocs is set, it removes the state triggered or error from
// the job's document.
func (r *Run) Start(ctx context.Context, node, pid string) error {
	clearDocument, before := r.clearState(), *r.job.State
	lost := before.State == replicator.StateRunning // the node of the previous run died
	err := r.update(ctx, func(state *replicator.JobState) {
		now := time.Now()
		if lost {
			if again, err := r.again(replicator.RunLost, now); err == nil {
				state.ErrorCount = again.ErrorCount
			}
			state.Runs++
			r.event(state, now, replicator.EventCrashed, replicator.EndNodeLost, "the node "+state.Node+" stopped keeping the job alive")
		}
		state.RunBegins(r.job.scheduled, now)
		state.State, state.Node, state.PID, state.StartTime = replicator.StateRunning, node, pid, now
		r.mayLack(state, now)
		state.Activity, state.Parked = nil, nil
		if state.Fault.Is(replicator.FaultSealed) { // this node has the key
			state.SetFault(nil)
		}
		r.event(state, now, replicator.EventStarted, "", "")
	}, func(tx kv.Transaction, state *replicator.JobState) error {
		if err := clearDocument(tx); err != nil {
			return err
		}
		if lost {
			return r.store.records.setRun(tx, r.job.ID, state.Runs, replicator.EndedRun{
				Start: before.StartTime, End: before.LastUpdated, Outcome: replicator.RunLost, Node: before.Node,
				Code: replicator.EndNodeLost,
			})
		}
		if !r.job.redefined || r.job.posted() {
			return nil
		}
		r.store.records.clearRecords(tx, r.job.ID) // of the old definition
		return nil
	})
	r.started = err == nil
	return err
}

// mayLack notes in the state of a mirror's database that a run has started, which has not seen yet that the target has everything: since
// a loss that the mirror has noted, since the job was woken, or since now.
func (r *Run) mayLack(state *replicator.JobState, now time.Time) {
	if state.Mirrored == nil {
		return
	}
	parked, lost := state.Parked, r.job.Args.Lost
	switch {
	case !lost.IsZero() && !lost.Equal(state.Mirrored.Lost):
		next := *state.Mirrored
		next.Lost, state.Mirrored, state.Target.Instance = lost, &next, ""
		state.Behind, r.lost = &replicator.Behind{Since: lost}, lost
	case parked != nil && !parked.Since.IsZero():
		state.Behind = &replicator.Behind{Since: r.job.scheduled}
	case state.Behind == nil:
		state.Behind = &replicator.Behind{Since: now}
	}
}

// recordEnd records the end of the run in the transaction that writes the state after it.
func (r *Run) recordEnd(tx kv.Transaction, outcome replicator.Outcome, state *replicator.JobState) error {
	if !r.started {
		return nil
	}
	reason := state.Error
	if outcome == replicator.RunStopped && len(state.History) > 0 {
		reason = state.History[0].Reason
	}
	return r.store.records.setRun(tx, r.job.ID, state.Runs, replicator.EndedRun{
		Start: state.StartTime, End: state.LastUpdated, Outcome: outcome, Node: state.Node,
		DocCounts: r.copied, Reason: reason, Code: endCode(state),
	})
}

// endCode returns why the run ended whose end the state has.
func endCode(state *replicator.JobState) replicator.EndCode {
	switch {
	case len(state.History) > 0:
		return state.History[0].Code
	case state.Error != "" && state.Fault != nil: // no history is kept
		return state.Fault.EndCode()
	}
	return ""
}

// counting returns a change that also counts the run, which ends.
func (r *Run) counting(change func(*replicator.JobState)) func(*replicator.JobState) {
	return func(state *replicator.JobState) {
		if r.started {
			state.Runs++
		}
		change(state)
	}
}

// restate is the time after which a running job's state is written although it has not changed.
const restate = time.Minute

// Update changes the job's state and keeps the job alive. It must be called at least every third
// of the activity timeout. A state that has not changed for less than a minute is not written again:
// thousands of jobs may wait for changes. After an ErrEnding it writes nothing.
func (r *Run) Update(ctx context.Context, change func(*replicator.JobState)) error {
	return r.update(ctx, change, func(kv.Transaction, *replicator.JobState) error { return nil })
}

func (r *Run) update(
	ctx context.Context, change func(*replicator.JobState), also func(kv.Transaction, *replicator.JobState) error,
) error {
	if r.Ending() {
		return ErrEnding
	}
	return r.halted(ctx, r.write(change, func(state *replicator.JobState, text json.RawMessage, c charge) error {
		return r.held.Update(ctx, text, func(tx kv.Transaction) error {
			if err := r.check(tx); err != nil {
				return err
			}
			if err := r.account(tx, c, state); err != nil {
				return err
			}
			return also(tx, state)
		})
	}))
}

// Identify reserves the replication id for this run. It must precede the first read of a
// checkpoint. If the id has changed, it resets the statistics. The error is a *Collision if
// another job holds the id. With UpdateDocs it writes the state triggered into the job's
// document. If the run of a job that had the id before is still ending, it waits for that run, and
// keeps this job alive meanwhile.
func (r *Run) Identify(ctx context.Context, id replicator.ID) error {
	r.lease.identifying(id.String())
	for waited := []byte(nil); ; {
		begins, err := r.identify(ctx, id.String(), waited)
		if err != nil {
			return err
		}
		if begins {
			r.lease.identified()
			return nil
		}
		waited, err = r.store.reservations.awaitEnding(ctx, id.String(), r.Heartbeat(), func() error {
			if err := r.Update(ctx, unchanged); errors.Is(err, fdbjobs.ErrHalt) {
				return err
			}
			return nil // the run's context ends after it has failed for too long
		})
		if err != nil {
			return err
		}
	}
}

// identify reserves a replication id, and reports whether the run may begin. waited is as for mayBegin.
func (r *Run) identify(ctx context.Context, name string, waited []byte) (begins bool, err error) {
	change := func(state *replicator.JobState) {
		if state.ReplicationID != name {
			dropProgress(state)
			state.Opened = false
		}
		state.ReplicationID = name
	}
	writeDocument := r.liveStateWriter()
	err = r.update(ctx, change, func(tx kv.Transaction, state *replicator.JobState) error {
		if err := r.store.reservations.releaseExcept(tx, r.job, name); err != nil {
			return err
		}
		if err := r.store.reservations.reserve(tx, name, r.job); err != nil {
			return err
		}
		var err error
		if begins, err = r.store.reservations.mayBegin(tx, name, waited); err != nil {
			return err
		}
		return writeDocument(tx, state)
	})
	return begins, err
}

// Opened notes that the run has opened its databases. From then on the replication id that Identify has reserved is not given to
// a job of another user. It must precede the first read of a checkpoint. The error is a *Collision if another job has got the id
// since Identify, and has opened its databases.
func (r *Run) Opened(ctx context.Context) error {
	if r.job.State.Opened {
		return nil // no other job has got the id
	}
	return r.update(ctx, func(state *replicator.JobState) { state.Opened = true }, func(tx kv.Transaction, state *replicator.JobState) error {
		return r.store.reservations.reserve(tx, state.ReplicationID, r.job)
	})
}

func dropProgress(state *replicator.JobState) {
	state.Stats = replicator.Stats{}
	state.SourceSeq, state.ThroughSeq, state.CheckpointedSourceSeq, state.ChangesPending = nil, nil, nil, nil
}

// Complete ends the job as completed, or queues the job of a periodic replication for its next time. change, if not nil,
// sets its last progress and its result.
func (r *Run) Complete(ctx context.Context, change func(*replicator.JobState)) error {
	now := time.Now()
	again, err := r.again(replicator.RunCompleted, now)
	if err != nil {
		return err // the next run finds it too, and fails
	}
	complete := func(state *replicator.JobState) {
		if change != nil {
			change(state)
		}
		state.State, state.ErrorCount = again.State, again.ErrorCount
		state.Progressed(time.Now())
		state.SetFault(nil)
		r.event(state, time.Now(), replicator.EventStopped, replicator.EndCopied, "")
	}
	if again.State.Terminal() {
		return r.finish(ctx, again.Outcome, complete)
	}
	return r.resubmit(ctx, again.At, waitingTag(again.At, now), again.Outcome, complete)
}

// again decides when the job runs again after a run without an error.
func (r *Run) again(outcome replicator.Outcome, now time.Time) (replicator.Again, error) {
	ending := replicator.Ending{Outcome: outcome}
	return ending.Again(r.job.Args, r.job.State, replicator.Penalties{}, now, rand.Float64())
}

// Fail ends the job as failed.
func (r *Run) Fail(ctx context.Context, fault *replicator.Fault) error {
	return r.finish(ctx, replicator.RunFailed, func(state *replicator.JobState) {
		state.State = replicator.StateFailed
		state.ErrorCount++
		state.SetFault(fault)
		r.event(state, time.Now(), replicator.EventCrashed, fault.EndCode(), state.Error)
	})
}

// Crash queues the job again at a later time, after a failed run. errorCount is the number of
// crashes in a row. With UpdateDocs it writes the state error into the job's document.
func (r *Run) Crash(ctx context.Context, at time.Time, errorCount int, fault *replicator.Fault) error {
	return r.resubmit(ctx, at, tagCrashing, replicator.RunCrashed, func(state *replicator.JobState) {
		if errorCount <= 1 { // the run was healthy if there were crashes before
			state.CrashingSince = time.Time{}
		}
		state.State = replicator.StateCrashing
		state.ErrorCount = errorCount
		state.SetFault(fault)
		r.event(state, time.Now(), replicator.EventCrashed, fault.EndCode(), state.Error)
	})
}

// Stop queues the job again, to continue when there is room. code and reason say in the history why, if they are not empty.
// change, if not nil, sets its last progress. ErrorCount stays unless change resets it, because a stop is not a success.
func (r *Run) Stop(ctx context.Context, code replicator.EndCode, reason string, change func(*replicator.JobState)) error {
	again, err := r.again(replicator.RunStopped, time.Now())
	if err != nil {
		return err
	}
	return r.resubmit(ctx, again.At, "", again.Outcome, func(state *replicator.JobState) {
		if change != nil {
			change(state)
		}
		state.State = again.State
		state.SetError("", "")
		r.event(state, time.Now(), replicator.EventStopped, code, reason)
	})
}

// Restart queues the job again without its progress, because its replication id has changed.
func (r *Run) Restart(ctx context.Context, reason string) error {
	again, err := r.again(replicator.RunRestarted, time.Now())
	if err != nil {
		return err
	}
	return r.resubmit(ctx, again.At, "", again.Outcome, func(state *replicator.JobState) {
		dropProgress(state)
		state.State = again.State
		state.SetError("", "")
		r.event(state, time.Now(), replicator.EventPending, replicator.EndNewID, reason)
	})
}

// event adds an event to the history. code says why a run has ended, if it is known.
func (r *Run) event(state *replicator.JobState, at time.Time, what string, code replicator.EndCode, reason string) {
	state.History.Push(replicator.Event{Timestamp: at, Type: what, Reason: reason, Code: code}, r.store.settings().MaxHistory)
}

// leastMaxAge is how long every transient job is kept after its end.
const leastMaxAge = 10 * time.Second

// unparked returns a change of a state after which the job is not parked.
func unparked(change func(*replicator.JobState)) func(*replicator.JobState) {
	return func(state *replicator.JobState) {
		state.Parked = nil
		change(state)
	}
}

// finish ends the job. A posted job is kept for TransientMaxAge; the job of a document writes
// the document too.
func (r *Run) finish(ctx context.Context, outcome replicator.Outcome, change func(*replicator.JobState)) error {
	writeDocument := r.documentWriter()
	return r.halted(ctx, r.write(r.counting(unparked(change)), func(state *replicator.JobState, text json.RawMessage, c charge) error {
		if r.held.Tag = endTag(state.State); r.job.posted() {
			// Requests that wait for the job read its end.
			r.held.Expires = time.Now().Add(max(r.store.settings().TransientMaxAge, leastMaxAge))
		}
		return r.held.Finish(ctx, text, func(tx kv.Transaction) error {
			if r.job.IsMirror() {
				if err := r.store.mirrors.endMirror(tx, r.job); err != nil {
					return err
				}
			}
			return r.settle(tx, c, outcome, state, writeDocument)
		})
	}))
}

// resubmit queues the job again, with a tag, or removes it if its database or document is gone.
func (r *Run) resubmit(
	ctx context.Context, at time.Time, tag string, outcome replicator.Outcome, change func(*replicator.JobState),
) error {
	if r.gone {
		return r.drop(ctx)
	}
	writeDocument := r.liveStateWriter()
	return r.halted(ctx, r.write(r.counting(unparked(change)), func(state *replicator.JobState, text json.RawMessage, c charge) error {
		r.held.Tag = tag
		return r.held.Resubmit(ctx, at, text, func(tx kv.Transaction) error {
			return r.settle(tx, c, outcome, state, writeDocument)
		})
	}))
}

// write changes a copy of the state and stores it. The run keeps the copy if it was stored or may
// have been. The job's owner is charged for the running time.
func (r *Run) write(
	change func(*replicator.JobState), store func(*replicator.JobState, json.RawMessage, charge) error,
) error {
	next := *r.job.State
	next.History = slices.Clone(next.History)
	change(&next)
	next.FollowErrors(time.Now())
	next.CheckProgress(r.job.State, r.store.settings().StuckAfter, time.Now())
	if next.Stats.DocWriteFailures > r.job.State.Stats.DocWriteFailures {
		next.RefusedAt = time.Now()
	}
	next.FollowMirrored(time.Now())
	next.Behind, next.BehindSince = r.behind(&next)
	r.explainStart(&next)
	next.Redact(r.secrets)
	var text json.RawMessage // nil keeps the stored state
	if !r.stored || time.Since(next.LastUpdated) >= restate || !reflect.DeepEqual(&next, r.job.State) {
		next.LastUpdated = time.Now()
		var err error
		if text, err = encodeState(r.job.ID, &next); err != nil {
			return err
		}
	}
	c, lost := r.charge(), r.lost
	err := store(&next, text, c)
	r.stored = err == nil
	switch {
	case err == nil:
		if r.lost.Equal(lost) {
			r.lost = time.Time{} // the state has it, or the target has everything again
		}
		r.charged, r.parkedAt = c.at, sourceOf(next.Parked).row()
	case mayHaveCommitted(err):
		r.charged, r.parkedAt = c.at, append(r.parkedAt, sourceOf(next.Parked).row()...)
	}
	if err == nil || mayHaveCommitted(err) && next.State == replicator.StateRunning && next.ReplicationID == r.job.State.ReplicationID {
		r.job.State = &next
	}
	return err
}

// explainStart says in the history why a run has begun whose job was woken for the loss of its target.
func (r *Run) explainStart(state *replicator.JobState) {
	started := slices.IndexFunc(state.History, func(e replicator.Event) bool { return e.Type == replicator.EventStarted })
	if !r.lost.IsZero() && started >= 0 {
		state.History[started].Reason = "the target has lost what it had: it was deleted or created anew, or another server has it"
	}
}

// account makes the writes that follow from each write of the state: the charge for the running
// time, and the end of its row of a parked job.
func (r *Run) account(tx kv.Transaction, c charge, state *replicator.JobState) error {
	r.store.shares.Charge(tx, c.owner, c.at, c.ran)
	at := sourceOf(state.Parked)
	for _, was := range r.parkedAt {
		if was == at {
			continue
		}
		since, err := r.store.parking.lostSince(tx, was, r.job.ID)
		if err != nil {
			return err
		}
		if !since.IsZero() {
			r.lost = since // a repeated function may find the row cleared
		}
	}
	return r.store.parking.unparkExcept(tx, r.job.ID, at, r.parkedAt...)
}

// settle makes the writes that follow from the end of a run. writeDocument is what liveStateWriter or documentWriter has returned.
func (r *Run) settle(
	tx kv.Transaction, c charge, outcome replicator.Outcome, state *replicator.JobState,
	writeDocument func(kv.Transaction, *replicator.JobState) error,
) error {
	if err := r.account(tx, c, state); err != nil {
		return err
	}
	if err := r.recordEnd(tx, outcome, state); err != nil {
		return err
	}
	return writeDocument(tx, state)
}

// mayHaveCommitted reports whether a write that failed with err may have been committed. Later
// updates continue from such a write, so that no progress is taken back.
func mayHaveCommitted(err error) bool {
	return errors.Is(err, kv.ErrCommitUnknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// charge is the running time that one write of the state charges an owner for.
type charge struct {
	owner string
	at    time.Time
	ran   time.Duration // since the last charge
}

// charge returns the charge of a write now. A mirror takes no slot, so it is not charged.
func (r *Run) charge() charge {
	c := charge{owner: r.job.owner(), at: time.Now()}
	if !r.charged.IsZero() && !r.job.IsMirror() {
		c.ran = c.at.Sub(r.charged)
	}
	return c
}

// behind returns the lag of the target of a continuous job, or of a mirror's database, in a state, and the time of its entry in the
// index of continuous jobs that are behind. The time is zero while a run has been behind for less than StuckAfter: most runs catch up before, and have no entry.
func (r *Run) behind(state *replicator.JobState) (*replicator.Behind, time.Time) {
	now, behind, continuous := time.Now(), state.Behind, r.job.Args.Replication.Continuous && !r.job.IsMirror()
	switch {
	case state.Mirrored != nil: // FollowMirrored has set it
	case !continuous:
		return nil, time.Time{}
	case behind == nil && !r.lost.IsZero():
		behind = (&replicator.Behind{Since: r.lost}).After(state, now)
	default:
		behind = behind.After(state, now)
	}
	if behind == nil || !continuous || state.State.Terminal() {
		return behind, time.Time{}
	}
	since := behind.Since
	if m := state.Mirrored; m != nil && m.FirstRun && state.StartTime.After(since) {
		since = state.StartTime // the lag of its mirror includes the wait for its turn
	}
	if state.State == replicator.StateRunning && now.Sub(since) < r.store.settings().StuckAfter {
		return behind, time.Time{}
	}
	return behind, since.UTC().Truncate(time.Second)
}

// unchanged changes nothing in a state.
func unchanged(*replicator.JobState) {}
