package fdbjobs

import (
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
	running    int64 // Usage.Running
}

func awaitRollup(f kv.Future[[]byte]) (r rollup, err error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return r, err
	}
	e, err := tuple.Unpack(value)
	if err == nil && (len(e) != 4 || !rows.As(e[0], &r.generation) || !rows.As(e[1], &r.at) || !rows.As(e[2], &r.coeff) || !rows.As(e[3], &r.running)) {
		err = fmt.Errorf("unknown form %v", e)
	}
	if err != nil {
		return r, fmt.Errorf("reading the last roll-up: %w", err)
	}
	return r, nil
}

// Usage says how the usage of owners is counted.
type Usage struct {
	// Charges are multiplied by Coeff, from 0 to 1, once per Interval.
	Interval time.Duration
	Coeff    float64
	// Running is what each running job of an owner counts in addition to its charges. It counts at once, so that an
	// owner with little usage does not get all free slots. A good value is what a job is charged in the time in which
	// usage decays.
	Running int64
}

// sighting is the latest roll-up that this process has seen. The interval until the next one is measured from there, so
// it does not matter what clocks the processes have.
type sighting struct {
	mu         sync.Mutex
	generation int64
	at         time.Time
}

// due reports whether a roll-up may follow the one with a generation, because there was none yet, or this process saw
// it an interval before now. It notes a roll-up that this process had not seen. Timers of callers are not exact, so
// whole seconds count.
func (s *sighting) due(generation int64, now time.Time, interval time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation != s.generation {
		s.generation, s.at = generation, time.Now()
		return false
	}
	return generation == 0 || now.Sub(s.at).Round(time.Second) >= interval
}

// made notes a roll-up of this process that began at a time.
func (s *sighting) made(generation int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation, s.at = generation, at
}

// RollUp decays the usage of all owners, if this process has seen no roll-up of any process for an interval, and
// reports whether it did. Each process that takes jobs calls it at least once per interval. An error leaves some owners
// for the next roll-up, which makes up for it. Before the first roll-up nothing decays, and running jobs do not count.
func (f *Fair) RollUp(ctx context.Context, u Usage) (bool, error) {
	if !(u.Coeff >= 0 && u.Coeff <= 1) {
		return false, fmt.Errorf("%w: the coefficient %v is not from 0 to 1", ErrInvalid, u.Coeff)
	}
	if u.Running < 0 {
		return false, fmt.Errorf("%w: a running job counts %d, which is negative", ErrInvalid, u.Running)
	}
	began, at := time.Now(), f.queue.layer.now().Unix()
	var mine int64 // the generation that an earlier run of the function wrote
	due, err := kv.TransactValue(ctx, f.queue.layer.db, func(tx kv.Transaction) (bool, error) {
		r, err := awaitRollup(f.readRollup(tx))
		if err != nil {
			return false, err
		}
		if mine != 0 && r.generation == mine && r.at == at {
			return true, nil
		}
		if !f.seen.due(r.generation, began, u.Interval) {
			return false, nil
		}
		mine = r.generation + 1
		tx.Set(f.rollup, tuple.Tuple{mine, at, u.Coeff, u.Running}.Pack())
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
			owners, _, err := f.owners(tx.Snapshot(), after, ownersAtATime)
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
}

func (s standing) pack() []byte { return tuple.Tuple{s.usage, s.rank, s.generation}.Pack() }

func parseStanding(value []byte) (s standing, err error) {
	e, err := tuple.Unpack(value)
	if err != nil {
		return s, fmt.Errorf("reading an owner's row: %w", err)
	}
	if len(e) != 3 || !rows.As(e[0], &s.usage) || !rows.As(e[1], &s.rank) || !rows.As(e[2], &s.generation) {
		return s, fmt.Errorf("reading an owner's row: unknown form %v", e)
	}
	return s, nil
}

// rolled returns the usage after the roll-ups since its generation.
func (s standing) rolled(r rollup) float64 {
	if missed := r.generation - s.generation; missed > 0 {
		return s.usage * math.Pow(r.coeff, float64(missed))
	}
	return s.usage
}

// awaitWeight returns a weight. That of a paused owner counts as DefaultWeight in its usage per weight.
func awaitWeight(f kv.Future[[]byte]) (weight float64, paused bool, err error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return DefaultWeight, false, err
	}
	if weight, err = parseWeight(value); weight == 0 {
		return DefaultWeight, err == nil, err
	}
	return weight, false, nil
}

func parseWeight(value []byte) (weight float64, err error) {
	e, err := tuple.Unpack(value)
	if err == nil && (len(e) != 1 || !rows.As(e[0], &weight) || !(weight >= 0)) {
		err = fmt.Errorf("unknown form %v", e)
	}
	if err != nil {
		return 0, fmt.Errorf("reading an owner's weight: %w", err)
	}
	return weight, nil
}

// usageRead is a pending read of an owner's usage.
type usageRead struct {
	standing, weight, charges kv.Future[[]byte]
	running                   func() (int64, error)
}

// readUsage starts reading an owner's usage. It reads the standing and weight, which change together with the rank,
// through own, and the rest through rest.
func (f *Fair) readUsage(own, rest kv.ReadTransaction, owner string) usageRead {
	return usageRead{
		standing: own.Get(f.standings.Pack(owner)), weight: own.Get(f.weights.Pack(owner)),
		charges: rest.Get(f.charges.Pack(owner)), running: f.queue.readOwnerCount(rest, owner, Running).await,
	}
}

// ownerUsage is the usage of an owner.
type ownerUsage struct {
	standing standing
	known    bool // it has a standing
	weight   float64
	paused   bool
	charged  int64 // since the standing was written
	running  int64 // the number of its running jobs
}

// readCharged is readUsage with a known standing, and without running jobs.
func (f *Fair) readCharged(tx kv.ReadTransaction, owner string, standing []byte) usageRead {
	return usageRead{
		standing: known(standing), weight: tx.Get(f.weights.Pack(owner)),
		charges: tx.Get(f.charges.Pack(owner)), running: func() (int64, error) { return 0, nil },
	}
}

// known is a future whose value is known.
type known []byte

func (k known) Await() ([]byte, error) { return k, nil }

func (u usageRead) await() (o ownerUsage, err error) {
	if o.standing, o.known, err = awaitStanding(u.standing); err != nil {
		return o, err
	}
	if o.weight, o.paused, err = awaitWeight(u.weight); err != nil {
		return o, err
	}
	if o.charged, err = rows.AwaitInt(u.charges); err != nil {
		return o, err
	}
	o.running, err = u.running()
	return o, err
}

// usage returns the charges, decayed by the roll-ups.
func (o ownerUsage) usage(r rollup) float64 { return o.standing.rolled(r) + float64(o.charged) }

// perWeight returns the usage including running jobs, divided by the owner's weight.
func (o ownerUsage) perWeight(r rollup) float64 {
	return (o.usage(r) + float64(r.running*o.running)) / o.weight
}

func (f *Fair) readRollup(tx kv.ReadTransaction) kv.Future[[]byte] { return tx.Get(f.rollup) }

func awaitStanding(f kv.Future[[]byte]) (s standing, known bool, err error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return s, false, err
	}
	s, err = parseStanding(value)
	return s, true, err
}
