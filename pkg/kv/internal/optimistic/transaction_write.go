package optimistic

import (
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
	case tx.ended:
		tx.failed = kv.ErrUsedAfterEnd
	case checks != nil:
		tx.failed = checks
	default:
		tx.size += size
		apply(&tx.writes)
	}
}

func checkPair(key, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > kv.MaxValueSize {
		return kv.ErrValueTooLarge
	}
	return nil
}

func checkRange(r kv.KeyRange) error {
	for _, bound := range [][]byte{r.Begin, r.End} {
		if err := checkBound(bound); err != nil {
			return err
		}
	}
	if string(r.Begin) > string(r.End) {
		return kv.ErrInvertedRange
	}
	return nil
}

// pointSize is what writing key costs with its conflict range.
func pointSize(key []byte) int { return 3*len(key) + 1 }

func (tx *transaction) Set(key, value []byte) {
	tx.write(pointSize(key)+len(value), checkPair(key, value), func(b *buffer) {
		b.set(slices.Clone(key), notNil(slices.Clone(value)))
	})
}

func (tx *transaction) Clear(key []byte) {
	tx.write(pointSize(key), checkKey(key), func(b *buffer) { b.clear(slices.Clone(key)) })
}

func (tx *transaction) ClearRange(r kv.KeyRange) {
	if string(r.Begin) == string(r.End) {
		return
	}
	tx.write(2*(len(r.Begin)+len(r.End)), checkRange(r), func(b *buffer) {
		b.clearRange(slices.Clone(r.Begin), slices.Clone(r.End))
	})
}

func (tx *transaction) Atomic(op kv.MutationType, key, operand []byte) {
	err := checkPair(key, operand)
	if err == nil && (op < kv.MutationAdd || op > kv.MutationByteMax) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(operand), err, func(b *buffer) {
		b.atomic(op, slices.Clone(key), slices.Clone(operand))
	})
}

func (tx *transaction) SetVersionstampedKey(key, value []byte) {
	err := checkPair(key, value)
	if len(key) <= kv.MaxKeySize+offsetSize && !checkStamp(key) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(value), err, func(b *buffer) {
		b.stampKey(slices.Clone(key), slices.Clone(value))
	})
}

func (tx *transaction) SetVersionstampedValue(key, value []byte) {
	err := checkPair(key, value)
	if !checkStamp(value) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(value), err, func(b *buffer) {
		b.stampValue(slices.Clone(key), slices.Clone(value))
	})
}

func (tx *transaction) AddReadConflictKey(key []byte) {
	tx.write(0, checkKey(key), func(*buffer) { tx.addRead(pointSpan(string(key))) })
}

func (tx *transaction) AddReadConflictRange(r kv.KeyRange) {
	tx.write(0, checkRange(r), func(*buffer) { tx.addRead(span{string(r.Begin), string(r.End)}) })
}

func (tx *transaction) AddWriteConflictKey(key []byte) {
	tx.write(2*len(key)+1, checkKey(key), func(b *buffer) {
		b.conflicts = append(b.conflicts, pointSpan(string(key)))
	})
}

func (tx *transaction) AddWriteConflictRange(r kv.KeyRange) {
	tx.write(len(r.Begin)+len(r.End), checkRange(r), func(b *buffer) {
		b.conflicts = append(b.conflicts, span{string(r.Begin), string(r.End)})
	})
}

func (tx *transaction) Watch(key []byte) kv.Watch {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	w := newWatch(tx.db, string(key))
	value, err := tx.read(key, true)
	if err != nil {
		w.finish(err)
		return w
	}
	w.seen = value
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
	<-c.done
	return c.stamp, c.err
}
