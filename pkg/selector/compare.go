package selector

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
)

// An order is an order of values.
type order uint8

const (
	// collation is the order of views, and of conditions on any field except _id.
	collation order = iota
	// termOrder is the order of Erlang terms: numbers, atoms by name, objects, arrays, strings by
	// their bytes.
	termOrder
)

// rank orders the kinds of values.
func (o order) rank(k kind) int {
	if o == collation {
		return int(k)
	}
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

// compare returns less than 0, 0 or more than 0.
func (w *work) compare(o order, a, b value) int {
	w.spend(1)
	if c := cmp.Compare(o.rank(a.kind()), o.rank(b.kind())); c != 0 {
		return c
	}
	switch a.kind() {
	case kindNumber:
		return w.compareNumbers(a, b)
	case kindString:
		return w.compareStrings(o, w.str(a), w.str(b))
	case kindArray:
		return compareArrays(a, b, func(a, b value) int { return w.compare(o, a, b) })
	case kindObject:
		return w.compareObjects(a, b, func(a, b member) int {
			return cmp.Or(w.compareStrings(o, a.key, b.key), w.compare(o, a.value, b.value))
		})
	}
	if o == termOrder {
		return bytes.Compare(a.literal(), b.literal()) // false, null, true
	}
	return 0
}

func compareArrays(a, b value, compare func(a, b value) int) int {
	// Both tapes are walked at once because an array may be long.
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

func (w *work) compareObjects(a, b value, compare func(a, b member) int) int {
	return slices.CompareFunc(w.members(a), w.members(b), compare)
}

// identical reports whether two values are the same term, as $all requires: strings byte for
// byte. With exact, 1 and 1.0 differ.
func (w *work) identical(a, b value, exact bool) bool {
	w.spend(1)
	if a.kind() != b.kind() {
		return false
	}
	same := func(a, b value) int {
		if w.identical(a, b, exact) {
			return 0
		}
		return 1
	}
	switch a.kind() {
	case kindNumber:
		if exact && isInteger(a.literal()) != isInteger(b.literal()) {
			return false
		}
		return w.compareNumbers(a, b) == 0
	case kindString:
		return w.str(a) == w.str(b)
	case kindArray:
		return compareArrays(a, b, same) == 0
	case kindObject:
		return w.compareObjects(a, b, func(a, b member) int {
			return cmp.Or(strings.Compare(a.key, b.key), same(a.value, b.value))
		}) == 0
	default:
		return true
	}
}

// compareStrings compares by bytes or by the root collation.
func (w *work) compareStrings(o order, a, b string) int {
	if o == termOrder {
		return strings.Compare(a, b)
	}
	a, b = withoutCommonPrefix(a, b)
	if a == b {
		return 0
	}
	w.spend(collationSteps(a) + collationSteps(b))
	c := collators.Get().(*collator)
	defer c.release(len(a) + len(b))
	return c.CompareString(a, b)
}

// A collator compares strings by the root collation. It keeps buffers and is not safe for
// concurrent use.
type collator struct {
	*collate.Collator
	keys collate.Buffer
}

var collators = sync.Pool{New: func() any { return &collator{Collator: collate.New(language.Und)} }}

// release returns a collator to the pool. read is the number of bytes it has compared.
func (c *collator) release(read int) {
	const tooLongToKeep = 64 << 10 // the buffers grow with the strings
	if read < tooLongToKeep {
		c.keys.Reset()
		collators.Put(c)
	}
}

// withoutCommonPrefix removes a common prefix of two strings that ends where both continue with
// ASCII or end. A sequence of characters that collates as one has ASCII only as its first
// character, so the rests compare as the strings do.
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
