package frontend

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"unicode/utf8"

	"settee/pkg/config"
)

// maxJSONBody is the most bytes of a JSON body that is read as a whole: questions about
// revisions, lists of ids and the like. Documents are not among them.
const maxJSONBody = 16 << 20

// readJSON reads a body that is JSON, of at most maxJSONBody bytes when it is decompressed.
// Whether it is there, and what it says, the caller checks.
func (h *Handler) readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	limit := min(maxJSONBody, config.MaxHTTPRequestSize.Get(h.config.Current()))
	in, err := newIncoming(w, r, limit, " here: ask in several requests")
	if err != nil {
		return nil, err
	}
	plain, err := uncompressed(in, r.Header)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(plain, limit+1))
	switch {
	case err != nil:
		return nil, badGzip(err)
	case int64(len(body)) > limit:
		return nil, in.tooLarge()
	}
	if !utf8.Valid(body) {
		return nil, badRequest("invalid UTF-8 JSON")
	}
	return body, nil
}

// readObject reads a body that is a JSON object, as members that are yet to be read.
func (h *Handler) readObject(w http.ResponseWriter, r *http.Request) (map[string]json.RawMessage, error) {
	body, err := h.readJSON(w, r)
	if err != nil {
		return nil, err
	}
	return parseObject(body)
}

func parseObject(text []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(text) { // as when there is none
		return nil, badRequest("invalid UTF-8 JSON")
	}
	var members map[string]json.RawMessage
	if text = bytes.TrimLeft(text, " \t\r\n"); text[0] != '{' {
		return nil, badRequest("Request body must be a JSON object")
	}
	return members, json.Unmarshal(text, &members)
}
