package couch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Document is one revision of a document, as a server sent it.
type Document struct {
	ID, Rev string
	Deleted bool
	// Body is the whole JSON object, exactly as it came: the spelling of numbers, the order of members
	// and the escapes in strings are the server's.
	Body []byte

	attachments span // of the value of "_attachments" in Body
	parsed      bool // attachments is known; not so in a Document that a caller put together
}

// span is a part of a byte slice; the zero span is none.
type span struct{ start, end int }

// limited says of which setting the limit is, if it was that of a document's size that err is about.
func limited(err error, most int) error {
	if !errors.Is(err, ErrLimit) {
		return err
	}
	return fmt.Errorf("%w: a document of more than %d bytes, see [replicator] max_document_size", ErrLimit, most)
}

// ParseDocument reads the members of a document that this package knows, from a JSON object. The
// Document keeps body, which must not be changed any more. It fails with [ErrMalformed] if body is not
// an object in valid UTF-8, if it has no _id, or if a member that it reads has the wrong type or is
// there twice.
func ParseDocument(body []byte) (Document, error) {
	body = bytes.TrimSpace(body)
	d, end, err := documentAt(body, DocRef{})
	if end != len(body) && !validJSON(body) {
		return Document{}, errNoJSON
	}
	return d, err
}

var errNoJSON = fmt.Errorf("%w: a document that is not JSON", ErrMalformed)

// documentAt reads the document that b begins with, and returns where it ends, or what checkValue says of
// bytes that are not JSON. The document's Body is these bytes; its id and its revision are the strings of
// want, if they are the same.
func documentAt(b []byte, want DocRef) (Document, int, error) {
	d := Document{parsed: true}
	if !isObject(b) {
		return d, 0, fmt.Errorf("%w: a document that is not an object", ErrMalformed)
	}
	var seen uint // a bit for each member that is known
	scan := scanMembers(b)
	m := &scan.member
	for scan.special() && scan.pass(checkAt(b, m.value, 1)) {
		m.resolve()
		bit, err := d.take(m, b[m.value:m.end], want)
		if err == nil && seen&bit != 0 {
			err = fmt.Errorf("%w: there twice", ErrMalformed)
		}
		if err != nil {
			return d, 0, fmt.Errorf("document %q, member %s: %w", d.ID, m.key, err)
		}
		seen |= bit
	}
	end := scan.over()
	if end < 0 {
		return d, end, errNoJSON
	}
	d.Body = b[:end:end]
	if d.ID == "" {
		return d, 0, fmt.Errorf("%w: a document without _id", ErrMalformed)
	}
	return d, end, nil
}

// take reads a member of a document, and returns a bit that stands for it, if it is one that is known.
func (d *Document) take(m *member, value []byte, want DocRef) (bit uint, err error) {
	switch string(m.key) {
	case "_id":
		d.ID, err = unquoteAs(value, want.ID)
		return 1, err
	case "_rev":
		d.Rev, err = unquoteAs(value, want.Rev)
		return 2, err
	case "_deleted":
		d.Deleted, err = flag(value)
		return 4, err
	case "_attachments":
		d.attachments = span{m.value, m.end}
		if !isObject(value) {
			err = fmt.Errorf("%w: not an object", ErrMalformed)
		}
		return 8, err
	}
	return 0, nil
}

// flag reads true or false.
func flag(raw []byte) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%w: neither true nor false", ErrMalformed)
}

// maxAttachments is how many attachments a document may have: what is kept of one takes more than the six bytes that
// name it.
const maxAttachments = 100_000

// Attachment is what a document says of one of its attachments.
type Attachment struct {
	Name        string
	ContentType string
	Digest      string // "md5-" and base64, of the bytes as they are stored
	RevPos      int64
	Length      int64 // bytes of the content; -1 if the document does not say it
	// Encoding is "gzip" where the attachment's bytes travel compressed, in EncodedLength bytes.
	Encoding      string
	EncodedLength int64 // -1 if the document does not say it

	Stub    bool // the bytes are not here
	Follows bool // the bytes come after the document, in a multipart body
	Inline  bool // the bytes are in the document's body, in base64
}

// size is how many bytes the attachment has on the way, or -1.
func (a Attachment) size() int64 {
	if a.Encoding != "" {
		return a.EncodedLength
	}
	return a.Length
}

// HasAttachments reports whether the document has any. It is quick, and false for a body that is not a
// document.
func (d Document) HasAttachments() bool {
	raw := d.rawAttachments()
	return len(raw) > 0 && raw[pastBlank(raw, 1)] != '}'
}

func (d Document) rawAttachments() []byte {
	if !d.parsed {
		var err error
		if d, err = ParseDocument(d.Body); err != nil {
			return nil
		}
	}
	return d.Body[d.attachments.start:d.attachments.end]
}

