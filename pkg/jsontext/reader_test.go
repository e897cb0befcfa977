package jsontext

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
)

// readers are ways for a text to arrive.
func readers(text string) map[string]*Reader {
	return map[string]*Reader{
		"whole":          NewReader(strings.NewReader(text), 4096),
		"pooled":         NewReader(strings.NewReader(text), Window),
		"byte by byte":   NewReader(iotest.OneByteReader(strings.NewReader(text)), 4096),
		"tiny window":    NewReader(strings.NewReader(text), 1),
		"live":           NewLiveReader(iotest.HalfReader(strings.NewReader(text))),
		"data and error": NewReader(iotest.DataErrReader(strings.NewReader(text)), 16),
	}
}

// member returns the name of the next member, as it is written, and "" after the last.
func member(t *testing.T, j *Reader) string {
	t.Helper()
	more, err := j.More('}')
	require.NoError(t, err)
	if !more {
		return ""
	}
	name, err := j.Name(100)
	require.NoError(t, err)
	return string(name)
}

func TestReader(t *testing.T) {
	t.Parallel()
	const text = ` { "a\u0062" : [ 1.50 , "x\"]}\\" , {"k":[{}]} , [ ] , true ] , "" : null , "last" : {} } `
	for name, j := range readers(text) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, j.Open('{'))
			require.Equal(t, `"a\u0062"`, member(t, j))
			require.NoError(t, j.Open('['))
			for _, want := range []string{`1.50`, `"x\"]}\\"`, `{"k":[{}]}`, `[ ]`, `true`} {
				ok, err := j.Element()
				require.NoError(t, err)
				require.True(t, ok)
				at := j.Offset()
				raw, err := j.Value(100)
				require.NoError(t, err)
				require.Equal(t, want, string(raw))
				require.LessOrEqual(t, at+int64(len(want)), j.Offset())
			}
			ok, err := j.Element()
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, `""`, member(t, j))
			_, err = j.Value(100)
			require.NoError(t, err)
			require.Equal(t, `"last"`, member(t, j))
			require.NoError(t, j.Open('{'))
			require.Empty(t, member(t, j))
			require.Empty(t, member(t, j))
			_, err = j.Peek()
			require.Equal(t, io.EOF, err)
			require.Equal(t, int64(len(text)), j.Offset())
		})
	}
}

func TestReaderRefusesMembers(t *testing.T) {
	t.Parallel()
	for text, is := range map[string]error{
		`{"a" 1`: ErrSyntax, `{"a"`: io.ErrUnexpectedEOF, `{1:1}`: ErrSyntax, `{"a":1,}`: ErrSyntax, `{"a":1 "b":2}`: ErrSyntax,
		`{,}`: ErrSyntax, `{`: io.ErrUnexpectedEOF, `[`: ErrSyntax, `{"` + strings.Repeat("x", 200): ErrTooLarge,
		`{"\ud800":1}`: ErrSyntax, "{\"\xff\":1}": ErrSyntax,
	} {
		for name, j := range readers(text) {
			j.Surrogates = PairedSurrogates
			err := j.Open('{')
			for more := true; err == nil && more; {
				if more, err = j.More('}'); err == nil && more {
					if _, err = j.Name(100); err == nil {
						_, err = j.Value(100)
					}
				}
			}
			require.ErrorIs(t, err, is, "%s of %q", name, text)
		}
	}
}

func TestReaderValues(t *testing.T) {
	t.Parallel()
	for text, is := range map[string]error{
		`17`: nil, `"x"`: nil, `{"a":[1,{"b":"}"}]}`: nil, `-0.0e+1`: nil, `"\ud800"`: nil,
		``: io.ErrUnexpectedEOF, `"x`: io.ErrUnexpectedEOF, `"x\"`: io.ErrUnexpectedEOF, `[1`: io.ErrUnexpectedEOF,
		`{"a":"]"`: io.ErrUnexpectedEOF, `,`: ErrSyntax, `]`: ErrSyntax, `nul`: ErrSyntax, `01`: ErrSyntax,
		`[1,]`: ErrSyntax, `[}`: ErrSyntax, "\"\x01\"": ErrSyntax, "\"\xc3\x28\"": ErrUTF8, `x"y"`: ErrSyntax,
		`"` + strings.Repeat("x", 200) + `"`: ErrTooLarge, strings.Repeat("[", 200): ErrTooLarge, strings.Repeat("1", 200): ErrTooLarge,
	} {
		for name, j := range readers(text) {
			raw, err := j.Value(100)
			if is != nil {
				require.ErrorIs(t, err, is, "%s of %q", name, text)
				continue
			}
			require.NoError(t, err, "%s of %q", name, text)
			require.Equal(t, text, string(raw))
		}
		for _, j := range readers(text) {
			if j.Surrogates = PairedSurrogates; strings.Contains(text, `\ud800`) {
				_, err := j.Value(100)
				require.ErrorIs(t, err, ErrSurrogate)
			}
		}
	}
}

