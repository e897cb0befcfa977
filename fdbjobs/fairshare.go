package fdbjobs

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// fairShare divides running time among the owners of a queue.
//
// # Arithmetic
//
//   - The usage of an owner is the sum of its charges, and each roll-up multiplies it by a coefficient. An account has the
//     usage with all charges up to some time. Later charges are added when the account is read.
//   - Owners are compared by usage per weight. The owner with the lowest is served first. The rank of an owner is its usage
//     per weight when its account was last written, with what its running jobs counted then.
//   - If the caller says so, each running job counts as an amount of usage (the job cost). It counts at once, before it has
//     been charged. So an owner with a low usage does not get all free slots.
//   - The number of an owner's running jobs is whole, and its share of the slots need not be. With few slots one owner would
//     always have too many and another too few. So a dither is added to the usage of each owner: a part of what one running
//     job counts, and another part from time to time. Then each owner has its share on average.
//   - An owner without jobs has no account. When it gets its first job, it begins with the lowest usage per weight of the others.
//     So neither its earlier usage counts, nor the time in which it used nothing.
//   - An owner with the weight 0 is paused. It has no rank, so no claim serves it.
//
// # Waiting owners
//
// The owners with ready jobs wait to be served, by rank. An owner begins to wait when a job of it becomes ready. It no longer
// waits when a claim has found no ready job of it for a while (tidy.go), and its account is removed when a monitor finds that it
// has neither pending nor running jobs.
//
// Keys, below the layer's prefix:
//
//	(owners,  queue, owner)             -> (usage, rank, generation), its account
//	(waiting, queue, owner)             -> ""       owners that wait
//	(ranks,   queue, waits, rank, owner) -> ""       owners by rank, except paused ones; waits is 1 if they wait, otherwise 0
//	(charges, queue, owner)             -> int64    usage that is not yet in the account
//	(weights, queue, owner)             -> weight   of owners whose weight is not 1; of paused ones it is 0
//
// The last roll-up, with its generation, time, coefficient and job cost, is in the family `queue` of doc.go.
type fairShare struct {
	*keyspace
	queue  *Queue
	latest latestRollup
}

// DefaultWeight is the weight of an owner without one of its own.
const DefaultWeight = 1.0

// ownerUsage is the usage of an owner.
type ownerUsage struct {
	account account
	weight  float64   // 0 if it is paused
	charged int64     // since the account was written
	live    []counter // of its pending and running jobs
	running int64     // the number of its running jobs
	rolled  rollup    // the last roll-up
}

// usage returns the charges, decayed by the roll-ups.
func (u ownerUsage) usage() float64 {
	usage := u.account.usage
	if missed := u.rolled.generation - u.account.generation; missed > 0 {
		usage *= math.Pow(u.rolled.coeff, float64(missed))
	}
	return usage + float64(u.charged)
}

// perWeight returns a usage per weight, with what the owner's running jobs count.
func (u ownerUsage) perWeight(usage float64) float64 {
	return (usage + float64(u.rolled.running*u.running)) / divisor(u.weight)
}

// divisor returns what an owner's usage is divided by: its weight, or DefaultWeight if it is paused.
func divisor(weight float64) float64 { return cmp.Or(weight, DefaultWeight) }

// ditherFor is the number of roll-ups for which an owner's dither stays the same. In that time most slots must change
// jobs: otherwise an owner that waits would get one at its best dither.
const ditherFor = 16

// dither returns a number from 0 to 1 for an owner, a new one every ditherFor roll-ups. It is the same in all
// processes.
func dither(owner string, generation int64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner)) // never fails
	seed := h.Sum64()
	return rand.New(rand.NewPCG(seed, (uint64(generation)+seed%ditherFor)/ditherFor)).Float64()
}

// newcomer returns the usage per weight with which an owner without jobs begins: the lowest of some others, without what
// their running jobs count, or 0 if there are none.
func newcomer(others []ownerUsage) float64 {
	if len(others) == 0 {
		return 0
	}
	least := math.Inf(1)
	for _, u := range others {
		least = min(least, u.usage()/divisor(u.weight))
	}
	return least
}

// account is the value of an owner's key in owners.
type account struct {
	usage      float64 // without later charges
	rank       float64 // usage over weight, as in ranks
	generation int64   // of the last roll-up in usage
	known      bool    // there is such a key
}

func (s account) pack() []byte { return tuple.Tuple{s.usage, s.rank, s.generation}.Pack() }

func parseAccount(value []byte) (account, error) {
	s := account{known: true}
	err := rows.Scan("an owner's row", value, &s.usage, &s.rank, &s.generation)
	return s, err
}

// readAccount starts reading an owner's account.
func (f *fairShare) readAccount(tx kv.ReadTransaction, owner string) kv.Future[account] {
	return kv.Map(tx.Get(f.accounts.Pack(owner)), ifAny(account{}, parseAccount))
}

// readWeight starts reading an owner's weight. It is 0 if the owner is paused.
func (f *fairShare) readWeight(tx kv.ReadTransaction, owner string) kv.Future[float64] {
	return kv.Map(tx.Get(f.weights.Pack(owner)), ifAny(DefaultWeight, parseWeight))
}

func parseWeight(value []byte) (weight float64, err error) {
	err = rows.Scan("an owner's weight", value, &weight)
	if err == nil && !(weight >= 0) {
		err = fmt.Errorf("reading an owner's weight: %w: %v", tuple.ErrMalformed, weight)
	}
	return weight, err
}

// readCharges starts reading what an owner was charged since its account was written.
func (f *fairShare) readCharges(tx kv.ReadTransaction, owner string) kv.Future[int64] {
	return kv.Map(tx.Get(f.charges.Pack(owner)), ifAny(0, rows.ParseInt))
}

