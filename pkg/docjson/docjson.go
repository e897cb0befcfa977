// Package docjson has the type of a document's body. A body is checked once, where it comes in: the packages that
// receive documents, store them and act on their writes take a [Body], and do not check it again.
package docjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

// Body is the body of a document: the text of a JSON object that [Parse] has accepted, byte for byte. The zero value
// is {}.
type Body struct{ text []byte }

// ErrInvalid is wrapped by the errors of [Parse].
var ErrInvalid = errors.New("invalid document")

// Parse returns text as a body. The text must not change afterwards. Parse returns an error that wraps ErrInvalid
// if text is not a JSON object in UTF-8, if a string in it has half of a surrogate pair without the other half, which
// CouchDB refuses, too, or if it has a member that [IsMember] does not allow.
func Parse(text []byte) (Body, error) {
	if err := jsontext.CheckObject(text, jsontext.PairedSurrogates); err != nil {
		return Body{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for m := range jsontext.Members(text) {
		if !IsMember(string(m.Key)) {
			return Body{}, fmt.Errorf("%w: bad special document member: %.200q", ErrInvalid, m.Key)
		}
	}
	return Body{text}, nil
}

// Must is [Parse] for a text that is known to be a body. It panics if the text is none.
func Must[T ~string | ~[]byte](text T) Body {
	b, err := Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return b
}

// IsMember reports whether a body may have a member of that name. Names that begin with an underscore are reserved,
// except the five in which CouchDB's replicator stores a document's state. These are allowed in any database.
func IsMember(name string) bool {
	switch name {
	case "_replication_state", "_replication_state_time", "_replication_state_reason",
		"_replication_id", "_replication_stats":
		return true
	}
	return !strings.HasPrefix(name, "_")
}

// Bytes returns the text, which must not be changed.
func (b Body) Bytes() []byte {
	if b.text == nil {
		return empty
	}
	return b.text
}

var empty = []byte("{}")

// Len returns the size of the text in bytes.
func (b Body) Len() int { return len(b.Bytes()) }

// Values returns the values of the members by name. Of several members of one name the last counts, as in CouchDB. The
// values are parts of the text.
func (b Body) Values() map[string]json.RawMessage {
	text, values := b.Bytes(), map[string]json.RawMessage{}
	for m := range jsontext.Members(text) {
		values[string(m.Key)] = text[m.Value:m.End:m.End]
	}
	return values
}

// String returns the size. Bodies may hold secrets and are long, so they do not print themselves.
func (b Body) String() string { return fmt.Sprintf("body of %d bytes", b.Len()) }

// Format writes String for every verb.
func (b Body) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, b.String(), "docjson.Body("+b.String()+")")
}
