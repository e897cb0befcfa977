package fdbjobs

import (
	"bytes"
	"fmt"
	"iter"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// What follows from a job has two families of keys, which put alone writes:
//
//	(entries, queue, index, key…, id)             -> value   an entry of the job id
//	(tallies, queue, index, length, prefix…, name) -> int64  the sum of what the entries whose keys begin with prefix add
//	                                                         to name; length is the number of elements of prefix
//
// put writes the difference between what follows from the row that its transaction has read, and what follows from the next
// one. So a repeated transaction, which reads what an earlier run has committed, adds nothing twice, and a tally agrees with
// the entries whatever happens to commits. There is no other way to add to a tally. Neither family is read by put, so that
// transactions of different jobs do not conflict.

// entriesOf returns what follows from a row, nothing from nil. Entries that are over a limit are left out: those that cannot be
// stored, those after the first maxEntries, and those with the key of an earlier one. over says what is wrong with the first.
func (q *Queue) entriesOf(id string, r *row) (all []Entry, over error) {
	if r == nil || r.version == 0 || q.derivation == nil || q.derivation.Entries == nil {
		return nil, nil
	}
	derived := q.derivation.Entries(r.version, r.of(id))
	for i, e := range derived {
		err := e.mayFollow(all)
		if err != nil && over == nil {
			over = fmt.Errorf("what follows from the job %q: %w", id, err)
		}
		switch {
		case over == nil:
			all = derived[: i+1 : i+1] // the caller's slice stays as it is
		case err == nil:
			all = append(all, e)
		}
	}
	return all, over
}

// mayFollow returns why an entry is left out after others.
func (e Entry) mayFollow(others []Entry) error {
	switch err := e.check(); {
	case err != nil:
		return err
	case len(others) == maxEntries:
		return fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxEntries)
	case indexOf(others, e) >= 0:
		return fmt.Errorf("%w: two entries of the index %q have one key", ErrInvalid, e.Index)
	}
	return nil
}

// bothEntries returns what followed from a row that was read, and what follows from the next one: nothing if both are the
// same. Either row may be nil. The error is that of a checked row.
func (q *Queue) bothEntries(id string, old, next *row) (before, after []Entry, err error) {
	if old.sources() == next.sources() {
		return nil, nil, nil
	}
	if err := q.needsDerivation(); err != nil {
		return nil, nil, err
	}
	after, over := q.entriesOf(id, next)
	if over != nil && next.checked {
		return nil, nil, over
	}
	if over != nil && leftOut != nil {
		leftOut(over)
	}
	before, _ = q.entriesOf(id, old)
	return before, after, nil
}

// leftOut is called with the reason when entries are left out. Tests set it: a derivation with such entries is wrong.
var leftOut func(error)

// entryOf returns the key of an entry of a job.
func (k *keyspace) entryOf(id string, e Entry) []byte {
	key := k.entries.Append(make([]byte, 0, 128), e.Index)
	return tuple.Append(tuple.Append(key, e.Key...), id)
}

// tallyOf returns the key of a tally of an index.
func (k *keyspace) tallyOf(index string, prefix tuple.Tuple, name string) []byte {
	key := k.tallies.Append(make([]byte, 0, 64), index, int64(len(prefix)))
	return tuple.Append(tuple.Append(key, prefix...), name)
}

// talliesOf returns the tallies of a prefix.
func (k *keyspace) talliesOf(index string, prefix tuple.Tuple) tuple.Subspace {
	return k.tallies.Sub(index, int64(len(prefix))).Sub(prefix...)
}

// tallying are changes of tallies.
type tallying struct {
	keys []string // in the order in which they are first changed
	sums map[string]int64
	size int // of the keys, in bytes
}

func (t *tallying) add(k *keyspace, e Entry, sign int64) {
	for _, a := range e.Adds {
		if a.N == 0 {
			continue
		}
		key := string(k.tallyOf(e.Index, e.Key[:a.Prefix], a.Name))
		if _, has := t.sums[key]; !has {
			t.keys, t.size = append(t.keys, key), t.size+len(key)
		}
		if t.sums == nil {
			t.sums = map[string]int64{}
		}
		t.sums[key] += sign * a.N
	}
}

// write writes the changes.
func (t *tallying) write(tx kv.Transaction) {
	for _, key := range t.keys {
		switch n := t.sums[key]; {
		case n > 0:
			tx.Add([]byte(key), n)
		case n < 0:
			tx.AddOrClear([]byte(key), n)
		}
	}
}

// putEntries writes the difference between what followed from a job and what follows now. It adds the changes of tallies to
// changes, and does not write them. It returns the size of the keys and values that it has written, in bytes.
func (q *Queue) putEntries(tx kv.Transaction, id string, before, after []Entry, changes *tallying) (written int) {
	for _, old := range before {
		i := indexOf(after, old)
		if i < 0 && !old.keyless {
			key := q.keys.entryOf(id, old)
			tx.Clear(key)
			written += len(key)
		}
		if i < 0 || !slices.Equal(old.Adds, after[i].Adds) {
			changes.add(q.keys, old, -1)
		}
	}
	for _, next := range after {
		i := indexOf(before, next)
		if !next.keyless && (i < 0 || !bytes.Equal(before[i].Value, next.Value)) {
			key := q.keys.entryOf(id, next)
			tx.Set(key, next.Value)
			written += len(key) + len(next.Value)
		}
		if i < 0 || !slices.Equal(before[i].Adds, next.Adds) {
			changes.add(q.keys, next, 1)
		}
	}
	return written
}

