package selector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
)

// Compare compares two JSON texts by CouchDB's collation, the order of view
// keys: it returns -1, 0 or 1 as a sorts before b, with it, or behind it. Texts
// that differ may compare as equal, as 1 and 1.0 do. Whatever is not a JSON
// text in UTF-8 sorts before all that is, by its bytes.
//
// The order of ids in _all_docs is that of their bytes, not this one.
func Compare(a, b json.RawMessage) int {
	x, errA := decode(a)
	y, errB := decode(b)
	switch {
	case errA != nil && errB != nil:
		return bytes.Compare(a, b)
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return collation(x, y)
}

// An order compares two values: less than 0, 0 or more than 0.
type order func(a, b value) int

// collation is the order of views, and of conditions on any field but _id.
func collation(a, b value) int {
	if c := cmp.Compare(a.kind(), b.kind()); c != 0 {
		return c
	}
	switch a.kind() {
	case kindNumber:
		return compareNumbers(a.literal(), b.literal())
	case kindString:
		return collateStrings(a.str(), b.str())
	case kindArray:
		return compareArrays(a, b, collation)
	case kindObject:
		return compareObjects(a, b, collateStrings, collation)
	default:
		return 0
	}
}

// termOrder is the order of Erlang's terms: numbers, atoms by name, objects,
// arrays, strings by their bytes.
func termOrder(a, b value) int {
	if c := cmp.Compare(termRank(a.kind()), termRank(b.kind())); c != 0 {
		return c
	}
	switch a.kind() {
	case kindNumber:
		return compareNumbers(a.literal(), b.literal())
	case kindString:
		return strings.Compare(a.str(), b.str())
	case kindArray:
		return compareArrays(a, b, termOrder)
	case kindObject:
		return compareObjects(a, b, strings.Compare, termOrder)
	default:
		return bytes.Compare(a.literal(), b.literal()) // false, null, true
	}
}

func termRank(k kind) int {
	switch k {
	case kindNumber:
		return 0
	case kindObject:
		return 2
	case kindArray:
		return 3
	case kindString:
		return 4
	default:
		return 1
	}
}

func compareArrays(a, b value, compare order) int {
	// Both tapes are walked at once: an array may be long.
	x, y := a.index+1, b.index+1
	for x < a.entry().next && y < b.entry().next {
		if c := compare(value{a.tape, x}, value{b.tape, y}); c != 0 {
			return c
		}
		x, y = a.tape.entries[x].next, b.tape.entries[y].next
	}
	switch {
	case y < b.entry().next:
		return -1
	case x < a.entry().next:
		return 1
	default:
		return 0
	}
}

func compareObjects(a, b value, compareKeys func(a, b string) int, compare order) int {
	x, y := a.members(), b.members()
	for i := range min(len(x), len(y)) {
		if c := compareKeys(x[i].key, y[i].key); c != 0 {
			return c
		}
		if c := compare(x[i].value, y[i].value); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

// identical says whether two values are the same term, as $all has it: strings
// byte for byte. With exact, 1 and 1.0 are two terms.
func identical(a, b value, exact bool) bool {
	if a.kind() != b.kind() {
		return false
	}
	same := func(a, b value) int {
		if identical(a, b, exact) {
			return 0
		}
		return 1
	}
	switch a.kind() {
	case kindNumber:
		if exact && isInteger(a.literal()) != isInteger(b.literal()) {
			return false
		}
		return compareNumbers(a.literal(), b.literal()) == 0
	case kindString:
		return a.str() == b.str()
	case kindArray:
		return compareArrays(a, b, same) == 0
	case kindObject:
		return compareObjects(a, b, strings.Compare, same) == 0
	default:
		return true
	}
}

// A collator keeps what it read last, and is for one goroutine at a time.
var collators = sync.Pool{New: func() any { return collate.New(language.Und) }}

// collateStrings compares two strings by the root collation.
func collateStrings(a, b string) int {
	const tooLongToKeep = 64 << 10 // bytes; a collator's buffers grow with its strings
	a, b = withoutCommonPrefix(a, b)
	if a == b {
		return 0
	}
	c := collators.Get().(*collate.Collator)
	result := c.CompareString(a, b)
	if max(len(a), len(b)) < tooLongToKeep {
		collators.Put(c)
	}
	return result
}

// withoutCommonPrefix takes off what two strings have in common at their
// beginning, up to where both go on with ASCII or end: no sequence of
// characters that collates as one has an ASCII character behind its first, so
// the rests compare as the strings do.
func withoutCommonPrefix(a, b string) (restA, restB string) {
	ends := func(s string, i int) bool { return i == len(s) || s[i] < utf8.RuneSelf }
	cut := 0
	for i := 0; ; i++ {
		if ends(a, i) && ends(b, i) {
			cut = i
		}
		if i == len(a) || i == len(b) || a[i] != b[i] {
			return a[cut:], b[cut:]
		}
	}
}
