package tuple

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/google/uuid"
)

// Unpack returns the tuple that b encodes; empty bytes encode the empty tuple. Its elements have
// the types in the package comment's table and share no memory with b. Byte strings and nested
// tuples are never nil.
//
// Invalid bytes give an error that wraps ErrMalformed: an element that is cut short, an unknown
// type code, an integer below -2^63, more than MaxDepth levels of nesting. b may hold any bytes; time and memory are
// linear in their number.
//
// Integers in more bytes than necessary are accepted, although Pack does not write them. So
// several keys may unpack to one tuple. The one that Pack writes is the shortest.
func Unpack(b []byte) (Tuple, error) {
	return unpackFrom(b, 0)
}

// unpackFrom unpacks what follows the first pos bytes of b. Errors count bytes
// from the start of b.
func unpackFrom(b []byte, pos int) (Tuple, error) {
	const usualLength = 8 // elements; more than most keys have
	t := make(Tuple, 0, usualLength)
	dec := decoder{buf: b, pos: pos}
	for dec.pos < len(dec.buf) {
		element, err := dec.element(0)
		if err != nil {
			return nil, err
		}
		t = append(t, element)
	}
	return t, nil
}

// decoder reads elements of buf from pos on. pos only grows, and each byte is read a bounded
// number of times.
type decoder struct {
	buf []byte
	pos int
}

// element reads one element of a tuple at the given depth. In a nested tuple the caller handles
// zero bytes, which may end the tuple.
func (dec *decoder) element(depth int) (any, error) {
	start := dec.pos
	code := dec.buf[start]
	dec.pos++
	switch {
	case code == codeNull:
		return nil, nil
	case code == codeBytes:
		return dec.byteString(start)
	case code == codeString:
		return dec.unicodeString(start)
	case code == codeNested:
		return dec.nested(start, depth+1)
	case code >= codeNegInt8 && code <= codePosInt8:
		return dec.integer(start)
	case code == codeFloat64:
		return fixed(dec, start, 8, decodeFloat)
	case code == codeFalse, code == codeTrue:
		return code == codeTrue, nil
	case code == codeUUID:
		return fixed(dec, start, len(uuid.UUID{}), decodeUUID)
	case code == codeVersionstamp:
		return fixed(dec, start, versionstampSize, decodeVersionstamp)
	default:
		return nil, malformed(start, fmt.Sprintf("unknown type code 0x%02x", code))
	}
}

// fixed reads the rest of an element of a type whose elements all have size bytes.
func fixed[T any](dec *decoder, start, size int, decode func(raw []byte) T) (any, error) {
	raw, err := dec.take(start, size)
	if err != nil {
		return nil, err
	}
	return decode(raw), nil
}

func (dec *decoder) byteString(start int) (any, error) {
	raw, err := dec.terminated(start)
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(raw, terminator) < 0 {
		return bytes.Clone(raw), nil
	}
	return bytes.ReplaceAll(raw, []byte{terminator, escape}, []byte{terminator}), nil
}

func (dec *decoder) unicodeString(start int) (any, error) {
	raw, err := dec.terminated(start)
	if err != nil {
		return nil, err
	}
	return strings.ReplaceAll(string(raw), "\x00\xff", "\x00"), nil
}

// terminated returns the bytes up to the first zero byte that is not escaped,
// still with their escapes, and moves past that zero.
func (dec *decoder) terminated(start int) ([]byte, error) {
	content := dec.pos
	for end := content; ; {
		zero := bytes.IndexByte(dec.buf[end:], terminator)
		if zero < 0 {
			return nil, malformed(start, "string without end")
		}
		end += zero
		next := end + 1
		if next == len(dec.buf) || dec.buf[next] != escape {
			dec.pos = next
			return dec.buf[content:end], nil
		}
		end = next + 1
	}
}

func (dec *decoder) nested(start, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, malformed(start, fmt.Sprintf("more than %d levels of nesting", MaxDepth))
	}
	t := Tuple{}
	for dec.pos < len(dec.buf) {
		if dec.buf[dec.pos] == terminator {
			dec.pos++
			if dec.pos == len(dec.buf) || dec.buf[dec.pos] != escape {
				return t, nil
			}
			dec.pos++
			t = append(t, nil)
			continue
		}
		element, err := dec.element(depth)
		if err != nil {
			return nil, err
		}
		t = append(t, element)
	}
	return nil, malformed(start, "nested tuple without end")
}

// integer reads an integer whose code gives its sign and its length.
func (dec *decoder) integer(start int) (any, error) {
	n := int(dec.buf[start]) - codeZero
	negative := n < 0
	if negative {
		n = -n
	}
	raw, err := dec.take(start, n)
	if err != nil {
		return nil, err
	}
	var u uint64
	for _, b := range raw {
		if negative {
			b = ^b
		}
		u = u<<8 | uint64(b)
	}
	switch {
	case negative && u <= signBit:
		return int64(-u), nil
	case negative:
		return nil, malformed(start, "integer below -2^63")
	case u <= math.MaxInt64:
		return int64(u), nil
	default:
		return u, nil
	}
}

// take returns the next n bytes of the element that begins at start.
func (dec *decoder) take(start, n int) ([]byte, error) {
	if n > len(dec.buf)-dec.pos {
		return nil, malformed(start, fmt.Sprintf("element cut short, type code 0x%02x", dec.buf[start]))
	}
	raw := dec.buf[dec.pos : dec.pos+n]
	dec.pos += n
	return raw, nil
}

func decodeFloat(raw []byte) float64 {
	u := binary.BigEndian.Uint64(raw)
	if u&signBit != 0 {
		u ^= signBit
	} else {
		u = ^u
	}
	return math.Float64frombits(u)
}

func decodeUUID(raw []byte) uuid.UUID { return uuid.UUID(raw) }

func malformed(pos int, reason string) error {
	return fmt.Errorf("%w: byte %d: %s", ErrMalformed, pos, reason)
}
