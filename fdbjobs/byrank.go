package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// ownersByRank reads the waiting owners by rank, and within the lowest rank from any owner on.
type ownersByRank struct {
	share *fairShare
	parts []pages // that are left
}

// byRank starts reading n waiting owners. If the owner last, which was served last with the rank at, has the lowest
// rank, the owners after it come first.
func (f *fairShare) byRank(tx kv.ReadTransaction, last string, at float64, n int) *ownersByRank {
	waiting := f.ranks.Sub(rankWaiting)
	all := rows.Range(waiting)
	ranges := []kv.KeyRange{all}
	if last != "" {
		// Once around the owners of this rank.
		middle, end := kv.KeyAfter(waiting.Pack(at, last)), rows.Range(waiting.Sub(at)).End
		ranges = []kv.KeyRange{{Begin: middle, End: end}, {Begin: all.Begin, End: middle}, {Begin: end, End: all.End}}
	}
	o := &ownersByRank{share: f}
	for _, r := range ranges {
		o.parts = append(o.parts, pages{tx: tx, rest: r})
		o.parts[len(o.parts)-1].start(n)
		n = ownersAtOnce // the other parts are seldom needed, or few
	}
	return o
}

// lowestFirst puts the part before the owner served last first if it has a lower rank than that owner.
func (o *ownersByRank) lowestFirst(at float64) error {
	if len(o.parts) == 1 {
		return nil
	}
	before := &o.parts[1]
	if err := before.await(); err != nil || len(before.rows) == 0 {
		return err
	}
	lowest, err := o.share.parseRank(before.rows[0])
	if err == nil && lowest.rank < at {
		o.parts[0], o.parts[1] = o.parts[1], o.parts[0]
	}
	return err
}

// next returns the next n owners, or less at the end.
func (o *ownersByRank) next(n int) (owners []*contender, err error) {
	for len(o.parts) > 0 && len(owners) < n {
		p := &o.parts[0]
		if err := p.await(); err != nil {
			return nil, err
		}
		some := min(n-len(owners), len(p.rows))
		for _, pair := range p.rows[:some] {
			next, err := o.share.parseRank(pair)
			if err != nil {
				return nil, err
			}
			owners = append(owners, next)
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

// readUsage sets the usage of owners whose names are known, and returns what a running job counts. A rank lags behind: it has
// the charges, roll-ups and running jobs at the time when it was written.
func (f *fairShare) readUsage(tx kv.ReadTransaction, rolled kv.Future[rollup], owners []*contender) (jobCost float64, err error) {
	usages, err := f.readUsages(tx, tx, rolled, names(owners)...).Await()
	if err != nil {
		return 0, err
	}
	r, err := rolled.Await()
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
