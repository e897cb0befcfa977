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

// checkAt is checkValue from i on, within depth objects and arrays.
func checkAt(b []byte, i, depth int) int {
	end, _ := walk{depth: depth}.on(b, i)
	return end
}

// pastOrdinary checks the members of an object from the one whose name begins at i, up to one whose name
// begins with an underscore or an escape, which may stand for that. It returns where that is, or with last
// the index after the object.
func pastOrdinary(b []byte, i int) (next int, last bool) {
	next, found := walk{objects: 1, levels: 1, special: 1}.on(b, i)
	return next, !found
}

// walk is a place in a JSON text. What is nested deeper than the bits of a word has a walk of its own.
type walk struct {
	depth   int    // how many objects and arrays it is in beyond these
	levels  int    // how many it is in
	objects uint64 // for each of them, the innermost lowest, whether it is an object
	special int    // the level at which names end the walk that may begin with an underscore; 0 for none
}

// on checks from i on, to the end of the outermost value, and returns the index after it; or to the name that
// it looks for.
//
// This is where the time goes that a document takes. What is the rule is dealt with here, byte by byte, and
// the rest in the functions that it calls.
func (w walk) on(b []byte, i int) (end int, found bool) {
	depth, levels, objects := w.depth, w.levels, w.objects
	for {
		if objects&1 != 0 {
			if i = pastBlank(b, i); uint(i) >= uint(len(b)) {
				return notWhole, false
			}
			if b[i] != '"' {
				return notJSON, false
			}
			i++
			if levels == w.special && i < len(b) && (b[i] == '_' || b[i] == '\\') {
				return i - 1, true
			}
			if i+8 <= len(b) {
				if found := notPlain(binary.LittleEndian.Uint64(b[i : i+8])); found != 0 {
					i += bits.TrailingZeros64(found) >> 3
				} else {
					i += 8
				}
			}
			if uint(i) < uint(len(b)) && b[i] == '"' {
				i++
			} else if i = checkString(b, i); i < 0 {
				return i, false
			}
			if uint(i) < uint(len(b)) && b[i] == ':' {
				i++
			} else if i = checkColon(b, i); i < 0 {
				return i, false
			}
		}
		if i = pastBlank(b, i); uint(i) >= uint(len(b)) {
			return notWhole, false
		}
		c := b[i]
		i++
		switch {
		case c == '"':
			// Most strings have less than 16 bytes.
			for n := 0; n < 2 && i+8 <= len(b); n++ {
				if found := notPlain(binary.LittleEndian.Uint64(b[i : i+8])); found != 0 {
					i += bits.TrailingZeros64(found) >> 3
					break
				}
				i += 8
			}
			if uint(i) < uint(len(b)) && b[i] == '"' {
				i++
			} else if i = checkString(b, i); i < 0 {
				return i, false
			}
		case c-'1' < 9:
			end := pastDigits(b, i)
			if uint(end) < uint(len(b)) && b[end] == '.' && end+1 < pastDigits(b, end+1) {
				end = pastDigits(b, end+1)
			}
			if uint(end) < uint(len(b)) && (b[end] == ',' || b[end] == '}') {
				i = end
			} else if i = checkNumber(b, i-1); i < 0 {
				return i, false
			}
		case c|0x20 == '{':
			if depth+levels >= maxDepth {
				return notJSON, false
			}
			if inside := pastBlank(b, i); inside < len(b) && b[inside] == c+2 { // its closing bracket
				i = inside + 1
			} else if levels < 64 {
				objects = objects<<1 | uint64(c>>5&1)
				levels++
				continue
			} else if i = checkAt(b, i-1, depth+levels); i < 0 {
				return i, false
			}
		default:
			if i = checkBare(b, i-1); i < 0 {
				return i, false
			}
		}
		// The value may be the last of what it is in, and that the last of what that is in.
		for {
			if levels == 0 {
				return i, false
			}
			if uint(i) >= uint(len(b)) {
				return notWhole, false
			}
			c := b[i]
			i++
			if c == ',' {
				break
			}
			if isBlank(c) {
				continue
			}
			if c != ']'+byte(objects&1)<<5 {
				return notJSON, false
			}
			objects >>= 1
			levels--
		}
	}
}

// checkColon checks the colon after a name, and white space before it.
func checkColon(b []byte, i int) int {
	if i = pastBlank(b, i); i == len(b) {
		return notWhole
	}
	if b[i] != ':' {
		return notJSON
	}
	return i + 1
}

// checkString checks from within a string, where no escape has begun, to its end.
func checkString(b []byte, i int) int {
	for {
		if i = pastPlain(b, i); i == len(b) {
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

// checkBare checks what is neither a string nor an object or an array.
func checkBare(b []byte, i int) int {
	switch b[i] {
	case 't':
		return checkWord(b, i, "true")
	case 'f':
		return checkWord(b, i, "false")
	case 'n':
		return checkWord(b, i, "null")
	}
	return checkNumber(b, i)
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
	return pastDigits(b, i)
}

// pastDigits returns the index of the first byte from i on that is no digit, or len(b).
func pastDigits(b []byte, i int) int {
	for uint(i) < uint(len(b)) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c-'0' < 10 }

// pastBlank returns the index of the first byte from i on that is not white space, or len(b).
func pastBlank(b []byte, i int) int {
	for uint(i) < uint(len(b)) && b[i] <= ' ' && isBlank(b[i]) {
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

// notPlain finds quotes, backslashes, control characters and what is none of ASCII. With one bit turned over,
// quotes come next to the control characters, and no other is among them.
func notPlain(w uint64) uint64 {
	const turned = '"' ^ ' '
	return (w | ((w ^ turned*ones) - (' '+1)*ones) | ((w ^ '\\'*ones) - ones)) & highs
}

// pastPlain returns the index of the first byte from i on that is a quote, a backslash, a control
// character or none of ASCII, or len(b).
func pastPlain(b []byte, i int) int {
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
