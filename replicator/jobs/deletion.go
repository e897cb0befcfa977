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
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

const (
	// upkeepEvery is the interval of the tasks.
	upkeepEvery = time.Minute
	// removeAtOnce is the most jobs that one transaction removes.
	removeAtOnce = 200
	// removeTime is the longest time for one transaction that removes several. Its commit must come before
	// kv.MaxTransactionAge.
	removeTime = kv.MaxTransactionAge / 2
	// deletedAtOnce is the most deleted databases that one transaction reads.
	deletedAtOnce = 100

	cancelledTask = "replications of deleted databases"
	expiredTask   = "expired replications"
)

// cancelAll cancels the jobs of a database in the transaction that deletes it, in constant time:
// once that commits they no longer count (see [Store.ownerExists]). It wakes upkeep, which
// removes them. No job can be added later, because adding one reads with a conflict that the
// database exists.
func (s *Store) cancelAll(tx kv.Transaction, db *docstore.Database) error {
	tx.Set(s.space.Pack("deleted", db.Instance()), []byte(databaseOwner(db.Name(), db.Instance())))
	return s.upkeep.Add(tx, fdbjobs.Spec{ID: cancelledTask})
}

// deletedDatabase is a deleted database that may still have jobs.
type deletedDatabase struct{ instance, owner string }

// deletedDatabases returns up to deletedAtOnce deleted databases with instances greater than
// after.
func (s *Store) deletedDatabases(tx kv.ReadTransaction, after string) ([]deletedDatabase, error) {
	begin, end := s.space.Sub("deleted").Range()
	if after != "" {
		begin = kv.KeyAfter(s.space.Pack("deleted", after))
	}
	all := kv.KeyRange{Begin: begin, End: end}
	pairs, err := tx.GetRange(all, kv.RangeOptions{Limit: deletedAtOnce}).Slice()
	if err != nil {
		return nil, err
	}
	deleted := make([]deletedDatabase, len(pairs))
	for i, pair := range pairs {
		_, instance, ok := ownerDatabase(string(pair.Value))
		if !ok {
			return nil, fmt.Errorf("reading a deleted replicator database: malformed owner %q", pair.Value)
		}
		deleted[i] = deletedDatabase{instance: instance, owner: string(pair.Value)}
	}
	return deleted, nil
}

// Tasks returns the upkeep tasks: removing the jobs of deleted databases, transient jobs that have
// expired, and the jobs of mirrors that have ended.
func (s *Store) Tasks() []upkeep.Task {
	task := func(name string, run func(context.Context) error) upkeep.Task {
		return upkeep.Task{Name: name, Every: upkeepEvery, Run: func(ctx context.Context, _ *fdbjobs.Held) error {
			return run(ctx)
		}}
	}
	return []upkeep.Task{
		task(cancelledTask, s.removeCancelled), task(expiredTask, s.removeExpired), task(mirrorsTask, s.dropMirrors),
	}
}

func (s *Store) removeExpired(ctx context.Context) error {
	for more := true; more; { // watches that have ended
		removed, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
			return s.watches.Admin().RemoveExpired(tx, removeAtOnce)
		})
		if err != nil {
			return err
		}
		more = len(removed) == removeAtOnce
	}
	return errors.Join(s.removeVoid(ctx), s.removeAll(ctx, func(tx kv.Transaction, _ string, limit int) ([]*fdbjobs.Job, error) {
		return s.jobs.Admin().RemoveExpired(tx, limit)
	}))
}

// removeCancelled removes the jobs of deleted databases, and then the records of these databases.
// It may be interrupted anywhere. A failure in one database does not stop the others; the first
// one is returned.
func (s *Store) removeCancelled(ctx context.Context) error {
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
func (s *Store) removeOwned(ctx context.Context, d deletedDatabase) error {
	for _, states := range [][]replicator.State{{replicator.StateRunning}, allStates} {
		err := s.removeAll(ctx, func(tx kv.Transaction, before string, limit int) ([]*fdbjobs.Job, error) {
			return s.jobs.Admin().RemoveOwned(tx, d.owner, before, limit, parts(states, labelDocument, labelMirrored)...)
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		s.clearMirrorsOf(tx, d.instance)
		tx.Clear(s.space.Pack("deleted", d.instance))
		return nil
	})
}

// removeAll removes jobs and their reservations, some per transaction, until there are no more. Each
// transaction starts after the last job of the one before, because reading a range of removed
// keys is slow. If a transaction is too large or too slow, the next ones remove fewer jobs.
func (s *Store) removeAll(
	ctx context.Context, some func(tx kv.Transaction, last string, limit int) ([]*fdbjobs.Job, error),
) error {
	limit := removeAtOnce
	for last := ""; ; {
		removed, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
			var until time.Time
			if limit > 1 {
				until = time.Now().Add(removeTime)
			}
			removed, err := some(tx, last, limit)
			if err == nil {
				err = s.removeRest(tx, removed)
			}
			return removed, kv.InTime(until, err)
		})
		if kv.TooMuch(err) && limit > 1 {
			limit /= 2
			continue
		}
		if err != nil || len(removed) < limit {
			return err
		}
		last = removed[len(removed)-1].ID
	}
}

// removeRest removes what belongs to jobs that were removed.
func (s *Store) removeRest(tx kv.Transaction, removed []*fdbjobs.Job) error {
	reservations, ids, runs := make([]reservation, len(removed)), make([]string, len(removed)), make([]noted, len(removed))
	unpark := make([]func() error, len(removed))
	for i, job := range removed {
		var state replicator.JobState
		// If the state cannot be read, a reservation remains, but it does not hold.
		_ = json.Unmarshal(job.State, &state)
		// Only a transient job that had not ended may have another reservation than the one in its state.
		reservations[i], ids[i] = reservation{state.ReplicationID, job.ID}, job.ID
		unpark[i] = s.unparking(tx, sourceOf(state.Parked), job.ID)
		runs[i] = noted{job.ID, holding{job.Lock, state.ReplicationID}}
		s.clearRecord(tx, job.ID, recordOf(&state))
		if job.Label == labelTransient {
			s.forgetEnd(tx, job.ID)
		}
	}
	for _, end := range unpark {
		if err := end(); err != nil {
			return err
		}
	}
	if err := s.unname(tx, removed); err != nil {
		return err
	}
	if err := s.dropFailures(tx, ids...); err != nil {
		return err
	}
	if err := s.noteEndings(tx, runs...); err != nil {
		return err
	}
	return s.release(tx, reservations...)
}
