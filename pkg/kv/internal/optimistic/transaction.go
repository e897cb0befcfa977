package optimistic

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
)

// endOfKeys is the first key that belongs to the engine.
const endOfKeys = "\xff"

// transaction is one run of a function.
type transaction struct {
	db *DB

	mu     sync.Mutex
	ended  bool
	failed error // of a write, reported by the next read or the commit
	view   *view // nil before the first read
	start  time.Time
	writes buffer
	reads  []span
	size   int // bytes towards kv.MaxTransactionSize
	armed  []*watch
	commit *commit // nil until the commit was handed in
}

// begin returns the view of this transaction, drawing it at the first call.
// The caller holds mu.
func (tx *transaction) begin() (*view, error) {
	switch {
	case tx.ended:
		return nil, kv.ErrUsedAfterEnd
	case tx.failed != nil:
		return nil, tx.failed
	case tx.view == nil:
		// The time is taken first: the history keeps what a transaction that
		// began at this time can conflict with, which is never too little.
		tx.start = tx.db.now()
		tx.view = tx.db.acquireView()
	case tx.db.now().Sub(tx.start) > kv.MaxTransactionAge:
		return nil, kv.ErrTransactionTooOld
	}
	return tx.view, nil
}

// end releases what the transaction holds.
func (tx *transaction) end() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	if tx.view != nil {
		tx.db.releaseView(tx.view)
		tx.view = nil
	}
}

// resolved is a future whose read is done.
type resolved[T any] struct {
	value T
	err   error
}

func (f resolved[T]) Await() (T, error) { return f.value, f.err }

func (tx *transaction) Get(key []byte) kv.Future[[]byte] { return tx.get(key, false) }

func (tx *transaction) get(key []byte, snapshot bool) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	value, err := tx.read(key, snapshot)
	return resolved[[]byte]{value, err}
}

// read returns the value of key as this transaction sees it. The caller holds
// mu.
func (tx *transaction) read(key []byte, snapshot bool) ([]byte, error) {
	v, err := tx.begin()
	if err != nil {
		return nil, err
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	k := string(key)
	if tx.writes.touchesUnreadable(k, k+"\x00") {
		return nil, kv.ErrUnreadable
	}
	w, own := tx.writes.keys.Get(k)
	if w.unreadable {
		return nil, kv.ErrUnreadable
	}
	if own && len(w.ops) == 0 {
		return slices.Clone(w.value), nil
	}
	if _, cleared := tx.writes.clearedAround(k); cleared && !own {
		return nil, nil
	}
	if !snapshot {
		tx.addRead(pointSpan(k))
	}
	base, err := v.snapshot.Get(key)
	if err != nil {
		return nil, err
	}
	if own {
		return w.over(base), nil
	}
	return base, nil
}

func (tx *transaction) addRead(s span) {
	tx.reads = append(tx.reads, s)
	tx.size += len(s.begin) + len(s.end)
}

func (tx *transaction) GetKey(sel kv.KeySelector) kv.Future[[]byte] { return tx.getKey(sel, false) }

func (tx *transaction) getKey(sel kv.KeySelector, snapshot bool) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	key, err := tx.resolve(sel, snapshot)
	if err != nil {
		return resolved[[]byte]{err: err}
	}
	return resolved[[]byte]{value: []byte(key)}
}

