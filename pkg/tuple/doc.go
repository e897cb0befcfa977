// Package tuple turns tuples of typed values into keys whose byte order is the
// order of the tuples, and back, in the encoding that FoundationDB's language
// bindings share. It is pure Go, does no I/O and knows of no store: keys that
// it packs are byte for byte the ones that the official bindings pack.
//
// The rules are those of design/tuple.md in FoundationDB's source tree ("FDB
// Tuple layer typecodes", below: the specification). Every element is a type
// code followed by its bytes:
//
//	code       element                     Go type packed           unpacked as
//	0x00       null                        nil                      nil
//	0x01       byte string                 []byte                   []byte
//	0x02       Unicode string              string                   string
//	0x05       nested tuple                Tuple                    Tuple
//	0x0b       integer, -2^2040 < i        *big.Int                 *big.Int
//	0x0c-0x1c  integer of up to 8 bytes    any int, uint, *big.Int  int64, uint64 or *big.Int
//	0x1d       integer, i < 2^2040         *big.Int                 *big.Int
//	0x20       IEEE 754 single             float32                  float32
//	0x21       IEEE 754 double             float64                  float64
//	0x26 0x27  false, true                 bool                     bool
//	0x30       UUID                        uuid.UUID                uuid.UUID
//	0x33       versionstamp, 96 bits       Versionstamp             Versionstamp
//
// An integer is unpacked as the first of int64, uint64 and *big.Int that holds
// it, whatever it was packed from. The codes that the specification reserves or
// deprecates are neither written nor read.
//
// # Order
//
// Tuples compare element by element, and a tuple sorts before every longer one
// that it begins. Elements of different types compare by the table above, from
// top to bottom, where all integers count as one type and so compare by value.
// Strings and byte strings compare as bytes. Floats compare by the total order
// of IEEE 754: negative NaNs, -Inf, the numbers (-0 before +0), +Inf, positive
// NaNs. Bytes of two keys compare as their tuples do.
//
// # Versionstamps
//
// The place of a commit in the order of all commits is known only once it has
// happened. A key that contains it is therefore packed with an incomplete
// [Versionstamp] by PackWithVersionstamp, which appends the offset at which the
// store puts the ten bytes in.
//
// # Subspaces
//
// A [Subspace] is a prefix under which tuples are packed. Layers that share a
// store each keep to one of their own; subspaces below a subspace are made from
// the first elements that their keys have in common.
package tuple
