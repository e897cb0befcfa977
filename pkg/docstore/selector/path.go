package selector

import (
	"strconv"
	"strings"
)

// path is where a field is, as names from the document or the element down. The
// zero path is the document or element itself.
type path struct {
	name  string // as the selector has it, joined with dots
	names []string
}

// join returns the path of a field below p. It is read anew from the joined
// name, as in CouchDB: {"a": {"b.c": 1}} is about a, b and c.
func (p path) join(name string) (path, error) {
	if p.name != "" {
		name = p.name + "." + name
	}
	if name == "" {
		return path{}, nil
	}
	names := splitName(name)
	for i, n := range names {
		if n == "" {
			return path{}, &Error{"invalid_field_name", "Invalid field name: " + name}
		}
		names[i] = strings.ReplaceAll(n, `\`, "")
	}
	return path{name, names}, nil
}

// splitName splits a name at its dots, but for those behind a backslash.
func splitName(name string) []string {
	var names []string
	start := 0
	for i := range len(name) {
		if name[i] == '.' && (i == 0 || name[i-1] != '\\') {
			names = append(names, name[start:i])
			start = i + 1
		}
	}
	return append(names, name[start:])
}

// whereabouts is what became of a path in a document.
type whereabouts int

const (
	found whereabouts = iota
	missing
	unreachable // through no object, or past an array's end: not even $exists false matches
)

func (p path) find(w *work, v value) (value, whereabouts) {
	for _, name := range p.names {
		switch v.kind() {
		case kindObject:
			next, ok := w.get(v, name)
			if !ok {
				return value{}, missing
			}
			v = next
		case kindArray:
			next, ok := w.element(v, name)
			if !ok {
				return value{}, unreachable
			}
			v = next
		default:
			return value{}, unreachable
		}
	}
	return v, found
}

// element returns an array's element by its position, counted from 0 and
// written in decimal, with a sign or without.
func (w *work) element(array value, position string) (value, bool) {
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil || n < 0 {
		return value{}, false
	}
	for e := range array.elements {
		w.spend(1)
		if n == 0 {
			return e, true
		}
		n--
	}
	return value{}, false
}
