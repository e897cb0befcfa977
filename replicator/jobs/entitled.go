package jobs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// How much each owner's jobs ran in the last hour, and how much they were entitled to run. Both are only shown.
//
//	("times", "ran", slice, owner)      -> int64    milliseconds that the owner's jobs ran
//	("times", "entitled", slice, owner) -> int64    milliseconds that they were entitled to run
//
// A slice is sliceLength long, numbered from the Unix epoch. RollUp removes slices that are older than an hour.

// entitle adds the entitlements of an interval to the sums, and removes old slices.
func (s *Shares) entitle(ctx context.Context, interval time.Duration) error {
	owners, err := s.owners(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	entitled := entitlements(owners)
	for some := range slices.Chunk(owners, entitledAtOnce) {
		err := s.db.Transact(ctx, func(tx kv.Transaction) error {
			for _, o := range some {
				s.usage.addTime(tx, timesEntitled, now, o.Name, time.Duration(entitled[o.Name]*float64(interval)))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		for _, sum := range []string{timesRan, timesEntitled} {
			old := s.space.Sub("times", sum)
			begin, _ := old.Range()
			tx.ClearRange(kv.KeyRange{Begin: begin, End: old.Pack(sliceOf(now) - slices1h)})
		}
		return nil
	})
}

// owners returns all owners that have jobs, read in several transactions.
func (s *Shares) owners(ctx context.Context) (all []fdbjobs.Owner, err error) {
	for after := ""; ; after = all[len(all)-1].Name {
		some, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]fdbjobs.Owner, error) {
			return s.jobs.Owners(tx.Snapshot(), after, ownersAtOnce)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < ownersAtOnce {
			return all, nil
		}
	}
}

// demand returns how many of an owner's jobs would run if there were room.
func demand(o fdbjobs.Owner) int64 { return o.Running + due(o) }

// due returns how many of an owner's pending jobs wait for nothing but room.
func due(o fdbjobs.Owner) int64 {
	jobs := pendingJobs(o)
	return jobs[""] + jobs[tagAgain]
}

// pendingJobs returns how many of an owner's pending jobs have each tag, and no tag.
func pendingJobs(o fdbjobs.Owner) map[string]int64 {
	jobs := map[string]int64{"": o.Pending}
	for tag, n := range o.Tagged {
		jobs[tag] = n
		jobs[""] -= n
	}
	return jobs
}

// liveJobs returns how many of an owner's jobs are in each state. paused reports that the owner is a paused database.
func liveJobs(o fdbjobs.Owner, paused bool) map[replicator.ShownState]int64 {
	jobs := map[replicator.ShownState]int64{replicator.ShownRunning: o.Running}
	for tag, n := range pendingJobs(o) {
		if p := (fdbjobs.Part{Status: fdbjobs.Pending, Tag: tag}); !ofMirror(p) {
			jobs[statesIn(p, paused).shown] += n
		}
	}
	return jobs
}

// entitlements divides the running jobs among their owners by weight. What an owner has no jobs
// for is divided among the others (max-min fairness). A paused owner has no entitlement.
func entitlements(all []fdbjobs.Owner) map[string]float64 {
	left, weight := 0.0, 0.0
	for _, o := range all {
		left += float64(o.Running)
		weight += o.Weight
	}
	owners := slices.DeleteFunc(slices.Clone(all), func(o fdbjobs.Owner) bool { return o.Weight == 0 })
	// The owners with the least demand per weight come first: each gets its demand, or its share
	// of what is left.
	order := slices.SortedFunc(slices.Values(owners), func(a, b fdbjobs.Owner) int {
		return cmp.Compare(float64(demand(a))/a.Weight, float64(demand(b))/b.Weight)
	})
	parts := make(map[string]float64, len(owners))
	for _, o := range order {
		parts[o.Name] = min(float64(demand(o)), left*o.Weight/weight)
		left -= parts[o.Name]
		weight -= o.Weight
	}
	return parts
}

// Share is the fair share of an owner: a replicator database, or a user of transient
// replications.
type Share struct {
	// Database or User is its name. The anonymous user has neither.
	Database, User string
	// Weight is its configured share, 0 if it is paused, Usage its decayed running time.
	Weight float64
	Usage  time.Duration
	// PausedSince is since when it is paused, and Before the weight that it had until then. Both are zero if it is not
	// paused, or if they are not known.
	PausedSince time.Time
	Before      float64
	// Jobs is the number of its jobs in each state of jobs that have not ended, without databases of mirrors that wait for their
	// turns.
	Jobs map[replicator.ShownState]int64
	// Ran is its fraction, from 0 to 1, of all running time of the last hour. Entitled is the
	// fraction that it was entitled to.
	Ran, Entitled float64
}

// List returns the owners that have jobs that have not ended, or that had some within the last
// hour, or that have another weight than the default, by name, databases before users.
func (s *Shares) List(ctx context.Context) ([]Share, error) {
	owners, err := s.owners(ctx)
	if err != nil {
		return nil, err
	}
	weights, pauses, err := s.weights(ctx)
	if err != nil {
		return nil, err
	}
	ran, err := s.lastHour(ctx, timesRan)
	if err != nil {
		return nil, err
	}
	entitled, err := s.lastHour(ctx, timesEntitled)
	if err != nil {
		return nil, err
	}
	byName := map[string]*Share{}
	at := func(owner string) *Share {
		share := byName[owner]
		if share == nil {
			share = &Share{Weight: fdbjobs.DefaultWeight}
			if name, _, ok := ownerDatabase(owner); ok {
				share.Database = name
			} else {
				share.User = owner[len(userPrefix):]
			}
			byName[owner] = share
		}
		return share
	}
	for _, o := range owners {
		if o.Pending+o.Running == 0 {
			continue // its row is removed soon
		}
		share := at(o.Name)
		share.Usage = time.Duration(o.Usage) * time.Millisecond
		weight, known := weights[o.Name]
		share.Jobs = liveJobs(o, known && weight == 0 && share.Database != "")
	}
	for owner, weight := range weights {
		share := at(owner)
		share.Weight, share.PausedSince, share.Before = weight, pauses[owner].since, pauses[owner].before
	}
	for owner, part := range ran {
		at(owner).Ran = part
	}
	for owner, part := range entitled {
		at(owner).Entitled = part
	}
	return s.existing(ctx, byName)
}

// weights returns the weights of owners that are not the default, and the pauses of those that are 0.
func (s *Shares) weights(ctx context.Context) (weights map[string]float64, pauses map[string]pause, err error) {
	all := s.space.Sub("paused")
	err = s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		read := tx.Snapshot().GetRange(rows.Range(all), kv.RangeOptions{})
		if weights, err = s.jobs.Weights(tx.Snapshot()); err != nil {
			return err
		}
		pauses = map[string]pause{}
		for pair, err := range read.All() {
			if err != nil {
				return err
			}
			owner, err := rows.LastString(all, pair.Key)
			if err != nil {
				return err
			}
			if pauses[owner], err = parsePause(pair.Value); err != nil {
				return err
			}
		}
		return nil
	})
	return weights, pauses, err
}

