package optimistic

import (
	"cmp"
	"slices"

	"settee/pkg/kv"
)

// write runs apply on the buffer unless the transaction has failed, and keeps
// the first error that checks finds. size is what the write adds towards the
// transaction's limit.
func (tx *transaction) write(size int, checks error, apply func(*buffer)) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch {
	case tx.failed != nil:
		return
	case tx.ended:
		tx.failed = kv.ErrUsedAfterEnd
		return
	case checks != nil:
		tx.failed = checks
		return
	}
	if tx.writeBytes += size; tx.writeBytes > kv.MaxTransactionSize {
		// Nothing of it will be needed: what is buffered stays bounded.
		tx.failed, tx.writes = kv.ErrTransactionTooLarge, buffer{}
		return
	}
	apply(&tx.writes)
}

func checkPair(key, value []byte) error {
	if err := checkKey(string(key)); err != nil {
		return err
	}
	if len(value) > kv.MaxValueSize {
		return kv.ErrValueTooLarge
	}
	return nil
}

// checkRange returns r as a span.
func checkRange(r kv.KeyRange) (span, error) {
	s := span{string(r.Begin), string(r.End)}
	if err := cmp.Or(checkBound(s.begin), checkBound(s.end)); err != nil {
		return span{}, err
	}
	if s.begin > s.end {
		return span{}, kv.ErrInvertedRange
	}
	return s, nil
}

// What FoundationDB's client counts for a mutation and for a conflict range beside their bytes.
const mutationSize, conflictSize = 44, 24

// pointSize is what writing key costs with its conflict range.
func pointSize(key []byte) int { return mutationSize + len(key) + conflictSize + 2*len(key) + 1 }

// clearSize is what clearing a range costs whose bounds have so many bytes; FoundationDB clears a key as one.
func clearSize(begin, end int) int { return mutationSize + conflictSize + 2*(begin+end) }

func (tx *transaction) Set(key, value []byte) {
	tx.write(pointSize(key)+len(value), checkPair(key, value), func(b *buffer) {
		b.write(mutation{kind: mutationSet, key: slices.Clone(key), value: notNil(slices.Clone(value))})
	})
}

func (tx *transaction) Clear(key []byte) {
	tx.write(clearSize(len(key), len(key)+1), checkKey(string(key)), func(b *buffer) {
		b.write(mutation{kind: mutationClear, key: slices.Clone(key)})
	})
}

func (tx *transaction) ClearRange(r kv.KeyRange) {
	if string(r.Begin) == string(r.End) {
		return
	}
	s, err := checkRange(r)
	tx.write(clearSize(len(s.begin), len(s.end)), err, func(b *buffer) {
		b.write(mutation{kind: mutationClearRange, key: []byte(s.begin), value: []byte(s.end)})
	})
}

func (tx *transaction) Atomic(op kv.MutationType, key, operand []byte) {
	err := checkPair(key, operand)
	if err == nil && (op < kv.MutationAdd || op > kv.MutationByteMax) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(operand), err, func(b *buffer) {
		b.write(mutation{kind: mutationAtomic, op: op, key: slices.Clone(key), value: notNil(slices.Clone(operand))})
	})
}

func (tx *transaction) SetVersionstampedKey(key, value []byte) {
	err := checkPair(key, value)
	if len(key) <= kv.MaxKeySize+offsetSize && !checkStamp(key) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(value), err, func(b *buffer) {
		b.write(mutation{kind: mutationStampKey, key: slices.Clone(key), value: slices.Clone(value)})
	})
}

func (tx *transaction) SetVersionstampedValue(key, value []byte) {
	err := checkPair(key, value)
	if !checkStamp(value) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(value), err, func(b *buffer) {
		b.write(mutation{kind: mutationStampValue, key: slices.Clone(key), value: slices.Clone(value)})
	})
}

func (tx *transaction) AddReadConflictKey(key []byte) {
	tx.addReadConflict(pointSpanOf(key), checkKey(string(key)))
}

func (tx *transaction) AddReadConflictRange(r kv.KeyRange) { tx.addReadConflict(checkRange(r)) }

func (tx *transaction) addReadConflict(s span, err error) {
	tx.write(0, err, func(*buffer) { tx.reads = append(tx.reads, s) })
}

func (tx *transaction) AddWriteConflictKey(key []byte) {
	tx.addWriteConflict(pointSpanOf(key), checkKey(string(key)))
}

func (tx *transaction) AddWriteConflictRange(r kv.KeyRange) { tx.addWriteConflict(checkRange(r)) }

func (tx *transaction) addWriteConflict(s span, err error) {
	tx.write(conflictSize+len(s.begin)+len(s.end), err, func(b *buffer) { b.conflicts = append(b.conflicts, s) })
}

func (tx *transaction) Watch(key []byte) kv.Watch {
	w := newWatch(tx.db, string(key))
	value, err := tx.get(key, true)
	if err != nil {
		w.finish(err)
		return w
	}
	w.seen = value
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		w.finish(kv.ErrUsedAfterEnd)
		return w
	}
	tx.armed = append(tx.armed, w)
	return w
}

func (tx *transaction) Versionstamp() kv.Future[kv.Versionstamp] { return stampFuture{tx} }

// stampFuture is the versionstamp of a commit.
type stampFuture struct{ tx *transaction }

func (f stampFuture) Await() (kv.Versionstamp, error) {
	f.tx.mu.Lock()
	c := f.tx.commit
	f.tx.mu.Unlock()
	if c == nil {
		return kv.Versionstamp{}, kv.ErrNoCommitVersion
	}
	select {
	case <-c.done:
		return c.stamp, c.err
	case <-c.givenUp:
		return kv.Versionstamp{}, kv.ErrCommitUnknown
	}
}
