package fdbjobs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// rollup is the value of the key rollup.
type rollup struct {
	generation int64 // number of roll-ups so far
	at         int64 // time of the last one by the clock of its process, seconds since the epoch
	coeff      float64
	running    int64 // what a running job counts
}

// readRollup starts reading the last roll-up. It is the zero value if there was none.
func (f *Fair) readRollup(tx kv.ReadTransaction) kv.Future[rollup] {
	return kv.Map(tx.Get(f.rollup), ifAny(rollup{}, parseRollup))
}

func parseRollup(value []byte) (r rollup, err error) {
	err = rows.Scan("the last roll-up", value, &r.generation, &r.at, &r.coeff, &r.running)
	return r, err
}

// latestRollup is the latest roll-up that this process has seen. The interval until the next one is measured from there,
// so it does not matter what clocks the processes have.
type latestRollup struct {
	mu         sync.Mutex
	generation int64
	at         time.Time
}

// due reports whether a roll-up may follow the one with a generation, because there was none yet, or this process saw
// it an interval before now. It notes a roll-up that this process had not seen. Timers of callers are not exact, so
// whole seconds count.
func (s *latestRollup) due(generation int64, now time.Time, interval time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation != s.generation {
		s.generation, s.at = generation, time.Now()
		return false
	}
	return generation == 0 || now.Sub(s.at).Round(time.Second) >= interval
}

// made notes a roll-up of this process that began at a time.
func (s *latestRollup) made(generation int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation, s.at = generation, at
}

// RollUp multiplies the usage of all owners by coeff, from 0 to 1, if this process has seen no roll-up of any process for
// an interval, and reports whether it did. Each process that takes jobs calls it at least once per interval. An error
// leaves some owners for the next roll-up, which makes up for it. Before the first roll-up nothing decays, and running
// jobs do not count.
//
// From then on each running job of an owner counts running in addition to the charges. It counts at once, so that an owner
// with little usage does not get all free slots. A good value is what a job is charged in the time in which usage decays.
func (f *Fair) RollUp(ctx context.Context, interval time.Duration, coeff float64, running int64) (bool, error) {
	if !(coeff >= 0 && coeff <= 1) {
		return false, fmt.Errorf("%w: the coefficient %v is not from 0 to 1", ErrInvalid, coeff)
	}
	if running < 0 {
		return false, fmt.Errorf("%w: a running job counts %d, which is negative", ErrInvalid, running)
	}
	began, at := time.Now(), f.queue.layer.now().Unix()
	var mine int64 // the generation that an earlier run of the function wrote
	due, err := kv.TransactValue(ctx, f.queue.layer.db, func(tx kv.Transaction) (bool, error) {
		r, err := f.readRollup(tx).Await()
		if err != nil {
			return false, err
		}
		if mine != 0 && r.generation == mine && r.at == at {
			return true, nil
		}
		if !f.seen.due(r.generation, began, interval) {
			return false, nil
		}
		mine = r.generation + 1
		tx.Set(f.rollup, tuple.Tuple{mine, at, coeff, running}.Pack())
		return true, nil
	})
	if err != nil || !due {
		return false, err
	}
	f.seen.made(mine, began)
	return true, f.foldAll(ctx)
}

// foldAll folds the charges of all owners with a standing, in batches of one transaction each.
func (f *Fair) foldAll(ctx context.Context) error {
	after := ""
	for {
		last, err := kv.TransactValue(ctx, f.queue.layer.db, func(tx kv.Transaction) (string, error) {
			owners, err := f.owners(tx.Snapshot(), after, ownersAtATime)
			if err != nil {
				return "", err
			}
			if err := f.fold(tx, owners); err != nil || len(owners) < ownersAtATime {
				return "", err
			}
			return owners[len(owners)-1], nil
		})
		if err != nil || last == "" {
			return err
		}
		after = last
	}
}

