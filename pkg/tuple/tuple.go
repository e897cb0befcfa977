package tuple

import (
	"encoding/binary"
	"errors"
)

// MaxDepth is how deeply tuples may nest: an element of type Tuple lies at
// depth 1, one inside that at depth 2. The format has no bound of its own; this
// one keeps foreign bytes from exhausting the stack. Packing and unpacking agree
// on it, so that whatever is written can be read.
const MaxDepth = 100

var (
	// ErrMalformed is what Unpack's errors wrap: the bytes are no encoding of a tuple.
	ErrMalformed = errors.New("tuple: malformed encoding")

	// ErrNoVersionstamp says that a tuple packed for a versionstamped operation
	// has no incomplete versionstamp.
	ErrNoVersionstamp = errors.New("tuple: no incomplete versionstamp")

	// ErrManyVersionstamps says that a tuple packed for a versionstamped
	// operation has more than one incomplete versionstamp: a store fills in one.
	ErrManyVersionstamps = errors.New("tuple: more than one incomplete versionstamp")

	// ErrNotInSubspace says that a key does not begin with a subspace's prefix.
	ErrNotInSubspace = errors.New("tuple: key outside the subspace")

	// ErrNoUpperBound says that no key sorts after all keys with a prefix: the
	// prefix is empty or consists of 0xff bytes.
	ErrNoUpperBound = errors.New("tuple: prefix has no upper bound")
)

// Tuple is an ordered list of elements, each of one of these types: nil,
// []byte, string, int, int8, int16, int32, int64, uint, uint8, uint16, uint32,
// uint64, *big.Int of at most 255 bytes, float32, float64, bool, uuid.UUID,
// Versionstamp, and Tuple.
//
// A nil []byte is an empty byte string, not a null. Types that are merely
// defined as one of these are not accepted: convert them, so that it shows
// which encoding a key depends on. Strings should be UTF-8; other bytes are
// kept as they are, but bindings of other languages may refuse to read them.
type Tuple []any

// Pack returns the encoding of t.
//
// It panics on what only a programming mistake can put into a tuple: an element
// of an unsupported type, a nil *big.Int or one of more than 255 bytes, more
// than MaxDepth levels of nesting, or an incomplete versionstamp, which would be
// stored as if it were a commit's (see PackWithVersionstamp).
func (t Tuple) Pack() []byte {
	return Append(make([]byte, 0, sizeHint(t)), t...)
}

// Append appends the encoding of a tuple of the given elements to dst and
// returns the extended slice. It panics where Tuple.Pack does. Appending to a
// prefix's bytes packs below that prefix; with room in dst, nothing is allocated.
func Append(dst []byte, elements ...any) []byte {
	enc := encoder{buf: dst}
	enc.elements(elements, 0)
	if enc.stamps > 0 {
		panic("tuple: incomplete versionstamp outside PackWithVersionstamp")
	}
	return enc.buf
}

// PackWithVersionstamp returns what FoundationDB's SET_VERSIONSTAMPED_KEY takes
// for a key of prefix and t (and SET_VERSIONSTAMPED_VALUE for such a value):
// their bytes, then the offset of the incomplete versionstamp in them as four
// bytes, little-endian, which is the form of API version 520 and later. The
// store overwrites ten bytes at that offset and drops the last four.
//
// Exactly one incomplete versionstamp must be in t, at any depth: the errors are
// ErrNoVersionstamp and ErrManyVersionstamps. For anything else that is wrong
// with t it panics where Pack does.
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
	// No key or value that a store accepts is so long that its offsets need
	// more than 32 bits.
	return binary.LittleEndian.AppendUint32(enc.buf, uint32(enc.stampAt)), nil
}
