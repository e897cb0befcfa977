package replicator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// object is a JSON object with its members in their order, which replication
// ids depend on.
type object []member

type member struct {
	name  string
	value any
}

// validJSON reports whether CouchDB would take text as JSON. It is stricter than
// encoding/json, which replaces what is not UTF-8 instead of refusing it: two
// different texts must not become the same replication.
func validJSON(text []byte) bool {
	return utf8.Valid(text) && json.Valid(text) && pairedSurrogates(text)
}

// pairedSurrogates reports whether every \u escape of a surrogate is half of a
// pair. text is valid JSON, so that a backslash can only stand in a string, with
// a complete escape behind it.
func pairedSurrogates(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return true
		}
		text = text[i:]
		if text[1] != 'u' {
			text = text[2:]
			continue
		}
		switch unit := escapedUnit(text); {
		case unit >= 0xD800 && unit < 0xDC00:
			text = text[6:]
			if !bytes.HasPrefix(text, []byte(`\u`)) {
				return false
			}
			if low := escapedUnit(text); low < 0xDC00 || low > 0xDFFF {
				return false
			}
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return false
		}
		text = text[6:]
	}
}

func escapedUnit(escape []byte) uint64 {
	unit, err := strconv.ParseUint(string(escape[2:6]), 16, 16)
	if err != nil {
		panic("replicator: an escape that is not valid JSON")
	}
	return unit
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
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decodeValue(decoder)
}

func decodeValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return decodeObject(decoder)
		}
		return decodeArray(decoder)
	case json.Number:
		return decodeNumber(t.String())
	default:
		return t, nil
	}
}

func decodeArray(decoder *json.Decoder) (any, error) {
	list := []any{}
	for decoder.More() {
		element, err := decodeValue(decoder)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	_, err := decoder.Token()
	return list, err
}

func decodeObject(decoder *json.Decoder) (any, error) {
	members := object{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("decoding JSON: %w", err)
		}
		value, err := decodeValue(decoder)
		if err != nil {
			return nil, err
		}
		members = append(members, member{name: name.(string), value: value})
	}
	_, err := decoder.Token()
	return members.lastOfEach(), err
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
