package fdbjobs

import (
	"fmt"
	"math"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Fair divides running time among the owners of a queue. It has its own keys. The queue uses these functions:
//
//   - admit when a job becomes ready whose owner is not in line (batch.go), or a job is taken that was never ready; leave
//     when the owner has no ready jobs; forget when a monitor finds that the owner has no jobs left;
//   - order and loadUsage in each run of a claim, to read what choose (choose.go) decides from;
//   - fold to make charges part of the rank.
//
// Keys, below the layer's prefix:
//
//	(owners,  queue, owner)             -> (usage, rank, generation)
//	(waiting, queue, owner)             -> ""       owners in line: with ready jobs, or until lately
//	(ranks,   queue, waits, rank, owner) -> ""       owners by usage per weight, except paused ones; waits is 1 or 0
//	(charges, queue, owner)             -> int64    usage that is not yet in (owners)
//	(weights, queue, owner)             -> weight   of owners whose weight is not 1; of paused ones it is 0
//	(rollup,  queue)                    -> (generation, time, coefficient, running) of the last roll-up
type Fair struct {
	*keyspace
	queue *Queue
	seen  latestRollup
}

// Fair returns the fair share of the queue.
func (q *Queue) Fair() *Fair { return q.share }

// DefaultWeight is the weight of an owner without one of its own.
const DefaultWeight = 1.0

// ownersAtATime is the number of owners that one transaction folds or checks for jobs.
const ownersAtATime = 100

// The two parts of ranks.
const (
	rankIdle    int64 = iota // nothing is ready
	rankWaiting              // something is ready, or was until lately
)

// partOf returns the part of ranks of an owner with a value in waiting, nil if it has none.
func partOf(waiting []byte) int64 {
	if waiting == nil {
		return rankIdle
	}
	return rankWaiting
}

// SetWeight sets an owner's weight. It is kept when the owner has no jobs. DefaultWeight removes the stored weight. An
// owner with the weight 0 is paused: its jobs are not taken until it has another weight. It then begins as an owner
// without jobs does. The errors are ErrInvalid and ErrTooLarge.
func (f *Fair) SetWeight(tx kv.Transaction, owner string, weight float64) error {
	switch {
	case len(owner) > MaxNameSize:
		return fmt.Errorf("%w: the owner: %d bytes, at most %d", ErrTooLarge, len(owner), MaxNameSize)
	case !(weight >= 0) || math.IsInf(weight, 1):
		return fmt.Errorf("%w: the weight of the owner %q is %v, not 0 or a positive number", ErrInvalid, owner, weight)
	}
	before, err := f.readWeight(tx, owner).Await()
	if err != nil {
		return err
	}
	if weight == DefaultWeight {
		tx.Clear(f.weights.Pack(owner))
	} else {
		tx.Set(f.weights.Pack(owner), tuple.Tuple{weight}.Pack())
	}
	if before > 0 || weight == 0 {
		return f.fold(tx, []string{owner})
	}
	tx.Add(f.watchReady, 1)
	return f.resume(tx, owner)
}

// Weights returns the weights of some owners, or, if there are none, all weights that are not [DefaultWeight].
func (f *Fair) Weights(tx kv.ReadTransaction, owners ...string) (map[string]float64, error) {
	weights, reads := map[string]float64{}, make([]kv.Future[float64], len(owners))
	for i, owner := range owners {
		reads[i] = f.readWeight(tx, owner)
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
	for pair, err := range tx.GetRange(rows.Range(f.weights), kv.RangeOptions{}).All() {
		if err != nil {
			return nil, err
		}
		owner, err := rows.LastString(f.weights, pair.Key)
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
func (f *Fair) Charge(tx kv.Transaction, owner string, amount int64) {
	tx.Add(f.charges.Pack(owner), amount)
}

// admit gives an owner a standing and a rank. An existing owner moves to rankWaiting, and is not changed for rankIdle.
func (f *Fair) admit(tx kv.Transaction, owner string, part int64) error {
	// The transaction conflicts only on the owner's own rows. All other reads may be slightly out of date.
	now := tx.Snapshot()
	rolled := f.readRollup(now)
	reading, pending := f.readUsages(tx, now, rolled, owner), f.queue.readOwnerCount(now, owner, Pending)
	lowest := f.lowestUsage(now, owner, rolled)

	usages, err := reading.Await()
	if err != nil {
		return err
	}
	waiting, err := pending.Await()
	if err != nil {
		return err
	}
	u := usages[0]
	s := u.standing
	if s.known && part == rankIdle {
		return nil
	}
	before := s
	if !s.known || waiting+u.running <= 0 {
		least, err := lowest.Await()
		if err != nil {
			return err
		}
		s.usage, s.generation, s.rank = least*divisor(u.weight), u.rolled.generation, least+u.perWeight(0)
		tx.Clear(f.charges.Pack(owner))
	}
	tx.Set(f.standings.Pack(owner), s.pack())
	f.moveRank(tx, owner, before, rankIdle, s, part, u.weight)
	if part == rankWaiting {
		tx.Set(f.waiting.Pack(owner), nil)
	}
	return nil
}

// moveRank replaces an owner's rank in a part by another one. A paused owner gets none.
func (f *Fair) moveRank(tx kv.Transaction, owner string, old standing, from int64, next standing, to int64, weight float64) {
	if old.known {
		tx.Clear(f.ranks.Pack(from, old.rank, owner))
	}
	if weight > 0 {
		tx.Set(f.ranks.Pack(to, next.rank, owner), nil)
	}
}

// resume gives a rank to an owner that was paused, if it has jobs.
func (f *Fair) resume(tx kv.Transaction, owner string) error {
	waits, err := tx.Get(f.waiting.Pack(owner)).Await()
	if err != nil {
		return err
	}
	if known, err := f.forget(tx, owner); err != nil || !known {
		return err
	}
	return f.admit(tx, owner, partOf(waits))
}

// lowestOf is the number of owners with the lowest ranks whose charges are read. Newcomers begin with the lowest usage
// among these.
const lowestOf = 8

// lowestUsage starts reading the lowest usage per weight among all owners except one, without what counts for running
// jobs.
func (f *Fair) lowestUsage(tx kv.ReadTransaction, except string, rolled kv.Future[rollup]) kv.Future[float64] {
	var parts []kv.RangeResult
	for _, part := range []int64{rankIdle, rankWaiting} {
		parts = append(parts, tx.GetRange(rows.Range(f.ranks.Sub(part)), kv.RangeOptions{Limit: lowestOf}))
	}
	return kv.Func[float64](func() (float64, error) {
		var others []string
		for _, part := range parts {
			for pair, err := range part.All() {
				if err != nil {
					return 0, err
				}
				_, owner, err := f.parseRank(pair.Key)
				if err != nil {
					return 0, err
				}
				if owner != except {
					others = append(others, owner)
				}
			}
		}
		usages, err := f.readUsages(tx, tx, rolled, others...).Await()
		lowest := math.Inf(1)
		for _, u := range usages {
			lowest = min(lowest, u.usage()/divisor(u.weight))
		}
		if len(usages) == 0 {
			lowest = 0
		}
		return lowest, err
	})
}

// parseRank parses a key of ranks.
func (f *Fair) parseRank(key []byte) (rank float64, owner string, err error) {
	err = rows.ScanKey("an owner's rank", f.ranks, key, nil, &rank, &owner)
	return rank, owner, err
}

// leave starts reading an owner without ready jobs. The function that it returns takes the owner out of the line. An
// owner whose job becomes ready meanwhile conflicts with that, or enters again.
func (f *Fair) leave(tx kv.Transaction, owner string) func() error {
	reading, weighing := f.readStanding(tx, owner), f.readWeight(tx, owner)
	return func() error {
		s, err := reading.Await()
		if err != nil || !s.known {
			return err
		}
		weight, err := weighing.Await()
		if err != nil {
			return err
		}
		tx.Clear(f.waiting.Pack(owner))
		f.moveRank(tx, owner, s, rankWaiting, s, rankIdle, weight)
		return nil
	}
}

// forget removes the rows of an owner without pending or running jobs, except its weight, and reports whether it had
// any.
func (f *Fair) forget(tx kv.Transaction, owner string) (known bool, err error) {
	s, err := f.readStanding(tx, owner).Await()
	if err != nil || !s.known {
		return false, err
	}
	for _, part := range []int64{rankIdle, rankWaiting} {
		tx.Clear(f.ranks.Pack(part, s.rank, owner))
	}
	tx.Clear(f.standings.Pack(owner))
	tx.Clear(f.waiting.Pack(owner))
	tx.Clear(f.charges.Pack(owner))
	return true, nil
}

// owners returns the names of at most limit owners with a standing, from the first name that is greater than after.
func (f *Fair) owners(tx kv.ReadTransaction, after string, limit int) ([]string, error) {
	r := rows.Range(f.standings)
	if after != "" {
		r.Begin = kv.KeyAfter(f.standings.Pack(after))
	}
	pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: limit}).Slice()
	if err != nil {
		return nil, err
	}
	return lastStrings(f.standings, pairs)
}

// fold moves the charges of owners into their usage, and updates their ranks. It does not conflict with charges: it
// subtracts what it moves.
func (f *Fair) fold(tx kv.Transaction, owners []string) error {
	now := tx.Snapshot()
	reading, waiting := f.readUsages(tx, now, f.readRollup(now), owners...), make([]kv.Future[[]byte], len(owners))
	for i, owner := range owners {
		waiting[i] = tx.Get(f.waiting.Pack(owner))
	}
	usages, err := reading.Await()
	if err != nil {
		return err
	}
	waits, err := kv.All(waiting)
	if err != nil {
		return err
	}
	for i, owner := range owners {
		u := usages[i]
		if !u.standing.known {
			continue
		}
		next := standing{usage: max(u.usage(), 0), generation: u.rolled.generation}
		next.rank = u.perWeight(next.usage)
		if u.charged != 0 {
			f.Charge(tx, owner, -u.charged)
		}
		part := partOf(waits[i])
		f.moveRank(tx, owner, u.standing, part, next, part, u.weight)
		tx.Set(f.standings.Pack(owner), next.pack())
	}
	return nil
}
