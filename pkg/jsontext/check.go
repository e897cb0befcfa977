package jsontext

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file check JSON byte by byte, and the contents of strings eight bytes at a time. They are
// written for speed: each document that is replicated is checked with them.

// The functions that return the index after a value return one of these if there is no such index.
const (
	NotJSON  = -1 // the text is wrong, whatever follows
	NotWhole = -2 // the text ends too early
)

// maxDepth is the maximum number of objects and arrays around a value, as in encoding/json.
const maxDepth = 10_000

// The errors of [Check].
var (
	ErrSyntax    = errors.New("not JSON")
	ErrUTF8      = errors.New("not UTF-8")
	ErrSurrogate = errors.New("half of a surrogate pair")
)

// Surrogates says whether a text may have a \u escape for half of a surrogate pair without the other half.
type Surrogates uint8

const (
	// AnySurrogates allows it. encoding/json reads U+FFFD in its place.
	AnySurrogates Surrogates = iota
	// PairedSurrogates refuses it, as CouchDB does.
	PairedSurrogates
)

// Valid reports whether text is one JSON value in valid UTF-8, with nothing but white space around it.
func Valid(text []byte) bool {
	end := End(text)
	return end >= 0 && PastBlank(text, end) == len(text)
}

// Check returns nil if text is valid. Otherwise it returns ErrUTF8, ErrSyntax, or an error that wraps ErrSurrogate and
// shows the escape.
func Check(text []byte, s Surrogates) error {
	switch {
	case Valid(text):
		return checkSurrogates(text, s)
	case !utf8.Valid(text):
		return ErrUTF8
	}
	return ErrSyntax
}

// CheckObject is Check for a text that must be an object. The error says what "it", the text, is or has.
func CheckObject(text []byte, s Surrogates) error {
	switch err := Check(text, s); {
	case errors.Is(err, ErrSurrogate):
		return fmt.Errorf("it has %w", err)
	case err != nil:
		return fmt.Errorf("it is %w", err)
	case !IsObject(text):
		return errors.New("it is not a JSON object")
	}
	return nil
}

// checkSurrogates checks the escapes of a valid text. In such a text each backslash is in a string and begins a whole
// escape.
func checkSurrogates(text []byte, s Surrogates) error {
	for s == PairedSurrogates {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			break
		}
		r, size := decodeEscape(text[i:], s)
		if size < 0 {
			return fmt.Errorf("%w, \\u%04x", ErrSurrogate, r)
		}
		text = text[i+size:]
	}
	return nil
}

// decodeEscape returns the character of the escape at the beginning of b, and the size of the escape in bytes. A
// surrogate pair counts as one escape. For half of a pair that s refuses it returns the half and NotJSON.
func decodeEscape(b []byte, s Surrogates) (r rune, size int) {
	size = checkEscape(b, 1)
	if size < 0 {
		return 0, size
	}
	if b[1] != 'u' {
		return escaped[b[1]], size
	}
	if r = codeUnit(b); !utf16.IsSurrogate(r) {
		return r, size
	}
	if len(b) < size+2 && (len(b) == size || b[size] == '\\') {
		return r, NotWhole // the other half may follow
	}
	if b[size] == '\\' && b[size+1] == 'u' {
		end := checkEscape(b, size+1)
		if end < 0 {
			return r, end
		}
		if pair := utf16.DecodeRune(r, codeUnit(b[size:])); pair != utf8.RuneError {
			return pair, end
		}
	}
	if s == PairedSurrogates {
		return r, NotJSON
	}
	return utf8.RuneError, size
}

// escaped maps the byte after a backslash to the character of the escape.
var escaped = [256]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// codeUnit returns the number of an escape \uXXXX that was checked.
func codeUnit(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n)
}

// End returns the index after the JSON value at the beginning of b. White space may precede the value. End returns
// NotJSON or NotWhole if there is no value. If b ends within a number, End returns len(b), because it cannot know that
// digits are missing.
func End(b []byte) int { return checkValue(b, 0, 0) }

// checkValue is End for a value at i that is nested in depth objects and arrays.
func checkValue(b []byte, i, depth int) int {
	end, _ := walk(b, i, depth, false)
	return end
}

