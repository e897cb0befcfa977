package optimistic

import (
	"iter"
	"slices"

	"settee/pkg/kv"
)

// resolved is a future whose read is done.
type resolved[T any] struct {
	value T
	err   error
}

func (f resolved[T]) Await() (T, error) { return f.value, f.err }

func (tx *transaction) Get(key []byte) kv.Future[[]byte] {
	value, err := tx.get(key, false)
	return resolved[[]byte]{value, err}
}

// get returns the value of key as this transaction sees it. The storage is read
// without the lock, from a view that is kept meanwhile.
func (tx *transaction) get(key []byte, snapshot bool) ([]byte, error) {
	point := pointSpanOf(key)
	tx.mu.Lock()
	v, w, done, err := tx.look(point, snapshot)
	if done || err != nil {
		tx.mu.Unlock()
		return slices.Clone(w.value), err
	}
	v.keep()
	tx.mu.Unlock()
	defer v.release()
	value, err := v.snapshot.Get(key)
	if err != nil || len(w.ops) == 0 {
		return value, err
	}
	return w.over(value), nil
}

// look returns what the buffer says of a key, and the view to go on with unless
// that is all. The caller holds mu.
func (tx *transaction) look(point span, snapshot bool) (v *view, w written, done bool, err error) {
	if v, err = tx.begin(); err != nil {
		return nil, written{}, false, err
	}
	if err := checkKey(point.begin); err != nil {
		return nil, written{}, false, err
	}
	own := tx.writes.see()
	if own.unreadable.touches(point) {
		return nil, written{}, false, kv.ErrUnreadable
	}
	w, _, done = own.hides(point.begin)
	if !done && !snapshot {
		tx.reads = append(tx.reads, point)
	}
	return v, w, done, nil
}

func (tx *transaction) addRead(s span) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.reads = append(tx.reads, s)
}

// open returns the view, kept for the caller, and a scan of the keys of s.
func (tx *transaction) open(s span, reverse bool) (*view, scan, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	v, err := tx.begin()
	if err != nil {
		return nil, scan{}, err
	}
	v.keep()
	return v, scan{own: tx.writes.see().copy(), begin: s.begin, end: s.end, reverse: reverse}, nil
}

// current returns the view, kept for the caller.
func (tx *transaction) current() (*view, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	v, err := tx.begin()
	if err == nil {
		v.keep()
	}
	return v, err
}

func (tx *transaction) GetKey(sel kv.KeySelector) kv.Future[[]byte] { return tx.getKey(sel, false) }

func (tx *transaction) getKey(sel kv.KeySelector, snapshot bool) kv.Future[[]byte] {
	key, err := tx.resolve(sel, snapshot)
	if err != nil {
		return resolved[[]byte]{err: err}
	}
	return resolved[[]byte]{value: []byte(key)}
}

// place returns the key before which the selection of sel begins to count.
func place(sel kv.KeySelector) (string, error) {
	if err := checkBound(string(sel.Key)); err != nil {
		return "", err
	}
	if sel.OrEqual {
		return min(string(sel.Key)+"\x00", endOfKeys), nil
	}
	return string(sel.Key), nil
}

// resolve returns the key that sel selects.
func (tx *transaction) resolve(sel kv.KeySelector, snapshot bool) (string, error) {
	from, err := place(sel)
	if err != nil {
		return "", err
	}
	walked, steps, reverse := span{from, endOfKeys}, sel.Offset, false
	if sel.Offset <= 0 {
		walked, steps, reverse = span{"", from}, 1-sel.Offset, true
	}
	v, ahead, err := tx.open(walked, reverse)
	if err != nil {
		return "", err
	}
	defer v.release()
	for more := true; more && steps > 0; {
		var pairs []kv.KeyValue
		pairs, more, err = ahead.fetch(v.snapshot, min(steps, maxBatch))
		if err != nil {
			return "", err
		}
		steps -= len(pairs)
		if steps == 0 {
			from = string(pairs[len(pairs)-1].Key)
		}
	}
	switch {
	case steps > 0 && reverse:
		from = walked.begin
	case steps > 0:
		from = walked.end
	}
	if !snapshot {
		if reverse {
			walked.begin = from
		} else {
			walked.end = min(from+"\x00", endOfKeys)
		}
		tx.addRead(walked)
	}
	return from, nil
}

func (tx *transaction) GetRange(r kv.Range, opts kv.RangeOptions) kv.RangeResult {
	return rangeResult{tx: tx, selectors: r.Selectors(), opts: opts}
}

// edge returns the key at which a range begins or ends.
func (tx *transaction) edge(sel kv.KeySelector, snapshot bool) (string, error) {
	if sel.Offset != 1 {
		return tx.resolve(sel, snapshot)
	}
	// The first key behind a place need not be found to bound a range by it.
	return place(sel)
}

// rangeResult is a range to be read.
type rangeResult struct {
	tx        *transaction
	selectors kv.SelectorRange
	opts      kv.RangeOptions
	snapshot  bool
}

