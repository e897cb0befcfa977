package fdbjobs

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// order returns the line of owners as ranges of keys, in the order in which to read them: by rank, and within the rank
// at, beginning after the owner last, which was served last.
func (f *fairShare) order(tx kv.ReadTransaction, last string, at float64) ([]kv.KeyRange, error) {
	line := f.ranks.Sub(rankWaiting)
	all := rows.Range(line)
	first, err := tx.GetRange(all, kv.RangeOptions{Limit: 1}).Slice()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	rank, _, err := f.parseRank(first[0].Key)
	if err != nil {
		return nil, err
	}
	if last == "" || rank != at {
		return []kv.KeyRange{all}, nil
	}
	// Once around the owners of this rank.
	middle := kv.KeyAfter(line.Pack(rank, last))
	end := rows.Range(line.Sub(rank)).End
	return []kv.KeyRange{{Begin: middle, End: end}, {Begin: all.Begin, End: middle}, {Begin: end, End: all.End}}, nil
}

// turns decides which owner is served next, in one run of a claim.
type turns struct {
	share  *fairShare
	rollup kv.Future[[]byte]
	unit   float64 // what a running job counts
	// exchange chooses the jobs that go for those taken. It is nil if there is room.
	exchange *exchange
	outbid   bool // no running job is to go for any waiting job
}

// turns starts reading the last roll-up. unit is what a running job counted at the last read.
func (f *fairShare) turns(tx kv.ReadTransaction, unit float64) turns {
	return turns{share: f, rollup: f.readRollup(tx), unit: unit}
}

// candidate is an owner that a claim may serve, with its usage and its ready rows.
type candidate struct {
	owner  string
	rank   float64
	weight float64
	used   float64 // rank and later charges
	offset float64 // from 0 to 1, see pick
	picks  int
	rows   [][]byte // keys in ready, in the order in which to take them
	own    bool     // they are in the claimer's lane
	looked bool     // they were read by this run
	more   bool     // the owner may have more rows after these
	short  bool     // all rows seen earlier were picked
}

// unread returns the candidates without known rows that are served before all candidates with rows.
func (s *turns) unread(candidates []*candidate) []*candidate {
	least := math.Inf(1)
	for _, o := range candidates {
		if len(o.rows) > 0 {
			least = min(least, o.would(s.unit))
		}
	}
	var out []*candidate
	for _, o := range candidates {
		if o.would(s.unit) < least {
			out = append(out, o)
		}
	}
	return out
}

// read reads the usage of candidates with a known owner and rank, and sorts them by it. It returns the owners with
// charges since their rank was written.
func (s *turns) read(tx kv.ReadTransaction, candidates []*candidate) (charged []string, err error) {
	r, err := awaitRollup(s.rollup)
	if err != nil {
		return nil, err
	}
	s.unit = float64(r.running)
	if r.running != 0 {
		// A rank contains the running jobs at the time when it was written.
		err = s.readAll(tx, candidates, r)
	} else {
		charged, err = s.readCharges(tx, candidates)
	}
	slices.SortStableFunc(candidates, func(a, b *candidate) int { return cmp.Compare(a.used, b.used) })
	return charged, err
}

func (s *turns) readAll(tx kv.ReadTransaction, candidates []*candidate, r rollup) error {
	reads := make([]usageRead, len(candidates))
	for i, o := range candidates {
		reads[i] = s.share.readUsage(tx, tx, o.owner)
	}
	for i, o := range candidates {
		u, err := reads[i].await()
		if err != nil {
			return err
		}
		o.used, o.weight = u.perWeight(r), u.weight
		o.offset = offset(o.owner, r.generation)
	}
	return nil
}

// readCharges adds the later charges to the candidates' ranks.
func (s *turns) readCharges(tx kv.ReadTransaction, candidates []*candidate) (charged []string, err error) {
	charges, weights := make([]kv.Future[[]byte], len(candidates)), make([]kv.Future[[]byte], len(candidates))
	for i, o := range candidates {
		charges[i], weights[i] = tx.Get(s.share.charges.Pack(o.owner)), tx.Get(s.share.weights.Pack(o.owner))
	}
	for i, o := range candidates {
		n, err := rows.AwaitInt(charges[i])
		if err != nil {
			return nil, err
		}
		if o.weight, err = awaitWeight(weights[i]); err != nil {
			return nil, err
		}
		o.used = o.rank + float64(n)/o.weight
		if n != 0 {
			charged = append(charged, o.owner)
		}
	}
	return charged, nil
}

// picked is a row that pick has taken.
type picked struct {
	of   *candidate
	key  []byte
	goes *goer // makes room for it; nil if there is room
}

// pick takes up to n rows, each from the owner with the lowest usage per weight. Earlier picks count.
//
// The number of an owner's running jobs is whole, and its share of the slots need not be. With few slots one owner
// would always have too many and another too few. So pick adds to each owner's usage an offset of up to what one
// running job counts, which changes with time. Then each owner has its share on average.
func (s *turns) pick(candidates []*candidate, n int) []picked {
	var out []picked
	for n > len(out) {
		var next *candidate
		nextUsed := 0.0
		short := math.Inf(1)
		for _, o := range candidates {
			if len(o.rows) == 0 {
				if o.short && !o.looked {
					short = min(short, o.would(s.unit))
				}
				continue
			}
			used := o.would(s.unit)
			if next == nil || used < nextUsed || used == nextUsed && o.picks < next.picks {
				next, nextUsed = o, used
			}
		}
		if next == nil || short < nextUsed {
			break
		}
		p := picked{of: next}
		if s.exchange != nil {
			if p.of, p.goes = s.exchange.swap(next, candidates); p.goes == nil {
				s.outbid = true
				break
			}
		}
		p.key, p.of.rows = p.of.rows[0], p.of.rows[1:]
		p.of.picks++
		p.of.short = p.of.more && len(p.of.rows) == 0
		p.of.used += s.unit / p.of.weight
		if p.goes != nil {
			if i := slices.IndexFunc(candidates, func(o *candidate) bool { return o.owner == p.goes.of.name }); i >= 0 {
				p.goes.waits = candidates[i]
				p.goes.waits.used -= s.unit / p.goes.waits.weight
			}
		}
		out = append(out, p)
	}
	return out
}

// would returns the owner's usage per weight with its offset, by which candidates are compared.
func (o *candidate) would(unit float64) float64 { return o.used + o.offset*unit/o.weight }

// offsetFor is the number of roll-ups for which an owner's offset stays the same. In that time most slots must change
// jobs: otherwise an owner that waits would get one at its best offset.
const offsetFor = 16

// offset returns a number from 0 to 1 for an owner, a new one every offsetFor roll-ups. It is the same in all
// processes.
func offset(owner string, generation int64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner)) // never fails
	phase := h.Sum64() % offsetFor
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, (uint64(generation)+phase)/offsetFor))
	return float64(mix(h.Sum64())>>11) / (1 << 53)
}

// mix spreads the bits of a hash whose last bytes differ little (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// unpick reverts what pick has counted for a row whose job is not taken.
func (s *turns) unpick(p picked) {
	p.of.used -= s.unit / p.of.weight
	if p.goes != nil {
		if o := p.goes.waits; o != nil {
			o.used += s.unit / o.weight
		}
		s.exchange.undo(p.of, p.goes)
		s.outbid = false // this pick may have set it
	}
}
