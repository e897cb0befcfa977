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

// order reads the line of owners: by rank, and within the lowest rank from any owner on.
type order struct {
	share *fairShare
	tx    kv.ReadTransaction
	parts []linePart // that are left
}

// linePart is what is left to read of a part of the line.
type linePart struct {
	left  kv.KeyRange
	read  kv.RangeResult // of the next limit rows; nil if it is not started
	limit int
	rows  []kv.KeyValue // that were read
	ended bool          // there are no rows after these
}

func (p *linePart) start(tx kv.ReadTransaction, n int) {
	p.read, p.limit = tx.GetRange(p.left, kv.RangeOptions{Limit: n}), n
}

// await awaits what was started.
func (p *linePart) await() error {
	if p.read == nil {
		return nil
	}
	pairs, err := p.read.Slice()
	if err != nil {
		return err
	}
	p.read, p.rows, p.ended = nil, pairs, len(pairs) < p.limit
	if len(pairs) > 0 {
		p.left.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	return nil
}

// order starts reading n owners of the line. If the owner last, which was served last with the rank at, has the lowest
// rank, the owners after it come first.
func (f *fairShare) order(tx kv.ReadTransaction, last string, at float64, n int) *order {
	line := f.ranks.Sub(rankWaiting)
	all := rows.Range(line)
	o := &order{share: f, tx: tx, parts: []linePart{{left: all}}}
	if last != "" {
		// Once around the owners of this rank.
		middle, end := kv.KeyAfter(line.Pack(at, last)), rows.Range(line.Sub(at)).End
		o.parts = []linePart{
			{left: kv.KeyRange{Begin: middle, End: end}},
			{left: kv.KeyRange{Begin: all.Begin, End: middle}},
			{left: kv.KeyRange{Begin: end, End: all.End}},
		}
	}
	o.parts[0].start(tx, n)
	for i := range o.parts[1:] {
		o.parts[i+1].start(tx, ownersAtOnce) // seldom needed, or few
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
func (o *order) next(n int) (owners []*candidate, err error) {
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
			owners = append(owners, &candidate{owner: owner, rank: rank, own: true, more: true})
		}
		switch p.rows = p.rows[some:]; {
		case len(p.rows) > 0:
		case p.ended:
			o.parts = o.parts[1:]
		default:
			p.start(o.tx, n)
		}
	}
	return owners, nil
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
	lane   ownerLane
	rows   [][]byte // keys in ready, in the order in which to take them
	own    bool     // they are in the claimer's lane
	others [][]byte // the rows in other lanes that this run has read
	looked bool     // they were read by this run
	empty  bool     // it had no rows then
	more   bool     // the owner may have more rows after these
	short  bool     // all rows seen earlier were picked, or none were seen
}

// unread reports whether the owner may have rows that are not known.
func (o *candidate) unread() bool { return len(o.rows) == 0 && o.short && !o.looked }

// unread returns the unread candidates that are served before all with known rows, in this order.
func (s *turns) unread(candidates []*candidate) (out []*candidate) {
	var next *candidate // of those with rows
	for _, o := range candidates {
		if len(o.rows) > 0 && (next == nil || o.would(s.unit) < next.would(s.unit)) {
			next = o
		}
	}
	passed := false
	for _, o := range candidates {
		passed = passed || o == next
		// Of an owner that many claimers share, many rows must be read.
		if o.unread() && (next == nil || o.would(s.unit) < next.would(s.unit) ||
			!passed && o.lane.shared == 1 && o.would(s.unit) == next.would(s.unit)) {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b *candidate) int { return cmp.Compare(a.would(s.unit), b.would(s.unit)) })
	return out
}

// read reads the usage of candidates with a known owner and rank, and sorts them by it.
func (s *turns) read(tx kv.ReadTransaction, candidates []*candidate) error {
	r, err := awaitRollup(s.rollup)
	if err != nil {
		return err
	}
	s.unit = float64(r.running)
	if r.running != 0 {
		// A rank contains the running jobs at the time when it was written.
		err = s.readAll(tx, candidates, r)
	} else {
		err = s.readCharges(tx, candidates)
	}
	slices.SortStableFunc(candidates, func(a, b *candidate) int { return cmp.Compare(a.used, b.used) })
	return err
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
func (s *turns) readCharges(tx kv.ReadTransaction, candidates []*candidate) error {
	charges, weights := make([]kv.Future[[]byte], len(candidates)), make([]kv.Future[[]byte], len(candidates))
	for i, o := range candidates {
		charges[i], weights[i] = tx.Get(s.share.charges.Pack(o.owner)), tx.Get(s.share.weights.Pack(o.owner))
	}
	for i, o := range candidates {
		n, err := rows.AwaitInt(charges[i])
		if err != nil {
			return err
		}
		if o.weight, _, err = awaitWeight(weights[i]); err != nil {
			return err
		}
		o.used = o.rank + float64(n)/o.weight
	}
	return nil
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
		nextUsed, unread := 0.0, math.Inf(1)
		for _, o := range candidates {
			used := o.would(s.unit)
			switch {
			case o.unread():
				unread = min(unread, used)
			case len(o.rows) > 0 && (next == nil || used < nextUsed || used == nextUsed && o.picks < next.picks):
				next, nextUsed = o, used
			}
		}
		if next == nil || unread < nextUsed {
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
