package fdbjobs

import (
	"bytes"
	"context"
	"errors"
	"maps"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// follows checks the facts of a job's row, its entries, and that the tallies of these exist. The function that it returns
// gets the state and Listed of the job, nil if they are missing.
func (c *checker) follows(k keyed, id string, r *row) (func(state, listed []byte) error, error) {
	q := k.queue
	if err := q.needsDerivation(); r.version != 0 && err != nil {
		return nil, err
	}
	entries, over := q.allEntries(id, r)
	var keys, tallies [][]byte
	var reads []kv.Future[[]byte]
	for i, e := range entries {
		keys = append(keys, q.keys.entryOf(id, e))
		reads = append(reads, k.Get(keys[i]))
		for _, a := range e.Adds {
			if a.N > 0 {
				tallies = append(tallies, q.keys.tallyOf(e.Index, e.Key[:a.Prefix], a.Name))
			}
		}
	}
	for _, key := range tallies {
		reads = append(reads, k.Get(key))
	}
	return func(state, listed []byte) error {
		if over != nil {
			k.Fault(k.Key, nil, "%v", over)
		}
		if again, err := c.facts(k, id, r, state, listed); again || err != nil {
			return err
		}
		values, err := kv.All(reads)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if !e.keyless && (values[i] == nil || !bytes.Equal(values[i], e.Value)) {
				k.Wrong(keys[i], e.Value, "an entry of the job %q in the index %q is missing or has another value", id, e.Index)
			}
		}
		for i, key := range tallies {
			if values[len(entries)+i] == nil {
				k.Wrong(key, rows.Int(0), "a tally of entries of the job %q is missing", id) // it is right when the tallies are checked
			}
		}
		return nil
	}, nil
}

// facts checks the facts of a job's row, and reports whether it has to be checked again with other ones.
func (c *checker) facts(k keyed, id string, r *row, state, listed []byte) (again bool, err error) {
	if r.version == 0 || state == nil || r.listed && listed == nil {
		return false, nil // without facts, or a fault of its own
	}
	next, over := k.queue.derivedAgain(r, r.version, state, listed)
	if over != nil {
		k.Fault(k.Key, nil, "%v", over)
	}
	if next.facts == r.facts {
		return false, nil
	}
	k.Fault(k.Key, func() error { return k.queue.batch(k).put(id, r, next) },
		"the facts of the job are not those of its state and its listed part")
	return true, nil
}

// entry checks an entry: a job has it. Its value is checked with the job.
func (c *checker) entry(k keyed) (func() error, error) {
	var index, id string
	last := len(k.key) - 1
	if last < 1 || !rows.As(k.key[0], &index) || index == "" || !rows.As(k.key[last], &id) {
		return nil, k.unknown()
	}
	if err := k.queue.needsDerivation(); !isOwn(index) && err != nil {
		return nil, err
	}
	return k.belongs(id, func(r *row) bool { return k.queue.entryWith(id, r, k.Key) != nil }, func() {
		k.Stray(k.Key, "the index %q has an entry that does not follow from the job %q", index, id)
	}), nil
}

// tallied is the prefix of an index that has tallies.
type tallied struct {
	queue  *Queue
	index  string
	prefix tuple.Tuple
}

// tally checks a tally.
func (c *checker) tally(k keyed) (func() error, error) {
	var length int64
	var name string
	of := tallied{queue: k.queue}
	last := len(k.key) - 1
	if last < 2 || !rows.As(k.key[0], &of.index) || of.index == "" || !rows.As(k.key[1], &length) || length != int64(last-2) ||
		!rows.As(k.key[last], &name) {
		return nil, k.unknown()
	}
	if err := k.queue.needsDerivation(); !isOwn(of.index) && err != nil {
		return nil, err
	}
	of.prefix = k.key[2:last]
	n, err := rows.ParseInt(k.Value)
	if err != nil {
		n = -1
	}
	return func() error {
		s, err := c.sums(k.Page, of)
		switch {
		case err != nil:
			return err
		case s.complete():
			of.compare(k.Page, k.Key, n, s.sums[string(k.Key)])
		case s.unreadable || c.tallyLater == nil:
			k.Unsettled()
		default:
			k.After(func() error { return c.tallyLater(of, k.Key, n) })
		}
		return nil
	}, nil
}

// compare compares a tally with the sum that it should be.
func (t tallied) compare(p *check.Page, key []byte, n, sum int64) {
	switch {
	case n == sum && n > 0:
	case sum > 0:
		p.Wrong(key, rows.Int(sum), "a tally of the index %q is %d, and its entries add %d", t.index, n, sum)
	default:
		p.Stray(key, "a tally of the index %q is %d, and no entry adds to it", t.index, n)
	}
}

