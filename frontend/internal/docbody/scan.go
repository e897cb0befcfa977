package docbody

import (
	"encoding/json"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// windowSize is how much of a spool is looked at at a time.
const windowSize = 64 << 10

// scanner passes over JSON in one go. It finds where values begin and end, checks the
// strings and that brackets are balanced; what is kept is checked by encoding/json. It
// does not recurse: how deep values are nested does not matter.
type scanner struct {
	from io.ReaderAt
	// window is what was read and not passed over yet; offset is where it ends.
	window []byte
	buffer []byte
	offset int64
	// into is where to copy what is passed over; nil is nowhere.
	into *capped
	// key is the name of the member that was passed over last, as it is written.
	key capped
	// scratch is a buffer for whoever uses the scanner.
	scratch []byte
	// failed is the error of from.
	failed error
}

// newScanner returns a scanner of a text, or of a part of one, that begins at an offset.
func newScanner(from sized, offset int64) *scanner {
	return &scanner{
		from: from, offset: offset, buffer: make([]byte, min(windowSize, from.Size())), key: capped{most: maxSpecial},
	}
}

// sized is a [Spool], or a section of one.
type sized interface {
	io.ReaderAt
	Size() int64
}

// capped is text up to a size. Of more than that nothing is kept.
type capped struct {
	text []byte
	most int64
	over bool
}

func (c *capped) add(text []byte) {
	if c.over || int64(len(c.text)+len(text)) > c.most {
		c.over, c.text = true, nil
		return
	}
	c.text = append(c.text, text...)
}

func (c *capped) addText(text string) { c.add([]byte(text)) }

// fill reports whether there is more; it reads it if it has to.
func (s *scanner) fill() bool {
	if len(s.window) > 0 {
		return true
	}
	n, err := s.from.ReadAt(s.buffer, s.offset)
	s.offset += int64(n)
	s.window = s.buffer[:n]
	if n == 0 && err != io.EOF {
		s.failed = err
	}
	return n > 0
}

// at returns where the scanner is.
func (s *scanner) at() int64 { return s.offset - int64(len(s.window)) }

// peek returns the next byte; 0, which no JSON has, if there is none.
func (s *scanner) peek() byte {
	if !s.fill() {
		return 0
	}
	return s.window[0]
}

// pass passes over bytes of the window.
func (s *scanner) pass(n int) {
	if s.into != nil {
		s.into.add(s.window[:n])
	}
	s.window = s.window[n:]
}

// bad is the error of text that is not JSON: or of reading it.
func (s *scanner) bad() error {
	if s.failed != nil {
		return s.failed
	}
	return errJSON
}

// space passes over white space and returns what is behind it.
func (s *scanner) space() byte {
	for {
		c := s.peek()
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.pass(1)
	}
}

// expect passes over white space and one byte.
func (s *scanner) expect(c byte) error {
	if s.space() != c {
		return s.bad()
	}
	s.pass(1)
	return nil
}

// end passes over what may be behind a value that is all of the text.
func (s *scanner) end() error {
	if s.space() != 0 || s.fill() || s.failed != nil {
		return s.bad()
	}
	return nil
}

// beginsValue reports whether JSON may begin so.
func beginsValue(c byte) bool {
	return c != 0 && strings.IndexByte(`{["-0123456789tfn`, c) >= 0
}

// value passes over any value.
func (s *scanner) value() error {
	for depth := 0; ; {
		switch s.space() {
		case '"':
			if err := s.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.pass(1)
			continue
		case '}', ']':
			if depth == 0 {
				return s.bad()
			}
			depth--
			s.pass(1)
		case ',', ':':
			if depth == 0 {
				return s.bad()
			}
			s.pass(1)
			continue
		case 0:
			return s.bad()
		default:
			s.scalar()
		}
		if depth == 0 {
			return nil
		}
	}
}

// scalar passes over a number, true, false, null, or something that is no JSON.
func (s *scanner) scalar() {
	for s.fill() {
		n := 0
		for n < len(s.window) && !delimits(s.window[n]) {
			n++
		}
		more := n == len(s.window)
		s.pass(n)
		if !more {
			return
		}
	}
}

func delimits(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':', ']', '}', '[', '{', '"':
		return true
	}
	return false
}

// text passes over a string.
func (s *scanner) text() error {
	s.pass(1)
	for s.fill() {
		n := 0
		for n < len(s.window) && s.window[n] != '"' && s.window[n] != '\\' && s.window[n] >= ' ' {
			n++
		}
		if n == len(s.window) {
			s.pass(n)
			continue
		}
		c := s.window[n]
		s.pass(n)
		switch c {
		case '"':
			s.pass(1)
			return nil
		case '\\':
			if _, err := s.escape(); err != nil {
				return err
			}
		default:
			return errJSON
		}
	}
	return s.bad()
}

// escape passes over an escape, or over two that are a surrogate pair, and returns what
// it stands for.
func (s *scanner) escape() (rune, error) {
	s.pass(1)
	c := s.peek()
	if c == 'u' {
		return s.unicode()
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return 0, s.bad()
	}
	s.pass(1)
	return rune("\"\\/\b\f\n\r\t"[i]), nil
}

func (s *scanner) unicode() (rune, error) {
	first, err := s.unit()
	if err != nil || !utf16.IsSurrogate(first) {
		return first, err
	}
	if s.peek() != '\\' {
		return 0, s.bad()
	}
	s.pass(1)
	if s.peek() != 'u' {
		return 0, s.bad()
	}
	second, err := s.unit()
	if err != nil {
		return 0, err
	}
	both := utf16.DecodeRune(first, second)
	if both == utf8.RuneError {
		return 0, errJSON
	}
	return both, nil
}

// unit passes over the uXXXX of an escape.
func (s *scanner) unit() (rune, error) {
	s.pass(1)
	var unit rune
	for range 4 {
		c := s.peek()
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if digit < 0 || c < '0' { // c|0x20 is a digit for some control characters too
			return 0, s.bad()
		}
		unit = unit<<4 | rune(digit)
		s.pass(1)
	}
	return unit, nil
}

// members passes over an object. each has to pass over the value of each member; how its
// name is written is in s.key.
func (s *scanner) members(each func(name string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.space() == '}' {
		s.pass(1)
		return nil
	}
	for {
		name, err := s.name()
		if err == nil {
			err = s.expect(':')
		}
		if err != nil {
			return err
		}
		s.space()
		if err := each(name); err != nil {
			return err
		}
		if s.space() == '}' {
			s.pass(1)
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// elements passes over a list. each has to pass over each of its values.
func (s *scanner) elements(each func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.space() == ']' {
		s.pass(1)
		return nil
	}
	for {
		s.space()
		if err := each(); err != nil {
			return err
		}
		if s.space() == ']' {
			s.pass(1)
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// name passes over the name of a member.
func (s *scanner) name() (string, error) {
	if s.space() != '"' {
		return "", s.bad()
	}
	s.key.text, s.key.over = s.key.text[:0], false
	s.into = &s.key
	err := s.text()
	s.into = nil
	switch {
	case err != nil:
		return "", err
	case s.key.over:
		return "", refuse(DocumentTooLarge, "the name of a member has more than %d bytes", s.key.most)
	}
	name := string(s.key.text[1 : len(s.key.text)-1])
	if !utf8.ValidString(name) {
		return "", errJSON
	}
	if strings.IndexByte(name, '\\') < 0 {
		return name, nil
	}
	if err := json.Unmarshal(s.key.text, &name); err != nil {
		return "", errJSON
	}
	return name, nil
}
