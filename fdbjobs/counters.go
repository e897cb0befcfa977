package fdbjobs

import (
	"iter"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// The number of counters in one read of a walk. It doubles with each read.
const (
	firstCounters = 64
	mostCounters  = 4096
)

// counterWalk walks the counters of live or ended jobs by owner.
type counterWalk struct {
	pages
	keys *keyspace
	next *counter // that was read and not yet taken
}

// walkCounters walks the counters of live or ended jobs, of one owner, or of all from one on if owner is nil.
func (q *Queue) walkCounters(tx kv.ReadTransaction, key int64, owner *string, from string) *counterWalk {
	s := q.keys.counters(key)
	w := &counterWalk{pages: pages{tx: tx, rest: rows.From(s, s.Pack(from))}, keys: q.keys}
	if owner != nil {
		w.rest = rows.Range(s.Sub(*owner))
	}
	w.start(firstCounters)
	return w
}

// head returns the next counter, or nil after the last one.
func (w *counterWalk) head() (*counter, error) {
	if w.next != nil {
		return w.next, nil
	}
	if len(w.rows) == 0 {
		if err := w.await(); err != nil {
			return nil, err
		}
		if !w.ended {
			w.start(min(2*w.limit, mostCounters))
		}
	}
	if len(w.rows) == 0 {
		return nil, nil
	}
	c, err := w.keys.parseCounter(w.rows[0])
	w.next, w.rows = &c, w.rows[1:]
	return w.next, err
}

// pages reads a range in pages.
type pages struct {
	tx    kv.ReadTransaction
	rest  kv.KeyRange    // that was not yet read
	read  kv.RangeResult // of the next page; nil if it was not started
	limit int            // of the latest page
	rows  []kv.KeyValue  // that were read, and not yet taken
	ended bool           // there are no rows after these
}

// start starts reading the next page, of n rows.
func (p *pages) start(n int) {
	p.read, p.limit = p.tx.GetRange(p.rest, kv.RangeOptions{Limit: n}), n
}

// await awaits the page that was started, if any.
func (p *pages) await() error {
	if p.read == nil {
		return nil
	}
	pairs, err := p.read.Slice()
	if err != nil {
		return err
	}
	p.read, p.rows, p.ended = nil, pairs, len(pairs) < p.limit
	if len(pairs) > 0 {
		p.rest.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	return nil
}

// ownerCounts are the numbers of an owner's jobs in some parts.
type ownerCounts struct {
	owner  string
	parts  []Part
	counts []int64 // in each part
	n      int64   // in all
}

// countOwners yields the owners, from one on, that have live or ended jobs, by name. Only jobs that wanted returns true for count;
// nil wants all. It reads the counters of live or ended jobs, or of both, a page at a time. If owner is not nil, it reads only
// the owner's.
func (q *Queue) countOwners(
	tx kv.ReadTransaction, owner *string, from string, keys []int64, wanted func(*counter) bool,
) iter.Seq2[ownerCounts, error] {
	return func(yield func(ownerCounts, error) bool) {
		walks := make([]*counterWalk, len(keys))
		for i, key := range keys {
			walks[i] = q.walkCounters(tx, key, owner, from)
		}
		for {
			next, err := nextOwner(walks, wanted)
			if err != nil {
				yield(ownerCounts{}, err)
				return
			}
			if next == nil || next.n > 0 && !yield(*next, nil) {
				return
			}
		}
	}
}

// nextOwner takes the counters of the next owner from walks. It returns nil after the last one.
func nextOwner(walks []*counterWalk, wanted func(*counter) bool) (*ownerCounts, error) {
	var next *ownerCounts
	for _, w := range walks {
		head, err := w.head()
		if err != nil {
			return nil, err
		}
		if head != nil && (next == nil || head.owner < next.owner) {
			next = &ownerCounts{owner: head.owner}
		}
	}
	for _, w := range walks {
		for {
			head, err := w.head()
			if err != nil {
				return nil, err
			}
			if head == nil || head.owner != next.owner {
				break
			}
			if wanted == nil || wanted(head) {
				next.parts, next.counts = append(next.parts, head.part), append(next.counts, head.n)
				next.n += head.n
			}
			w.next = nil
		}
	}
	return next, nil
}

// in is countOwners for the jobs of a selection.
func (q *Queue) in(tx kv.ReadTransaction, from string, s Selection) iter.Seq2[ownerCounts, error] {
	all := slices.Clip(s.Parts)
	for _, its := range s.Instead {
		all = append(all, its...)
	}
	var keys []int64
	for _, part := range all {
		if key := part.Status.key(); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return q.countOwners(tx, s.Owner, from, keys, func(c *counter) bool {
		if its, has := s.Instead[c.owner]; has {
			return slices.Contains(its, c.part)
		}
		return slices.Contains(s.Parts, c.part)
	})
}

// Counts returns the number of selected jobs in each part, and the number of owners of these jobs by the label of the jobs.
// It reads the counters of the live jobs of all owners that have some, and of the ended ones, as the parts are.
func (q *Queue) Counts(tx kv.ReadTransaction, s Selection) (jobs map[Part]int64, owners map[string]int64, err error) {
	jobs, owners = map[Part]int64{}, map[string]int64{}
	for t, err := range q.in(tx, "", s) {
		if err != nil {
			return nil, nil, err
		}
		for i, part := range t.parts {
			jobs[part] += t.counts[i]
			if !slices.ContainsFunc(t.parts[:i], func(p Part) bool { return p.Label == part.Label }) {
				owners[part.Label]++
			}
		}
	}
	return jobs, owners, nil
}
