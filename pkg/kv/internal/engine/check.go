package engine

import (
	"cmp"
	"encoding/binary"

	"settee/pkg/kv"
)

// EndOfKeys is the end of a store's keys. Keys from here on belong to the engine.
const EndOfKeys = "\xff"

// OffsetSize is the length of the little-endian offset at the end of a stamped key or value.
const OffsetSize = 4

// CheckKey checks a key that is read or written. A key has at most most bytes.
func CheckKey(key []byte, most int) error {
	switch {
	case len(key) > most:
		return kv.ErrKeyTooLarge
	case string(key) >= EndOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}

// CheckPair checks a pair that is written.
func CheckPair(key, value []byte, most int) error {
	if err := CheckKey(key, most); err != nil {
		return err
	}
	if len(value) > kv.MaxValueSize {
		return kv.ErrValueTooLarge
	}
	return nil
}

// CheckBounds checks the keys that bound a range. They may be the end of all keys.
func CheckBounds(r kv.KeyRange, most int) error {
	return cmp.Or(checkBound(r.Begin, most), checkBound(r.End, most))
}

func checkBound(key []byte, most int) error {
	switch {
	case len(key) > most+1:
		return kv.ErrKeyTooLarge
	case string(key) > EndOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}

// CheckRange checks a range that is written.
func CheckRange(r kv.KeyRange, most int) error {
	if err := CheckBounds(r, most); err != nil {
		return err
	}
	if string(r.Begin) > string(r.End) {
		return kv.ErrInvertedRange
	}
	return nil
}

// HasRoomForStamp reports whether b ends in an offset with room for the 10 bytes of a versionstamp.
func HasRoomForStamp(b []byte) bool {
	if len(b) < OffsetSize {
		return false
	}
	rest := len(b) - OffsetSize
	offset := binary.LittleEndian.Uint32(b[rest:])
	return uint64(offset)+uint64(len(kv.Versionstamp{})) <= uint64(rest)
}
