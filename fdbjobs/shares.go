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

// Owner is an owner that has pending or running jobs.
type Owner struct {
	Name string
	// Weight is the owner's share relative to the others, 0 if it is paused.
	Weight float64
	// Usage is the sum of its charges, decayed by each roll-up, in the caller's unit. An owner without jobs before
	// began with the lowest usage of the others.
	Usage float64
	// The number of its jobs by status.
	Pending, Running int64
	// Tagged is the number of its pending jobs with a tag, by tag.
	Tagged map[string]int64
}

// Owners lists the owners with pending or running jobs by name: at most limit owners, from the first name that is
// greater than after. It may include owners that have just lost their last job.
func (q *Queue) Owners(tx kv.ReadTransaction, after string, limit int) ([]Owner, error) {
	if limit <= 0 {
		return nil, nil
	}
	names, err := q.share.owners(tx, after, limit)
	if err != nil {
		return nil, err
	}
	usages, err := q.share.readUsages(tx, tx, q.share.readRollup(tx), names...).Await()
	if err != nil {
		return nil, err
	}
	owners := make([]Owner, len(names))
	for i, u := range usages {
		o := Owner{Name: names[i], Weight: u.weight, Usage: u.usage(), Running: u.running, Tagged: map[string]int64{}}
		for _, c := range u.live {
			if c.part.Status != Pending {
				continue
			}
			if o.Pending += c.n; c.part.Tag != "" {
				o.Tagged[c.part.Tag] += c.n
			}
		}
		owners[i] = o
	}
	return owners, nil
}

// owners returns the names of at most limit owners with an account, from the first name that is greater than after.
func (f *fairShare) owners(tx kv.ReadTransaction, after string, limit int) ([]string, error) {
	r := rows.Range(f.accounts)
	if after != "" {
		r.Begin = kv.KeyAfter(f.accounts.Pack(after))
	}
	return readAll(tx, r, kv.RangeOptions{Limit: limit}, lastString(f.accounts)).Await()
}

// SetWeight sets an owner's weight. It is kept when the owner has no jobs. DefaultWeight removes the stored weight. An
// owner with the weight 0 is paused: its jobs are not taken until it has another weight. It then begins as an owner
// without jobs does. The errors are ErrInvalid and ErrTooLarge.
func (q *Queue) SetWeight(tx kv.Transaction, owner string, weight float64) error {
	switch {
	case len(owner) > MaxNameSize:
		return fmt.Errorf("%w: the owner: %d bytes, at most %d", ErrTooLarge, len(owner), MaxNameSize)
	case !(weight >= 0) || math.IsInf(weight, 1):
		return fmt.Errorf("%w: the weight of the owner %q is %v, not 0 or a positive number", ErrInvalid, owner, weight)
	}
	before, err := q.share.readWeight(tx, owner).Await()
	if err != nil {
		return err
	}
	if weight == DefaultWeight {
		tx.Clear(q.keys.weights.Pack(owner))
	} else {
		tx.Set(q.keys.weights.Pack(owner), tuple.Tuple{weight}.Pack())
	}
	if before > 0 || weight == 0 {
		return q.share.updateRanks(tx, []string{owner})
	}
	tx.Add(q.keys.watchReady, 1)
	return q.share.resume(tx, owner)
}

// resume gives a rank to an owner that was paused, if it has jobs.
func (f *fairShare) resume(tx kv.Transaction, owner string) error {
	waits, err := tx.Get(f.waiting.Pack(owner)).Await()
	if err != nil {
		return err
	}
	if known, err := f.forget(tx, owner); err != nil || !known {
		return err
	}
	return f.enter(tx, owner, partOf(waits))
}

// Weights returns the weights of some owners, or, if there are none, all weights that are not [DefaultWeight].
func (q *Queue) Weights(tx kv.ReadTransaction, owners ...string) (map[string]float64, error) {
	weights, reads := map[string]float64{}, make([]kv.Future[float64], len(owners))
	for i, owner := range owners {
		reads[i] = q.share.readWeight(tx, owner)
	}
	read, err := kv.All(reads)
	if err != nil {
		return nil, err
	}
	for i, owner := range owners {
		weights[owner] = read[i]
	}
	if len(owners) > 0 {
		return weights, nil
	}
	for pair, err := range tx.GetRange(rows.Range(q.keys.weights), kv.RangeOptions{}).All() {
		if err != nil {
			return nil, err
		}
		owner, err := rows.LastString(q.keys.weights, pair.Key)
		if err != nil {
			return nil, err
		}
		if weights[owner], err = parseWeight(pair.Value); err != nil {
			return nil, err
		}
	}
	return weights, nil
}

