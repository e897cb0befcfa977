package selector

import (
	"bytes"
	"errors"
	"math"

	"settee/pkg/jsontext"
)

// kind is what a JSON value is. The constants are in collation order.
type kind uint8

const (
	kindNull kind = iota
	kindFalse
	kindTrue
	kindNumber
	kindString
	kindArray
	kindObject
)

// name is the kind as $type has it.
func (k kind) name() string {
	switch k {
	case kindNull:
		return "null"
	case kindFalse, kindTrue:
		return "boolean"
	case kindNumber:
		return "number"
	case kindString:
		return "string"
	case kindArray:
		return "array"
	default:
		return "object"
	}
}

// tape is a JSON text and where its values are: one entry per value and per
// object key, in the order of the text, so that a large document costs one
// slice and a number or a string is decoded only if something asks for it.
type tape struct {
	text    []byte
	entries []entry
}

// entry is a value or a key of an object. Behind an array come its elements,
// behind an object its keys, each followed by its value.
type entry struct {
	start, end uint32 // text[start:end]
	next       uint32 // the first entry behind this value and all that is in it
	kind       kind
	escaped    bool // a string that has a backslash
}

// value is one value of a tape.
type value struct {
	tape  *tape
	index uint32
}

var (
	errInvalidJSON = errors.New("invalid UTF-8 JSON")
	errTooLong     = errors.New("JSON text of more than 2 GB")
)

// boolean returns the value true or false.
func boolean(b bool) value {
	t := &tape{text: []byte("false"), entries: []entry{{end: 5, next: 1, kind: kindFalse}}}
	if b {
		t = &tape{text: []byte("true"), entries: []entry{{end: 4, next: 1, kind: kindTrue}}}
	}
	return value{tape: t}
}

// decode reads a JSON text of up to 10,000 levels. It keeps the text.
func decode(text []byte) (value, error) {
	if len(text) > math.MaxInt32 {
		return value{}, errTooLong
	}
	if !jsontext.Valid(text) {
		return value{}, errInvalidJSON
	}
	t := &tape{text: text}
	var open []int // the entries of the arrays and objects that have not ended
	tokens := jsontext.ReadTokens(text)
	for token, more := tokens.Next(); more; token, more = tokens.Next() {
		at := len(t.entries)
		switch token.Kind {
		case '{', '[':
			open = append(open, at)
		case '}', ']':
			at, open = open[len(open)-1], open[:len(open)-1]
			t.entries[at].end, t.entries[at].next = uint32(token.End), uint32(len(t.entries))
			continue
		}
		t.entries = append(t.entries, entry{
			start: uint32(token.Start), end: uint32(token.End), next: uint32(at + 1), kind: kinds[token.Kind],
			escaped: token.Kind == '"' && bytes.IndexByte(text[token.Start:token.End], '\\') >= 0,
		})
	}
	return value{tape: t}, nil
}

// kinds are the kinds of jsontext's tokens.
var kinds = [256]kind{
	'n': kindNull, 'f': kindFalse, 't': kindTrue, '0': kindNumber, '"': kindString, '[': kindArray, '{': kindObject,
}

func (v value) entry() entry { return v.tape.entries[v.index] }
func (v value) kind() kind   { return v.entry().kind }

// literal is the value's JSON text.
func (v value) literal() []byte {
	e := v.entry()
	return v.tape.text[e.start:e.end]
}

// elements yields an array's elements.
func (v value) elements(yield func(value) bool) {
	entries := v.tape.entries
	for i := v.index + 1; i < v.entry().next; i = entries[i].next {
		if !yield(value{v.tape, i}) {
			return
		}
	}
}

// list returns an array's elements.
func (v value) list() []value {
	var all []value
	for e := range v.elements {
		all = append(all, e)
	}
	return all
}

// pairs yields an object's keys and values as they stand, duplicates included.
func (v value) pairs(yield func(key, val value) bool) {
	entries := v.tape.entries
	for i := v.index + 1; i < v.entry().next; i = entries[i+1].next {
		if !yield(value{v.tape, i}, value{v.tape, i + 1}) {
			return
		}
	}
}

// member is one of an object's keys with its value.
type member struct {
	key   string
	value value
}

// members returns an object's members in their order. Of those with the same
// key the last stays, where it stands, as when CouchDB reads a document.
func (w *work) members(v value) []member {
	var all []member
	last := make(map[string]int)
	for k, val := range v.pairs {
		w.spend(stepsPerMember)
		key := w.str(k)
		last[key] = len(all)
		all = append(all, member{key, val})
	}
	if len(last) == len(all) {
		return all
	}
	kept := all[:0]
	for i, m := range all {
		if last[m.key] == i {
			kept = append(kept, m)
		}
	}
	return kept
}

// get returns an object's value for a key.
func (w *work) get(v value, key string) (found value, ok bool) {
	for k, val := range v.pairs {
		w.spend(1)
		if w.equals(k, key) {
			found, ok = val, true
		}
	}
	return found, ok
}

// str is a string's characters.
func (w *work) str(v value) string {
	text := v.literal()
	if !v.entry().escaped {
		w.spend(len(text) / bytesPerStep)
		return string(text[1 : len(text)-1])
	}
	w.spend(len(text))
	s, _ := jsontext.String(text) // decode has checked the text
	return s
}

// equals says whether a string is s.
func (w *work) equals(v value, s string) bool {
	if v.entry().escaped {
		return w.str(v) == s
	}
	text := v.literal()
	return string(text[1:len(text)-1]) == s
}
