package docbody

import (
	"bufio"
	"io"
)

// content is a base64 string in a spool.
type content struct {
	// offset and size give its position, without its quotes.
	offset, size int64
	// plain is true if it has no escapes and no white space.
	plain bool
	// length is the decoded size in bytes, if it is valid.
	length int64
	found  bool
	base64 base64Check
}

func (c *content) good() bool { return c.found && c.base64.done() }

// base64Check checks base64 piece by piece, and skips white space.
type base64Check struct {
	digits, padding int64
	bad             bool
}

// Write implements io.Writer. It never fails.
func (b *base64Check) Write(part []byte) (int, error) {
	n := 0
	if b.padding == 0 {
		n = pastBase64(part)
	}
	b.digits += int64(n)
	for _, c := range part[n:] { // usually a few digits and the padding
		switch {
		case notBase64[c] == 0 && b.padding == 0:
			b.digits++
		case c == '=':
			b.padding++
		case !isSpace(c):
			b.bad = true
		}
	}
	return len(part), nil
}

// pastBase64 returns a number of base64 digits that b begins with. At most seven more may follow.
func pastBase64(b []byte) (n int) {
	for ; n+8 <= len(b); n += 8 {
		c := b[n : n+8]
		if notBase64[c[0]]|notBase64[c[1]]|notBase64[c[2]]|notBase64[c[3]]|notBase64[c[4]]|notBase64[c[5]]|notBase64[c[6]]|notBase64[c[7]] != 0 {
			break
		}
	}
	return n
}

// notBase64 is 0 for the base64 digits, and 1 for all other bytes.
var notBase64 = func() (not [256]uint8) {
	for c := range not {
		not[c] = 1
	}
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		not[c] = 0
	}
	return not
}()

func (b *base64Check) done() bool {
	return !b.bad && b.padding <= 2 && (b.digits+b.padding)%4 == 0
}

func (b *base64Check) length() int64 { return (b.digits+b.padding)/4*3 - b.padding }

// content reads a string, and checks that it is base64.
func (s *scanner) content() (content, error) {
	text, err := s.OpenString()
	if err != nil {
		return content{}, err
	}
	c := content{offset: s.at(), found: true}
	if _, err := text.WriteTo(&c.base64); err != nil {
		return c, err
	}
	c.size = s.at() - 1 - c.offset // without the closing quote
	c.plain = c.size == c.base64.digits+c.base64.padding
	c.length = c.base64.length()
	return c, nil
}

// isSpace reports whether CouchDB skips a character in base64.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (c *content) open(spool *Spool) io.Reader {
	if c.plain {
		return bufio.NewReaderSize(io.NewSectionReader(spool, c.offset, c.size), windowSize)
	}
	return &blankless{quoted: newScanner(spool, c.offset-1, c.size+2)} // with its quotes
}

// blankless reads a string and skips white space.
type blankless struct {
	quoted *scanner
	text   io.Reader // nil before the first Read
}

// Read implements io.Reader.
func (b *blankless) Read(p []byte) (int, error) {
	if b.text == nil {
		text, err := b.quoted.OpenString()
		if err != nil {
			return 0, err
		}
		b.text = text
	}
	for {
		n, err := b.text.Read(p)
		kept := 0
		for _, c := range p[:n] {
			if !isSpace(c) {
				p[kept] = c
				kept++
			}
		}
		if kept > 0 || err != nil || len(p) == 0 {
			return kept, err
		}
	}
}
