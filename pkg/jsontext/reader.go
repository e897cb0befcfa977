package jsontext

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// Reader reads a JSON text piece by piece. It steps into objects and arrays, and returns the values in them as they were
// written. It holds its read buffer, the window, and at most one value, but never the whole text.
//
// It differs from encoding/json's Decoder in three ways: it limits the size of a value, it reads a value that is whole in
// the window once, and it tells a text that was cut off from one that ended. If the text ends too early, the error is
// io.ErrUnexpectedEOF. Other errors come from the io.Reader, or wrap Malformed or TooLarge.
type Reader struct {
	// Malformed is wrapped by errors that say that the text is not JSON. Default: ErrSyntax.
	Malformed error
	// TooLarge is wrapped by errors that say that a value is larger than its limit. Default: ErrTooLarge.
	TooLarge error
	// Surrogates is checked in the values that the Reader returns, and in names.
	Surrogates Surrogates
	// Blank is the maximum number of bytes of white space in one place. 0 is no limit.
	Blank int
	// OnBlank, if not nil, is called while white space is skipped, before more is read, with the number of bytes that
	// were skipped in this place so far. Its error ends the reading.
	OnBlank func(skipped int64) error
	// OnLarge, if not nil, is called before a value takes more than LargeValue bytes. It may wait. Its error ends the
	// reading.
	OnLarge func() error

	r       io.Reader
	window  []byte
	pos, n  int   // window[pos:n] is read and not yet consumed
	base    int64 // offset of window[0] in the text
	comma   bool  // a value was read in this object or array, so a comma must precede the next one
	live    bool  // the text arrives in small parts over a long time: see fit
	scratch []byte
	name    []byte
	end     endScan // of the value that Value reads, or has found too large

	pooled *[Window]byte // the array of window if it is from the pool
}

const (
	// LargeValue is the size in bytes above which Reader.OnLarge is called for a value.
	LargeValue = 1 << 20
	// Window is the size in bytes of the read buffer for a text with many values.
	Window = 64 << 10
	// minWindow is the size in bytes of the smallest read buffer. It has room for the two escapes of a surrogate pair.
	minWindow = 16
	// liveWindow is the first size in bytes of the read buffer of a live text. Thousands of live texts may wait at a
	// time.
	liveWindow = 512
	// maxScratch and maxLiveScratch are the sizes in bytes up to which the buffer of a large value is kept for the next
	// values.
	maxScratch     = 1 << 20
	maxLiveScratch = 4 << 10
)

// ErrTooLarge says that a value is larger than its limit.
var ErrTooLarge = errors.New("too large")

var windows = sync.Pool{New: func() any { return new([Window]byte) }}

// NewReader returns a Reader with a read buffer of window bytes, at most Window.
func NewReader(r io.Reader, window int) *Reader {
	j := &Reader{r: r, Malformed: ErrSyntax, TooLarge: ErrTooLarge}
	if window == Window {
		j.pooled = windows.Get().(*[Window]byte)
		j.window = j.pooled[:]
	} else {
		j.window = make([]byte, max(window, minWindow))
	}
	return j
}

// NewLiveReader returns a Reader of a text that arrives in small parts over a long time. Its read buffer is small while
// little arrives.
func NewLiveReader(r io.Reader) *Reader {
	j := NewReader(r, liveWindow)
	j.live = true
	return j
}

// Free releases the read buffer for other Readers. The Reader and the bytes that it returned must no longer be used.
func (j *Reader) Free() {
	if j.pooled != nil {
		windows.Put(j.pooled)
	}
	j.pooled, j.window, j.scratch, j.name, j.pos, j.n = nil, nil, nil, nil, 0, 0
}

// Offset returns the number of bytes of the text that were consumed.
func (j *Reader) Offset() int64 { return j.base + int64(j.pos) }