// readUsages starts reading the usages of owners. It reads the account and weight, which change together with the rank,
// through own, and the rest through rest.
func (f *fairShare) readUsages(own, rest kv.ReadTransaction, rolled kv.Future[rollup], owners ...string) kv.Future[[]ownerUsage] {
	reads := make([]kv.Future[ownerUsage], len(owners))
	for i, owner := range owners {
		accounts, weights := f.readAccount(own, owner), f.readWeight(own, owner)
		charges, live := f.readCharges(rest, owner), f.queue.readLive(rest, owner)
		reads[i] = kv.Func[ownerUsage](func() (u ownerUsage, err error) {
			if u.account, err = accounts.Await(); err != nil {
				return u, err
			}
			if u.weight, err = weights.Await(); err != nil {
				return u, err
			}
			if u.charged, err = charges.Await(); err != nil {
				return u, err
			}
			u.live, err = live.Await()
			for _, c := range u.live {
				if c.part.Status == Running {
					u.running += c.n
				}
			}
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

// enter gives an owner an account and a rank. An existing owner moves to rankWaiting, and is not changed for rankIdle.
func (f *fairShare) enter(tx kv.Transaction, owner string, part int64) error {
	// The transaction conflicts only on the owner's own rows. All other reads may be slightly out of date.
	now := tx.Snapshot()
	rolled := f.readRollup(now)
	reading := f.readUsages(tx, now, rolled, owner)
	lowest := f.readLowest(now, owner, rolled)

	usages, err := reading.Await()
	if err != nil {
		return err
	}
	u := usages[0]
	s := u.account
	if s.known && part == rankIdle {
		return nil
	}
	before := s
	if !s.known || len(u.live) == 0 {
		least, err := lowest.Await()
		if err != nil {
			return err
		}
		s.usage, s.generation, s.rank = least*divisor(u.weight), u.rolled.generation, least+u.perWeight(0)
		tx.Clear(f.charges.Pack(owner))
	}
	tx.Set(f.accounts.Pack(owner), s.pack())
	f.moveRank(tx, owner, before, rankIdle, s, part, u.weight)
	if part == rankWaiting {
		tx.Set(f.waiting.Pack(owner), nil)
	}
	return nil
}

// moveRank replaces an owner's rank in a part by another one. A paused owner gets none.
func (f *fairShare) moveRank(tx kv.Transaction, owner string, old account, from int64, next account, to int64, weight float64) {
	if old.known {
		tx.Clear(f.ranks.Pack(from, old.rank, owner))
	}
	if weight > 0 {
		tx.Set(f.ranks.Pack(to, next.rank, owner), nil)
	}
}

// lowestOf is the number of owners with the lowest ranks whose charges are read. Newcomers begin with the lowest usage
// among these.
const lowestOf = 8

// readLowest starts reading the lowest usage per weight among all owners except one, without what counts for running
// jobs.
func (f *fairShare) readLowest(tx kv.ReadTransaction, except string, rolled kv.Future[rollup]) kv.Future[float64] {
	var parts []kv.Future[[]*contender]
	for _, part := range []int64{rankIdle, rankWaiting} {
		parts = append(parts, readAll(tx, rows.Range(f.ranks.Sub(part)), kv.RangeOptions{Limit: lowestOf}, f.parseRank))
	}
	return kv.Func[float64](func() (float64, error) {
		owners, err := kv.All(parts)
		if err != nil {
			return 0, err
		}
		others := slices.DeleteFunc(slices.Concat(owners...), func(o *contender) bool { return o.owner == except })
		usages, err := f.readUsages(tx, tx, rolled, names(others)...).Await()
		return newcomer(usages), err
	})
}

// parseRank returns the owner of a key of ranks.
func (f *fairShare) parseRank(pair kv.KeyValue) (*contender, error) {
	p := &contender{unread: true}
	return p, rows.ScanKey("an owner's rank", f.ranks, pair.Key, nil, &p.rank, &p.owner)
}

// stopWaiting ends the waiting of an owner without ready jobs. If a job of it becomes ready meanwhile, that conflicts, or the
// owner begins to wait again.
func (f *fairShare) stopWaiting(tx kv.Transaction, owner string, s account, weight float64) {
	if s.known {
		tx.Clear(f.waiting.Pack(owner))
		f.moveRank(tx, owner, s, rankWaiting, s, rankIdle, weight)
	}
}

// forget removes the rows of an owner without pending or running jobs, except its weight, and reports whether it had
// any.
func (f *fairShare) forget(tx kv.Transaction, owner string) (known bool, err error) {
	s, err := f.readAccount(tx, owner).Await()
	if err != nil || !s.known {
		return false, err
	}
	for _, part := range []int64{rankIdle, rankWaiting} {
		tx.Clear(f.ranks.Pack(part, s.rank, owner))
	}
	tx.Clear(f.accounts.Pack(owner))
	tx.Clear(f.waiting.Pack(owner))
	tx.Clear(f.charges.Pack(owner))
	return true, nil
}

// updateRanks moves the charges of owners into their accounts, and updates their ranks. It does not conflict with charges: it
// subtracts what it moves.
func (f *fairShare) updateRanks(tx kv.Transaction, owners []string) error {
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
		if !u.account.known {
			continue
		}
		next := account{usage: max(u.usage(), 0), generation: u.rolled.generation}
		next.rank = u.perWeight(next.usage)
		if u.charged != 0 {
			f.queue.Charge(tx, owner, -u.charged)
		}
		part := partOf(waits[i])
		f.moveRank(tx, owner, u.account, part, next, part, u.weight)
		tx.Set(f.accounts.Pack(owner), next.pack())
	}
	return nil
}
