package tuple

import (
	"bytes"
	"slices"
)

// Subspace is the part of a key space whose keys begin with a prefix. Pack adds the prefix and
// Unpack removes it. A Subspace is immutable and safe for concurrent use. The zero value has the
// empty prefix and is the whole key space.
//
// Methods with variadic elements take the elements of a tuple: pass a Tuple t as t..., because t alone
// would be one nested element. They panic where Tuple.Pack does.
type Subspace struct {
	prefix []byte
}

// NewSubspace returns the subspace whose prefix is the packed tuple of elements.
func NewSubspace(elements ...any) Subspace {
	return Subspace{}.Sub(elements...)
}

// SubspaceFromBytes returns the subspace with the given prefix, which is copied
// and need not be a packed tuple.
func SubspaceFromBytes(prefix []byte) Subspace {
	return Subspace{prefix: bytes.Clone(prefix)}
}

// Sub returns the subspace of s below elements.
func (s Subspace) Sub(elements ...any) Subspace {
	return Subspace{prefix: s.Pack(elements...)}
}

// Bytes returns the prefix. It must not be modified.
func (s Subspace) Bytes() []byte {
	return s.prefix[:len(s.prefix):len(s.prefix)]
}

// Pack returns the key of the tuple of elements in s: the prefix, then the tuple.
func (s Subspace) Pack(elements ...any) []byte {
	return s.Append(make([]byte, 0, len(s.prefix)+sizeHint(elements)), elements...)
}

// Append appends the key that Pack returns to dst and returns the extended slice.
func (s Subspace) Append(dst []byte, elements ...any) []byte {
	return Append(append(dst, s.prefix...), elements...)
}

// PackWithVersionstamp returns the argument of a versionstamped set for the key of elements in s.
// It has the form and the errors of Tuple.PackWithVersionstamp.
func (s Subspace) PackWithVersionstamp(elements ...any) ([]byte, error) {
	return Tuple(elements).PackWithVersionstamp(s.prefix)
}

// Unpack returns the tuple of a key of s, without the prefix. The error is
// ErrNotInSubspace if key does not begin with the prefix, and otherwise one of
// Unpack's.
func (s Subspace) Unpack(key []byte) (Tuple, error) {
	if !s.Contains(key) {
		return nil, ErrNotInSubspace
	}
	return unpackFrom(key, len(s.prefix))
}

// Contains reports whether key begins with the prefix.
func (s Subspace) Contains(key []byte) bool {
	return bytes.HasPrefix(key, s.prefix)
}

// Range returns the range, from begin up to but without end, that holds the key
// of every tuple of s except the empty one's: a key with at least one element
// behind the prefix, since no element's code is 0xff. The key that is the prefix
// itself lies outside.
func (s Subspace) Range() (begin, end []byte) {
	return slices.Concat(s.prefix, []byte{0x00}), slices.Concat(s.prefix, []byte{0xff})
}
