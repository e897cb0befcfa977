package web

import (
	"io"
	"strconv"

	"settee/pkg/jsontext"
)

// Appender writes JSON piece by piece. It keeps its first error and writes nothing after it.
type Appender struct {
	To  io.Writer
	Err error
}

// Raw appends a text as it is.
func (a *Appender) Raw(text string) *Appender {
	if a.Err == nil {
		_, a.Err = io.WriteString(a.To, text)
	}
	return a
}

// Bytes appends a text as it is.
func (a *Appender) Bytes(text []byte) *Appender {
	if a.Err == nil {
		_, a.Err = a.To.Write(text)
	}
	return a
}

// Value appends a value that can be encoded as JSON: strings, and lists and structs of strings and numbers.
func (a *Appender) Value(v any) *Appender {
	if a.Err != nil {
		return a
	}
	text, err := jsontext.Encode(v)
	a.Err = err
	return a.Bytes(text)
}

// Text appends a string as JSON.
func (a *Appender) Text(text string) *Appender {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return a.Value(text) // it may need escapes, which most strings do not
		}
	}
	return a.Raw(`"`).Raw(text).Raw(`"`)
}

// Number appends a number.
func (a *Appender) Number(n int64) *Appender { return a.Raw(strconv.FormatInt(n, 10)) }

// Do calls write, if there was no error.
func (a *Appender) Do(write func(io.Writer) error) *Appender {
	if a.Err == nil {
		a.Err = write(a.To)
	}
	return a
}