// walk checks the value at i and returns the index after it. If special is true, i is at a name in an object, and walk
// checks the rest of that object. It then stops at a name of the object that begins with an underscore, or with an
// escape, which may stand for an underscore. It returns the name's index and true.
//
// The bits of one word say which levels are objects. Values that are nested deeper are checked by another call.
func walk(b []byte, i, depth int, special bool) (end int, found bool) {
	levels, objects := 0, uint64(0) // bit n of objects is set if the level n, counted from the innermost, is an object
	if special {
		levels, objects = 1, 1
	}
	for {
		if i = PastBlank(b, i); uint(i) >= uint(len(b)) {
			return NotWhole, false
		}
		if objects&1 != 0 {
			if special && levels == 1 && beginsSpecial(b, i) {
				return i, true
			}
			if i = checkName(b, i); i < 0 {
				return i, false
			}
			if i = PastBlank(b, i); uint(i) >= uint(len(b)) {
				return NotWhole, false
			}
		}
		switch c := b[i]; {
		case c == '"':
			i = checkString(b, i+1)
		case c-'0' < 10 || c == '-':
			i = checkNumber(b, i)
		case c|0x20 != '{':
			i = checkWord(b, i)
		case depth+levels >= maxDepth:
			return NotJSON, false
		case pastEmpty(b, i) > 0:
			i = pastEmpty(b, i)
		case levels < 64:
			objects = objects<<1 | uint64(c>>5&1)
			levels++
			i++
			continue
		default:
			i = checkValue(b, i, depth+levels)
		}
		if i < 0 {
			return i, false
		}
		if levels > 0 && uint(i) < uint(len(b)) && b[i] == ',' { // the usual case
			i++
			continue
		}
		if i, levels, objects = pastEnds(b, i, levels, objects); i < 0 || levels == 0 {
			return i, false
		}
	}
}

// pastEnds passes over the ends of objects and arrays that follow a value, and over the comma after them. It returns
// the index after these, and the levels that are still open.
func pastEnds(b []byte, i, levels int, objects uint64) (next, left int, leftObjects uint64) {
	for levels > 0 {
		if i = PastBlank(b, i); uint(i) >= uint(len(b)) {
			return NotWhole, 0, 0
		}
		c := b[i]
		i++
		if c == ',' {
			break
		}
		if c != ']'+byte(objects&1)<<5 {
			return NotJSON, 0, 0
		}
		objects >>= 1
		levels--
	}
	return i, levels, objects
}

// beginsSpecial reports whether a name at i begins with an underscore or an escape.
func beginsSpecial(b []byte, i int) bool {
	return i+1 < len(b) && b[i] == '"' && (b[i+1] == '_' || b[i+1] == '\\')
}

// pastEmpty returns the index after the object or array at i if it is empty, and 0 otherwise.
func pastEmpty(b []byte, i int) int {
	if end := PastBlank(b, i+1); uint(end) < uint(len(b)) && b[end] == b[i]+2 { // its closing bracket
		return end + 1
	}
	return 0
}

// checkName checks a name and the colon after it.
func checkName(b []byte, i int) int {
	if b[i] != '"' {
		return NotJSON
	}
	if i = pastPlainWord(b, i+1); uint(i) < uint(len(b)) && b[i] == '"' {
		i++
	} else if i = checkString(b, i); i < 0 {
		return i
	}
	if i = PastBlank(b, i); uint(i) >= uint(len(b)) {
		return NotWhole
	}
	if b[i] != ':' {
		return NotJSON
	}
	return i + 1
}

// checkString checks the rest of a string. i is in the string, and not in an escape.
func checkString(b []byte, i int) int {
	for range 2 { // most strings have less than 16 bytes
		word := i
		if i = pastPlainWord(b, i); uint(i) < uint(len(b)) && b[i] == '"' {
			return i + 1
		}
		if i < word+8 {
			break
		}
	}
	for {
		if i = PastPlain(b, i); i == len(b) {
			return NotWhole
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i = checkEscape(b, i+1); i < 0 {
				return i
			}
		case c < ' ':
			return NotJSON
		default:
			_, size := utf8.DecodeRune(b[i:])
			if size == 1 { // of RuneError
				if !utf8.FullRune(b[i:]) {
					return NotWhole
				}
				return NotJSON
			}
			i += size
		}
	}
}

// checkEscape checks the rest of an escape. i is after its backslash.
func checkEscape(b []byte, i int) int {
	if i == len(b) {
		return NotWhole
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for range 4 {
			if i++; i == len(b) {
				return NotWhole
			}
			if c := b[i] | 0x20; !isDigit(b[i]) && (c < 'a' || c > 'f') {
				return NotJSON
			}
		}
		return i + 1
	}
	return NotJSON
}

// checkWord checks true, false or null.
func checkWord(b []byte, i int) int {
	switch b[i] {
	case 't':
		return checkLetters(b, i, "true")
	case 'f':
		return checkLetters(b, i, "false")
	case 'n':
		return checkLetters(b, i, "null")
	}
	return NotJSON
}

func checkLetters(b []byte, i int, word string) int {
	for n := range len(word) {
		if i+n == len(b) {
			return NotWhole
		}
		if b[i+n] != word[n] {
			return NotJSON
		}
	}
	return i + len(word)
}

func checkNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if uint(i) < uint(len(b)) && b[i] == '0' {
		i++
	} else if i = checkDigits(b, i); i < 0 {
		return i
	}
	if uint(i) >= uint(len(b)) || b[i] == ',' { // the usual case
		return i
	}
	if b[i] == '.' {
		if i = checkDigits(b, i+1); i < 0 {
			return i
		}
	}
	if uint(i) < uint(len(b)) && b[i]|0x20 == 'e' {
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
		return NotWhole
	case !isDigit(b[i]):
		return NotJSON
	}
	for uint(i) < uint(len(b)) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c-'0' < 10 }
