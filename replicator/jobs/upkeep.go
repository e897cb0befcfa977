package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/audit"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/replicator"
)

// Upkeep removes what is no longer needed. The program runs its tasks, on nodes with the role api_frontend, and calls RequeueAll when it
// opens a store.
type Upkeep struct {
	*core
	reservations *reservations
	mirrors      *mirrorRows
	writer       *writer
}

const (
	// upkeepEvery is the interval of the tasks.
	upkeepEvery = time.Minute
	// removeAtOnce is the most jobs that one transaction removes.
	removeAtOnce = 200

	expiredTask      = "expired replications"
	acknowledgedTask = "acknowledgements that have ended"
	auditTask        = "old changes by users"
	// trimEvery is the interval of auditTask, which reads all that is kept.
	trimEvery = 10 * time.Minute
)

// Tasks returns the upkeep tasks: removing the jobs of deleted databases, transient jobs that have
// expired, and the jobs of mirrors that have ended, pausing and resuming those of other mirrors, removing the acknowledgements whose end has come, and old changes by users.
func (s *Upkeep) Tasks() []upkeep.Task {
	task := func(name string, every time.Duration, run func(context.Context) error) upkeep.Task {
		return upkeep.Task{Name: name, Every: every, Run: func(ctx context.Context, _ *fdbjobs.Held) error {
			return run(ctx)
		}}
	}
	return []upkeep.Task{
		task(cancelledTask, upkeepEvery, s.removeCancelled), task(expiredTask, upkeepEvery, s.removeExpired),
		task(mirrorsTask, upkeepEvery, s.followMirrors), task(acknowledgedTask, upkeepEvery, s.removeAcknowledgements),
		task(auditTask, trimEvery, func(ctx context.Context) error { return audit.Trim(ctx, s.db) }),
	}
}

func (s *Upkeep) removeExpired(ctx context.Context) error {
	_, err := parts(ctx, s.db, removeAtOnce, nil, func(tx kv.Transaction, _ any, most int) (any, bool, error) {
		removed, err := s.watches.RemoveExpired(tx, most) // watches that have ended
		return nil, len(removed) == most, err
	})
	if err != nil {
		return err
	}
	return errors.Join(s.reservations.removeVoid(ctx), s.removeAll(ctx, func(tx kv.Transaction, _ string, limit int) ([]*fdbjobs.Job, error) {
		return s.jobs.RemoveExpired(tx, limit)
	}))
}

// removeCancelled removes the jobs of deleted databases, and then the records of these databases.
// It may be interrupted anywhere. A failure in one database does not stop the others; the first
// one is returned.
func (s *Upkeep) removeCancelled(ctx context.Context) error {
	var failures error
	for after := ""; ; {
		deleted, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]deletedDatabase, error) {
			return s.deletedDatabases(tx.Snapshot(), after)
		})
		if err != nil || len(deleted) == 0 {
			return cmp.Or(failures, err)
		}
		for _, d := range deleted {
			if err := s.removeOwned(ctx, d); err != nil && failures == nil {
				failures = fmt.Errorf("removing the jobs of %q: %w", d.owner, err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			after = d.instance
		}
	}
}

