package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// PastBlank returns the index of the first byte from i on that is not white space, or len(b) if there is none.
func PastBlank(b []byte, i int) int {
	for uint(i) < uint(len(b)) && b[i] <= ' ' && isBlank(b[i]) {
		i++
	}
	return i
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// The functions below look at eight bytes at a time. They compute a word in which the highest bit of a byte says that
// the byte is found. A subtraction borrows from the next higher byte only if the bit of the lower byte is set, so the
// lowest bit that is set is always right.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// notPlain finds quotes, backslashes, control characters and bytes that are not ASCII. With one bit of each byte
// inverted, the quote is the first number after the control characters, and these stay the lowest numbers.
func notPlain(w uint64) uint64 {
	const turned = '"' ^ ' '
	return (w | ((w ^ turned*ones) - (' '+1)*ones) | ((w ^ '\\'*ones) - ones)) & highs
}

// pastPlainWord is PastPlain for the next eight bytes alone.
func pastPlainWord(b []byte, i int) int {
	if i+8 > len(b) {
		return i
	}
	if found := notPlain(binary.LittleEndian.Uint64(b[i : i+8])); found != 0 {
		return i + bits.TrailingZeros64(found)>>3
	}
	return i + 8
}

// PastPlain returns the index of the first byte from i on that is a quote, a backslash, a control character or not ASCII,
// or len(b) if there is none.
func PastPlain(b []byte, i int) int {
	for ; i+16 <= len(b); i += 16 {
		two := b[i : i+16]
		first, second := notPlain(binary.LittleEndian.Uint64(two)), notPlain(binary.LittleEndian.Uint64(two[8:]))
		if first != 0 {
			return i + bits.TrailingZeros64(first)>>3
		}
		if second != 0 {
			return i + 8 + bits.TrailingZeros64(second)>>3
		}
	}
	if i+8 <= len(b) {
		if found := notPlain(binary.LittleEndian.Uint64(b[i : i+8])); found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// stringEnd returns the index after the string that b[i] is in. The string was checked before.
func stringEnd(b []byte, i int) int {
	for ; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, escape := w^'"'*ones, w^'\\'*ones
		found := ((quote-ones)&^quote | (escape-ones)&^escape) & highs
		if found == 0 {
			continue
		}
		if i += bits.TrailingZeros64(found) / 8; b[i] == '"' {
			return i + 1
		}
		i += 2 - 8
	}
	for b[i] != '"' {
		if b[i] == '\\' {
			i++
		}
		i++
	}
	return i + 1
}

// valueEnd returns the index after the value that begins at i. The value was checked before.
func valueEnd(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			i = stringEnd(b, i+1)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		default:
			if depth == 0 {
				return bareEnd(b, i)
			}
		}
		i++
	}
}

// bareEnd returns the index after the number or the word that b[i] is in.
func bareEnd(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ',', ']', '}', ' ', '\t', '\r', '\n', ':':
			return i
		}
		i++
	}
	return i
}
