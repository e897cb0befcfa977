package tuple

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"strings"

	"github.com/google/uuid"
)

// The type codes of the specification that this package reads and writes.
const (
	codeNull         = 0x00
	codeBytes        = 0x01
	codeString       = 0x02
	codeNested       = 0x05
	codeNegInt8      = 0x0c // eight bytes; from here to codeZero the length falls to none
	codeZero         = 0x14 // from here to codePosInt8 the length grows
	codePosInt8      = 0x1c
	codeFloat64      = 0x21
	codeFalse        = 0x26
	codeTrue         = 0x27
	codeUUID         = 0x30
	codeVersionstamp = 0x33
)

const (
	// terminator ends strings, byte strings and nested tuples.
	terminator = 0x00

	// escape after a zero byte says that the zero is content (in a nested tuple: a null) and not
	// the end. No type code has this value, so a terminator before the next element is never
	// mistaken for content.
	escape = 0xff

	signBit = 1 << 63
)

// encoder appends elements to buf. It counts the incomplete versionstamps and records where the
// ten bytes of the last one begin.
type encoder struct {
	buf     []byte
	stamps  int
	stampAt int
}

// elements appends the elements of a tuple at the given depth; 0 is the tuple
// that is being packed.
func (enc *encoder) elements(elements []any, depth int) {
	for _, element := range elements {
		enc.element(element, depth)
	}
}

func (enc *encoder) element(element any, depth int) {
	switch v := element.(type) {
	case nil:
		enc.buf = append(enc.buf, codeNull)
		if depth > 0 {
			enc.buf = append(enc.buf, escape)
		}
	case []byte:
		enc.buf = appendBytes(enc.buf, v)
	case string:
		enc.buf = appendString(enc.buf, v)
	case Tuple:
		enc.nested(v, depth+1)
	case int:
		enc.buf = appendInt(enc.buf, int64(v))
	case int64:
		enc.buf = appendInt(enc.buf, v)
	case uint:
		enc.buf = appendUint(enc.buf, uint64(v))
	case uint64:
		enc.buf = appendUint(enc.buf, v)
	case float64:
		enc.buf = appendFloat(enc.buf, v)
	case bool:
		code := byte(codeFalse)
		if v {
			code = codeTrue
		}
		enc.buf = append(enc.buf, code)
	case uuid.UUID:
		enc.buf = append(append(enc.buf, codeUUID), v[:]...)
	case Versionstamp:
		enc.versionstamp(v)
	default:
		// The message has only the type: formatting the element would move every packed element
		// to the heap.
		panic("tuple: cannot pack an element of type " + reflect.TypeOf(element).String())
	}
}

func (enc *encoder) nested(t Tuple, depth int) {
	if depth > MaxDepth {
		panic(fmt.Sprintf("tuple: cannot pack more than %d levels of nesting", MaxDepth))
	}
	enc.buf = append(enc.buf, codeNested)
	enc.elements(t, depth)
	enc.buf = append(enc.buf, terminator)
}

func (enc *encoder) versionstamp(v Versionstamp) {
	enc.buf = append(enc.buf, codeVersionstamp)
	if !v.IsComplete() {
		enc.stamps++
		enc.stampAt = len(enc.buf)
	}
	enc.buf = v.appendTo(enc.buf)
}

// appendBytes appends b with its zero bytes escaped, and the terminator.
func appendBytes(dst, b []byte) []byte {
	dst = append(dst, codeBytes)
	for {
		zero := bytes.IndexByte(b, terminator)
		if zero < 0 {
			return append(append(dst, b...), terminator)
		}
		dst = append(append(dst, b[:zero+1]...), escape)
		b = b[zero+1:]
	}
}

// appendString is appendBytes for a string, without a copy.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, codeString)
	for {
		zero := strings.IndexByte(s, terminator)
		if zero < 0 {
			return append(append(dst, s...), terminator)
		}
		dst = append(append(dst, s[:zero+1]...), escape)
		s = s[zero+1:]
	}
}

// appendUint appends u in as few bytes as hold it, big-endian, after a code
// that gives their number: shorter, and so smaller, numbers sort first.
func appendUint(dst []byte, u uint64) []byte {
	n := bytesFor(bits.Len64(u))
	dst = append(dst, byte(codeZero+n))
	return appendLow(dst, u, n)
}

// appendInt appends a negative number as the one's complement of its magnitude,
// after a code that falls as the magnitude gets longer.
func appendInt(dst []byte, i int64) []byte {
	if i >= 0 {
		return appendUint(dst, uint64(i))
	}
	magnitude := -uint64(i) // also right for the least int64, whose negation is no int64
	n := bytesFor(bits.Len64(magnitude))
	dst = append(dst, byte(codeZero-n))
	return appendLow(dst, ^magnitude, n)
}

// appendLow appends the n low bytes of u, big-endian.
func appendLow(dst []byte, u uint64, n int) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], u)
	return append(dst, b[8-n:]...)
}

// appendFloat appends f's bits so that they sort as unsigned numbers: a negative number has all
// bits flipped, a positive one the sign bit.
func appendFloat(dst []byte, f float64) []byte {
	u := math.Float64bits(f)
	if u&signBit != 0 {
		u = ^u
	} else {
		u ^= signBit
	}
	return binary.BigEndian.AppendUint64(append(dst, codeFloat64), u)
}

// bytesFor returns how many bytes hold the given number of bits.
func bytesFor(bitLen int) int { return (bitLen + 7) / 8 }

// sizeHint returns the number of bytes to allocate for elements. It is enough unless zero bytes
// have to be escaped or tuples are nested.
func sizeHint(elements []any) int {
	n := 0
	for _, element := range elements {
		switch v := element.(type) {
		case string:
			n += 2 + len(v)
		case []byte:
			n += 2 + len(v)
		case uuid.UUID:
			n += 1 + len(v)
		case Versionstamp:
			n += 1 + versionstampSize
		case Tuple:
			n += 2 + 9*len(v)
		case nil, bool:
			n++
		default:
			n += 9
		}
	}
	return n
}