// removeOwned removes the jobs of one database. Running jobs come first, so that their runs stop
// soon.
func (s *Upkeep) removeOwned(ctx context.Context, d deletedDatabase) error {
	for _, states := range []States{{Shown: []replicator.ShownState{replicator.ShownRunning}}, {}} {
		owned := fdbjobs.Selection{Owner: &d.owner, Parts: partsOf(states, false, []string{labelDocument, labelMirrored})}
		err := s.removeAll(ctx, func(tx kv.Transaction, last string, limit int) ([]*fdbjobs.Job, error) {
			found, err := s.jobs.List(tx.Snapshot(), owned, fdbjobs.Position{ID: last}, limit)
			if err != nil {
				return nil, err
			}
			var ids []string
			for _, job := range found {
				if job.Owner == d.owner { // whatever the index says
					ids = append(ids, job.ID)
				}
			}
			return s.jobs.Remove(tx, ids...)
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		s.mirrors.clearEventsOf(tx, d.instance)
		tx.Clear(s.space.Pack("deleted", d.instance))
		return nil
	})
}

// removeAll removes jobs and their reservations, some per transaction, until there are no more. Each
// transaction starts after the last job of the one before, because reading a range of removed
// keys is slow.
func (s *Upkeep) removeAll(
	ctx context.Context, some func(tx kv.Transaction, last string, limit int) ([]*fdbjobs.Job, error),
) error {
	_, err := parts(ctx, s.db, removeAtOnce, "", func(tx kv.Transaction, last string, most int) (string, bool, error) {
		removed, err := some(tx, last, most)
		if err != nil || len(removed) == 0 {
			return last, false, err
		}
		return removed[len(removed)-1].ID, len(removed) == most, s.removeRest(tx, removed)
	})
	return err
}

// removeRest removes what belongs to jobs that were removed.
func (s *Upkeep) removeRest(tx kv.Transaction, removed []*fdbjobs.Job) error {
	all := make([]left, len(removed))
	for i, job := range removed {
		var state replicator.JobState
		// If the state cannot be read, a reservation remains, but it does not hold.
		_ = json.Unmarshal(job.State, &state)
		all[i] = left{
			run: endingRun{job.ID, holding{job.Lock, state.ReplicationID}}, parkedAt: sourceOf(state.Parked), forgotten: true,
			// Only a transient job that had not ended may have another reservation than the one in its state.
			reserved: []string{state.ReplicationID},
		}
	}
	return s.writer.leave(tx, all...)
}

// dropAtOnce is the maximum number of databases of a mirror that one transaction drops.
const dropAtOnce = 50

// followMirrors removes the jobs of the databases of mirrors that have ended, and brings those of other mirrors in line with their
// pauses. It may be interrupted anywhere. Nothing happens at the target.
func (s *Upkeep) followMirrors(ctx context.Context) error {
	mirrors, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (all []string, err error) {
		for prefix, err := range s.jobs.TallyPrefixes(tx.Snapshot(), indexMirrored, 1) {
			if err != nil {
				return nil, err
			}
			var id string
			if rows.As(prefix[0], &id) {
				all = append(all, id)
			}
		}
		return all, nil
	})
	if err != nil {
		return err
	}
	for _, id := range mirrors {
		if err := s.dropMirror(ctx, id); err != nil {
			return fmt.Errorf("dropping the databases of the mirror %q: %w", id, err)
		}
		if err := s.pauseMirror(ctx, id); err != nil {
			return fmt.Errorf("pausing or resuming the databases of the mirror %q: %w", id, err)
		}
	}
	return nil
}

// dropMirror removes the jobs of the databases of a mirror if it has ended.
func (s *Upkeep) dropMirror(ctx context.Context, mirror string) error {
	_, err := parts(ctx, s.db, dropAtOnce, nil, func(tx kv.Transaction, _ any, most int) (_ any, more bool, err error) {
		more, err = s.dropSome(tx, mirror, most)
		return nil, more, err
	})
	return err
}

// dropSome removes up to most jobs of a mirror that has ended, and reports whether it may have more.
func (s *Upkeep) dropSome(tx kv.Transaction, mirror string, most int) (more bool, err error) {
	// A mirror that was added again brings the jobs in line with its own definition.
	if live, err := s.mirrors.liveMirror(tx, mirror); err != nil || live != nil {
		return false, err
	}
	found, err := s.mirrors.mirrored(tx, mirror, "", most).Await()
	if err != nil {
		return false, err
	}
	for _, e := range found {
		if err := s.writer.removeChild(tx, e.id); err != nil {
			return false, err
		}
	}
	return len(found) == most, nil
}

// RequeueAll queues all running jobs again, in each queue of the store, and lets runs begin that would wait for runs of an earlier
// process. It is for a process that has just opened a store that no other process can open, see fdbjobs.Queue.RequeueAll. It returns the
// numbers of jobs by the name of their queue, also if it fails.
func (s *Upkeep) RequeueAll(ctx context.Context) (map[string]int, error) {
	requeued := map[string]int{}
	for name, queue := range map[string]*fdbjobs.Queue{
		QueueName: s.jobs, watchQueue: s.watches, verifyQueue: s.verifications, upkeep.Queue: s.upkeep,
	} {
		n, err := queue.RequeueAll(ctx)
		if err != nil {
			return requeued, err
		}
		requeued[name] = n
	}
	return requeued, s.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.ClearRange(rows.Range(s.space.Sub("ending")))
		return nil
	})
}