// existing returns the shares sorted, without the shares of deleted databases.
func (s *Shares) existing(ctx context.Context, byName map[string]*Share) ([]Share, error) {
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := byName[a], byName[b]
		return cmp.Or(cmp.Compare(kind(x), kind(y)), cmp.Compare(x.Database, y.Database), cmp.Compare(x.User, y.User))
	})
	shares := make([]Share, 0, len(names))
	for some := range slices.Chunk(names, ownersAtOnce) {
		exists, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]bool, error) {
			exists := make([]bool, len(some))
			for i, name := range some {
				var err error
				if exists[i], err = s.ownerExists(tx.Snapshot(), name); err != nil {
					return nil, err
				}
			}
			return exists, nil
		})
		if err != nil {
			return nil, err
		}
		for i, name := range some {
			if exists[i] {
				shares = append(shares, *byName[name])
			}
		}
	}
	return shares, nil
}

// kind orders databases before users.
func kind(s *Share) int {
	if s.Database != "" {
		return 0
	}
	return 1
}

// lastHour returns each owner's fraction of a sum over the last hour.
func (s *Shares) lastHour(ctx context.Context, sum string) (map[string]float64, error) {
	const atOnce = 2_000
	sums := s.space.Sub("times", sum)
	_, end := sums.Range()
	rest := kv.KeyRange{Begin: sums.Pack(sliceOf(time.Now()) - slices1h), End: end}
	parts, total := map[string]float64{}, 0.0
	for {
		pairs, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(rest, kv.RangeOptions{Limit: atOnce}).Slice()
		})
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			key, err := sums.Unpack(pair.Key)
			if err != nil || len(key) != 2 || len(pair.Value) != 8 {
				return nil, fmt.Errorf("reading the running time of an hour: %w", errors.Join(err, tuple.ErrMalformed))
			}
			owner, _ := key[1].(string)
			ms := float64(binary.LittleEndian.Uint64(pair.Value))
			parts[owner] += ms
			total += ms
		}
		if len(pairs) < atOnce {
			break
		}
		rest.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	for owner := range parts {
		parts[owner] /= total
	}
	return parts, nil
}
