//go:build fdb

package fdbkv

import (
	"iter"
	"math"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

func (tx *transaction) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return tx.getRange(tx.tr, r, opts)
}

// getRange starts a range read.
func (tx *transaction) getRange(view fdb.ReadTransaction, r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(tx.keys.checkBounds(r)); err != nil {
		return failedRange{err}
	}
	if string(r.Begin) >= string(r.End) {
		return failedRange{}
	}
	limit := max(opts.Limit, 0)
	if limit > math.MaxInt32 {
		limit = 0
	}
	result := view.GetRange(tx.keys.keyRange(r),
		fdb.RangeOptions{Limit: limit, Reverse: opts.Reverse, Mode: fdb.StreamingModeWantAll})
	return rangeResult{tx, result}
}

// rangeResult is a pending range read.
type rangeResult struct {
	tx     *transaction
	result fdb.RangeResult
}

func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		it := r.result.Iterator()
		for it.Advance() { // waits for the next batch if needed
			pair, err := r.take(it)
			if !yield(pair, err) || err != nil {
				return
			}
		}
	}
}

// take returns the current pair. After the last pair of a batch it starts reading the next batch.
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

// Slice reads batches of the largest size, because it takes them all.
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

// failedRange is an empty range, or one that cannot be read.
type failedRange struct{ err error }

func (r failedRange) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		if r.err != nil {
			yield(kv.KeyValue{}, r.err)
		}
	}
}

func (r failedRange) Slice() ([]kv.KeyValue, error) { return nil, r.err }