// Charge adds to an owner's usage, in a unit that is the same for all owners. It belongs in a transaction that updates
// or ends a job of the owner (also of [Held.Update]), because only an owner with jobs has a usage. Charges conflict
// with nothing. A repeated transaction may charge twice.
func (q *Queue) Charge(tx kv.Transaction, owner string, amount int64) {
	tx.Add(q.keys.charges.Pack(owner), amount)
}

// EvictFirst returns the ids of up to n jobs that go first when a process is to hold fewer. Each is a job of the owner with the
// highest usage per weight after the previous ones have gone. The jobs of one owner go in the given order.
func (q *Queue) EvictFirst(tx kv.ReadTransaction, jobs []*Held, n int) ([]string, error) {
	owners := ownersOf(jobs)
	jobCost, err := q.share.readUsage(tx, q.share.readRollup(tx), owners)
	if err != nil {
		return nil, err
	}
	return evictFirst(owners, jobCost, n), nil
}

// rollup is the value of the key rollup.
type rollup struct {
	generation int64 // number of roll-ups so far
	at         int64 // time of the last one by the clock of its process, seconds since the epoch
	coeff      float64
	running    int64 // what a running job counts
}

// readRollup starts reading the last roll-up. It is the zero value if there was none.
func (f *fairShare) readRollup(tx kv.ReadTransaction) kv.Future[rollup] {
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
func (q *Queue) RollUp(ctx context.Context, interval time.Duration, coeff float64, running int64) (bool, error) {
	if !(coeff >= 0 && coeff <= 1) {
		return false, fmt.Errorf("%w: the coefficient %v is not from 0 to 1", ErrInvalid, coeff)
	}
	if running < 0 {
		return false, fmt.Errorf("%w: a running job counts %d, which is negative", ErrInvalid, running)
	}
	began, at := time.Now(), q.layer.now().Unix()
	var mine int64 // the generation that an earlier run of the function wrote
	due, err := kv.TransactValue(ctx, q.layer.db, func(tx kv.Transaction) (bool, error) {
		r, err := q.share.readRollup(tx).Await()
		if err != nil {
			return false, err
		}
		if mine != 0 && r.generation == mine && r.at == at {
			return true, nil
		}
		if !q.share.latest.due(r.generation, began, interval) {
			return false, nil
		}
		mine = r.generation + 1
		tx.Set(q.keys.rollup, tuple.Tuple{mine, at, coeff, running}.Pack())
		return true, nil
	})
	if err != nil || !due {
		return false, err
	}
	q.share.latest.made(mine, began)
	return true, q.share.updateAllRanks(ctx)
}

// updateAllRanks updates the ranks of all owners with an account, in batches of one transaction each.
func (f *fairShare) updateAllRanks(ctx context.Context) error {
	after := ""
	for {
		last, err := kv.TransactValue(ctx, f.queue.layer.db, func(tx kv.Transaction) (string, error) {
			owners, err := f.owners(tx.Snapshot(), after, ownersAtATime)
			if err != nil {
				return "", err
			}
			if err := f.updateRanks(tx, owners); err != nil || len(owners) < ownersAtATime {
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

// ownersAtATime is the number of owners that one transaction ranks, or checks for jobs.
const ownersAtATime = 100

// forgetIdle forgets the owners, of some in order, that have no pending or running jobs. It conflicts with adding a job to
// such an owner, and with nothing for the others.
func (q *Queue) forgetIdle(tx kv.Transaction, owners []string) error {
	if len(owners) == 0 {
		return nil
	}
	have := map[string]bool{}
	for t, err := range q.countOwners(tx.Snapshot(), nil, owners[0], []int64{keyLive}, nil) {
		if err != nil {
			return err
		}
		if t.owner > owners[len(owners)-1] {
			break
		}
		have[t.owner] = true
	}
	for _, owner := range owners {
		if have[owner] {
			continue
		}
		tx.AddReadConflictRange(rows.Range(q.keys.counters(keyLive).Sub(owner)))
		if _, err := q.share.forget(tx, owner); err != nil {
			return err
		}
	}
	return nil
}
