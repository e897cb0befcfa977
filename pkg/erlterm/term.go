package erlterm

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
)

// Version is the byte before a term.
const Version = 131

// The tags of terms.
const (
	tagNewFloat     = 70
	tagSmallInteger = 97
	tagInteger      = 98
	tagAtom         = 100
	tagSmallTuple   = 104
	tagNil          = 106
	tagString       = 107
	tagList         = 108
	tagBinary       = 109
	tagSmallBig     = 110
	tagLargeBig     = 111
)

// AppendAtom appends an atom. Its name is Latin-1 text of at most 255 characters.
func AppendAtom(b []byte, name string) []byte {
	b = binary.BigEndian.AppendUint16(append(b, tagAtom), uint16(len(name)))
	return append(b, name...)
}

// AppendBool appends the atom true or false.
func AppendBool(b []byte, value bool) []byte {
	if value {
		return AppendAtom(b, "true")
	}
	return AppendAtom(b, "false")
}

// AppendBinary appends a binary.
func AppendBinary[T string | []byte](b []byte, data T) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tagBinary), uint32(len(data)))
	return append(b, data...)
}

// AppendChars appends a list of bytes, which is Erlang's quoted text.
func AppendChars[T string | []byte](b []byte, text T) []byte {
	if len(text) == 0 {
		return AppendNil(b)
	}
	if len(text) <= math.MaxUint16 {
		b = binary.BigEndian.AppendUint16(append(b, tagString), uint16(len(text)))
		return append(b, text...)
	}
	b = AppendList(b, len(text))
	for i := range len(text) {
		b = append(b, tagSmallInteger, text[i])
	}
	return AppendNil(b)
}

// AppendInteger appends an integer.
func AppendInteger(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		return append(b, tagSmallInteger, byte(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		return binary.BigEndian.AppendUint32(append(b, tagInteger), uint32(int32(n)))
	}
	return appendBig(b, big.NewInt(n))
}

// AppendBig appends an integer of any size.
func AppendBig(b []byte, n *big.Int) []byte {
	if n.IsInt64() {
		return AppendInteger(b, n.Int64())
	}
	return appendBig(b, n)
}

func appendBig(b []byte, n *big.Int) []byte {
	digits := n.Bytes()
	slices.Reverse(digits)
	if len(digits) <= math.MaxUint8 {
		b = append(b, tagSmallBig, byte(len(digits)))
	} else {
		b = binary.BigEndian.AppendUint32(append(b, tagLargeBig), uint32(len(digits)))
	}
	sign := byte(0)
	if n.Sign() < 0 {
		sign = 1
	}
	return append(append(b, sign), digits...)
}

// AppendFloat appends a float.
func AppendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, tagNewFloat), math.Float64bits(f))
}

// AppendTuple appends the head of a tuple. The caller appends its elements, at most 255.
func AppendTuple(b []byte, elements int) []byte { return append(b, tagSmallTuple, byte(elements)) }

// AppendList appends the head of a list that is not empty and not [AppendChars]'s. The caller appends its elements, and
// then calls AppendNil.
func AppendList(b []byte, elements int) []byte {
	return binary.BigEndian.AppendUint32(append(b, tagList), uint32(elements))
}

// AppendNil appends an empty list, or the end of a list.
func AppendNil(b []byte) []byte { return append(b, tagNil) }
