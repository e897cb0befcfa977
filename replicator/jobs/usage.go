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
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// What a replication job uses is the time that it runs. Its owner is charged for that with
// each write of the job's state, in milliseconds, and beside that the time is added to a sum
// of the hour:
//
//	(ran, slice, owner)      -> int64    milliseconds that the owner's jobs ran
//	(entitled, slice, owner) -> int64    milliseconds that they were entitled to run
//
// A slice is a twelfth of an hour, by the number of them since the epoch. Slices that are
// over an hour old are removed, so that nothing stays of an owner that is gone.
const (
	sliceLength = 5 * time.Minute
	slices1h    = int64(time.Hour / sliceLength)
)

// Tariff says how long usage counts: it is multiplied by Coeff, from 0 to 1, each Interval.
// All nodes have the same.
type Tariff struct {
	Interval time.Duration
	Coeff    float64
}

// maxIntervals bounds for how long usage counts, in intervals.
const maxIntervals = 10

// weightOfRunning is how much more what runs counts than what ran. What ran follows what runs
// with a delay; if it counted as much, an owner whose jobs cannot be stopped at once, as
// one-shot replications cannot, would have too many and too few of them in turn.
const weightOfRunning = 4

// running is what a job counts because it runs: a multiple of what the usage of one comes to
// that runs all the time.
func (t Tariff) running() time.Duration {
	return time.Duration(float64(t.Interval) * min(1/(1-t.Coeff), maxIntervals) * weightOfRunning)
}

// meter counts what a run is charged.
type meter struct{ counted time.Time }

// bill is what one write of the state charges.
type bill struct {
	owner string
	at    time.Time
	ran   time.Duration // since the last one
}

func (m meter) bill(owner string) bill {
	b := bill{owner: owner, at: time.Now()}
	if !m.counted.IsZero() {
		b.ran = b.at.Sub(m.counted)
	}
	return b
}

// charge is part of the transaction that writes the state. It conflicts with nothing.
func (s *Store) charge(tx kv.Transaction, b bill) {
	if b.ran > 0 {
		s.jobs.Charge(tx, b.owner, b.ran.Milliseconds())
		s.addTime(tx, "ran", b.at, b.owner, b.ran)
	}
}

func (s *Store) addTime(tx kv.Transaction, sum string, at time.Time, owner string, d time.Duration) {
	if ms := d.Milliseconds(); ms > 0 {
		tx.Atomic(kv.MutationAdd, s.space.Pack(sum, sliceOf(at), owner), binary.LittleEndian.AppendUint64(nil, uint64(ms)))
	}
}

func sliceOf(t time.Time) int64 { return t.Unix() / int64(sliceLength/time.Second) }

// RollUp lets usage decay, if an interval has passed since that was done by any node, and
// then also gives databases their weights: those that are not in the map have
// fdbjobs.DefaultWeight, as do users. Each node calls it each interval.
func (s *Store) RollUp(ctx context.Context, tariff Tariff, weights map[string]float64) error {
	due, err := s.jobs.RollUp(ctx, fdbjobs.Usage{
		Interval: tariff.Interval, Coeff: tariff.Coeff, Running: tariff.running().Milliseconds(),
	})
	if err != nil || !due {
		return err
	}
	if err := s.setWeights(ctx, weights); err != nil {
		return err
	}
	return s.entitle(ctx, tariff.Interval)
}

// setWeights gives owners the weights of their databases. It costs what there are of those,
// not of owners.
func (s *Store) setWeights(ctx context.Context, weights map[string]float64) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		current, err := s.jobs.Weights(tx)
		if err != nil {
			return err
		}
		for name, weight := range weights {
			if !IsReplicatorDatabase(name) {
				continue
			}
			db, err := s.docs.DatabaseIn(tx, name)
			if errors.Is(err, docstore.ErrDatabaseNotFound) || errors.Is(err, docstore.ErrDatabaseName) {
				continue
			}
			if err != nil {
				return err
			}
			owner := databaseOwner(name, db.Instance())
			before, set := current[owner]
			delete(current, owner)
			if set && before == weight || !set && weight == fdbjobs.DefaultWeight {
				continue
			}
			if err := s.jobs.SetWeight(tx, owner, weight); err != nil {
				return err
			}
		}
		for owner := range current {
			if err := s.jobs.SetWeight(tx, owner, fdbjobs.DefaultWeight); err != nil {
				return err
			}
		}
		return nil
	})
}

