package couch

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"settee/pkg/jsontext"
)

// answerReader reads a JSON answer. Its errors are ErrMalformed and ErrLimit.
type answerReader struct{ *jsontext.Reader }

const (
	// maxName is the maximum size in bytes of the name of a member that is not a document id.
	maxName = 64 << 10
	// maxSkipped is the maximum size in bytes of the value of an unknown member.
	maxSkipped = 1 << 20
)

func newAnswerReader(r io.Reader, window int) answerReader {
	return asAnswer(jsontext.NewReader(r, window))
}

func asAnswer(j *jsontext.Reader) answerReader {
	j.Malformed, j.TooLarge, j.Blank = ErrMalformed, ErrLimit, 1<<20
	return answerReader{j}
}

// member returns the name of the object's next member, or false after the last. The value comes next.
func (j answerReader) member() (string, bool, error) {
	ok, err := j.More('}')
	if err != nil || !ok {
		return "", false, err
	}
	name, err := j.name(maxName, knownName)
	return name, err == nil, err
}

// knownName converts a member's name. It does not allocate for frequent names.
func knownName(raw []byte) string {
	switch string(raw) {
	case "id":
		return "id"
	case "docs":
		return "docs"
	}
	return string(raw)
}

// name reads a member's name of at most limit bytes, and the colon after it. text converts a name without escapes.
func (j answerReader) name(limit int, text func([]byte) string) (string, error) {
	raw, err := j.Name(limit)
	if err != nil {
		return "", err
	}
	return unquoteWith(raw, text)
}

// text reads a string of at most limit bytes. text converts a string without escapes.
func (j answerReader) text(limit int, text func([]byte) string) (string, error) {
	raw, err := j.Text(limit)
	if err != nil {
		return "", err
	}
	return unquoteWith(raw, text)
}

// skipRest reads up to the end of an object.
func (j answerReader) skipRest() error {
	for {
		_, ok, err := j.member()
		if err != nil || !ok {
			return err
		}
		if err := j.skip(); err != nil {
			return err
		}
	}
}

func (j answerReader) skip() error {
	_, err := j.Value(maxSkipped)
	return err
}

// openArray steps into an object and into its array of that name. before reads the value of each earlier member.
func (j answerReader) openArray(array string, before func(name string) error) error {
	if err := j.Open('{'); err != nil {
		return err
	}
	for {
		name, ok, err := j.member()
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: no %s", ErrMalformed, array)
		case name == array:
			return j.Open('[')
		}
		if err := before(name); err != nil {
			return err
		}
	}
}

// The functions below read valid JSON without leading white space.

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
func isArray(raw []byte) bool  { return len(raw) > 0 && raw[0] == '[' }

// unquote decodes a JSON string.
func unquote(raw []byte) (string, error) {
	text, ok := jsontext.String(raw)
	if !ok {
		return "", fmt.Errorf("%w: %w where a string should be", ErrMalformed, quoted(string(raw)))
	}
	return text, nil
}

// unquoteWith is unquote, except that text converts a string without escapes.
func unquoteWith(raw []byte, text func([]byte) string) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return text(raw[1 : len(raw)-1]), nil
	}
	return unquote(raw)
}

// unquoteAs is unquote for a string that is probably want, which it then returns without allocating.
func unquoteAs(raw []byte, want string) (string, error) {
	if len(raw) == len(want)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == want && strings.IndexByte(want, '\\') < 0 {
		return want, nil
	}
	return unquote(raw)
}
