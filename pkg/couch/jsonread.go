package couch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// jsonReader reads a JSON text piece by piece: it steps into objects and arrays, and hands out the
// values in them as the bytes that came. It holds its window and at most one value, never the text.
//
// encoding/json's Decoder would do, but for three things: it has no limit on the size of a value, it
// reads every value twice, and it cannot tell a text that was cut off from one that ended.
type jsonReader struct {
	r       io.Reader
	window  []byte
	pos, n  int   // window[pos:n] is read and not yet consumed
	base    int64 // offset of window[0] in the text
	comma   bool  // a value was read in this object or array: a comma must stand before the next
	blank   int   // how much white space may stand in one place; 0 for any amount
	live    bool  // the text comes now and then, for a long time: see fit
	scratch []byte

	// onBlank, if not nil, is told how much white space was skipped in one place, each time before more is
	// read. It may end the reading.
	onBlank func(skipped int64) error
	// large, if not nil, is called before a value takes more than largeValue bytes. It may wait, and end the
	// reading.
	large func() error

	pooled *[bulkWindow]byte // what window is, if it is a pooled one
}

const (
	// largeValue is the size in bytes of a value for which there must be room.
	largeValue = 1 << 20
	// bulkWindow is the size in bytes of the read buffer of an answer with many values.
	bulkWindow = 64 << 10
	// liveWindow is the size in bytes that the read buffer of a feed begins with. Thousands of feeds may
	// wait at a time.
	liveWindow = 512
	// maxScratch and maxLiveScratch are how much of what one huge value needed is kept for the many small
	// ones after it.
	maxScratch     = 1 << 20
	maxLiveScratch = 4 << 10
)

var windows = sync.Pool{New: func() any { return new([bulkWindow]byte) }}

func newJSONReader(r io.Reader, window int) *jsonReader {
	j := &jsonReader{r: r, blank: 1 << 20}
	if window == bulkWindow {
		j.pooled = windows.Get().(*[bulkWindow]byte)
		j.window = j.pooled[:]
	} else {
		j.window = make([]byte, window)
	}
	return j
}

// newLiveReader returns a reader of a text that comes now and then, with white space in between.
func newLiveReader(r io.Reader) *jsonReader {
	return &jsonReader{r: r, window: make([]byte, liveWindow), live: true}
}

// free gives the window back. The reader must not be used any more, nor what it returned.
func (j *jsonReader) free() {
	if j.pooled != nil {
		windows.Put(j.pooled)
	}
	j.pooled, j.window, j.scratch, j.pos, j.n = nil, nil, nil, 0, 0
}

// offset is how many bytes of the text were consumed.
func (j *jsonReader) offset() int64 { return j.base + int64(j.pos) }

