package replicator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"settee/pkg/erlterm"
	"settee/pkg/jsontext"
)

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

// errNumberRange is for a number that a float of 64 bits cannot hold. CouchDB takes such a text for invalid JSON.
var errNumberRange = errors.New("a number is out of range")

var errTooManyDigits = fmt.Errorf("an integer has more than %d digits", erlterm.MaxDigits)

// checkNumbers reports why replication ids cannot cover a JSON text: it is not valid, a float is out of range, or an
// integer has more than erlterm.MaxDigits digits.
func checkNumbers(raw json.RawMessage) error {
	if err := jsontext.Check(raw, jsontext.AnySurrogates); err != nil {
		return fmt.Errorf("decoding JSON: it is %w", err)
	}
	tokens := jsontext.ReadTokens(raw)
	for token, more := tokens.Next(); more; token, more = tokens.Next() {
		if token.Kind != '0' {
			continue
		}
		text := string(raw[token.Start:token.End])
		if strings.ContainsAny(text, ".eE") {
			if _, err := strconv.ParseFloat(text, 64); err != nil {
				return errNumberRange
			}
		} else if len(strings.TrimPrefix(text, "-")) > erlterm.MaxDigits {
			return errTooManyDigits
		}
	}
	return nil
}
