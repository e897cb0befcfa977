package selector

import (
	"strconv"
	"strings"
)

// path is the path of a field from the document or element down. The zero path is the document or
// element itself.
type path struct {
	name  string // as in the selector, joined with dots
	names []string
}

// parsePath splits the names of fields, joined with dots. A name may have dots itself: {"a": {"b.c": 1}}
// is about a, b and c, as in CouchDB.
func parsePath(name string) (path, error) {
	if name == "" {
		return path{}, nil
	}
	names := splitName(name)
	for i, n := range names {
		if n == "" {
			return path{}, &Error{Name: "invalid_field_name", Reason: "Invalid field name: " + name}
		}
		names[i] = strings.ReplaceAll(n, `\`, "")
	}
	return path{name, names}, nil
}

// splitName splits a name at its dots, except those after a backslash.
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

// lookupResult is the result of finding a path in a document.
type lookupResult int

const (
	found lookupResult = iota
	missing
	unreachable // through a value that is not an object, or past an array's end: not even $exists false matches
)

func (p path) find(w *work, v value) (value, lookupResult) {
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

// element returns an array's element by its index, from 0, in decimal with or without a sign.
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