// standing is the value of an owner's key in owners.
type standing struct {
	usage      float64 // without later charges
	rank       float64 // usage over weight, as in ranks
	generation int64   // of the last roll-up in usage
	known      bool    // there is such a key
}

func (s standing) pack() []byte { return tuple.Tuple{s.usage, s.rank, s.generation}.Pack() }

func parseStanding(value []byte) (standing, error) {
	s := standing{known: true}
	err := rows.Scan("an owner's row", value, &s.usage, &s.rank, &s.generation)
	return s, err
}

// readStanding starts reading an owner's standing.
func (f *Fair) readStanding(tx kv.ReadTransaction, owner string) kv.Future[standing] {
	return kv.Map(tx.Get(f.standings.Pack(owner)), ifAny(standing{}, parseStanding))
}

// readWeight starts reading an owner's weight. It is 0 if the owner is paused.
func (f *Fair) readWeight(tx kv.ReadTransaction, owner string) kv.Future[float64] {
	return kv.Map(tx.Get(f.weights.Pack(owner)), ifAny(DefaultWeight, parseWeight))
}

// divisor returns what an owner's usage is divided by: its weight, or DefaultWeight if it is paused.
func divisor(weight float64) float64 { return cmp.Or(weight, DefaultWeight) }

func parseWeight(value []byte) (weight float64, err error) {
	err = rows.Scan("an owner's weight", value, &weight)
	if err == nil && !(weight >= 0) {
		err = fmt.Errorf("reading an owner's weight: %w: %v", tuple.ErrMalformed, weight)
	}
	return weight, err
}

// readCharges starts reading what an owner was charged since its standing was written.
func (f *Fair) readCharges(tx kv.ReadTransaction, owner string) kv.Future[int64] {
	return kv.Map(tx.Get(f.charges.Pack(owner)), ifAny(0, rows.ParseInt))
}

// ownerUsage is the usage of an owner.
type ownerUsage struct {
	standing standing
	weight   float64 // 0 if it is paused
	charged  int64   // since the standing was written
	running  int64   // the number of its running jobs
	rolled   rollup  // the last roll-up
}

// usage returns the charges, decayed by the roll-ups.
func (u ownerUsage) usage() float64 {
	usage := u.standing.usage
	if missed := u.rolled.generation - u.standing.generation; missed > 0 {
		usage *= math.Pow(u.rolled.coeff, float64(missed))
	}
	return usage + float64(u.charged)
}

// perWeight returns a usage per weight, with what the owner's running jobs count.
func (u ownerUsage) perWeight(usage float64) float64 {
	return (usage + float64(u.rolled.running*u.running)) / divisor(u.weight)
}

// readUsages starts reading the usages of owners. It reads the standing and weight, which change together with the rank,
// through own, and the rest through rest.
func (f *Fair) readUsages(own, rest kv.ReadTransaction, rolled kv.Future[rollup], owners ...string) kv.Future[[]ownerUsage] {
	reads := make([]kv.Future[ownerUsage], len(owners))
	for i, owner := range owners {
		standings, weights := f.readStanding(own, owner), f.readWeight(own, owner)
		charges, running := f.readCharges(rest, owner), f.queue.readOwnerCount(rest, owner, Running)
		reads[i] = kv.Func[ownerUsage](func() (u ownerUsage, err error) {
			if u.standing, err = standings.Await(); err != nil {
				return u, err
			}
			if u.weight, err = weights.Await(); err != nil {
				return u, err
			}
			if u.charged, err = charges.Await(); err != nil {
				return u, err
			}
			u.running, err = running.Await()
			return u, err
		})
	}
	return kv.Func[[]ownerUsage](func() ([]ownerUsage, error) {
		r, err := rolled.Await()
		if err != nil {
			return nil, err
		}
		usages, err := kv.All(reads)
		for i := range usages {
			usages[i].rolled = r
		}
		return usages, err
	})
}
