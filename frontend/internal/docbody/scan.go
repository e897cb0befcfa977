package docbody

import (
	"errors"
	"io"
	"strings"

	"settee/pkg/jsontext"
)

// windowSize is the number of bytes read from a spool at a time.
const windowSize = jsontext.Window

// scanner reads a part of a spool that begins at start.
type scanner struct {
	*jsontext.Reader
	start int64
	// key is the name of the last member, as written. It is valid until the next one.
	key []byte
	// scratch is the buffer of the last small body.
	scratch []byte
}

func newScanner(spool *Spool, start, size int64) *scanner {
	s := &scanner{
		Reader: jsontext.NewReader(io.NewSectionReader(spool, start, size), int(min(windowSize, size))), start: start,
	}
	s.Surrogates = jsontext.PairedSurrogates
	return s
}

// capped holds text up to a size. It keeps nothing of a longer text.
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

// Write implements io.Writer. It never fails.
func (c *capped) Write(text []byte) (int, error) {
	c.add(text)
	return len(text), nil
}

// at returns the scanner's position in the spool.
func (s *scanner) at() int64 { return s.start + s.Offset() }

// wrong returns the error for the client if err is about malformed JSON, otherwise err.
func wrong(err error) error {
	if errors.Is(err, jsontext.ErrSyntax) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errJSON
	}
	return err
}

// begins reports whether the next value begins with c.
func (s *scanner) begins(c byte) bool {
	next, err := s.Next()
	return err == nil && next == c
}

// object requires that the next value is an object. other is the error for another value.
func (s *scanner) object(other error) error {
	c, err := s.Next()
	switch {
	case err != nil:
		return err
	case c == '{':
		return nil
	case strings.IndexByte(`["-0123456789tfn`, c) >= 0:
		return other
	}
	return errJSON
}

// end requires that nothing follows.
func (s *scanner) end() error {
	_, err := s.Peek()
	switch {
	case err == nil:
		return errJSON
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// members reads an object. each must read the value of each member.
func (s *scanner) members(each func(name string) error) error {
	if err := s.Open('{'); err != nil {
		return err
	}
	for {
		more, err := s.More('}')
		if err != nil || !more {
			return err
		}
		s.key, err = s.Name(maxSpecial)
		if errors.Is(err, jsontext.ErrTooLarge) {
			return refuse(DocumentTooLarge, "the name of a member has more than %d bytes", maxSpecial)
		}
		if err != nil {
			return err
		}
		name, _ := jsontext.String(s.key)
		if err := each(name); err != nil {
			return err
		}
	}
}

// elements reads an array. each must read each value.
func (s *scanner) elements(each func() error) error {
	if err := s.Open('['); err != nil {
		return err
	}
	for {
		more, err := s.Element()
		if err != nil || !more {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}
