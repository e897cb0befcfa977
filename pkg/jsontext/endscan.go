package jsontext

import "bytes"

// endScan finds the end of a JSON value that arrives in pieces. It follows strings and brackets only, and does not check
// that the value is JSON.
type endScan struct {
	depth   int
	str     bool // inside a string
	escaped bool // after a backslash in it
	bare    bool // inside a number or a word, which has no end of its own
}

// scan returns the number of bytes at the beginning of b that belong to the value, and whether the value ends there.
func (s *endScan) scan(b []byte) (int, bool) {
	for i := 0; i < len(b); i++ {
		if s.str {
			i += s.skipString(b[i:])
			if i == len(b) {
				return i, false
			}
			if s.depth == 0 {
				return i + 1, true
			}
			continue
		}
		switch c := b[i]; c {
		case '"', '{', '[', ',', ':', ' ', '\t', '\r', '\n', '}', ']':
			if s.bare && s.depth == 0 {
				return i, true
			}
			switch c {
			case '"':
				s.str = true
			case '{', '[':
				s.depth++
			case '}', ']':
				s.depth--
			}
			if s.depth < 0 || (s.depth == 0 && !s.str) {
				return i + 1, true
			}
		default:
			s.bare = s.depth == 0
		}
	}
	return len(b), false
}

// skipString returns the index of the quote that ends the string, or len(b).
func (s *endScan) skipString(b []byte) int {
	i := 0
	if s.escaped {
		s.escaped = false
		i = 1
	}
	for end := -1; i < len(b); {
		if end < i {
			if end = bytes.IndexByte(b[i:], '"'); end < 0 {
				end = len(b)
			} else {
				end += i
			}
		}
		escape := bytes.IndexByte(b[i:end], '\\')
		if escape < 0 {
			s.str = end == len(b)
			return end
		}
		i += escape + 2
	}
	s.escaped = i > len(b) // the backslash was the last byte
	return len(b)
}