// The caller's errors are wrapped, and its functions are called.
func TestReaderHooks(t *testing.T) {
	t.Parallel()
	malformed, large, mine := errors.New("malformed"), errors.New("large"), errors.New("mine")
	j := NewReader(strings.NewReader("   nul"), 16)
	j.Malformed, j.TooLarge = malformed, large
	_, err := j.Value(100)
	require.ErrorIs(t, err, malformed)
	require.EqualError(t, err, "malformed: the value at byte 3 is not JSON")
	j = NewReader(strings.NewReader("[1234]"), 16)
	j.TooLarge = large
	_, err = j.Value(5)
	require.EqualError(t, err, "large: the value at byte 0 has more than 5 bytes")

	j = NewReader(strings.NewReader(strings.Repeat(" ", 200)+"1"), 16)
	j.Blank = 100
	_, err = j.Next()
	require.EqualError(t, err, "not JSON: white space without end at byte 0")
	j = NewReader(strings.NewReader(strings.Repeat(" ", 200)+"1"), 16)
	told := int64(0)
	j.OnBlank = func(skipped int64) error {
		if told = skipped; skipped > 100 {
			return mine
		}
		return nil
	}
	_, err = j.Next()
	require.Equal(t, mine, err)
	require.Equal(t, int64(112), told)

	j = NewReader(strings.NewReader(`"`+strings.Repeat("x", LargeValue)+`"`), Window)
	j.OnLarge = func() error { return mine }
	_, err = j.Value(2 * LargeValue)
	require.Equal(t, mine, err)
}

func TestReaderKeepsNoGiants(t *testing.T) {
	t.Parallel()
	j := NewReader(strings.NewReader(`"`+strings.Repeat("x", 5<<20)+`" 1 2`), 64)
	for range 3 {
		_, err := j.Value(6 << 20)
		require.NoError(t, err)
	}
	require.Less(t, cap(j.scratch), 1<<20)
}

func TestCopy(t *testing.T) {
	t.Parallel()
	long := `{"a":"` + strings.Repeat(`x\"}`, 1000) + `","b":[1,{}]}`
	for name, j := range readers(" " + long + ` , "x" 12`) {
		var copied bytes.Buffer
		require.NoError(t, j.Copy(&copied), name)
		require.Equal(t, long, copied.String(), name)
		more, err := j.More(']')
		require.NoError(t, err)
		require.True(t, more)
		for _, want := range []string{`"x"`, "12"} {
			copied.Reset()
			require.NoError(t, j.Copy(&copied), name)
			require.Equal(t, want, copied.String(), name)
		}
		require.Equal(t, io.ErrUnexpectedEOF, j.Copy(&copied))
	}
	require.Equal(t, io.ErrUnexpectedEOF, NewReader(strings.NewReader(`{"a":[`), 16).Copy(io.Discard))
}

// FuzzString reads a string as encoding/json does, wherever it is cut by the window.
func FuzzString(f *testing.F) {
	for _, text := range append(jsonTexts, `"`+strings.Repeat(`\ud83d\ude00`, 100)+`"`, `"\ud800\n"`, `"\ud83d\ud83d\ude00"`, `"\ude00\ud83d"`,
		`"`+strings.Repeat("é東😀\\u00e9", 50)+`"`, `"\ud83d\`, `"\ud83d\u`, `"a\`, `"`) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		end := End([]byte(text))
		want, is := "", false
		if end > 0 {
			raw := []byte(strings.Trim(text[:end], " \t\r\n"))
			if want, is = String(raw); is {
				require.Equal(t, want, string(AppendString(nil, raw)))
			}
		}
		for name, j := range readers(text) {
			var got []byte
			var err error
			valueBound.Check(t, len(text), func() {
				var s *StringReader
				if s, err = j.OpenString(); err != nil {
					return
				}
				if len(text)%2 == 0 {
					var all bytes.Buffer
					_, err = s.WriteTo(&all)
					got = all.Bytes()
				} else {
					got, err = io.ReadAll(iotest.OneByteReader(s))
				}
			})
			require.Equal(t, is, err == nil, "%s of %.200q: %v", name, text, err)
			if is {
				require.Equal(t, want, string(got), name)
				require.Equal(t, int64(end), j.Offset(), name)
			}
		}
	})
}

// What a Reader allocates does not depend on the length of the text.
func TestReaderHoldsOneValue(t *testing.T) {
	const many = 100_000
	text := "[" + strings.Repeat(`{"a":"0123456789"},`, many) + "1]"
	costtest.Bound{Memory: 512 << 10}.Check(t, len(text), func() {
		j := NewReader(strings.NewReader(text), Window)
		require.NoError(t, j.Open('['))
		for range many + 1 {
			_, err := j.Element()
			require.NoError(t, err)
			_, err = j.Value(100)
			require.NoError(t, err)
		}
	})
}
