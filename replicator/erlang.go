package replicator

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// Replication ids are hashes over a term in the Erlang external term format, as
// term_to_binary(Term, [{minor_version, 1}]) of OTP 25 writes it. This file
// writes the part of that format that ids need:
//
//	tag                  layout                            written for
//	70  NEW_FLOAT_EXT    8 bytes, IEEE 754                 float64
//	97  SMALL_INTEGER    1 byte                            integers 0 to 255
//	98  INTEGER          4 bytes, signed                   other integers of 32 bits
//	100 ATOM             2 bytes length, Latin-1 text      atom, bool, nil (as null)
//	104 SMALL_TUPLE      1 byte arity, elements            tuple
//	106 NIL              nothing                           an empty list or chars
//	107 STRING           2 bytes length, bytes             lists of 1 to 65535 integers 0 to 255
//	108 LIST             4 bytes length, elements, NIL     other lists
//	109 BINARY           4 bytes length, bytes             string
//	110 SMALL_BIG        1 byte n, 1 byte sign, n bytes    integers of up to 255 bytes
//	111 LARGE_BIG        4 bytes n, 1 byte sign, n bytes   longer ones
//
// Numbers are big-endian, except that the bytes of a big integer begin with the lowest. Minor
// version 1 decides the form of floats (0 wrote text) and of atoms (2 writes UTF-8).
const (
	etfVersion      = 131
	etfNewFloat     = 70
	etfSmallInteger = 97
	etfInteger      = 98
	etfAtom         = 100
	etfSmallTuple   = 104
	etfNil          = 106
	etfString       = 107
	etfList         = 108
	etfBinary       = 109
	etfSmallBig     = 110
	etfLargeBig     = 111
)

// Terms are the values that decodeJSON gives (nil, bool, string, int64,
// *big.Int, float64, []any, object) and these, which JSON does not have.
type (
	atom  string
	chars string // a list of bytes, Erlang's quoted text
	tuple []any
)

// encodeTerm returns the external form of term, including the version byte.
func encodeTerm(term any) []byte {
	return appendTerm([]byte{etfVersion}, term)
}

func appendTerm(b []byte, term any) []byte {
	switch t := term.(type) {
	case nil:
		return appendAtom(b, "null")
	case bool:
		if t {
			return appendAtom(b, "true")
		}
		return appendAtom(b, "false")
	case atom:
		return appendAtom(b, t)
	case string:
		b = binary.BigEndian.AppendUint32(append(b, etfBinary), uint32(len(t)))
		return append(b, t...)
	case chars:
		return appendChars(b, t)
	case int64:
		return appendInteger(b, t)
	case *big.Int:
		if t.IsInt64() {
			return appendInteger(b, t.Int64())
		}
		return appendBig(b, t)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, etfNewFloat), math.Float64bits(t))
	case tuple:
		b = append(b, etfSmallTuple, byte(len(t)))
		for _, element := range t {
			b = appendTerm(b, element)
		}
		return b
	case []any:
		return appendList(b, t)
	case object:
		// The form that CouchDB's JSON decoder gives an object: {[{Key, Value}]}.
		pairs := make([]any, len(t))
		for i, m := range t {
			pairs[i] = tuple{m.name, m.value}
		}
		return appendTerm(b, tuple{pairs})
	default:
		panic(fmt.Sprintf("replicator: no Erlang term for %T", term))
	}
}

func appendAtom(b []byte, name atom) []byte {
	b = binary.BigEndian.AppendUint16(append(b, etfAtom), uint16(len(name)))
	return append(b, name...)
}

func appendChars(b []byte, text chars) []byte {
	if len(text) == 0 {
		return append(b, etfNil)
	}
	if len(text) <= math.MaxUint16 {
		b = binary.BigEndian.AppendUint16(append(b, etfString), uint16(len(text)))
		return append(b, text...)
	}
	b = binary.BigEndian.AppendUint32(append(b, etfList), uint32(len(text)))
	for _, c := range []byte(text) {
		b = append(b, etfSmallInteger, c)
	}
	return append(b, etfNil)
}

// appendList writes a list. In Erlang the JSON array [1,2] is a text, so such a list is written
// as one.
func appendList(b []byte, list []any) []byte {
	if text, ok := listAsChars(list); ok {
		return appendChars(b, text)
	}
	b = binary.BigEndian.AppendUint32(append(b, etfList), uint32(len(list)))
	for _, element := range list {
		b = appendTerm(b, element)
	}
	return append(b, etfNil)
}

func listAsChars(list []any) (chars, bool) {
	text := make([]byte, len(list))
	for i, element := range list {
		n, ok := element.(int64)
		if !ok || n < 0 || n > math.MaxUint8 {
			return "", false
		}
		text[i] = byte(n)
	}
	return chars(text), true
}

func appendInteger(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		return append(b, etfSmallInteger, byte(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		return binary.BigEndian.AppendUint32(append(b, etfInteger), uint32(int32(n)))
	default:
		return appendBig(b, big.NewInt(n))
	}
}

func appendBig(b []byte, n *big.Int) []byte {
	digits := n.Bytes()
	slices.Reverse(digits)
	if len(digits) <= math.MaxUint8 {
		b = append(b, etfSmallBig, byte(len(digits)))
	} else {
		b = binary.BigEndian.AppendUint32(append(b, etfLargeBig), uint32(len(digits)))
	}
	sign := byte(0)
	if n.Sign() < 0 {
		sign = 1
	}
	return append(append(b, sign), digits...)
}
