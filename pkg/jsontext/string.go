package jsontext

import (
	"io"
	"unicode/utf8"
)

// StringReader reads the text of a string of any size, without its quotes and escapes, as UTF-8.
type StringReader struct {
	j    *Reader
	rest []byte // the rest of a character, of which Read has returned a part
	over bool
}

// OpenString steps into a string. The caller has to read it to its end before it goes on.
func (j *Reader) OpenString() (*StringReader, error) {
	if err := j.Open('"'); err != nil {
		return nil, err
	}
	return &StringReader{j: j}, nil
}

// Read implements io.Reader. Besides io.EOF it returns the errors of the [Reader].
func (s *StringReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	part, err := s.next(len(p))
	return copy(p, part), err
}

// WriteTo implements io.WriterTo. It writes from the window, without a copy.
func (s *StringReader) WriteTo(w io.Writer) (int64, error) {
	written := int64(0)
	for {
		part, err := s.next(len(s.j.window))
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
		n, err := w.Write(part)
		if written += int64(n); err != nil {
			return written, err
		}
	}
}

// next returns the next part of the text, of at most most bytes.
func (s *StringReader) next(most int) ([]byte, error) {
	j := s.j
	for {
		if n := min(len(s.rest), most); n > 0 {
			part := s.rest[:n]
			s.rest = s.rest[n:]
			return part, nil
		}
		if s.over {
			return nil, io.EOF
		}
		if j.pos == j.n {
			if err := j.fill(); err != nil {
				return nil, cut(err)
			}
		}
		b := j.Ahead()
		if n := PastPlain(b[:min(len(b), most)], 0); n > 0 {
			j.pos += n
			return b[:n], nil
		}
		if err := s.special(); err != nil {
			return nil, err
		}
	}
}

// special reads a part that is not plain: the end, an escape, or a character that is not ASCII.
func (s *StringReader) special() error {
	j := s.j
	r, size := decodeSpecial(j.Ahead(), j.Surrogates)
	for size == NotWhole {
		j.shift()
		if err := j.read(); err != nil {
			return cut(err)
		}
		r, size = decodeSpecial(j.Ahead(), j.Surrogates)
	}
	switch {
	case size < 0:
		return j.unexpected(j.Ahead()[0], "a character of a string")
	case j.Ahead()[0] == '"':
		s.over, j.comma = true, true
	default:
		s.rest = utf8.AppendRune(s.rest[:0], r)
	}
	j.pos += size
	return nil
}

// decodeSpecial returns the character at the beginning of b, which may be an escape, and its size in bytes.
func decodeSpecial(b []byte, s Surrogates) (r rune, size int) {
	switch {
	case b[0] == '\\':
		return decodeEscape(b, s)
	case b[0] < ' ':
		return 0, NotJSON
	case !utf8.FullRune(b):
		return 0, NotWhole
	}
	if r, size = utf8.DecodeRune(b); r == utf8.RuneError && size == 1 {
		return r, NotJSON
	}
	return r, size
}
