package selector

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"unicode/utf8"
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

// decode reads a JSON text of up to 10,000 levels. It keeps the text.
func decode(text []byte) (value, error) {
	if len(text) > math.MaxInt32 {
		return value{}, errTooLong
	}
	if !utf8.Valid(text) || !json.Valid(text) {
		return value{}, errInvalidJSON
	}
	t := &tape{text: text}
	t.scan(t.space(0))
	return value{tape: t}, nil
}

// scan appends the value that begins at text[i] and returns where it ends. The
// text is valid: nothing is checked again.
func (t *tape) scan(i int) int {
	at := len(t.entries)
	t.entries = append(t.entries, entry{start: uint32(i)})
	var k kind
	end := i
	switch t.text[i] {
	case '{':
		k, end = kindObject, t.scanMembers(i+1)
	case '[':
		k, end = kindArray, t.scanElements(i+1)
	case '"':
		k = kindString
		end, t.entries[at].escaped = t.quoted(i)
	case 'n':
		k, end = kindNull, i+len("null")
	case 'f':
		k, end = kindFalse, i+len("false")
	case 't':
		k, end = kindTrue, i+len("true")
	default:
		k = kindNumber
		for end < len(t.text) && strings.IndexByte("+-.0123456789eE", t.text[end]) >= 0 {
			end++
		}
	}
	e := &t.entries[at]
	e.kind, e.end, e.next = k, uint32(end), uint32(len(t.entries))
	return end
}

func (t *tape) scanElements(i int) int {
	for {
		i = t.space(i)
		switch t.text[i] {
		case ']':
			return i + 1
		case ',':
			i++
		default:
			i = t.scan(i)
		}
	}
}

func (t *tape) scanMembers(i int) int {
	for {
		i = t.space(i)
		switch t.text[i] {
		case '}':
			return i + 1
		case ',', ':':
			i++
		default:
			i = t.scan(i)
		}
	}
}

func (t *tape) space(i int) int {
	for i < len(t.text) && (t.text[i] == ' ' || t.text[i] == '\t' || t.text[i] == '\r' || t.text[i] == '\n') {
		i++
	}
	return i
}

// quoted returns where the string that begins at text[i] ends.
func (t *tape) quoted(i int) (end int, escaped bool) {
	for i++; t.text[i] != '"'; i++ {
		if t.text[i] == '\\' {
			escaped = true
			i++
		}
	}
	return i + 1, escaped
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

// length is the number of an array's elements.
func (v value) length() int {
	n := 0
	for range v.elements {
		n++
	}
	return n
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
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err) // decode has checked the text
	}
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
