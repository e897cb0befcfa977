// Package tuple encodes tuples of typed values as keys whose byte order is the order of the
// tuples, and decodes them. The encoding is the same as in FoundationDB's language bindings, byte for
// byte, for the elements that the layers of this project use. The package is pure Go and does no
// I/O.
//
// The rules are in design/tuple.md of FoundationDB's source tree ("FDB
// Tuple layer typecodes", below: the specification). Every element is a type
// code followed by its bytes:
//
//	code       element                   Go type packed            unpacked as
//	0x00       null                      nil                       nil
//	0x01       byte string               []byte                    []byte
//	0x02       Unicode string            string                    string
//	0x05       nested tuple              Tuple                     Tuple
//	0x0c-0x1c  integer of up to 8 bytes  int, int64, uint, uint64  int64 or uint64
//	0x21       IEEE 754 double           float64                   float64
//	0x26 0x27  false, true               bool                      bool
//	0x30       UUID                      uuid.UUID                 uuid.UUID
//	0x33       versionstamp, 96 bits     Versionstamp              Versionstamp
//
// Integers are from -2^63 to 2^64-1. One is unpacked as an int64 if it fits, and as a uint64
// otherwise. Other codes of the specification are neither written nor read: longer integers,
// singles, and what is reserved or deprecated.
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
// The position of a commit in the order of all commits is known only after the commit. A key that
// contains it is packed with an incomplete [Versionstamp] by PackWithVersionstamp, which appends
// the offset at which the store writes the ten bytes.
//
// # Subspaces
//
// A [Subspace] is a prefix under which tuples are packed. Layers that share a store use one
// subspace each. A subspace of a subspace is made from the first elements that its keys share.
package tuple