// Attachments returns what the document says of its attachments, in the order of the JSON text, which
// is the order in which their bytes follow.
func (d Document) Attachments() ([]Attachment, error) {
	var all []Attachment
	err := d.eachAttachment(func(a Attachment, _, _ []byte) error {
		all = append(all, a)
		return nil
	})
	return all, err
}

// eachAttachment calls visit for each attachment with its name, as it is spelled in the JSON text, and
// the object that describes it.
func (d Document) eachAttachment(visit func(a Attachment, name, object []byte) error) error {
	raw := d.rawAttachments()
	if len(raw) == 0 {
		return nil
	}
	var err error
	n := 0
	members(raw, func(m member) bool {
		if n++; n > maxAttachments {
			err = fmt.Errorf("%w: more than %d", ErrLimit, maxAttachments)
			return false
		}
		var a Attachment
		if a, err = parseAttachment(string(m.key), raw[m.value:m.end]); err == nil {
			err = visit(a, raw[m.start:m.keyEnd], raw[m.value:m.end])
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("attachments of document %q: %w", d.ID, err)
	}
	return nil
}

func parseAttachment(name string, raw []byte) (Attachment, error) {
	a := Attachment{Name: name, Length: -1, EncodedLength: -1}
	if !isObject(raw) {
		return a, fmt.Errorf("%w: attachment %q is not an object", ErrMalformed, name)
	}
	var err error
	members(raw, func(m member) bool {
		value := raw[m.value:m.end]
		switch string(m.key) {
		case "content_type":
			a.ContentType, err = unquote(value)
		case "digest":
			a.Digest, err = unquote(value)
		case "encoding":
			a.Encoding, err = unquote(value)
		case "revpos":
			a.RevPos, err = count(value)
		case "length":
			a.Length, err = count(value)
		case "encoded_length":
			a.EncodedLength, err = count(value)
		case "stub":
			a.Stub, err = flag(value)
		case "follows":
			a.Follows, err = flag(value)
		case "data":
			a.Inline = true
		}
		if err != nil {
			err = fmt.Errorf("attachment %q, member %s: %w", name, m.key, err)
		}
		return err == nil
	})
	return a, err
}

// count reads a number of bytes or of revisions.
func count(raw []byte) (int64, error) {
	n, err := strconv.ParseUint(string(raw), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is not a count", ErrMalformed, excerpt(string(raw)))
	}
	return int64(n), nil
}

// withAttachments returns the document with each attachment's object replaced by what edit makes of
// it. All bytes outside of the value of "_attachments" stay as they are.
func (d Document) withAttachments(edit func(a Attachment, object []byte) ([]byte, error)) (Document, error) {
	if !d.parsed {
		var err error
		if d, err = ParseDocument(d.Body); err != nil {
			return d, err
		}
	}
	if d.attachments == (span{}) {
		return d, nil
	}
	body := bytes.NewBuffer(make([]byte, 0, len(d.Body)+64))
	body.Write(d.Body[:d.attachments.start])
	body.WriteByte('{')
	err := d.eachAttachment(func(a Attachment, name, object []byte) error {
		edited, err := edit(a, object)
		if err != nil {
			return err
		}
		if body.Len() > d.attachments.start+1 {
			body.WriteByte(',')
		}
		body.Write(name)
		body.WriteByte(':')
		body.Write(edited)
		return nil
	})
	if err != nil {
		return d, err
	}
	body.WriteByte('}')
	end := body.Len()
	body.Write(d.Body[d.attachments.end:])
	d.Body = body.Bytes()
	d.attachments.end = end
	return d, nil
}

// following returns the document with its stubs turned into announcements of bytes that follow, which are
// not compressed.
func (d Document) following() (Document, error) {
	return d.withAttachments(func(a Attachment, object []byte) ([]byte, error) {
		if !a.Stub {
			return object, nil
		}
		if a.Encoding != "" {
			// The digest is that of the compressed bytes.
			return withoutMembers(object, `"follows":true`, "stub", "encoding", "encoded_length", "digest"), nil
		}
		return withoutMembers(object, `"follows":true`, "stub"), nil
	})
}

// withoutMembers returns an object without the members of the given names, and with one more, if added
// is not empty, at its end.
func withoutMembers(object []byte, added string, names ...string) []byte {
	kept := []byte{'{'}
	members(object, func(m member) bool {
		for _, name := range names {
			if string(m.key) == name {
				return true
			}
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, object[m.start:m.end]...)
		return true
	})
	if len(kept) > 1 && added != "" {
		kept = append(kept, ',')
	}
	return append(append(kept, added...), '}')
}

// appendQuoted appends s as a JSON string that says no more than it must: a name with < or & in it stays
// readable, as CouchDB writes it.
func appendQuoted(b []byte, s string) []byte {
	start := len(b)
	b = append(append(append(b, '"'), s...), '"')
	if pastPlain(b, start+1) == len(b)-1 {
		return b
	}
	return append(b[:start], escaped(s)...)
}

func escaped(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
