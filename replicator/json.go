package replicator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"settee/pkg/jsontext"
)

// object is a JSON object with its members in their order, which replication
// ids depend on.
type object []member

type member struct {
	name  string
	value any
}

// validJSON reports whether CouchDB accepts text as JSON. It is stricter than
// encoding/json, which replaces what is not UTF-8 instead of refusing it: two
// different texts must not become the same replication.
func validJSON(text []byte) bool {
	return jsontext.Check(text, jsontext.PairedSurrogates) == nil
}

// storedJSON returns raw as encoding/json writes it inside another value:
// without spaces, and with <, > and & escaped. Kept in this form, a definition
// that was just parsed equals the same one read back from the store.
func storedJSON(raw json.RawMessage) json.RawMessage {
	var compact, escaped bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return raw
	}
	json.HTMLEscape(&escaped, compact.Bytes())
	return escaped.Bytes()
}

// canonicalJSON returns raw with sorted keys, so that two texts of the same value
// compare equal. Numbers keep their spelling.
func canonicalJSON(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// errNumberRange is for a number that a float of 64 bits cannot hold; CouchDB
// takes such a text for invalid JSON.
var errNumberRange = errors.New("a number is out of range")

// MaxDigits is how many digits an integer of a definition has at most where it is
// converted: that takes time that grows with the square of its length. The limit
// of settee/pkg/docstore/selector, which this package does not know, is the same.
const MaxDigits = 1000

var errTooManyDigits = fmt.Errorf("an integer has more than %d digits", MaxDigits)

// decodeJSON decodes raw as CouchDB's decoder does: objects keep their order,
// the last of several members with one name counts, in its place, and a number
// is a float if it has a fraction or an exponent, else an integer of up to
// MaxDigits digits.
func decodeJSON(raw json.RawMessage) (any, error) {
	if err := jsontext.Check(raw, jsontext.AnySurrogates); err != nil {
		return nil, fmt.Errorf("decoding JSON: it is %w", err)
	}
	d := decoding{raw, jsontext.ReadTokens(raw)}
	return d.value(d.next())
}

// decoding is a text that is being decoded.
type decoding struct {
	text   []byte
	tokens *jsontext.Tokens
}

func (d decoding) next() jsontext.Token {
	token, _ := d.tokens.Next() // the text is valid: no value ends too early
	return token
}

// value decodes the value that begins with a token.
func (d decoding) value(token jsontext.Token) (any, error) {
	text := d.text[token.Start:token.End]
	switch token.Kind {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '"':
		s, _ := jsontext.String(text)
		return s, nil
	case '0':
		return decodeNumber(string(text))
	case 'n':
		return nil, nil
	}
	return token.Kind == 't', nil
}

func (d decoding) array() (any, error) {
	list := []any{}
	for token := d.next(); token.Kind != ']'; token = d.next() {
		element, err := d.value(token)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}

func (d decoding) object() (any, error) {
	members := object{}
	for name := d.next(); name.Kind != '}'; name = d.next() {
		key, _ := jsontext.String(d.text[name.Start:name.End])
		value, err := d.value(d.next())
		if err != nil {
			return nil, err
		}
		members = append(members, member{name: key, value: value})
	}
	return members.lastOfEach(), nil
}

// lastOfEach drops every member that a later one of the same name replaces.
func (o object) lastOfEach() object {
	last := make(map[string]int, len(o))
	for i, m := range o {
		last[m.name] = i
	}
	if len(last) == len(o) {
		return o
	}
	kept := make(object, 0, len(last))
	for i, m := range o {
		if last[m.name] == i {
			kept = append(kept, m)
		}
	}
	return kept
}

func decodeNumber(text string) (any, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errNumberRange
		}
		return f, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if len(strings.TrimPrefix(text, "-")) > MaxDigits {
		return nil, errTooManyDigits
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, errNumberRange
	}
	return n, nil
}
