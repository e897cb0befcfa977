package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

const (
	// upkeepEvery is how long the tasks rest.
	upkeepEvery = time.Minute
	// removeAtOnce is how many jobs one transaction removes, unless that are too many bytes.
	removeAtOnce = 200
	// deletedAtOnce is how many deleted databases one transaction reads of.
	deletedAtOnce = 100

	cancelledTask = "replications of deleted databases"
	expiredTask   = "expired replications"
)

// cancelAll cancels the jobs of a database in the transaction that deletes it, however many
// there are: from its commit on they are no jobs any more (see [Store.alive]), and upkeep,
// which it wakes, removes what is left of them. None can be added later, because whoever adds
// one reads with a conflict that its database exists.
func (s *Store) cancelAll(tx kv.Transaction, db *docstore.Database) error {
	tx.Set(s.space.Pack("deleted", db.Instance()), []byte(databaseOwner(db.Name(), db.Instance())))
	return s.upkeep.Add(tx, fdbjobs.Spec{ID: cancelledTask})
}

// deletedDatabase is a database whose jobs may not have been removed yet.
type deletedDatabase struct {
	instance, owner string
	jobs            int64 // that had not ended
}

// first and last are ids before and behind those of all its jobs, and of no others.
func (d deletedDatabase) first() string { return d.instance + "|" }
func (d deletedDatabase) last() string  { return d.instance + "}" }

// deletedDatabases reads of some databases, by instance, of those behind after.
func (s *Store) deletedDatabases(tx kv.ReadTransaction, after string) ([]deletedDatabase, error) {
	begin, end := s.space.Sub("deleted").Range()
	if after != "" {
		begin = kv.KeyAfter(s.space.Pack("deleted", after))
	}
	all := kv.KeyRange{Begin: begin, End: end}
	pairs, err := tx.GetRange(all, kv.RangeOptions{Limit: deletedAtOnce, Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return nil, err
	}
	deleted := make([]deletedDatabase, len(pairs))
	for i, pair := range pairs {
		_, instance, ok := ownerDatabase(string(pair.Value))
		if !ok {
			return nil, fmt.Errorf("reading of a deleted replicator database: unknown form %q", pair.Value)
		}
		deleted[i] = deletedDatabase{instance: instance, owner: string(pair.Value)}
	}
	return deleted, nil
}

// Tasks returns what has to be tidied up now and then: the jobs of deleted databases, and
// transient ones that ended long enough ago.
func (s *Store) Tasks() []fdbjobs.Task {
	task := func(name string, run func(context.Context) error) fdbjobs.Task {
		return fdbjobs.Task{Name: name, Every: upkeepEvery, Run: func(ctx context.Context, _ *fdbjobs.Held) error {
			return run(ctx)
		}}
	}
	return []fdbjobs.Task{task(cancelledTask, s.removeCancelled), task(expiredTask, s.removeExpired)}
}

func (s *Store) removeExpired(ctx context.Context) error {
	return s.removeAll(ctx, func(tx kv.Transaction, _ string, limit int) ([]*fdbjobs.Job, error) {
		return s.jobs.RemoveExpiredIn(tx, limit)
	})
}

// removeCancelled removes the jobs of deleted databases, and then what told of them. It can
// be broken off anywhere. A database where that fails does not keep it from the others.
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

// removeOwned removes the jobs of one database: first those that run, whose holders wait to
// be told.
func (s *Store) removeOwned(ctx context.Context, d deletedDatabase) error {
	for _, states := range [][]replicator.State{{replicator.StateRunning}, allStates} {
		err := s.removeAll(ctx, func(tx kv.Transaction, before string, limit int) ([]*fdbjobs.Job, error) {
			return s.jobs.RemoveOwned(tx, d.owner, before, limit, parts(states, labelDocument)...)
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(s.space.Pack("deleted", d.instance))
		return nil
	})
}

// removeAll removes jobs, with their claims, some in each transaction, until one finds
// fewer. Each goes on where the one before has ended, as a store passes slowly over what has
// just been removed. Where some are too large for one transaction, fewer are removed at once.
func (s *Store) removeAll(
	ctx context.Context, some func(tx kv.Transaction, last string, limit int) ([]*fdbjobs.Job, error),
) error {
	limit := removeAtOnce
	for last := ""; ; {
		removed, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
			removed, err := some(tx, last, limit)
			if err != nil {
				return nil, err
			}
			claims := make([]claim, len(removed))
			for i, job := range removed {
				claims[i] = claimOf(job)
				if err := s.dropFailures(tx, job.ID); err != nil {
					return nil, err
				}
				if job.Label == labelTransient {
					s.forgetEnd(tx, job.ID)
				}
			}
			return removed, s.release(tx, claims...)
		})
		if errors.Is(err, kv.ErrTransactionTooLarge) && limit > 1 {
			limit /= 2
			continue
		}
		if err != nil || len(removed) < limit {
			return err
		}
		last = removed[len(removed)-1].ID
	}
}
