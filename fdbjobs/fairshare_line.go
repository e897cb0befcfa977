package fdbjobs

import (
	"hash/fnv"
	"math/rand/v2"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// order reads the line of owners: by rank, and within the lowest rank from any owner on.
type order struct {
	share *Fair
	parts []pages // that are left
}

// order starts reading n owners of the line. If the owner last, which was served last with the rank at, has the lowest
// rank, the owners after it come first.
func (f *Fair) order(tx kv.ReadTransaction, last string, at float64, n int) *order {
	line := f.ranks.Sub(rankWaiting)
	all := rows.Range(line)
	ranges := []kv.KeyRange{all}
	if last != "" {
		// Once around the owners of this rank.
		middle, end := kv.KeyAfter(line.Pack(at, last)), rows.Range(line.Sub(at)).End
		ranges = []kv.KeyRange{{Begin: middle, End: end}, {Begin: all.Begin, End: middle}, {Begin: end, End: all.End}}
	}
	o := &order{share: f}
	for _, r := range ranges {
		o.parts = append(o.parts, pages{tx: tx, rest: r})
		o.parts[len(o.parts)-1].start(n)
		n = ownersAtOnce // the other parts are seldom needed, or few
	}
	return o
}

// lowestFirst puts the part before the owner served last first if it has a lower rank than that owner.
func (o *order) lowestFirst(at float64) error {
	if len(o.parts) == 1 {
		return nil
	}
	before := &o.parts[1]
	if err := before.await(); err != nil || len(before.rows) == 0 {
		return err
	}
	lowest, _, err := o.share.parseRank(before.rows[0].Key)
	if err == nil && lowest < at {
		o.parts[0], o.parts[1] = o.parts[1], o.parts[0]
	}
	return err
}

// next returns the next n owners, or less at the end.
func (o *order) next(n int) (owners []*contender, err error) {
	for len(o.parts) > 0 && len(owners) < n {
		p := &o.parts[0]
		if err := p.await(); err != nil {
			return nil, err
		}
		some := min(n-len(owners), len(p.rows))
		for _, pair := range p.rows[:some] {
			rank, owner, err := o.share.parseRank(pair.Key)
			if err != nil {
				return nil, err
			}
			owners = append(owners, &contender{owner: owner, rank: rank, unread: true})
		}
		switch p.rows = p.rows[some:]; {
		case len(p.rows) > 0:
		case p.ended:
			o.parts = o.parts[1:]
		default:
			p.start(n)
		}
	}
	return owners, nil
}

// loadUsage sets the usage of owners whose names and ranks are known, and returns what a running job counts. If running
// jobs count, or if exact is set, it reads all that an owner's usage consists of: a rank contains the running jobs at the
// time when it was written, and lags behind roll-ups. Otherwise it reads only the charges since then.
func (f *Fair) loadUsage(tx kv.ReadTransaction, rolled kv.Future[rollup], owners []*contender, exact bool) (unit float64, err error) {
	r, err := rolled.Await()
	if err != nil {
		return 0, err
	}
	if !exact && r.running == 0 {
		return 0, f.loadCharges(tx, owners)
	}
	usages, err := f.readUsages(tx, tx, rolled, names(owners)...).Await()
	for i, u := range usages {
		p := owners[i]
		p.weight, p.dither, p.used = divisor(u.weight), dither(p.owner, r.generation), u.perWeight(u.usage())
	}
	return float64(r.running), err
}

func names(candidates []*contender) []string {
	names := make([]string, len(candidates))
	for i, p := range candidates {
		names[i] = p.owner
	}
	return names
}

// loadCharges adds the later charges to the owners' ranks.
func (f *Fair) loadCharges(tx kv.ReadTransaction, owners []*contender) error {
	charges, weights := make([]kv.Future[int64], len(owners)), make([]kv.Future[float64], len(owners))
	for i, p := range owners {
		charges[i], weights[i] = f.readCharges(tx, p.owner), f.readWeight(tx, p.owner)
	}
	charged, err := kv.All(charges)
	if err != nil {
		return err
	}
	weighed, err := kv.All(weights)
	for i, weight := range weighed {
		p := owners[i]
		p.weight = divisor(weight)
		p.used = p.rank + float64(charged[i])/p.weight
	}
	return err
}

// Yield returns the ids of up to n jobs that go first when a process is to hold fewer. Each is a job of the owner with the
// highest usage per weight after the previous ones have gone. The jobs of one owner go in the given order.
func (f *Fair) Yield(tx kv.ReadTransaction, jobs []*Held, n int) ([]string, error) {
	owners := ownersOf(jobs)
	jobCost, err := f.loadUsage(tx, f.readRollup(tx), owners, true)
	if err != nil {
		return nil, err
	}
	return evictFirst(owners, jobCost, n), nil
}

// dither: the number of an owner's running jobs is whole, and its share of the slots need not be. With few slots one owner
// would always have too many and another too few. So a dither is added to each owner's usage: of up to what one running job
// counts, and another one from time to time. Then each owner has its share on average.

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