// summed are the tallies that some entries should make, by key.
type summed struct {
	// rows have the entries: all entries of a prefix, or, if these have no keys, all jobs of the queue.
	rows tuple.Subspace
	page *check.Page
	sums map[string]int64
	rest kv.KeyRange // of the rows that are not in sums; it begins with nil if there is none
	// unreadable says that a job cannot be read, which is a fault of its own. It is not known what its entries add.
	unreadable bool
}

func newSummed(of tallied) *summed {
	from := of.queue.keys.entries.Sub(of.index).Sub(of.prefix...)
	if of.index == indexJobs && of.queue.unlisted() {
		from = of.queue.keys.data
	}
	return &summed{rows: from, sums: map[string]int64{}, rest: rows.Range(from)}
}

// same reports whether other has the same rows.
func (s *summed) same(other *summed) bool {
	return other != nil && bytes.Equal(s.rows.Bytes(), other.rows.Bytes())
}

func (s *summed) complete() bool { return s.rest.Begin == nil && !s.unreadable }

// sums returns the tallies of a prefix as they should be, as far as a page has time for that. The tallies of a prefix come one
// after the other, so it keeps the latest ones.
func (c *checker) sums(p *check.Page, of tallied) (*summed, error) {
	s := newSummed(of)
	if last := c.summed; s.same(last) && last.page == p {
		return last, nil
	}
	for s.rest.Begin != nil && !p.Late() {
		if err := s.add(p, of); err != nil {
			return nil, err
		}
	}
	s.page, c.summed = p, s
	return s, nil
}

// summedAtOnce is the number of rows that are read at a time to sum up what their entries add.
const summedAtOnce = 1_000

// add adds what the entries of the next rows add to the tallies of a prefix.
func (s *summed) add(tx kv.ReadTransaction, of tallied) error {
	pairs, err := tx.GetRange(s.rest, kv.RangeOptions{Limit: summedAtOnce}).Slice()
	if err != nil {
		return err
	}
	ids, jobs := make([]string, len(pairs)), make([]kv.Future[*row], len(pairs))
	for i, pair := range pairs {
		if ids[i], err = rows.LastString(s.rows, pair.Key); err == nil { // otherwise the key is unknown
			jobs[i] = of.queue.readRow(tx, ids[i])
		}
	}
	for i, pair := range pairs {
		if jobs[i] == nil {
			continue
		}
		r, err := jobs[i].Await()
		switch {
		case errors.Is(err, tuple.ErrMalformed):
			s.unreadable = true
		case err != nil:
			return err
		default:
			s.addEntry(of, s.entryOf(of.queue, ids[i], r, pair.Key))
		}
	}
	if s.rest.Begin = nil; len(pairs) == summedAtOnce {
		s.rest.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	return nil
}

// entryOf returns the entry of a job that a row has, or nil.
func (s *summed) entryOf(q *Queue, id string, r *row, key []byte) *Entry {
	if !bytes.Equal(s.rows.Bytes(), q.keys.data.Bytes()) {
		return q.entryWith(id, r, key)
	}
	for _, e := range q.ownEntries(r) {
		if e.keyless {
			return &e
		}
	}
	return nil
}

// addEntry adds what an entry adds. nil adds nothing.
func (s *summed) addEntry(of tallied, e *Entry) {
	if e == nil {
		return
	}
	for _, a := range e.Adds {
		if a.Prefix == len(of.prefix) || e.keyless { // the sums of keyless entries are for all prefixes
			s.sums[string(of.queue.keys.tallyOf(e.Index, e.Key[:a.Prefix], a.Name))] += a.N
		}
	}
}

// sumLater compares a tally that takes several transactions to sum up.
func (c *checker) sumLater(ctx context.Context, to *check.Checker, of tallied, key []byte, n int64) error {
	if s := newSummed(of); !s.same(c.later) {
		for s.rest.Begin != nil {
			next := s
			if err := to.DB.Transact(ctx, func(tx kv.Transaction) error {
				next = s.clone()
				return next.add(tx, of)
			}); err != nil {
				return err
			}
			s = next
		}
		c.later = s
	}
	if c.later.unreadable {
		return nil // the job is a fault of its own
	}
	return to.Do(ctx, func(p *check.Page) error {
		of.compare(p, key, n, c.later.sums[string(key)])
		return nil
	})
}

// clone returns a copy for a transaction, whose function may run again.
func (s *summed) clone() *summed {
	next := *s
	next.sums = maps.Clone(s.sums)
	return &next
}
