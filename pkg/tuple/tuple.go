package tuple

import (
	"encoding/binary"
	"errors"
)

// MaxDepth is how deeply tuples may nest: an element of type Tuple is at depth 1, one inside that
// at depth 2. The format has no limit; this one keeps invalid input from exhausting the stack. It
// applies to packing and unpacking.
const MaxDepth = 100

var (
	// ErrMalformed is wrapped by Unpack's errors: the bytes do not encode a tuple.
	ErrMalformed = errors.New("tuple: malformed encoding")

	// ErrNoVersionstamp is returned for a versionstamped operation with a tuple without an
	// incomplete versionstamp.
	ErrNoVersionstamp = errors.New("tuple: no incomplete versionstamp")

	// ErrManyVersionstamps is returned for a versionstamped operation with a tuple with more than
	// one incomplete versionstamp. A store completes only one.
	ErrManyVersionstamps = errors.New("tuple: more than one incomplete versionstamp")

	// ErrNotInSubspace is returned for a key that does not begin with the prefix.
	ErrNotInSubspace = errors.New("tuple: key outside the subspace")
)

// Tuple is an ordered list of elements, each of one of these types: nil, []byte, string, int,
// int64, uint, uint64, float64, bool, uuid.UUID, Versionstamp, and Tuple.
//
// A nil []byte is an empty byte string, not a null. Types defined as one of these are not
// accepted: convert them. Strings should be UTF-8; other bytes are kept, but bindings of other
// languages may refuse them.
type Tuple []any

// Pack returns the encoding of t.
//
// It panics on programming mistakes: an element of an unsupported type, more than MaxDepth levels
// of nesting, or an incomplete versionstamp (see PackWithVersionstamp).
func (t Tuple) Pack() []byte {
	return Append(make([]byte, 0, sizeHint(t)), t...)
}

// Append appends the encoding of a tuple of the given elements to dst and returns the extended
// slice. It panics where Tuple.Pack does. If dst has room, nothing is allocated.
func Append(dst []byte, elements ...any) []byte {
	enc := encoder{buf: dst}
	enc.elements(elements, 0)
	if enc.stamps > 0 {
		panic("tuple: incomplete versionstamp outside PackWithVersionstamp")
	}
	return enc.buf
}

// PackWithVersionstamp returns the argument of FoundationDB's SET_VERSIONSTAMPED_KEY for a key of
// prefix and t (and of SET_VERSIONSTAMPED_VALUE for such a value): their bytes, then the offset
// of the incomplete versionstamp in them as four bytes, little-endian, as in API version 520 and
// later. The store overwrites the ten bytes at that offset and drops the last four.
//
// t must contain exactly one incomplete versionstamp, at any depth; otherwise the error is
// ErrNoVersionstamp or ErrManyVersionstamps. It panics where Pack panics for other reasons.
func (t Tuple) PackWithVersionstamp(prefix []byte) ([]byte, error) {
	const offsetSize = 4
	enc := encoder{buf: make([]byte, 0, len(prefix)+sizeHint(t)+offsetSize)}
	enc.buf = append(enc.buf, prefix...)
	enc.elements(t, 0)
	switch {
	case enc.stamps == 0:
		return nil, ErrNoVersionstamp
	case enc.stamps > 1:
		return nil, ErrManyVersionstamps
	}
	// Keys and values that a store accepts are so short that offsets fit 32 bits.
	return binary.LittleEndian.AppendUint32(enc.buf, uint32(enc.stampAt)), nil
}
