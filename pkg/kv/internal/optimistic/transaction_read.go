package optimistic

import (
	"iter"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

func (tx *transaction) Get(key []byte) kv.Future[[]byte] {
	value, err := tx.get(key, false)
	return engine.Known[[]byte]{Value: value, Err: err}
}

// get returns the value of key as this transaction sees it. It reads the storage without the lock, from a view that it
// keeps.
func (tx *transaction) get(key []byte, snapshot bool) ([]byte, error) {
	tx.mu.Lock()
	v, w, done, err := tx.look(key, snapshot)
	if done || err != nil {
		tx.mu.Unlock()
		return slices.Clone(w.value), err
	}
	v.keep()
	tx.mu.Unlock()
	defer v.release()
	value, err := v.snapshot.Get(key)
	if err != nil || w.added.n == nil {
		return value, err
	}
	return w.over(value), nil
}

// look returns what the buffer knows of a key, and the view to read unless that is enough. The caller holds mu.
func (tx *transaction) look(key []byte, snapshot bool) (v *view, w written, done bool, err error) {
	if v, err = tx.begin(); err != nil {
		return nil, written{}, false, err
	}
	if err := engine.CheckKey(key, kv.MaxKeySize); err != nil {
		return nil, written{}, false, err
	}
	point := pointSpan(key)
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

// current returns the view, with a use counted for the caller.
func (tx *transaction) current() (*view, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	v, err := tx.begin()
	if err == nil {
		v.keep()
	}
	return v, err
}

func (tx *transaction) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return tx.getRange(r, opts, false)
}

func (tx *transaction) getRange(r kv.KeyRange, opts kv.RangeOptions, snapshot bool) kv.RangeResult {
	whole := span{string(r.Begin), string(r.End)}
	return rangeResult{tx: tx, whole: whole, opts: opts, snapshot: snapshot, err: engine.CheckBounds(r, kv.MaxKeySize)}
}

// rangeResult is a range to read.
type rangeResult struct {
	tx       *transaction
	whole    span
	opts     kv.RangeOptions
	snapshot bool
	err      error // of the arguments
}

// batchSize is the number of pairs that are read at a time.
const batchSize = 1024

func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		reading, err := r.open()
		var taken []byte
		for reading.more && err == nil {
			var pairs []kv.KeyValue
			pairs, err = reading.next()
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

func (r rangeResult) Slice() ([]kv.KeyValue, error) {
	reading, err := r.open()
	var all []kv.KeyValue
	for reading.more && err == nil {
		var pairs []kv.KeyValue
		if pairs, err = reading.next(); all == nil {
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

// rangeReading is a range being read.
type rangeReading struct {
	rangeResult
	ahead scan
	more  bool
	// left is the number of pairs still to read, if there is a limit.
	left int
	// ended is set when everything up to the end of the range was read.
	ended bool
}

// open draws the transaction's view.
func (r rangeResult) open() (rangeReading, error) {
	if r.err != nil {
		return rangeReading{}, r.err
	}
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if _, err := r.tx.begin(); err != nil || r.whole.begin >= r.whole.end {
		return rangeReading{}, err
	}
	ahead := scan{own: r.tx.writes.see().copy(), begin: r.whole.begin, end: r.whole.end, reverse: r.opts.Reverse}
	return rangeReading{rangeResult: r, ahead: ahead, more: true, left: r.opts.Limit}, nil
}

// next returns the next pairs. With an error it returns the pairs before it.
func (r *rangeReading) next() (pairs []kv.KeyValue, err error) {
	v, err := r.tx.current()
	if err != nil {
		return nil, err
	}
	defer v.release()
	n := batchSize
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

// finish records what was read. taken is the last key that was taken, if any.
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
		taken.end = pointSpan(key).end
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
		return engine.Known[int64]{Err: err}
	}
	return engine.Known[int64]{Value: v.version}
}

func (tx *transaction) MetadataVersion() kv.Future[kv.Versionstamp] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	v, err := tx.begin()
	if err == nil && tx.writes.see().unreadable.touches(metadataSpan) {
		err = kv.ErrUnreadable
	}
	if err != nil {
		return engine.Known[kv.Versionstamp]{Err: err}
	}
	return engine.Known[kv.Versionstamp]{Value: v.metadata}
}

// snapshotReads reads a transaction without read conflicts.
type snapshotReads struct{ tx *transaction }

func (tx *transaction) Snapshot() kv.ReadTransaction { return snapshotReads{tx} }

func (s snapshotReads) Get(key []byte) kv.Future[[]byte] {
	value, err := s.tx.get(key, true)
	return engine.Known[[]byte]{Value: value, Err: err}
}

func (s snapshotReads) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return s.tx.getRange(r, opts, true)
}

func (s snapshotReads) ReadVersion() kv.Future[int64] { return s.tx.ReadVersion() }

func (s snapshotReads) MetadataVersion() kv.Future[kv.Versionstamp] { return s.tx.MetadataVersion() }
