package docbody

import (
	"bufio"
	"io"
)

// content is a string of base64 in a spool.
type content struct {
	// offset and size are where it is, without its quotes.
	offset, size int64
	// plain says that it has nothing but base64: no escapes, no white space.
	plain bool
	// length is how many bytes it stands for, if it is base64.
	length int64
	found  bool
	base64 base64Check
}

func (c *content) good() bool { return c.found && c.base64.done() }

// base64Check checks base64 digit by digit.
type base64Check struct {
	digits, padding int64
	bad             bool
}

func (b *base64Check) add(c byte) {
	switch {
	case c == '=':
		b.padding++
	case !isBase64(c) || b.padding > 0:
		b.bad = true
	default:
		b.digits++
	}
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

func (b *base64Check) done() bool {
	return !b.bad && b.padding <= 2 && (b.digits+b.padding)%4 == 0
}

func (b *base64Check) length() int64 { return (b.digits+b.padding)/4*3 - b.padding }

// content passes over a string, and checks that it is base64.
func (s *scanner) content() (content, error) {
	s.pass(1)
	c := content{offset: s.at(), plain: true, found: true}
	for s.fill() {
		n := 0
		for n < len(s.window) && isBase64(s.window[n]) {
			n++
		}
		if c.base64.padding > 0 && n > 0 {
			c.base64.bad = true
		}
		c.base64.digits += int64(n)
		s.pass(n)
		if len(s.window) == 0 {
			continue
		}
		switch char := s.window[0]; {
		case char == '"':
			c.size = s.at() - c.offset
			c.length = c.base64.length()
			s.pass(1)
			return c, nil
		case char == '\\':
			c.plain = false
			char, err := s.escape()
			if err != nil {
				return c, err
			}
			if !isSpace(char) {
				c.base64.add(byte(min(char, 0xff)))
			}
		case char < ' ':
			return c, errJSON
		case char == ' ':
			c.plain = false
			s.pass(1)
		default:
			c.base64.add(char)
			s.pass(1)
		}
	}
	return c, s.bad()
}

// isSpace reports whether CouchDB passes over a character in base64.
func isSpace(c rune) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// open returns a reader of the base64.
func (c *content) open(spool *Spool) io.Reader {
	section := io.NewSectionReader(spool, c.offset, c.size)
	if c.plain {
		return bufio.NewReaderSize(section, windowSize)
	}
	return &unescaping{newScanner(section, 0)}
}

// unescaping reads the base64 out of a string that has escapes and white space.
type unescaping struct{ *scanner }

// Read implements io.Reader.
func (u *unescaping) Read(p []byte) (int, error) {
	for n := 0; ; {
		if n == len(p) || n > 0 && len(u.window) == 0 {
			return n, nil
		}
		switch c := u.peek(); c {
		case 0:
			if u.failed != nil {
				return n, u.failed
			}
			return n, io.EOF
		case ' ':
			u.pass(1)
		case '\\':
			char, err := u.escape()
			if err != nil {
				return n, err
			}
			if !isSpace(char) {
				p[n] = byte(char)
				n++
			}
		default:
			u.pass(1)
			p[n] = c
			n++
		}
	}
}