// read reads more to the end of the window. At the end of the text it returns io.EOF.
func (j *Reader) read() error {
	for range 100 {
		n, err := j.r.Read(j.window[j.n:])
		if n > 0 {
			j.n += n
			return nil // the next call returns the error again
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// fill reads more into an empty window. At the end of the text it returns io.EOF.
func (j *Reader) fill() error {
	j.base += int64(j.n)
	if j.live {
		j.fit()
	}
	j.pos, j.n = 0, 0
	return j.read()
}

// fit fits the size of an empty window to the size of the last read.
func (j *Reader) fit() {
	switch size := len(j.window); {
	case j.n == size && size < Window:
		j.window = make([]byte, min(4*size, Window))
	case j.n < size/8 && size > liveWindow:
		j.window = make([]byte, liveWindow)
	}
}

// Peek returns the next byte that is not white space, without consuming it. At the end of the text it
// returns io.EOF.
func (j *Reader) Peek() (byte, error) {
	start := j.Offset()
	for {
		for ; j.pos < j.n; j.pos++ {
			switch c := j.window[j.pos]; c {
			case ' ', '\t', '\r', '\n':
			default:
				return c, nil
			}
		}
		if j.Blank > 0 && j.Offset()-start > int64(j.Blank) {
			return 0, fmt.Errorf("%w: white space without end at byte %d", j.Malformed, start)
		}
		if skipped := j.Offset() - start; skipped > 0 && j.OnBlank != nil {
			if err := j.OnBlank(skipped); err != nil {
				return 0, err
			}
		}
		if err := j.fill(); err != nil {
			return 0, err
		}
	}
}

// Next is Peek in a place where the text must not end. There the error is io.ErrUnexpectedEOF.
func (j *Reader) Next() (byte, error) {
	c, err := j.Peek()
	return c, cut(err)
}

// cut turns an end of input into the error of an input that was cut off.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (j *Reader) unexpected(c byte, want string) error {
	return fmt.Errorf("%w: %q at byte %d, where %s should be", j.Malformed, c, j.Offset(), want)
}

// Open steps into an object or an array that begins with bracket.
func (j *Reader) Open(bracket byte) error {
	c, err := j.Next()
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

// More reports whether another member or element follows in the object or array that ends with
// bracket, and consumes the comma before it or the bracket.
func (j *Reader) More(bracket byte) (bool, error) {
	c, err := j.Next()
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
	if c, err = j.Next(); err == nil && c == bracket {
		err = j.unexpected(c, "a value")
	}
	return true, err
}

// Element reports whether the array has another element.
func (j *Reader) Element() (bool, error) { return j.More(']') }

// Name reads the name of the member that More has found, and the colon after it. It returns the name as it is written,
// with its quotes, which has at most limit bytes. The result is valid until the next call of Name.
func (j *Reader) Name(limit int) ([]byte, error) {
	raw, err := j.Text(limit)
	if err != nil {
		return nil, err
	}
	j.name = append(j.name[:0], raw...)
	c, err := j.Next()
	if err != nil {
		return nil, err
	}
	if c != ':' {
		return nil, j.unexpected(c, "a colon")
	}
	j.pos++
	return j.name, nil
}

// Text is Value for a value that must be a string.
func (j *Reader) Text(limit int) ([]byte, error) {
	if c, err := j.Next(); err != nil {
		return nil, err
	} else if c != '"' {
		return nil, j.unexpected(c, "a string")
	}
	return j.Value(limit)
}

// Value returns the bytes of the next value, which has at most limit bytes, and checks them. The result is valid until
// the next call.
func (j *Reader) Value(limit int) ([]byte, error) {
	c, err := j.Next()
	if err != nil {
		return nil, err
	}
	if c == '{' || c == '[' || c == '"' {
		end := End(j.Ahead())
		if end == NotWhole && j.Widen() {
			end = End(j.Ahead())
		}
		raw := j.Ahead()
		if end >= 0 && checkSurrogates(raw[:end], j.Surrogates) == nil && j.Passed(end, limit) {
			return raw[:end], nil
		}
	}
	start := j.Offset()
	raw, err := j.take(limit)
	if err != nil {
		return nil, err
	}
	if err := Check(raw, j.Surrogates); err != nil {
		return nil, fmt.Errorf("%w: the value at byte %d is %w", j.Malformed, start, err)
	}
	return raw, nil
}

// Ahead returns the bytes that were read and are not yet consumed. They contain most values as a whole, so a caller that
// knows the form of its values can read them there: see [Reader.Passed].
func (j *Reader) Ahead() []byte { return j.window[j.pos:j.n] }

// Widen reads more of a value that is not whole in the window, if the window has room, and reports whether it has read
// more. It may wait for the next bytes.
func (j *Reader) Widen() bool {
	if j.pos == 0 && j.n == len(j.window) {
		return false
	}
	j.shift()
	return j.read() == nil // the next call returns the error again
}

// shift moves the bytes that are not yet consumed to the beginning of the window.
func (j *Reader) shift() {
	if j.pos > 0 {
		copy(j.window, j.window[j.pos:j.n])
		j.base += int64(j.pos)
		j.pos, j.n = 0, j.n-j.pos
	}
}

// Passed consumes the value at the beginning of Ahead, and reports whether it did. The caller has found that the value
// is valid and has end bytes. Passed consumes nothing if end is negative or above limit.
func (j *Reader) Passed(end, limit int) bool {
	if end < 0 || end > limit {
		return false
	}
	j.pos += end
	j.comma = true
	return true
}

// take returns the bytes of the value that begins at pos. They are part of the window if the value is whole there,
// otherwise of scratch.
func (j *Reader) take(limit int) ([]byte, error) {
	j.Forget()
	j.scratch = j.scratch[:0]
	start := j.Offset()
	j.end = endScan{}
	for {
		part, done, err := j.part(&j.end)
		switch {
		case err != nil:
			return nil, err
		case len(j.scratch)+len(part) > limit:
			return nil, fmt.Errorf("%w: the value at byte %d has more than %d bytes", j.TooLarge, start, limit)
		case done && len(j.scratch) == 0:
			return part, nil
		}
		if err := j.makeRoom(len(part), limit); err != nil {
			return nil, err
		}
		j.scratch = append(j.scratch, part...)
		if done {
			return j.scratch, nil
		}
	}
}

// Begun returns the beginning of the value that Value has found too large. It is valid until the next call.
func (j *Reader) Begun() []byte { return j.scratch }

// SkipRest skips the rest of the value that Value has found too large. The error wraps TooLarge if more than limit bytes are
// left, about.
func (j *Reader) SkipRest(limit int) error {
	start := j.Offset()
	for !j.comma {
		part, _, err := j.part(&j.end)
		if err != nil {
			return err
		}
		if limit -= len(part); limit < 0 {
			return fmt.Errorf("%w: the rest of the value before byte %d does not end", j.TooLarge, start)
		}
	}
	return nil
}

// part consumes the next part of a value, and reports whether it is the last.
func (j *Reader) part(end *endScan) (part []byte, last bool, err error) {
	if j.pos == j.n {
		err := j.fill()
		if err == io.EOF && end.bare {
			j.comma = true
			return nil, true, nil // a number or a word ends where the text does
		}
		if err != nil {
			return nil, false, cut(err)
		}
	}
	part = j.Ahead()
	length, last := end.scan(part)
	j.pos += length
	j.comma = last
	return part[:length], last, nil
}

// Copy writes the next value to w. The value may have any size. Copy only checks that its quotes and brackets are in
// pairs. The caller has to check the rest.
func (j *Reader) Copy(w io.Writer) error {
	if _, err := j.Next(); err != nil {
		return err
	}
	var end endScan
	for last := false; !last; {
		var part []byte
		var err error
		if part, last, err = j.part(&end); err == nil {
			_, err = w.Write(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Forget drops the buffer of the last value if it is large, so that it is not held while the caller waits for the next
// value.
func (j *Reader) Forget() {
	if kept := cap(j.scratch); kept > maxScratch || j.live && kept > maxLiveScratch {
		j.scratch = nil
	}
}

// makeRoom makes room in scratch for more bytes of a value. For a large value it doubles the buffer up to the limit, so
// that the buffer has at most twice the limit.
func (j *Reader) makeRoom(more, limit int) error {
	size := len(j.scratch) + more
	if size > LargeValue && len(j.scratch) <= LargeValue && j.OnLarge != nil {
		if err := j.OnLarge(); err != nil {
			return err
		}
	}
	if size <= cap(j.scratch) || size <= LargeValue {
		return nil
	}
	j.scratch = append(make([]byte, 0, max(size, min(2*cap(j.scratch), limit))), j.scratch...)
	return nil
}