// entitle adds to the sums of the hour what owners were entitled to in an interval, and
// removes sums that are over.
func (s *Store) entitle(ctx context.Context, interval time.Duration) error {
	owners, err := s.owners(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	parts := entitlements(owners)
	for some := range slices.Chunk(owners, 500) {
		err := s.db.Transact(ctx, func(tx kv.Transaction) error {
			for _, o := range some {
				s.addTime(tx, "entitled", now, o.Name, time.Duration(parts[o.Name]*float64(interval)))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		for _, sum := range []string{"ran", "entitled"} {
			old := s.space.Sub(sum)
			begin, _ := old.Range()
			tx.ClearRange(kv.KeyRange{Begin: begin, End: old.Pack(sliceOf(now) - slices1h)})
		}
		return nil
	})
}

// owners reads all owners that have jobs, in several transactions.
func (s *Store) owners(ctx context.Context) (all []fdbjobs.Owner, err error) {
	const atOnce = 200
	for after := ""; ; after = all[len(all)-1].Name {
		some, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]fdbjobs.Owner, error) {
			return s.jobs.Owners(tx.Snapshot(), after, atOnce)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < atOnce {
			return all, nil
		}
	}
}

// wants is how many of an owner's jobs would run if there were room.
func wants(o fdbjobs.Owner) int64 { return o.Running + o.Pending - crashing(o) }

// crashing is how many of an owner's jobs wait because they failed.
func crashing(o fdbjobs.Owner) int64 { return o.Tagged[fdbjobs.Pending.In("", tagCrashing)] }

// entitlements divides the jobs that run among their owners by weight. What one has no jobs
// for is divided among the others (max-min fairness).
func entitlements(owners []fdbjobs.Owner) map[string]float64 {
	left, weight := 0.0, 0.0
	for _, o := range owners {
		left += float64(o.Running)
		weight += o.Weight
	}
	// In the order in which they would be content: each gets what it wants, or else its
	// part of what is left.
	order := slices.SortedFunc(slices.Values(owners), func(a, b fdbjobs.Owner) int {
		return cmp.Compare(float64(wants(a))/a.Weight, float64(wants(b))/b.Weight)
	})
	parts := make(map[string]float64, len(owners))
	for _, o := range order {
		parts[o.Name] = min(float64(wants(o)), left*o.Weight/weight)
		left -= parts[o.Name]
		weight -= o.Weight
	}
	return parts
}

// Share is what is known of an owner of jobs: a replicator database, or a user of transient
// replications.
type Share struct {
	// Database or User is its name. An anonymous user has neither.
	Database, User string
	// Weight is its share among the others, Usage what it has used lately: running time that
	// decays.
	Weight float64
	Usage  time.Duration
	// How many of its jobs there are.
	Running, Pending, Crashing int64
	// Ran and Entitled are its part, from 0 to 1, of all running time of the last hour, and
	// the part it was entitled to.
	Ran, Entitled float64
}

// Shares returns the owners that have jobs which have not ended, or had some within the last
// hour, by name: databases before users.
func (s *Store) Shares(ctx context.Context) ([]Share, error) {
	owners, err := s.owners(ctx)
	if err != nil {
		return nil, err
	}
	ran, err := s.lastHour(ctx, "ran")
	if err != nil {
		return nil, err
	}
	entitled, err := s.lastHour(ctx, "entitled")
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
			continue // and forgotten soon
		}
		share := at(o.Name)
		share.Weight = o.Weight
		share.Usage = time.Duration(o.Usage) * time.Millisecond
		share.Running, share.Crashing = o.Running, crashing(o)
		share.Pending = o.Pending - share.Crashing
	}
	for owner, part := range ran {
		at(owner).Ran = part
	}
	for owner, part := range entitled {
		at(owner).Entitled = part
	}
	return s.living(ctx, byName)
}

// living sorts shares, without those of databases that were deleted.
func (s *Store) living(ctx context.Context, byName map[string]*Share) ([]Share, error) {
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := byName[a], byName[b]
		return cmp.Or(cmp.Compare(kind(x), kind(y)), cmp.Compare(x.Database, y.Database), cmp.Compare(x.User, y.User))
	})
	shares := make([]Share, 0, len(names))
	for some := range slices.Chunk(names, 200) {
		alive, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]bool, error) {
			alive := make([]bool, len(some))
			for i, name := range some {
				var err error
				if alive[i], err = s.alive(tx.Snapshot(), name); err != nil {
					return nil, err
				}
			}
			return alive, nil
		})
		if err != nil {
			return nil, err
		}
		for i, name := range some {
			if alive[i] {
				shares = append(shares, *byName[name])
			}
		}
	}
	return shares, nil
}

// kind is 0 for databases, 1 for users.
func kind(s *Share) int {
	if s.Database != "" {
		return 0
	}
	return 1
}

// lastHour returns each owner's part of a sum over the slices of the last hour.
func (s *Store) lastHour(ctx context.Context, sum string) (map[string]float64, error) {
	const atOnce = 2_000
	sums := s.space.Sub(sum)
	_, end := sums.Range()
	rest := kv.KeyRange{Begin: sums.Pack(sliceOf(time.Now()) - slices1h), End: end}
	parts, total := map[string]float64{}, 0.0
	for {
		pairs, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(rest, kv.RangeOptions{Limit: atOnce, Mode: kv.StreamWantAll}).Slice()
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
