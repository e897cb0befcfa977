package couch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The functions below read values that are known to be JSON.

// member is one member of an object, by its place in the object's bytes.
type member struct {
	key        []byte // without its quotes; if it has escapes, what they stand for
	start, end int    // from the key's quote to the end of the value
	keyEnd     int    // after the quote that ends the key
	value      int    // where the value begins
}

// memberScan walks over the members of an object and checks them on its way: of bytes that nobody has
// looked at yet, once is enough.
type memberScan struct {
	member // the one that it is at
	b      []byte
	i      int // where the next member begins, or where the object ends
	bad    int // if it is neither: notJSON or notWhole
}

// scanMembers begins with the object that b begins with. More may follow it.
func scanMembers(b []byte) memberScan {
	s := memberScan{b: b, i: pastBlank(b, 1)}
	if s.i == len(b) {
		s.bad = notWhole
	}
	return s
}

// next goes to the next member, and returns false after the last, or if there is none that could be read.
func (s *memberScan) next() bool { return s.name() && s.pass(checkAt(s.b, s.value, 1)) }

// name is next without the value's end, which pass is to be told.
func (s *memberScan) name() bool {
	if !s.spelled() {
		return false
	}
	s.resolve()
	return true
}

// resolve makes of a key as it is spelled what it stands for.
func (m *member) resolve() {
	if bytes.IndexByte(m.key, '\\') < 0 {
		return
	}
	spelled := append(append([]byte{'"'}, m.key...), '"')
	if text, err := unquote(spelled); err == nil {
		m.key = []byte(text)
	}
}

// spelled is name with the key as it is spelled, escapes and all.
func (s *memberScan) spelled() bool {
	b, i := s.b, s.i
	switch {
	case s.bad != 0 || b[i] == '}':
		return false
	case b[i] != '"':
		s.bad = notJSON
		return false
	}
	end := checkString(b, i+1)
	if end < 0 {
		s.bad = end
		return false
	}
	s.start, s.keyEnd, s.key = i, end, b[i+1:end-1]
	switch colon := pastBlank(b, end); {
	case colon == len(b):
		s.bad = notWhole
	case b[colon] != ':':
		s.bad = notJSON
	default:
		s.value = pastBlank(b, colon+1)
		return true
	}
	return false
}

// special is spelled for the next member whose name may begin with an underscore, past all others.
func (s *memberScan) special() bool {
	if s.bad == 0 && s.b[s.i] != '}' {
		switch next, last := pastOrdinary(s.b, s.i); {
		case next < 0:
			s.bad = next
		case last:
			s.i = next - 1
		default:
			s.i = next
		}
	}
	return s.spelled()
}

// pass steps over a member whose value ends at end, if it does.
func (s *memberScan) pass(end int) bool {
	if end < 0 {
		s.bad = end
		return false
	}
	s.member.end = end
	i := pastBlank(s.b, end)
	switch {
	case i == len(s.b):
		s.bad = notWhole
	case s.b[i] == ',':
		if i = pastBlank(s.b, i+1); i == len(s.b) {
			s.bad = notWhole
		} else if s.b[i] == '}' {
			s.bad = notJSON
		}
	case s.b[i] != '}':
		s.bad = notJSON
	}
	s.i = i
	return s.bad == 0
}

// over returns the index after the object of which all members were returned, or why it has none.
func (s *memberScan) over() int {
	if s.bad != 0 {
		return s.bad
	}
	return s.i + 1
}

// members calls visit for each member of object, until it returns false.
func members(object []byte, visit func(member) bool) {
	scan := scanMembers(object)
	for scan.name() && scan.pass(valueEnd(object, scan.value)) && visit(scan.member) {
		continue
	}
}

// elements calls visit for each element of array, until it returns false.
func elements(array []byte, visit func([]byte) bool) {
	for i := pastBlank(array, 1); array[i] != ']'; {
		end := valueEnd(array, i)
		if !visit(array[i:end]) {
			return
		}
		if i = pastBlank(array, end); array[i] == ',' {
			i = pastBlank(array, i+1)
		}
	}
}

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
func isArray(raw []byte) bool  { return len(raw) > 0 && raw[0] == '[' }

// unquote returns what a JSON string stands for.
func unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", fmt.Errorf("%w: %s where a string should be", ErrMalformed, excerpt(string(raw)))
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// unquoteAs is unquote for a string that is most likely want, which it returns then.
func unquoteAs(raw []byte, want string) (string, error) {
	if len(raw) == len(want)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == want && strings.IndexByte(want, '\\') < 0 {
		return want, nil
	}
	return unquote(raw)
}
