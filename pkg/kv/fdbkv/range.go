//go:build fdb

package fdbkv

import (
	"iter"
	"math"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

func (tx *transaction) GetKey(sel kv.KeySelector) kv.Future[[]byte] { return tx.getKey(tx.tr, sel) }

// getKey starts to read the key that sel selects, by a range read that ends where
// the store's keys end: the client's own call would go on into the keys around
// it, and conflict with writes there. It costs the same, as the client reads the
// pair either way.
func (tx *transaction) getKey(view fdb.ReadTransaction, sel kv.KeySelector) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(tx.keys.checkBound(sel.Key)); err != nil {
		return done[[]byte]{err: err}
	}
	from := min(place(sel), endOfKeys)
	walked, behind := bounds{from, endOfKeys}, endOfKeys
	opts := kv.RangeOptions{Limit: clamp(sel.Offset)}
	if sel.Offset <= 0 {
		walked, behind = bounds{"", from}, ""
		opts = kv.RangeOptions{Limit: 1 + clamp(-clamp(sel.Offset)), Reverse: true}
	}
	pairs := tx.read(view, walked, opts, fdb.StreamingModeExact)
	return future[[]byte]{tx.run, sync.OnceValues(func() ([]byte, error) {
		key, n := []byte(behind), 0
		for pair, err := range pairs.All() {
			if err != nil {
				return nil, err
			}
			if n++; n == opts.Limit {
				key = pair.Key
			}
		}
		return key, nil
	})}
}

// place returns the key from which sel counts its offset: the first selected is
// the one at or behind it.
func place(sel kv.KeySelector) string {
	if sel.OrEqual {
		return string(sel.Key) + "\x00"
	}
	return string(sel.Key)
}

// clamp returns n within what the client takes for a number of pairs. No store
// has so many that can be walked over in five seconds.
func clamp(n int) int { return max(min(n, math.MaxInt32-1), -math.MaxInt32+1) }

// bounds are the store's keys from begin (inclusive) to end (exclusive).
type bounds struct{ begin, end string }

func (tx *transaction) GetRange(r kv.Range, opts kv.RangeOptions) kv.RangeResult {
	return tx.getRange(tx.tr, r, opts)
}

func (tx *transaction) getRange(view fdb.ReadTransaction, r kv.Range, opts kv.RangeOptions) kv.RangeResult {
	mode := fdb.StreamingModeIterator
	if opts.Mode == kv.StreamWantAll {
		mode = fdb.StreamingModeWantAll
	}
	begin, end := tx.bound(view, r.Selectors().Begin), tx.bound(view, r.Selectors().End)
	open := func() kv.RangeResult {
		from, err := begin.Await()
		if err != nil {
			return failedRange{err}
		}
		to, err := end.Await()
		if err != nil {
			return failedRange{err}
		}
		tx.mu.Lock()
		defer tx.mu.Unlock()
		if err := tx.use(nil); err != nil {
			return failedRange{err}
		}
		return tx.read(view, bounds{string(from), min(string(to), endOfKeys)}, opts, mode)
	}
	_, beginKnown := begin.(done[[]byte])
	_, endKnown := end.(done[[]byte])
	if beginKnown && endKnown {
		return open()
	}
	return laterRange{sync.OnceValue(open)}
}

// bound returns the key at which a range begins or ends.
func (tx *transaction) bound(view fdb.ReadTransaction, sel kv.KeySelector) kv.Future[[]byte] {
	if sel.Offset != 1 {
		return tx.getKey(view, sel)
	}
	// The first key behind a place need not be found to bound a range by it.
	if err := tx.keys.checkBound(sel.Key); err != nil {
		return done[[]byte]{err: err}
	}
	return done[[]byte]{value: []byte(place(sel))}
}

// read starts a range read. The caller holds mu.
func (tx *transaction) read(view fdb.ReadTransaction, b bounds, opts kv.RangeOptions, mode fdb.StreamingMode) kv.RangeResult {
	if b.begin >= b.end {
		return failedRange{}
	}
	limit := max(opts.Limit, 0)
	if limit > math.MaxInt32 {
		limit = 0
	}
	r := kv.KeyRange{Begin: []byte(b.begin), End: []byte(b.end)}
	result := view.GetRange(tx.keys.keyRange(r), fdb.RangeOptions{Limit: limit, Reverse: opts.Reverse, Mode: mode})
	return rangeResult{tx, result}
}

// rangeResult is a range read under way.
type rangeResult struct {
	tx     *transaction
	result fdb.RangeResult
}

func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		it := r.result.Iterator()
		for it.Advance() { // waits for the next batch when one is needed
			pair, err := r.take(it)
			if !yield(pair, err) || err != nil {
				return
			}
		}
	}
}

// take returns the pair at which it stands. With the last one of a batch it
// starts to read the next.
func (r rangeResult) take(it *fdb.RangeIterator) (kv.KeyValue, error) {
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if err := r.tx.use(nil); err != nil {
		return kv.KeyValue{}, err
	}
	pair, err := it.Get()
	if err != nil {
		return kv.KeyValue{}, r.tx.run.readFailure(err)
	}
	return r.pair(pair), nil
}

func (r rangeResult) pair(pair fdb.KeyValue) kv.KeyValue {
	return kv.KeyValue{Key: r.tx.keys.own(pair.Key), Value: pair.Value}
}

// Slice has batches of its own: as large as possible, since it takes them all.
func (r rangeResult) Slice() ([]kv.KeyValue, error) {
	fetched, err := r.result.GetSliceWithError()
	if err != nil {
		return nil, r.tx.run.readFailure(err)
	}
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if err := r.tx.use(nil); err != nil {
		return nil, err
	}
	pairs := make([]kv.KeyValue, 0, len(fetched))
	for _, pair := range fetched {
		pairs = append(pairs, r.pair(pair))
	}
	return pairs, nil
}

// laterRange is a range whose bounds are being read.
type laterRange struct{ open func() kv.RangeResult }

func (r laterRange) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) { r.open().All()(yield) }
}

func (r laterRange) Slice() ([]kv.KeyValue, error) { return r.open().Slice() }

// failedRange is a range of nothing, or one that cannot be read.
type failedRange struct{ err error }

func (r failedRange) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		if r.err != nil {
			yield(kv.KeyValue{}, r.err)
		}
	}
}

func (r failedRange) Slice() ([]kv.KeyValue, error) { return nil, r.err }
