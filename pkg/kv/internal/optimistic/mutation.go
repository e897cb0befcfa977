package optimistic

import (
	"bytes"
	"encoding/binary"
	"slices"

	"settee/pkg/kv"
)

// mutation is one write of a transaction, in the order in which it was made.
type mutation struct {
	kind mutationKind
	op   kv.MutationType // of an atomic
	// key is the key, or the begin of a cleared range; with stampKey it still
	// has its offset.
	key []byte
	// value is the value, the operand, or the end of a cleared range.
	value []byte
}

type mutationKind byte

const (
	mutationSet mutationKind = iota
	mutationClear
	mutationClearRange
	mutationAtomic
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

// offsetSize is the length of the little-endian offset at the end of a stamped
// key or value.
const offsetSize = 4

// checkStamp reports whether b ends in an offset at which 10 bytes have room.
func checkStamp(b []byte) bool {
	if len(b) < offsetSize {
		return false
	}
	rest := len(b) - offsetSize
	offset := binary.LittleEndian.Uint32(b[rest:])
	return uint64(offset)+uint64(len(kv.Versionstamp{})) <= uint64(rest)
}

// fillStamp returns b with stamp at its offset and without the offset.
func fillStamp(b []byte, stamp kv.Versionstamp) []byte {
	rest := len(b) - offsetSize
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

// mutate returns the value that an atomic operation makes of old, which is nil
// when there is none.
func mutate(op kv.MutationType, old, operand []byte) []byte {
	switch op {
	case kv.MutationAdd:
		return addLittleEndian(old, operand)
	case kv.MutationMin:
		if old != nil && compareLittleEndian(old, operand) < 0 {
			return resize(old, len(operand))
		}
	case kv.MutationMax:
		if compareLittleEndian(old, operand) > 0 {
			return resize(old, len(operand))
		}
	case kv.MutationByteMin:
		if old != nil && bytes.Compare(old, operand) < 0 {
			return old
		}
	case kv.MutationByteMax:
		if old != nil && bytes.Compare(old, operand) > 0 {
			return old
		}
	}
	return notNil(slices.Clone(operand))
}

// addLittleEndian adds within the length of operand; what overflows is lost.
func addLittleEndian(old, operand []byte) []byte {
	sum := make([]byte, len(operand))
	carry := uint16(0)
	for i := range sum {
		carry += uint16(operand[i])
		if i < len(old) {
			carry += uint16(old[i])
		}
		sum[i] = byte(carry)
		carry >>= 8
	}
	return sum
}

// compareLittleEndian compares old, cut or extended to the length of operand,
// with operand.
func compareLittleEndian(old, operand []byte) int {
	for i := len(operand) - 1; i >= 0; i-- {
		digit := byte(0)
		if i < len(old) {
			digit = old[i]
		}
		if digit != operand[i] {
			return int(digit) - int(operand[i])
		}
	}
	return 0
}

func resize(b []byte, n int) []byte {
	sized := make([]byte, n)
	copy(sized, b)
	return sized
}

// notNil keeps a value of no bytes apart from no value.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