// fill reads more into an empty window. At the end of the text it returns io.EOF.
func (j *jsonReader) fill() error {
	j.base += int64(j.n)
	if j.live {
		j.fit()
	}
	j.pos, j.n = 0, 0
	for range 100 {
		n, err := j.r.Read(j.window)
		if n > 0 {
			j.n = n
			return nil // an error is met again by the next call
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// fit makes an empty window as large as what comes: the last read shows how much that is.
func (j *jsonReader) fit() {
	switch size := len(j.window); {
	case j.n == size && size < bulkWindow:
		j.window = make([]byte, min(4*size, bulkWindow))
	case j.n < size/8 && size > liveWindow:
		j.window = make([]byte, liveWindow)
	}
}

// peek returns the next byte that is not white space, without consuming it. At the end of the text it
// returns io.EOF.
func (j *jsonReader) peek() (byte, error) {
	start := j.offset()
	for {
		for ; j.pos < j.n; j.pos++ {
			switch c := j.window[j.pos]; c {
			case ' ', '\t', '\r', '\n':
			default:
				return c, nil
			}
		}
		if j.blank > 0 && j.offset()-start > int64(j.blank) {
			return 0, fmt.Errorf("%w: white space without end at byte %d", ErrMalformed, start)
		}
		if skipped := j.offset() - start; skipped > 0 && j.onBlank != nil {
			if err := j.onBlank(skipped); err != nil {
				return 0, err
			}
		}
		if err := j.fill(); err != nil {
			return 0, err
		}
	}
}

// next is peek where the text must not end.
func (j *jsonReader) next() (byte, error) {
	c, err := j.peek()
	return c, cut(err)
}

// cut turns an end of input into the error of an input that was cut off.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (j *jsonReader) unexpected(c byte, want string) error {
	return fmt.Errorf("%w: %q at byte %d, where %s should be", ErrMalformed, c, j.offset(), want)
}

// open steps into an object or an array, given its first byte.
func (j *jsonReader) open(bracket byte) error {
	c, err := j.next()
	if err != nil {
		return err
	}
	if c != bracket {
		return j.unexpected(c, string(rune(bracket)))
	}
	j.pos++
	j.comma = false
	return nil
}

// more reports whether another member or element follows in the object or array that ends with
// bracket, and consumes the comma before it or the bracket.
func (j *jsonReader) more(bracket byte) (bool, error) {
	c, err := j.next()
	switch {
	case err != nil:
		return false, err
	case c == bracket:
		j.pos++
		j.comma = true
		return false, nil
	case !j.comma:
		return true, nil
	case c != ',':
		return false, j.unexpected(c, "a comma or "+string(rune(bracket)))
	}
	j.pos++
	j.comma = false
	if c, err = j.next(); err == nil && c == bracket {
		err = j.unexpected(c, "a value")
	}
	return true, err
}

// element reports whether the array has another element.
func (j *jsonReader) element() (bool, error) { return j.more(']') }

// maxKey bounds the names of members that this client steps over: document ids are the longest.
const maxKey = 64 << 10

// member returns the name of the object's next member, and false after the last. Its value is next.
func (j *jsonReader) member() (string, bool, error) {
	ok, err := j.more('}')
	if err != nil || !ok {
		return "", false, err
	}
	name, err := j.name(knownName)
	return name, err == nil, err
}

// knownName makes a string of a member's name. For those that come with each value it takes no memory.
func knownName(raw []byte) string {
	switch string(raw) {
	case "id":
		return "id"
	case "docs":
		return "docs"
	}
	return string(raw)
}

// name reads a member's name, made a string by text, and the colon after it.
func (j *jsonReader) name(text func([]byte) string) (string, error) {
	name, err := j.textOf(maxKey, text)
	if err != nil {
		return "", err
	}
	c, err := j.next()
	if err != nil {
		return "", err
	}
	if c != ':' {
		return "", j.unexpected(c, "a colon")
	}
	j.pos++
	return name, nil
}

// maxSkipped bounds the value of a member that this client does not know.
const maxSkipped = 1 << 20

// openResults steps into an object and into the array that is its member "results". before reads the value
// of each member that comes earlier.
func (j *jsonReader) openResults(before func(name string) error) error {
	if err := j.open('{'); err != nil {
		return err
	}
	for {
		name, ok, err := j.member()
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: no results", ErrMalformed)
		case name == "results":
			return j.open('[')
		}
		if err := before(name); err != nil {
			return err
		}
	}
}

// skip steps over a value.
func (j *jsonReader) skip() error {
	_, err := j.value(maxSkipped)
	return err
}

// textOf reads a string of at most limit bytes. If it has no escapes, text makes it one.
func (j *jsonReader) textOf(limit int, text func([]byte) string) (string, error) {
	if c, err := j.next(); err != nil {
		return "", err
	} else if c != '"' {
		return "", j.unexpected(c, "a string")
	}
	raw, err := j.value(limit)
	if err != nil {
		return "", err
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return text(raw[1 : len(raw)-1]), nil
	}
	return unquote(raw)
}

// value returns the bytes of the next value, of at most limit bytes, checked to be JSON in valid UTF-8.
// They are good until the next call.
func (j *jsonReader) value(limit int) ([]byte, error) {
	c, err := j.next()
	if err != nil {
		return nil, err
	}
	if c == '{' || c == '[' || c == '"' {
		end := checkValue(j.ahead())
		if end == notWhole && j.widen() {
			end = checkValue(j.ahead())
		}
		if raw := j.ahead(); j.passed(end, limit) {
			return raw[:end], nil
		}
	}
	start := j.offset()
	raw, err := j.take(limit)
	if err != nil {
		return nil, err
	}
	j.comma = true
	switch {
	case validJSON(raw):
		return raw, nil
	case !utf8.Valid(raw):
		return nil, fmt.Errorf("%w: the value at byte %d is not UTF-8", ErrMalformed, start)
	}
	return nil, fmt.Errorf("%w: the value at byte %d is not JSON", ErrMalformed, start)
}

// ahead are the bytes in the window. Most values are whole in there.
func (j *jsonReader) ahead() []byte { return j.window[j.pos:j.n] }

// widen reads more of a value that is not whole in the window, if there is room for it, and reports whether
// there is more of it now. It waits for what is to come.
func (j *jsonReader) widen() bool {
	if j.pos == 0 && j.n == len(j.window) {
		return false
	}
	if j.pos > 0 {
		copy(j.window, j.window[j.pos:j.n])
		j.base += int64(j.pos)
		j.pos, j.n = 0, j.n-j.pos
	}
	n, _ := j.r.Read(j.window[j.n:]) // an error is met again by the next one
	j.n += n
	return n > 0
}

// passed steps over a value in the window of which the reader of ahead found that it is JSON and ends at
// end, unless it is larger than limit.
func (j *jsonReader) passed(end, limit int) bool {
	if end < 0 || end > limit {
		return false
	}
	j.pos += end
	j.comma = true
	return true
}

// take finds the end of the value that begins at pos and returns its bytes: of the window, if it is
// all there, and else gathered in scratch.
func (j *jsonReader) take(limit int) ([]byte, error) {
	j.forget()
	j.scratch = j.scratch[:0]
	start := j.offset()
	var scan scanner
	for {
		chunk := j.window[j.pos:j.n]
		length, done := scan.scan(chunk)
		if len(j.scratch)+length > limit {
			return nil, fmt.Errorf("%w: the value at byte %d has more than %d bytes", ErrLimit, start, limit)
		}
		j.pos += length
		if done && len(j.scratch) == 0 {
			return chunk[:length], nil
		}
		if err := j.makeRoom(length, limit); err != nil {
			return nil, err
		}
		j.scratch = append(j.scratch, chunk[:length]...)
		if done {
			return j.scratch, nil
		}
		err := j.fill()
		if err == io.EOF && scan.bare {
			return j.scratch, nil // a number or a word ends where the text does
		}
		if err != nil {
			return nil, cut(err)
		}
	}
}

// forget lets go of a huge value that was returned last. It is not to be held while the next one is awaited.
func (j *jsonReader) forget() {
	if kept := cap(j.scratch); kept > maxScratch || j.live && kept > maxLiveScratch {
		j.scratch = nil
	}
}

// makeRoom makes room in scratch for more bytes of a value. A large one doubles it up to the limit, so that
// what is held for a value is never more than twice of what it may have.
func (j *jsonReader) makeRoom(more, limit int) error {
	size := len(j.scratch) + more
	if size > largeValue && len(j.scratch) <= largeValue && j.large != nil {
		if err := j.large(); err != nil {
			return err
		}
	}
	if size <= cap(j.scratch) || size <= largeValue {
		return nil
	}
	j.scratch = append(make([]byte, 0, max(size, min(2*cap(j.scratch), limit))), j.scratch...)
	return nil
}

// scanner finds the end of a JSON value that comes in pieces. It follows strings and brackets only:
// whether the value is JSON is for validJSON to say.
type scanner struct {
	depth   int
	str     bool // inside a string
	escaped bool // after a backslash in it
	bare    bool // inside a number or a word, which has no end of its own
}

// scan returns how many bytes of b belong to the value, and whether it ends there.
func (s *scanner) scan(b []byte) (int, bool) {
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
func (s *scanner) skipString(b []byte) int {
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