// How many pairs a batch of a range has; the first ones of a reader that may
// stop early have fewer.
const (
	minBatch = 32
	maxBatch = 1024
)

func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		reading, err := r.open()
		var taken []byte
		for n := r.firstBatch(); reading.more && err == nil; n = min(4*n, maxBatch) {
			var pairs []kv.KeyValue
			pairs, err = reading.next(n)
			for _, pair := range pairs {
				taken = pair.Key
				if !yield(pair, nil) {
					reading.tookUpTo(taken)
					return
				}
			}
		}
		reading.finish(taken)
		if err != nil {
			yield(kv.KeyValue{}, err)
		}
	}
}

func (r rangeResult) firstBatch() int {
	if r.opts.Mode == kv.StreamWantAll {
		return maxBatch
	}
	return minBatch
}

func (r rangeResult) Slice() ([]kv.KeyValue, error) {
	reading, err := r.open()
	var all []kv.KeyValue
	for reading.more && err == nil {
		var pairs []kv.KeyValue
		if pairs, err = reading.next(maxBatch); all == nil {
			all = pairs
		} else {
			all = append(all, pairs...)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		reading.finish(all[len(all)-1].Key)
	} else {
		reading.finish(nil)
	}
	return all, nil
}

// rangeReading is a range that is being read.
type rangeReading struct {
	rangeResult
	whole span
	ahead scan
	more  bool
	// left is how many pairs are wanted yet, if there is a limit.
	left int
	// ended is set when everything up to the end of the range was read.
	ended bool
}

// open finds the bounds of the range.
func (r rangeResult) open() (rangeReading, error) {
	begin, err := r.tx.edge(r.selectors.Begin, r.snapshot)
	if err != nil {
		return rangeReading{}, err
	}
	end, err := r.tx.edge(r.selectors.End, r.snapshot)
	if err != nil {
		return rangeReading{}, err
	}
	reading := rangeReading{rangeResult: r, whole: span{begin, end}, left: r.opts.Limit}
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if _, err := r.tx.begin(); err != nil || begin >= end {
		return rangeReading{}, err
	}
	reading.ahead = scan{own: r.tx.writes.see().copy(), begin: begin, end: end, reverse: r.opts.Reverse}
	reading.more = true
	return reading, nil
}

// next returns the next pairs, at most n. With an error come those before it.
func (r *rangeReading) next(n int) (pairs []kv.KeyValue, err error) {
	v, err := r.tx.current()
	if err != nil {
		return nil, err
	}
	defer v.release()
	if r.opts.Limit > 0 {
		n = min(n, r.left)
	}
	pairs, r.more, err = r.ahead.fetch(v.snapshot, n)
	r.ended = !r.more
	if r.left -= len(pairs); r.left == 0 && r.opts.Limit > 0 {
		r.more = false
	}
	return pairs, err
}

// finish records what was read when taken, if any, is the last key of it.
func (r *rangeReading) finish(taken []byte) {
	if r.ended {
		r.addRead(r.whole)
	} else if taken != nil {
		r.tookUpTo(taken)
	}
}

// tookUpTo records that the range was read up to key.
func (r *rangeReading) tookUpTo(key []byte) {
	taken := r.whole
	if r.opts.Reverse {
		taken.begin = string(key)
	} else {
		taken.end = pointSpanOf(key).end
	}
	r.addRead(taken)
}

func (r *rangeReading) addRead(s span) {
	if !r.snapshot {
		r.tx.addRead(s)
	}
}

func (tx *transaction) ReadVersion() kv.Future[int64] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	v, err := tx.begin()
	if err != nil {
		return resolved[int64]{err: err}
	}
	return resolved[int64]{value: v.version}
}

// snapshotReads reads a transaction without read conflicts.
type snapshotReads struct{ tx *transaction }

func (tx *transaction) Snapshot() kv.ReadTransaction { return snapshotReads{tx} }

func (s snapshotReads) Get(key []byte) kv.Future[[]byte] {
	value, err := s.tx.get(key, true)
	return resolved[[]byte]{value, err}
}

func (s snapshotReads) GetKey(sel kv.KeySelector) kv.Future[[]byte] { return s.tx.getKey(sel, true) }

func (s snapshotReads) GetRange(r kv.Range, opts kv.RangeOptions) kv.RangeResult {
	return rangeResult{tx: s.tx, selectors: r.Selectors(), opts: opts, snapshot: true}
}

func (s snapshotReads) ReadVersion() kv.Future[int64] { return s.tx.ReadVersion() }

// checkKey checks a key that is read or written.
func checkKey(key string) error {
	switch {
	case len(key) > kv.MaxKeySize:
		return kv.ErrKeyTooLarge
	case key >= endOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}

// checkBound checks a key that bounds a range, and so may be the end of all.
func checkBound(key string) error {
	switch {
	case len(key) > kv.MaxKeySize+1:
		return kv.ErrKeyTooLarge
	case key > endOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}
