package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"settee/pkg/docstore"
)

// incoming is a document that a client sent: its body, and what its members that
// begin with an underscore say.
type incoming struct {
	ID, Rev     string
	Deleted     bool
	Revisions   *revisions
	Attachments map[string]*incomingAttachment
	// Body is the object without those members, each of the others byte for byte.
	Body []byte
}

// revisions is _revisions: Start is the position of the first of IDs, which lead from a
// revision to its ancestors.
type revisions struct {
	Start int64    `json:"start"`
	IDs   []string `json:"ids"`
}

// incomingAttachment is an attachment of a document that a client sent: inline (Data), as
// a stub, or in a part of its own that follows.
type incomingAttachment struct {
	ContentType   string `json:"content_type"`
	Data          []byte `json:"data"` // decoded from base64
	Stub          bool   `json:"stub"`
	Follows       bool   `json:"follows"`
	Digest        string `json:"digest"`
	RevPos        int64  `json:"revpos"`
	Length        int64  `json:"length"`
	Encoding      string `json:"encoding"`
	EncodedLength int64  `json:"encoded_length"`
}

func badDocument(format string, args ...any) error {
	return &failure{http.StatusBadRequest, "doc_validation", fmt.Sprintf(format, args...)}
}

// parseDocument takes a document apart. docstore checks its body.
func parseDocument(text []byte) (*incoming, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	opening, err := decoder.Token()
	if err != nil {
		return nil, badRequest("invalid UTF-8 JSON")
	}
	if opening != json.Delim('{') {
		return nil, badRequest("Document must be a JSON object")
	}
	doc, body := new(incoming), bytes.NewBuffer(append(make([]byte, 0, len(text)), '{'))
	for decoder.More() {
		before := decoder.InputOffset()
		token, err := decoder.Token()
		if err != nil {
			return nil, badRequest("invalid UTF-8 JSON")
		}
		name, _ := token.(string)
		quoted := bytes.TrimLeft(text[before:decoder.InputOffset()], ", \t\r\n")
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, badRequest("invalid UTF-8 JSON")
		}
		if !docstore.BodyMember(name) {
			if err := doc.special(name, value); err != nil {
				return nil, err
			}
			continue
		}
		if body.Len() > 1 {
			body.WriteByte(',')
		}
		body.Write(quoted)
		body.WriteByte(':')
		body.Write(value)
	}
	if _, err := decoder.Token(); err != nil || decoder.More() {
		return nil, badRequest("invalid UTF-8 JSON")
	}
	body.WriteByte('}')
	doc.Body = body.Bytes()
	return doc, nil
}

// special reads a member that begins with an underscore. Those that CouchDB itself adds
// to what it sends are ignored.
func (d *incoming) special(name string, value json.RawMessage) error {
	read := func(into any, what string) error {
		if err := json.Unmarshal(value, into); err != nil {
			return badDocument("`%s` must be %s", name, what)
		}
		return nil
	}
	switch name {
	case "_id":
		return read(&d.ID, "a string")
	case "_rev":
		return read(&d.Rev, "a revision, as a string")
	case "_deleted":
		return read(&d.Deleted, "true or false")
	case "_revisions":
		return read(&d.Revisions, "an object with `start`, a number, and `ids`, a list of strings")
	case "_attachments":
		return read(&d.Attachments, "an object whose members are objects: `content_type` a string, and `data` in base64, `stub` or `follows`")
	case "_revs_info", "_conflicts", "_deleted_conflicts", "_local_seq":
		return nil
	}
	return badDocument("Bad special document member: %s", name)
}

// edit returns the document as an edit, without its attachments. A replicated one needs a
// revision: its path, or at least its own.
func (d *incoming) edit(replicated bool) (docstore.Edit, error) {
	edit := docstore.Edit{ID: d.ID, Deleted: d.Deleted, Body: d.Body}
	switch {
	case replicated && d.Revisions != nil:
		edit.Pos, edit.Path = d.Revisions.Start, d.Revisions.IDs
		return edit, nil
	case d.Rev == "" && replicated:
		return edit, badDocument("a document that is written with new_edits=false needs a `_rev`")
	case d.Rev == "":
		return edit, nil
	}
	rev, err := docstore.ParseRev(d.Rev)
	if err != nil {
		return edit, docFailure(err)
	}
	if replicated {
		edit.Pos, edit.Path = rev.Pos, []string{rev.ID}
	} else {
		edit.Rev = rev
	}
	return edit, nil
}
