package optimistic

import (
	"encoding/binary"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// mutation is one write of a transaction.
type mutation struct {
	kind mutationKind
	// key is the key, or the begin of a cleared range. With mutationStampKey it still has its offset.
	key []byte
	// value is the value, the addend, or the end of a cleared range.
	value []byte
}

type mutationKind byte

const (
	mutationSet mutationKind = iota
	mutationClear
	mutationClearRange
	mutationAdd
	mutationAddOrClear
	mutationStampKey
	mutationStampValue
)

// stamped returns the mutation with its versionstamp filled in.
func (m mutation) stamped(stamp kv.Versionstamp) mutation {
	switch m.kind {
	case mutationStampKey:
		return mutation{kind: mutationSet, key: fillStamp(m.key, stamp), value: m.value}
	case mutationStampValue:
		return mutation{kind: mutationSet, key: m.key, value: fillStamp(m.value, stamp)}
	default:
		return m
	}
}

// fillStamp returns b with stamp at its offset and without the offset.
func fillStamp(b []byte, stamp kv.Versionstamp) []byte {
	rest := len(b) - engine.OffsetSize
	offset := binary.LittleEndian.Uint32(b[rest:])
	filled := slices.Clone(b[:rest])
	copy(filled[offset:], stamp[:])
	return filled
}

// stampRange returns the keys that a stamped key may become.
func stampRange(key []byte) span {
	var low, high kv.Versionstamp
	for i := range high {
		high[i] = 0xff
	}
	return span{string(fillStamp(key, low)), string(fillStamp(key, high)) + "\x00"}
}

// adds reports whether the mutation is an addition.
func (m mutation) adds() bool { return m.kind == mutationAdd || m.kind == mutationAddOrClear }

// addend is what one or more additions to a key add. They need not be kept apart: to add to a missing value is to add
// to 0, so only the last of them decides whether a sum of 0 clears the key.
type addend struct {
	n      []byte // 8 bytes; nil means that nothing was added
	clears bool
}

// addend returns what an addition adds.
func (m mutation) addend() addend { return addend{m.value, m.kind == mutationAddOrClear} }

// and returns what a adds with a later addition.
func (a addend) and(later addend) addend { return addend{add(a.n, later.n), later.clears} }

// to returns the sum of old and the addend, nil for a key that it clears.
func (a addend) to(old []byte) []byte {
	sum := add(old, a.n)
	if a.clears && binary.LittleEndian.Uint64(sum) == 0 {
		return nil
	}
	return sum
}

// add returns the sum of old, which is nil if there is no value, and the 8 bytes n. Overflow is dropped.
func add(old, n []byte) []byte {
	var cut [8]byte
	copy(cut[:], old)
	sum := binary.LittleEndian.Uint64(cut[:]) + binary.LittleEndian.Uint64(n)
	return binary.LittleEndian.AppendUint64(nil, sum)
}

// notNil returns b, or an empty slice if b is nil: nil means no value.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
