package erlterm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"

	"settee/pkg/jsontext"
)

// AppendJSON appends the term that CouchDB's JSON decoder makes of a text, which jsontext.Check has checked:
//
//   - An object is {[{Name, Value}]}, with its members in their order. Of several members of one name the last one
//     counts, in its place.
//   - A string is a binary without escapes, in UTF-8.
//   - A number with a fraction or an exponent is a float, any other one an integer.
//   - An array is a list; in Erlang [1,2] is a text.
//
// CouchDB refuses numbers that no float of 64 bits can hold. Such a float is infinite here, and an integer of more than
// 1,000 digits is a binary of its digits.
//
// The time is proportional to the length of the text, and the memory at most six times that.
func AppendJSON(b, text []byte) []byte {
	e := encoders.Get().(*encoder)
	defer e.free()
	e.text, e.tokens = text, jsontext.ReadTokens(text)
	e.out = b
	e.value(e.next())
	return e.cut()
}

// encoder writes a text as a term.
type encoder struct {
	text   []byte
	tokens *jsontext.Tokens
	out    []byte
	// members has where in out the members of all open objects begin, the members of the innermost object last.
	members []int
	// dropped are the members in out that later ones of the same name replace.
	dropped []span
	// table is a hash table of members.
	table []int32
}

// span is a part of the output.
type span struct{ start, end int }

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// maxKept is the number of elements up to which the slices of an encoder are kept for the next text.
const maxKept = 4096

func (e *encoder) free() {
	*e = encoder{members: e.members[:0], dropped: e.dropped[:0], table: e.table}
	if cap(e.members) <= maxKept && cap(e.dropped) <= maxKept && cap(e.table) <= maxKept {
		encoders.Put(e)
	}
}

func (e *encoder) next() jsontext.Token {
	token, _ := e.tokens.Next() // the text is valid: no value ends too early
	return token
}

// value writes the value that begins with a token.
func (e *encoder) value(token jsontext.Token) {
	switch token.Kind {
	case '{':
		e.object()
	case '[':
		e.array()
	case '"':
		e.string(token)
	case '0':
		e.out = appendNumber(e.out, e.text[token.Start:token.End])
	case 'n':
		e.out = AppendAtom(e.out, "null")
	default:
		e.out = AppendBool(e.out, token.Kind == 't')
	}
}

// string writes a string, whose length is known after it was read.
func (e *encoder) string(token jsontext.Token) {
	e.out = append(e.out, tagBinary, 0, 0, 0, 0)
	start := len(e.out)
	e.out = jsontext.AppendString(e.out, e.text[token.Start:token.End])
	binary.BigEndian.PutUint32(e.out[start-4:], uint32(len(e.out)-start))
}

// The sizes of what is before the elements of a list, and before the name of a member.
const (
	listHead   = 5
	memberHead = 2 + 5
)

func (e *encoder) object() {
	e.out = AppendTuple(e.out, 1)
	head := len(e.out)
	e.out = AppendList(e.out, 0)
	first := len(e.members)
	for name := e.next(); name.Kind != '}'; name = e.next() {
		e.members = append(e.members, len(e.out))
		e.out = AppendTuple(e.out, 2)
		e.string(name)
		e.value(e.next())
	}
	if left := e.lastOfEach(e.members[first:]); left > 0 {
		binary.BigEndian.PutUint32(e.out[head+1:], uint32(left))
	} else {
		e.out = e.out[:head]
	}
	e.out = AppendNil(e.out)
	e.members = e.members[:first]
}

func (e *encoder) array() {
	head := len(e.out)
	e.out = AppendList(e.out, 0)
	elements, isText := 0, true // whether all elements are integers 0 to 255
	for token := e.next(); token.Kind != ']'; token = e.next() {
		start := len(e.out)
		e.value(token)
		isText = isText && e.out[start] == tagSmallInteger
		elements++
	}
	switch {
	case elements == 0:
		e.out = e.out[:head]
	case isText && elements <= math.MaxUint16:
		e.out[head] = tagString
		binary.BigEndian.PutUint16(e.out[head+1:], uint16(elements))
		for i := range elements {
			e.out[head+3+i] = e.out[head+listHead+2*i+1]
		}
		e.out = e.out[:head+3+elements]
		return
	default:
		binary.BigEndian.PutUint32(e.out[head+1:], uint32(elements))
	}
	e.out = AppendNil(e.out)
}

// name returns the name of a member that begins at an index of out.
func (e *encoder) name(member int) []byte {
	size := int(binary.BigEndian.Uint32(e.out[member+memberHead-4:]))
	return e.out[member+memberHead : member+memberHead+size]
}

// fewMembers is the number of members up to which each name is compared with all others.
const fewMembers = 8

// lastOfEach drops the members that a later one of the same name replaces, and returns the number of the others.
func (e *encoder) lastOfEach(members []int) int {
	replaced := e.replacedAmongMany
	if len(members) <= fewMembers {
		replaced = e.replacedAmongFew
	} else {
		e.clearTable(len(members))
	}
	left := len(members)
	for i, end := len(members)-1, len(e.out); i >= 0; i-- {
		if replaced(members, i) {
			e.dropped = append(e.dropped, span{members[i], end})
			left--
		}
		end = members[i]
	}
	return left
}

// replacedAmongFew reports whether a member after the i-th has the same name.
func (e *encoder) replacedAmongFew(members []int, i int) bool {
	name := e.name(members[i])
	return slices.ContainsFunc(members[i+1:], func(later int) bool { return bytes.Equal(e.name(later), name) })
}

var seed = maphash.MakeSeed()

// clearTable makes an empty table for a number of members. At least half of it stays empty.
func (e *encoder) clearTable(members int) {
	size := 1 << bits.Len(uint(2*members))
	e.table = slices.Grow(e.table[:0], size)[:size]
	clear(e.table)
}

// replacedAmongMany is replacedAmongFew, if it is called for the members from the last one to the first.
func (e *encoder) replacedAmongMany(members []int, i int) bool {
	name := e.name(members[i])
	mask := uint64(len(e.table) - 1)
	at := maphash.Bytes(seed, name) & mask
	for ; e.table[at] != 0; at = (at + 1) & mask {
		if bytes.Equal(e.name(members[e.table[at]-1]), name) {
			return true
		}
	}
	e.table[at] = int32(i) + 1
	return false
}

// cut returns the output without the members that were dropped. It moves what is after them once, however deep they are.
func (e *encoder) cut() []byte {
	if len(e.dropped) == 0 {
		return e.out
	}
	slices.SortFunc(e.dropped, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	kept, next := e.out[:e.dropped[0].start], e.dropped[0].start
	for _, d := range e.dropped {
		if d.start > next {
			kept = append(kept, e.out[next:d.start]...)
		}
		next = max(next, d.end)
	}
	return append(kept, e.out[next:]...)
}
