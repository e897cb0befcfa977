package optimistic

import (
	"encoding/binary"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// write calls apply with the buffer unless the transaction has failed, and keeps the first error of a check. size
// counts towards the transaction's limit.
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
		// The rest is not needed: the buffer stays bounded.
		tx.failed, tx.writes = kv.ErrTransactionTooLarge, buffer{}
		return
	}
	apply(&tx.writes)
}

// FoundationDB's client counts these bytes for a mutation and for a conflict range, in addition to their own.
const mutationSize, conflictSize = 44, 24

// pointSize is the size of a write of key with its conflict range.
func pointSize(key []byte) int { return mutationSize + len(key) + conflictSize + 2*len(key) + 1 }

// clearSize is the size of clearing a range with bounds of these lengths. FoundationDB clears a key like a range.
func clearSize(begin, end int) int { return mutationSize + conflictSize + 2*(begin+end) }

func (tx *transaction) Set(key, value []byte) {
	tx.write(pointSize(key)+len(value), engine.CheckPair(key, value, kv.MaxKeySize), func(b *buffer) {
		b.write(mutation{kind: mutationSet, key: slices.Clone(key), value: notNil(slices.Clone(value))})
	})
}

func (tx *transaction) Clear(key []byte) {
	tx.write(clearSize(len(key), len(key)+1), engine.CheckKey(key, kv.MaxKeySize), func(b *buffer) {
		b.write(mutation{kind: mutationClear, key: slices.Clone(key)})
	})
}

func (tx *transaction) ClearRange(r kv.KeyRange) {
	if string(r.Begin) == string(r.End) {
		return
	}
	tx.write(clearSize(len(r.Begin), len(r.End)), engine.CheckRange(r, kv.MaxKeySize), func(b *buffer) {
		b.write(mutation{kind: mutationClearRange, key: slices.Clone(r.Begin), value: slices.Clone(r.End)})
	})
}

func (tx *transaction) Add(key []byte, n int64) { tx.add(mutationAdd, pointSize(key), key, n) }

// AddOrClear has the size of the two mutations that it is in FoundationDB, an addition and a comparison.
func (tx *transaction) AddOrClear(key []byte, n int64) {
	tx.add(mutationAddOrClear, 2*pointSize(key)+addendSize, key, n)
}

// addendSize is the size of what is added.
const addendSize = 8

func (tx *transaction) add(kind mutationKind, size int, key []byte, n int64) {
	tx.write(size+addendSize, engine.CheckKey(key, kv.MaxKeySize), func(b *buffer) {
		b.write(mutation{kind: kind, key: slices.Clone(key), value: binary.LittleEndian.AppendUint64(nil, uint64(n))})
	})
}

func (tx *transaction) SetVersionstampedKey(key, value []byte) {
	err := engine.CheckPair(key, value, kv.MaxKeySize)
	if len(key) <= kv.MaxKeySize+engine.OffsetSize && !engine.HasRoomForStamp(key) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(value), err, func(b *buffer) {
		b.write(mutation{kind: mutationStampKey, key: slices.Clone(key), value: slices.Clone(value)})
	})
}

func (tx *transaction) SetVersionstampedValue(key, value []byte) {
	err := engine.CheckPair(key, value, kv.MaxKeySize)
	if !engine.HasRoomForStamp(value) {
		err = kv.ErrInvalidOperation
	}
	tx.write(pointSize(key)+len(value), err, func(b *buffer) {
		b.write(mutation{kind: mutationStampValue, key: slices.Clone(key), value: slices.Clone(value)})
	})
}

func (tx *transaction) ChangeMetadataVersion() {
	key, value := []byte(metadataKey), make([]byte, len(kv.Versionstamp{})+engine.OffsetSize)
	tx.write(pointSize(key)+len(value), nil, func(b *buffer) {
		b.write(mutation{kind: mutationStampValue, key: key, value: value})
	})
}

func (tx *transaction) AddReadConflictKey(key []byte) {
	tx.addReadConflict(pointSpan(key), engine.CheckKey(key, kv.MaxKeySize))
}

func (tx *transaction) AddReadConflictRange(r kv.KeyRange) {
	tx.addReadConflict(span{string(r.Begin), string(r.End)}, engine.CheckRange(r, kv.MaxKeySize))
}

func (tx *transaction) addReadConflict(s span, err error) {
	tx.write(0, err, func(*buffer) { tx.reads = append(tx.reads, s) })
}

func (tx *transaction) AddWriteConflictKey(key []byte) {
	s := pointSpan(key)
	tx.write(conflictSize+len(s.begin)+len(s.end), engine.CheckKey(key, kv.MaxKeySize), func(b *buffer) {
		b.conflicts = append(b.conflicts, s)
	})
}

func (tx *transaction) Watch(key []byte) kv.Watch {
	w := newWatch(tx.db, string(key))
	value, err := tx.get(key, true)
	if err != nil {
		w.Finish(err)
		return w
	}
	w.seen = value
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		w.Finish(kv.ErrUsedAfterEnd)
		return w
	}
	tx.armed = append(tx.armed, w)
	return w
}
