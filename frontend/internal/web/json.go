package web

import (
	"encoding/json"
	"net/http"
	"strings"

	"settee/pkg/config"
	"settee/pkg/jsontext"
)

// maxJSONBody is the size of the largest JSON body that is read into memory, in bytes: questions about revisions,
// lists of ids and the like. Documents are spooled instead.
const maxJSONBody = 16 << 20

// MediaType returns the media type of a request's body, in lower case and without parameters.
func MediaType(header http.Header) string {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// BadContentType returns a failure with the status 415.
func BadContentType(reason string) error {
	return NewFailure(http.StatusUnsupportedMediaType, "bad_content_type", reason)
}

// RequireJSON refuses a body whose Content-Type is not JSON. A page of another origin cannot send JSON without
// asking first.
func RequireJSON(r *http.Request) error {
	if MediaType(r.Header) != "application/json" {
		return BadContentType("Content-Type must be application/json")
	}
	return nil
}

// acceptJSON refuses a body whose Content-Type says that it is not JSON. As in CouchDB the header may be missing,
// and the header of a PUT is ignored: curl calls all bodies forms.
func acceptJSON(r *http.Request) error {
	if r.Method == http.MethodPut || MediaType(r.Header) == "" {
		return nil
	}
	return RequireJSON(r)
}

// MissingBody is the failure of a request without the body that it needs.
func MissingBody() error { return BadRequest("Missing request body") }

// ReadNeededJSON reads a body that is JSON and not empty. Its limit holds for what it is when it is decompressed. It
// does not check the JSON.
func ReadNeededJSON(w http.ResponseWriter, r *http.Request, cfg *config.Config, limit Limit) ([]byte, error) {
	if err := acceptJSON(r); err != nil {
		return nil, err
	}
	text, err := ReadBody(w, r, cfg, limit)
	if err == nil && len(text) == 0 {
		err = MissingBody()
	}
	return text, err
}

// ReadJSON reads a body that is JSON, of at most maxJSONBody bytes when it is decompressed. The caller checks
// whether there is a body, and whether it is JSON.
func ReadJSON(w http.ResponseWriter, r *http.Request, cfg *config.Config) ([]byte, error) {
	if err := acceptJSON(r); err != nil {
		return nil, err
	}
	limit := Limit{min(maxJSONBody, RequestLimit(cfg).Bytes), " here: ask in several requests"}
	return readPlain(w, r, limit, true)
}

// ReadObject reads a body that is a JSON object. The values of its members are not parsed.
func ReadObject(w http.ResponseWriter, r *http.Request, cfg *config.Config) (map[string]json.RawMessage, error) {
	text, err := ReadJSON(w, r, cfg)
	if err != nil {
		return nil, err
	}
	return ParseObject(text)
}

// ErrInvalidJSON is the failure of a body that is not JSON, or not UTF-8.
var ErrInvalidJSON = BadRequest("invalid UTF-8 JSON")

// RequireObject refuses a body that is not a JSON object.
func RequireObject(text []byte) error {
	switch {
	case !jsontext.Valid(text): // an empty body is not valid
		return ErrInvalidJSON
	case !jsontext.IsObject(text):
		return BadRequest("Request body must be a JSON object")
	}
	return nil
}

// ParseObject returns the members of a body that is a JSON object. Their values are not parsed.
func ParseObject(text []byte) (map[string]json.RawMessage, error) {
	if err := RequireObject(text); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	return members, json.Unmarshal(text, &members)
}
