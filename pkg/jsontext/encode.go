package jsontext

import (
	"bytes"
	"encoding/json"
)

// Encode is json.Marshal without the escapes for HTML: it writes <, > and & as they are.
func Encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
