package couch

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The functions of this file walk over JSON byte by byte, and over what is in its strings eight bytes at a
// time: every document that is copied goes through them.

// What checkValue says of bytes that are not a whole value.
const (
	notJSON  = -1 // nor is there a way to go on from them
	notWhole = -2
)

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10_000

// checkValue returns the index after the JSON value that b begins with, white space before it included, if
// it is one in valid UTF-8. A number that b ends with may have more digits to come: that is for the caller
// to know.
func checkValue(b []byte) int { return checkAt(b, 0, 0) }

// validJSON reports whether b is one JSON value in valid UTF-8 and nothing else.
func validJSON(b []byte) bool {
	end := checkValue(b)
	return end >= 0 && pastBlank(b, end) == len(b)
}

func checkAt(b []byte, i, depth int) int {
	if i = pastBlank(b, i); i == len(b) {
		return notWhole
	}
	switch c := b[i]; c {
	case '"':
		return checkString(b, i+1)
	case '{':
		return checkObject(b, i+1, depth+1)
	case '[':
		return checkArray(b, i+1, depth+1)
	case 't':
		return checkWord(b, i, "true")
	case 'f':
		return checkWord(b, i, "false")
	case 'n':
		return checkWord(b, i, "null")
	default:
		return checkNumber(b, i)
	}
}

// checkObject checks from after the opening brace.
func checkObject(b []byte, i, depth int) int {
	if depth > maxDepth {
		return notJSON
	}
	if i = pastBlank(b, i); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i = pastBlank(b, i); i == len(b) {
			return notWhole
		}
		if b[i] != '"' {
			return notJSON
		}
		if i = checkString(b, i+1); i < 0 {
			return i
		}
		if i = pastBlank(b, i); i == len(b) {
			return notWhole
		}
		if b[i] != ':' {
			return notJSON
		}
		if i = checkAt(b, i+1, depth); i < 0 {
			return i
		}
		if i = pastBlank(b, i); i == len(b) {
			return notWhole
		}
		switch b[i] {
		case ',':
			i++
		case '}':
			return i + 1
		default:
			return notJSON
		}
	}
}

// checkArray checks from after the opening bracket.
func checkArray(b []byte, i, depth int) int {
	if depth > maxDepth {
		return notJSON
	}
	if i = pastBlank(b, i); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = checkAt(b, i, depth); i < 0 {
			return i
		}
		if i = pastBlank(b, i); i == len(b) {
			return notWhole
		}
		switch b[i] {
		case ',':
			i++
		case ']':
			return i + 1
		default:
			return notJSON
		}
	}
}

// checkString checks from after the opening quote.
func checkString(b []byte, i int) int {
	for {
		// What follows is pastPlain, most of whose calls find what they look for in the first eight bytes.
		if len(b)-i >= 8 {
			if found := notPlain(binary.LittleEndian.Uint64(b[i:])); found != 0 {
				i += bits.TrailingZeros64(found) / 8
			} else {
				i = pastPlain(b, i+8)
			}
		} else {
			i = pastPlain(b, i)
		}
		if i == len(b) {
			return notWhole
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i = checkEscape(b, i+1); i < 0 {
				return i
			}
		case c < ' ':
			return notJSON
		default:
			_, size := utf8.DecodeRune(b[i:])
			if size == 1 { // of RuneError
				if !utf8.FullRune(b[i:]) {
					return notWhole
				}
				return notJSON
			}
			i += size
		}
	}
}

// checkEscape checks what follows a backslash.
func checkEscape(b []byte, i int) int {
	if i == len(b) {
		return notWhole
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for range 4 {
			if i++; i == len(b) {
				return notWhole
			}
			if c := b[i] | 0x20; !isDigit(b[i]) && (c < 'a' || c > 'f') {
				return notJSON
			}
		}
		return i + 1
	}
	return notJSON
}

func checkWord(b []byte, i int, word string) int {
	for n := range len(word) {
		if i+n == len(b) {
			return notWhole
		}
		if b[i+n] != word[n] {
			return notJSON
		}
	}
	return i + len(word)
}

func checkNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i == len(b):
		return notWhole
	case b[i] == '0':
		i++
	default:
		if i = checkDigits(b, i); i < 0 {
			return i
		}
	}
	if i < len(b) && b[i] == '.' {
		if i = checkDigits(b, i+1); i < 0 {
			return i
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return checkDigits(b, i)
	}
	return i
}

// checkDigits checks at least one digit.
func checkDigits(b []byte, i int) int {
	switch {
	case i == len(b):
		return notWhole
	case !isDigit(b[i]):
		return notJSON
	}
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c-'0' < 10 }

// pastBlank returns the index of the first byte from i on that is not white space, or len(b).
func pastBlank(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && isBlank(b[i]) {
		i++
	}
	return i
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// Eight bytes at a time: each of them holds, in its highest bit, whether it is one of those looked for. A
// subtraction borrows from the byte above only where the one below has its bit set, so that the lowest bit
// is always right.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// notPlain finds quotes, backslashes, control characters and what is none of ASCII.
func notPlain(w uint64) uint64 {
	return (w | (w - ' '*ones) | ((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones)) & highs
}

// pastPlain returns the index of the first byte from i on that is a quote, a backslash, a control
// character or none of ASCII, or len(b).
func pastPlain(b []byte, i int) int {
	for ; len(b)-i >= 8; i += 8 {
		if found := notPlain(binary.LittleEndian.Uint64(b[i:])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// stringEnd returns the index after the string that b[i] is in. It is one that was checked.
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

// valueEnd returns the index after the value that begins at i. It is one that was checked.
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