// EntryRange says which entries of an index [Queue.Entries] reads.
type EntryRange struct {
	// Prefix is how their keys begin. The next element after it is a string that begins with Text, unless Text is empty.
	Prefix tuple.Tuple
	Text   string
	// They come after After and before Until, unless these are empty. Both have the elements of the key behind Prefix, and
	// the id, or only the first of these.
	After, Until tuple.Tuple
	// Reverse reads from the end. Limit is the maximum number of entries; 0 is no limit.
	Reverse bool
	Limit   int
}

// Entries starts reading an index in the order of its keys, or in the opposite one: the keys, values and ids of its entries. Without a snapshot it conflicts with
// each change of what it reads.
func (q *Queue) Entries(tx kv.ReadTransaction, index string, r EntryRange) kv.Future[[]Entry] {
	keys := q.keys.entries.Sub(index)
	opts := kv.RangeOptions{Limit: r.Limit, Reverse: r.Reverse}
	return readAll(tx, r.within(keys.Sub(r.Prefix...)), opts, func(pair kv.KeyValue) (e Entry, err error) {
		elements, err := keys.Unpack(pair.Key)
		last := len(elements) - 1
		if err != nil || last < 0 || !rows.As(elements[last], &e.ID) {
			return e, fmt.Errorf("reading the index %q: %w: a key of %d elements", index, tuple.ErrMalformed, len(elements))
		}
		e.Key, e.Value = elements[:last:last], pair.Value
		return e, nil
	})
}

// within returns the range of keys in s, which has the entries with the prefix.
func (r EntryRange) within(s tuple.Subspace) kv.KeyRange {
	keys := rows.Range(s)
	if r.Text != "" {
		text := s.Pack(r.Text)
		keys = kv.PrefixRange(text[:len(text)-1]) // without the end of the string
	}
	if len(r.After) > 0 {
		keys.Begin = slices.MaxFunc([][]byte{keys.Begin, kv.KeyAfter(s.Pack(r.After...))}, bytes.Compare)
	}
	if len(r.Until) > 0 {
		keys.End = slices.MinFunc([][]byte{keys.End, s.Pack(r.Until...)}, bytes.Compare)
	}
	return keys
}

// Tallies starts reading the tallies of a prefix of an index, by name. A tally that is 0 is missing.
func (q *Queue) Tallies(tx kv.ReadTransaction, index string, prefix tuple.Tuple) kv.Future[map[string]int64] {
	s := q.keys.talliesOf(index, prefix)
	read := tx.GetRange(rows.Range(s), kv.RangeOptions{})
	return kv.Map(kv.Func[[]kv.KeyValue](read.Slice), func(pairs []kv.KeyValue) (map[string]int64, error) {
		tallies := make(map[string]int64, len(pairs))
		for _, pair := range pairs {
			var name string
			n, err := rows.ParseInt(pair.Value)
			if err == nil {
				err = rows.ScanKey("a tally", s, pair.Key, &name)
			}
			if err != nil {
				return nil, fmt.Errorf("reading the tallies of the index %q: %w", index, err)
			}
			tallies[name] = n
		}
		return tallies, nil
	})
}

// talliesAtOnce is the number of tallies in one read of TallyPrefixes.
const talliesAtOnce = 1_000

// TallyPrefixes yields the prefixes of some number of elements that have tallies in an index, in their order. It yields an error
// with nil and then stops.
func (q *Queue) TallyPrefixes(tx kv.ReadTransaction, index string, length int) iter.Seq2[tuple.Tuple, error] {
	s := q.keys.tallies.Sub(index, int64(length))
	return func(yield func(tuple.Tuple, error) bool) {
		var last []byte // the prefix before, packed
		for p := (pages{tx: tx, rest: rows.Range(s)}); !p.ended; {
			p.start(talliesAtOnce)
			if err := p.await(); err != nil {
				yield(nil, err)
				return
			}
			for _, pair := range p.rows {
				elements, err := s.Unpack(pair.Key)
				if err != nil || len(elements) != length+1 {
					yield(nil, fmt.Errorf("reading the tallies of the index %q: %w: a key of %d elements", index, tuple.ErrMalformed, len(elements)))
					return
				}
				prefix := elements[:length:length]
				packed := s.Pack(prefix...)
				if bytes.Equal(packed, last) {
					continue
				}
				if last = packed; !yield(prefix, nil) {
					return
				}
			}
		}
	}
}

// WatchTally watches one tally of a prefix. Like each watch, it may miss what was changed back.
func (q *Queue) WatchTally(tx kv.Transaction, index string, prefix tuple.Tuple, name string) kv.Watch {
	return tx.Watch(q.keys.tallyOf(index, prefix, name))
}

// needsDerivation returns an error if the layer was opened without the derivation of the queue.
func (q *Queue) needsDerivation() error {
	if q.derivation != nil {
		return nil
	}
	return fmt.Errorf("%w: it is not known what follows from the jobs of the queue %q: open the layer with its derivation", ErrInvalid, q.name)
}

// entryWith returns the entry of a row that has a key, or nil.
func (q *Queue) entryWith(id string, r *row, key []byte) *Entry {
	entries, _ := q.allEntries(id, r)
	has := func(e Entry) bool { return !e.keyless && bytes.Equal(q.keys.entryOf(id, e), key) }
	if i := slices.IndexFunc(entries, has); i >= 0 {
		return &entries[i]
	}
	return nil
}

// derivedAgain returns a row with a version, and with the facts of its state and Listed. The error says which facts are left
// out.
func (q *Queue) derivedAgain(r *row, version int64, state, listed []byte) (next *row, over error) {
	derived := *r
	derived.version, derived.facts = version, facts{}
	derived.facts.state, over = q.derivation.factsOfState(version, state)
	if r.listed {
		var err error
		if derived.facts.listed, err = q.derivation.factsOfListed(version, listed); err != nil {
			over = err
		}
	}
	return &derived, over
}