// resolve returns the key that sel selects. The caller holds mu.
func (tx *transaction) resolve(sel kv.KeySelector, snapshot bool) (key string, err error) {
	v, err := tx.begin()
	if err != nil {
		return "", err
	}
	if err := checkBound(sel.Key); err != nil {
		return "", err
	}
	from := string(sel.Key)
	if sel.OrEqual {
		from += "\x00"
	}
	walked, steps, reverse := span{from, endOfKeys}, sel.Offset, false
	if sel.Offset <= 0 {
		walked, steps, reverse = span{"", from}, 1-sel.Offset, true
	}
	c, err := newCursor(v.snapshot, &tx.writes, walked, reverse)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for range steps {
		pair, ok, err := c.next()
		if err != nil {
			return "", err
		}
		if !ok {
			from = walked.end
			if reverse {
				from = walked.begin
			}
			break
		}
		from = string(pair.Key)
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

// bound returns the key at which a range begins or ends. The caller holds mu.
func (tx *transaction) bound(sel kv.KeySelector, snapshot bool) (string, error) {
	if sel.Offset != 1 {
		return tx.resolve(sel, snapshot)
	}
	// The first key behind a place need not be found to bound a range by it.
	if err := checkBound(sel.Key); err != nil {
		return "", err
	}
	if sel.OrEqual {
		return string(sel.Key) + "\x00", nil
	}
	return string(sel.Key), nil
}

// rangeResult reads a range as it is asked for.
type rangeResult struct {
	tx        *transaction
	selectors kv.SelectorRange
	opts      kv.RangeOptions
	snapshot  bool
}

func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		stopped := false
		err := r.walk(func(pair kv.KeyValue) bool {
			stopped = !yield(pair, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(kv.KeyValue{}, err)
		}
	}
}

func (r rangeResult) Slice() ([]kv.KeyValue, error) {
	var pairs []kv.KeyValue
	for pair, err := range r.All() {
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// walk calls visit with each pair until that returns false.
func (r rangeResult) walk(visit func(kv.KeyValue) bool) (err error) {
	c, whole, err := r.open()
	if c == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	// What was taken conflicts: up to the last pair, or everything once the end
	// was seen.
	taken := whole
	defer func() { r.addRead(taken) }()
	for n := 0; ; n++ {
		if r.opts.Limit > 0 && n == r.opts.Limit {
			return nil
		}
		pair, ok, err := r.next(c)
		if err != nil || !ok {
			taken = whole
			return err
		}
		if r.opts.Reverse {
			taken.begin = string(pair.Key)
		} else {
			taken.end = string(pair.Key) + "\x00"
		}
		if !visit(pair) {
			return nil
		}
	}
}

// open returns a cursor over the range and its bounds, nil for an empty one.
func (r rangeResult) open() (*cursor, span, error) {
	tx := r.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	v, err := tx.begin()
	if err != nil {
		return nil, span{}, err
	}
	begin, err := tx.bound(r.selectors.Begin, r.snapshot)
	if err != nil {
		return nil, span{}, err
	}
	end, err := tx.bound(r.selectors.End, r.snapshot)
	if err != nil || begin >= end {
		return nil, span{}, err
	}
	whole := span{begin, min(end, endOfKeys)}
	c, err := newCursor(v.snapshot, &tx.writes, whole, r.opts.Reverse)
	return c, whole, err
}

func (r rangeResult) next(c *cursor) (kv.KeyValue, bool, error) {
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if _, err := r.tx.begin(); err != nil {
		return kv.KeyValue{}, false, err
	}
	return c.next()
}

func (r rangeResult) addRead(s span) {
	if r.snapshot {
		return
	}
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	r.tx.addRead(s)
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

func (s snapshotReads) Get(key []byte) kv.Future[[]byte] { return s.tx.get(key, true) }

func (s snapshotReads) GetKey(sel kv.KeySelector) kv.Future[[]byte] { return s.tx.getKey(sel, true) }

func (s snapshotReads) GetRange(r kv.Range, opts kv.RangeOptions) kv.RangeResult {
	return rangeResult{tx: s.tx, selectors: r.Selectors(), opts: opts, snapshot: true}
}

func (s snapshotReads) ReadVersion() kv.Future[int64] { return s.tx.ReadVersion() }

// checkKey checks a key that is read or written.
func checkKey(key []byte) error {
	switch {
	case len(key) > kv.MaxKeySize:
		return kv.ErrKeyTooLarge
	case string(key) >= endOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}

// checkBound checks a key that bounds a range, and so may be the end of all.
func checkBound(key []byte) error {
	switch {
	case len(key) > kv.MaxKeySize+1:
		return kv.ErrKeyTooLarge
	case string(key) > endOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}
