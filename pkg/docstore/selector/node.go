package selector

import (
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// node is a part of a selector. Combinations and fields match a document or an
// element; the other nodes match the value of a field.
type node interface {
	// match says whether a value matches, comparing by an order.
	match(v value, compare order) bool
}

// settle moves negations down to the conditions, which says what they mean for
// a missing field: not (a = 1) becomes a != 1, which wants a to be there.
func settle(n node) node {
	switch n := n.(type) {
	case not:
		return negate(n.node)
	case allOf:
		return allOf(each(n, settle))
	case anyOf:
		return anyOf(each(n, settle))
	default:
		return n
	}
}

func negate(n node) node {
	switch n := n.(type) {
	case not:
		return settle(n.node)
	case allOf:
		return anyOf(each(n, negate))
	case anyOf:
		return allOf(each(n, negate))
	case field:
		return field{n.path, negate(n.cond)}
	case comparison:
		return comparison{arg: n.arg, less: !n.less, equal: !n.equal, greater: !n.greater}
	case in:
		return in{args: n.args, negated: !n.negated}
	case exists:
		return !n
	default:
		return not{n}
	}
}

func each(nodes []node, f func(node) node) []node {
	all := make([]node, len(nodes))
	for i, n := range nodes {
		all[i] = f(n)
	}
	return all
}

// allOf is $and.
type allOf []node

func (n allOf) match(v value, compare order) bool {
	for _, sub := range n {
		if !sub.match(v, compare) {
			return false
		}
	}
	return true
}

// anyOf is $or.
type anyOf []node

func (n anyOf) match(v value, compare order) bool {
	for _, sub := range n {
		if sub.match(v, compare) {
			return true
		}
	}
	return len(n) == 0
}

// not is $not where it cannot move further down.
type not struct{ node }

func (n not) match(v value, compare order) bool { return !n.node.match(v, compare) }

// field is a condition on the value at a path.
type field struct {
	path path
	cond node
}

func (n field) match(v value, compare order) bool {
	v, where := n.path.find(v)
	switch where {
	case missing:
		return n.cond == exists(false)
	case unreachable:
		return false
	}
	if n.path.name == "_id" {
		compare = termOrder
	}
	return n.cond.match(v, compare)
}

// comparison is $lt, $lte, $eq, $ne, $gte and $gt.
type comparison struct {
	arg                  value
	less, equal, greater bool // which of them match
}

func (n comparison) match(v value, compare order) bool {
	switch c := compare(v, n.arg); {
	case c < 0:
		return n.less
	case c > 0:
		return n.greater
	default:
		return n.equal
	}
}

// exists is $exists, of a field that is there.
type exists bool

func (n exists) match(value, order) bool { return bool(n) }

// in is $in and $nin.
type in struct {
	args    []value
	negated bool
}

func (n in) match(v value, compare order) bool { return n.contains(v, compare) != n.negated }

func (n in) contains(v value, compare order) bool {
	if v.kind() == kindArray {
		for e := range v.elements {
			if n.containsOne(e, compare) {
				return true
			}
		}
		return false
	}
	return n.containsOne(v, compare)
}

func (n in) containsOne(v value, compare order) bool {
	for _, arg := range n.args {
		if compare(v, arg) == 0 {
			return true
		}
	}
	return false
}

// containsAll is $all.
type containsAll []value

func (n containsAll) match(v value, _ order) bool {
	if len(n) == 0 || v.kind() != kindArray {
		return false
	}
	if len(n) == 1 && identical(n[0], v, false) { // {"$all": [[1, 2]]} of [1, 2]
		return true
	}
	for _, arg := range n {
		if !contains(v, arg) {
			return false
		}
	}
	return true
}

func contains(array, v value) bool {
	for e := range array.elements {
		if identical(e, v, true) {
			return true
		}
	}
	return false
}

// ofType is $type.
type ofType string

func (n ofType) match(v value, _ order) bool { return v.kind().name() == string(n) }

// ofSize is $size.
type ofSize int64

func (n ofSize) match(v value, _ order) bool {
	return v.kind() == kindArray && int64(v.length()) == int64(n)
}

// mod is $mod.
type mod struct{ divisor, remainder *big.Int }

func (n mod) match(v value, _ order) bool {
	return v.kind() == kindNumber && isInteger(v.literal()) &&
		remainder(v.literal(), n.divisor).Cmp(n.remainder) == 0
}

// matching is $regex.
type matching struct{ pattern }

func (n matching) match(v value, _ order) bool {
	return v.kind() == kindString && n.matches(v.str())
}

// beginsWith is $beginsWith.
type beginsWith string

func (n beginsWith) match(v value, _ order) bool {
	if v.kind() != kindString {
		return false
	}
	rest, ok := strings.CutPrefix(v.str(), string(n))
	return ok && (n == "" || !goesOn(string(n), rest))
}

// goesOn says whether the user-perceived character at a prefix's end goes on
// behind it: "e" is no prefix of an "é" that is written as e and an accent.
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

// joiners continue a character without being marks: the zero width non-joiner
// and joiner, and the skin tones of emoji.
var joiners = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x200c, Hi: 0x200d, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f3fb, Hi: 0x1f3ff, Stride: 1}},
}

// elemMatch is $elemMatch.
type elemMatch struct{ sub node }

func (n elemMatch) match(v value, compare order) bool {
	if v.kind() != kindArray {
		return false
	}
	for e := range v.elements {
		if n.sub.match(e, compare) {
			return true
		}
	}
	return false
}

// allMatch is $allMatch, which an empty array does not match.
type allMatch struct{ sub node }

func (n allMatch) match(v value, compare order) bool {
	if v.kind() != kindArray || v.length() == 0 {
		return false
	}
	for e := range v.elements {
		if !n.sub.match(e, compare) {
			return false
		}
	}
	return true
}

// keyMapMatch is $keyMapMatch.
type keyMapMatch struct{ sub node }

func (n keyMapMatch) match(v value, compare order) bool {
	if v.kind() != kindObject {
		return false
	}
	for key := range v.pairs {
		if n.sub.match(key, compare) {
			return true
		}
	}
	return false
}
