package selector

import (
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// node is a part of a selector. Combinations and fields match a document or an element; other
// nodes match the value of a field.
type node interface {
	// match reports whether a value matches, and spends steps of w.
	match(w *work, v value) bool
}

// allOf is $and.
type allOf []node

func (n allOf) match(w *work, v value) bool {
	for _, sub := range n {
		w.spend(1)
		if !sub.match(w, v) {
			return false
		}
	}
	return true
}

// anyOf is $or.
type anyOf []node

func (n anyOf) match(w *work, v value) bool {
	for _, sub := range n {
		w.spend(1)
		if sub.match(w, v) {
			return true
		}
	}
	return len(n) == 0
}

// not is a $not that cannot move further down.
type not struct{ node }

func (n not) match(w *work, v value) bool { return !n.node.match(w, v) }

// field is a condition on the value at a path.
type field struct {
	path path
	cond node
}

func (n field) match(w *work, v value) bool {
	v, where := n.path.find(w, v)
	switch where {
	case missing:
		return n.cond == exists(false)
	case unreachable:
		return false
	}
	return n.cond.match(w, v)
}

// comparison is $lt, $lte, $eq, $ne, $gte and $gt.
type comparison struct {
	order                order
	arg                  value
	less, equal, greater bool // the results that match
}

func (n comparison) match(w *work, v value) bool {
	switch c := w.compare(n.order, v, n.arg); {
	case c < 0:
		return n.less
	case c > 0:
		return n.greater
	default:
		return n.equal
	}
}

// exists is $exists for an existing field.
type exists bool

func (n exists) match(*work, value) bool { return bool(n) }

// in is $in and $nin. It looks a value up by its key.
type in struct {
	order   order
	keys    map[string]struct{}
	negated bool
}

func newIn(o order, args value) in {
	n := in{order: o, keys: make(map[string]struct{})}
	for arg := range args.elements {
		n.keys[string(unlimited().key(o, arg))] = struct{}{}
	}
	return n
}

func (n in) match(w *work, v value) bool { return n.contains(w, v) != n.negated }

func (n in) contains(w *work, v value) bool {
	if v.kind() != kindArray {
		return n.containsOne(w, v)
	}
	for e := range v.elements {
		if n.containsOne(w, e) {
			return true
		}
	}
	return false
}

func (n in) containsOne(w *work, v value) bool {
	_, found := n.keys[string(w.key(n.order, v))]
	return found
}

// containsAll is $all.
type containsAll []value

func (n containsAll) match(w *work, v value) bool {
	if len(n) == 0 || v.kind() != kindArray {
		return false
	}
	if len(n) == 1 && w.identical(n[0], v, false) { // {"$all": [[1, 2]]} matches [1, 2]
		return true
	}
	for _, arg := range n {
		if !w.contains(v, arg) {
			return false
		}
	}
	return true
}

func (w *work) contains(array, v value) bool {
	for e := range array.elements {
		if w.identical(e, v, true) {
			return true
		}
	}
	return false
}

// ofType is $type.
type ofType string

func (n ofType) match(_ *work, v value) bool { return v.kind().name() == string(n) }

// ofSize is $size.
type ofSize int64

func (n ofSize) match(w *work, v value) bool {
	if v.kind() != kindArray {
		return false
	}
	length := int64(0)
	for range v.elements {
		w.spend(1)
		length++
	}
	return length == int64(n)
}

// mod is $mod.
type mod struct{ divisor, remainder *big.Int }

func (n mod) match(w *work, v value) bool {
	return v.kind() == kindNumber && isInteger(v.literal()) &&
		w.remainder(v.literal(), n.divisor).Cmp(n.remainder) == 0
}

// matching is $regex.
type matching struct{ pattern }

func (n matching) match(w *work, v value) bool {
	return v.kind() == kindString && n.matches(w, w.str(v))
}

// beginsWith is $beginsWith.
type beginsWith string

func (n beginsWith) match(w *work, v value) bool {
	if v.kind() != kindString {
		return false
	}
	rest, ok := strings.CutPrefix(w.str(v), string(n))
	return ok && (n == "" || !goesOn(string(n), rest))
}

// goesOn reports whether the user-perceived character at the end of prefix continues in rest, as
// an e does with an accent.
func goesOn(prefix, rest string) bool {
	last, _ := utf8.DecodeLastRuneInString(prefix)
	next, size := utf8.DecodeRuneInString(rest)
	switch {
	case size == 0:
		return false
	case last == '\r':
		return next == '\n'
	case unicode.IsControl(last):
		return false
	case unicode.Is(unicode.Regional_Indicator, last): // half a flag
		return unicode.Is(unicode.Regional_Indicator, next)
	default:
		return unicode.Is(unicode.Mark, next) || unicode.Is(joiners, next)
	}
}

// joiners continue a character without being marks: the zero width non-joiner and joiner, and the
// skin tones of emoji.
var joiners = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x200c, Hi: 0x200d, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f3fb, Hi: 0x1f3ff, Stride: 1}},
}

// elemMatch is $elemMatch.
type elemMatch struct{ sub node }

func (n elemMatch) match(w *work, v value) bool {
	if v.kind() != kindArray {
		return false
	}
	for e := range v.elements {
		w.spend(1)
		if n.sub.match(w, e) {
			return true
		}
	}
	return false
}

// allMatch is $allMatch. An empty array does not match.
type allMatch struct{ sub node }

func (n allMatch) match(w *work, v value) bool {
	if v.kind() != kindArray {
		return false
	}
	empty := true
	for e := range v.elements {
		w.spend(1)
		if empty = false; !n.sub.match(w, e) {
			return false
		}
	}
	return !empty
}

// keyMapMatch is $keyMapMatch.
type keyMapMatch struct{ sub node }

func (n keyMapMatch) match(w *work, v value) bool {
	if v.kind() != kindObject {
		return false
	}
	for key := range v.pairs {
		w.spend(1)
		if n.sub.match(w, key) {
			return true
		}
	}
	return false
}
