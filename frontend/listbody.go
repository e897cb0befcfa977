package frontend

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"
)

// maxListBody is the largest body of a request for many documents, in bytes: some hundred
// thousand ids. It is in memory while the documents are sent.
const maxListBody = 8 << 20

// readListBody reads the body of a request for many documents: a JSON object.
func (h *Handler) readListBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkContent(r); err != nil {
		return nil, err
	}
	body, err := h.readBodyUpTo(w, r, maxListBody, "of a list of documents; longer ones can be asked for in several requests")
	switch {
	case err != nil:
		return nil, err
	case len(body) == 0:
		return nil, badRequest("Missing request body")
	case !json.Valid(body) || !utf8.Valid(body):
		return nil, badRequest("invalid UTF-8 JSON")
	}
	if body = bytes.TrimSpace(body); body[0] != '{' {
		return nil, badRequest("Request body must be a JSON object")
	}
	return body, nil
}

// eachMember calls yield with the members of a JSON object that is known to be valid. The
// values are part of text.
func eachMember(text []byte, yield func(name string, value []byte) error) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		after := decoder.InputOffset()
		if err := decoder.Decode(new(skipped)); err != nil {
			return err
		}
		value := text[after:decoder.InputOffset()]
		if err := yield(name.(string), bytes.TrimLeft(value, ": \t\r\n")); err != nil { // names are strings
			return err
		}
	}
	return nil
}

// skipped is a JSON value that is not looked at.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// jsonList is a JSON list of which nothing is kept but where its elements end.
type jsonList struct {
	text []byte
	ends []int32
}

// newJSONList returns the elements of a JSON value that is known to be valid, and false if
// it is no list.
func newJSONList(text []byte) (*jsonList, bool) {
	if len(text) == 0 || text[0] != '[' {
		return nil, false
	}
	list := &jsonList{text: text}
	decoder := json.NewDecoder(bytes.NewReader(text))
	_, err := decoder.Token()
	for err == nil && decoder.More() {
		err = decoder.Decode(new(skipped))
		list.ends = append(list.ends, int32(decoder.InputOffset()))
	}
	return list, err == nil
}

func (l *jsonList) len() int { return len(l.ends) }

// at returns an element, which is part of the text.
func (l *jsonList) at(i int) []byte {
	begin := int32(1) // behind the bracket
	if i > 0 {
		begin = l.ends[i-1]
	}
	return bytes.TrimLeft(l.text[begin:l.ends[i]], ", \t\r\n")
}

// jsonString reads a JSON value that is known to be valid, and returns false if it is no
// string.
func jsonString(text []byte) (string, bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", false
	}
	if inside := text[1 : len(text)-1]; !bytes.ContainsRune(inside, '\\') {
		return string(inside), true
	}
	var value string
	err := json.Unmarshal(text, &value)
	return value, err == nil
}
