// Package shares keeps the fair shares of owners in the store: their weights, their pauses and their running time. The scheduler sets and
// decays them, the HTTP interface lists them, and the package jobs charges owners and asks which ones are paused.
//
// Who is served, who yields, and what is only shown:
//
// An owner is a replicator database, or the user of posted replications ([OwnerOf]). Owners share running time, jobs do not: an owner
// with many jobs gets as much as an owner with few.
//
//   - The weight of an owner is its shares in [replicator.shares] divided by 100, config.DefaultShares. Users, and
//     databases that are not listed, have the weight 1. A weight of 0 is a pause: claims do not meet the owner, and each node stops
//     its runs when it sees the setting (shares.go of the scheduler). A run that was taken before the weight was set is stopped as it
//     begins.
//   - The usage of an owner is the running time of its jobs, in milliseconds. Each write of a job's state charges it
//     ([Shares.Charge]). It is multiplied by usage_coeff, 0.5, each interval_sec, 15 seconds, by one node ([Shares.RollUp]).
//   - Each running job counts in addition, by what [usageOfRunning] returns.
//
// Who is served: when a slot is free, the owner with the lowest usage per weight whose jobs are due, and within it the job
// that has been due longest. fdbjobs/choose.go decides. An owner without jobs has no usage; it begins at the lowest one of
// the others.
//
// Who yields: when no slot is free, continuous jobs that have run for min_run_time_sec, 60 seconds, at most max_churn, 100,
// each interval_sec on each node (rotation.go of the scheduler). The owner with the highest usage per weight gives up a job,
// if it then still has at least the usage of the owner that is served. If no owner has too much, each owner's jobs take
// turns. When max_jobs is lowered, the jobs of the owners with the most usage stop first (Runs.Yield of the package jobs).
//
// What is only shown: the running time of the last hour, and the part of it that each owner was entitled to
// (times.go). They are in _scheduler/shares, and no decision reads them.
//
// Keys, below the subspace ("replicator"):
//
//	("paused", owner)                   -> (time, weight before) of a paused database; time in seconds since the Unix epoch
//	("times", "ran", slice, owner)      -> int64: milliseconds that the owner's jobs ran
//	("times", "entitled", slice, owner) -> int64: milliseconds that they were entitled to run
package shares

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

const (
	// maxIntervals is the most intervals whose usage a running job counts. With a usage_coeff near 1 usage hardly decays,
	// and one running job would otherwise count more than all past ones.
	maxIntervals = 10
	// weightOfRunning is how many times more a running job counts than past usage. Past usage lags behind: if both
	// counted the same, an owner whose jobs cannot be stopped at once, such as one-shot replications, would alternate
	// between too many and too few.
	weightOfRunning = 4
	// weightsAtOnce is the most weights that one transaction sets. It reads their databases one by one.
	weightsAtOnce = 50
	// ownersAtOnce is the most owners that one transaction reads.
	ownersAtOnce = 200
)

// Shares are the fair shares of the owners of a queue. It is safe for concurrent use.
type Shares struct {
	db      kv.Database
	queue   *fdbjobs.Queue
	docs    *docstore.Store
	space   tuple.Subspace
	pending map[string]replicator.ShownState
}

// Open returns the shares of the owners of a queue, whose databases are in docs. pending has the states of the queue's pending jobs by tag:
// those in ShownPending are due. Jobs with other tags do not count.
func Open(db kv.Database, queue *fdbjobs.Queue, docs *docstore.Store, pending map[string]replicator.ShownState) *Shares {
	return &Shares{db, queue, docs, tuple.NewSubspace("replicator"), pending}
}

// usageOfRunning returns the usage that a job counts while it runs. A job that runs all the time converges to a usage of
// interval/(1-coeff); a running job counts weightOfRunning times that, and at most as much as for maxIntervals.
func usageOfRunning(interval time.Duration, coeff float64) time.Duration {
	return time.Duration(float64(interval) * min(1/(1-coeff), maxIntervals) * weightOfRunning)
}

// RollUp decays usage if no node has done so for an interval: it is multiplied by coeff, from 0 to 1. Then it also sets the weights of
// databases, by name. Databases that weights does not have get fdbjobs.DefaultWeight. Each node calls RollUp each interval, and all
// with the same interval and coeff.
func (s *Shares) RollUp(ctx context.Context, interval time.Duration, coeff float64, weights map[string]float64) error {
	due, err := s.queue.RollUp(ctx, interval, coeff, usageOfRunning(interval, coeff).Milliseconds())
	if err != nil || !due {
		return err
	}
	if err := s.SetWeights(ctx, weights); err != nil {
		return err
	}
	return s.entitle(ctx, interval)
}

// SetWeights sets the weights of owners that are databases, as [Shares.RollUp] does in time. A
// database with the weight 0 is paused. Its cost grows with the number of weights, not of owners.
func (s *Shares) SetWeights(ctx context.Context, weights map[string]float64) error {
	unset, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (map[string]float64, error) {
		return s.queue.Weights(tx.Snapshot())
	})
	if err != nil {
		return err
	}
	current := maps.Clone(unset)
	for names := range slices.Chunk(slices.Sorted(maps.Keys(weights)), weightsAtOnce) {
		err := s.db.Transact(ctx, func(tx kv.Transaction) error {
			for _, name := range names {
				owner, err := s.ownerOf(tx, name)
				if err != nil {
					return err
				}
				if owner == "" {
					continue
				}
				delete(unset, owner)
				before, set := current[owner]
				if set && before == weights[name] || !set && weights[name] == fdbjobs.DefaultWeight {
					continue
				}
				if err := s.setWeight(tx, owner, weights[name]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		for owner := range unset {
			if err := s.setWeight(tx, owner, fdbjobs.DefaultWeight); err != nil {
				return err
			}
		}
		return nil
	})
}

// ownerOf returns the owner that is a replicator database with a name, empty if there is none.
func (s *Shares) ownerOf(tx kv.ReadTransaction, name string) (owner string, err error) {
	if !replicator.IsReplicatorDatabase(name) {
		return "", nil
	}
	db, err := s.docs.DatabaseIn(tx, name)
	if errors.Is(err, docstore.ErrDatabaseNotFound) || errors.Is(err, docstore.ErrDatabaseName) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return OwnerOf(name, db.Instance(), ""), nil
}
