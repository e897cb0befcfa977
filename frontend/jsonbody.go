package frontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"settee/pkg/config"
)

// maxJSONBody is the most bytes of a JSON body that is read as a whole: questions about
// revisions, lists of ids and the like. Documents are not among them.
const maxJSONBody = 16 << 20

// steadyBody is a request's body that may take as long as it likes, but not stand still.
type steadyBody struct {
	body    io.Reader
	control *http.ResponseController
}

func (s steadyBody) Read(p []byte) (int, error) {
	_ = s.control.SetReadDeadline(time.Now().Add(receiveTimeout)) // see ServeHTTP
	return s.body.Read(p)
}

// readJSON reads a body that is JSON, of at most maxJSONBody bytes. Whether it is there, and
// what it says, the caller checks.
func (h *Handler) readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkContent(r.Header); err != nil {
		return nil, err
	}
	limit := min(maxJSONBody, config.MaxHTTPRequestSize.Get(h.config))
	tooLarge := func() error {
		w.Header().Set("Connection", "close") // the rest is not read
		return &failure{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the request body has more than %d bytes, which is the limit here: ask in several requests", limit)}
	}
	if r.ContentLength > limit {
		return nil, tooLarge()
	}
	control := http.NewResponseController(w)
	body, err := io.ReadAll(steadyBody{http.MaxBytesReader(w, r.Body, limit), control})
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, &failure{http.StatusRequestTimeout, "timeout",
			fmt.Sprintf("nothing of the request body was received for %s", receiveTimeout)}
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, badRequest("the request body ends too early or is malformed")
	}
	// The connection is now read only to notice that the client hangs up.
	_ = control.SetReadDeadline(time.Time{})
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
