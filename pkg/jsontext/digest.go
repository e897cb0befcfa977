package jsontext

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest returns a digest of a JSON text, as 32 lower-case hex digits. It is the same for all spellings of the text: it is the first half
// of the SHA-256 of the text without blanks, with the members of each object in the order of their names. Numbers are compared as they
// are written.
func Digest(text []byte) string {
	var value any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if numbers.Decode(&value) == nil {
		if ordered, err := Encode(value); err == nil {
			text = ordered
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:sha256.Size/2])
}
