package couch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"settee/pkg/jsontext"
)

// Document is one revision of a document, as a server sent it.
type Document struct {
	ID, Rev string
	Deleted bool
	// Body is the whole JSON object exactly as received, with the server's spelling of numbers, order of members and
	// escapes.
	Body []byte

	attachments span // the value of "_attachments" in Body
	parsed      bool // attachments is set; false if a caller made the Document
}

// span is a part of a byte slice. The zero span is empty.
type span struct{ start, end int }

// limited adds the name of the setting to err if err is about the size limit of documents.
func limited(err error, most int) error {
	if !errors.Is(err, ErrLimit) {
		return err
	}
	return fmt.Errorf("%w: a document of more than %d bytes, see [replicator] max_document_size", ErrLimit, most)
}

// ParseDocument parses a JSON object as a document. The Document keeps body, which must not be changed. It fails with
// [ErrMalformed] if body is not an object in valid UTF-8, if it has no _id, or if a known member has the wrong type or
// occurs twice.
func ParseDocument(body []byte) (Document, error) {
	body = bytes.TrimSpace(body)
	d, end, err := documentAt(body, DocRef{})
	if end != len(body) && !jsontext.Valid(body) {
		return Document{}, errNoJSON
	}
	return d, err
}

var errNoJSON = fmt.Errorf("%w: a document that is not JSON", ErrMalformed)

// documentAt reads the document at the beginning of b. It returns where the document ends, or a code of jsontext.End if
// b is not JSON. Body shares the bytes of b. The id and the revision share the strings of want if they are equal.
func documentAt(b []byte, want DocRef) (Document, int, error) {
	d := Document{parsed: true}
	if !isObject(b) {
		return d, 0, fmt.Errorf("%w: a document that is not an object", ErrMalformed)
	}
	var seen uint // a bit for each known member
	scan := jsontext.WalkObject(b)
	m := &scan.Member
	for scan.Special() && scan.Check() {
		bit, err := d.take(m, b[m.Value:m.End], want)
		if err == nil && seen&bit != 0 {
			err = fmt.Errorf("%w: there twice", ErrMalformed)
		}
		if err != nil {
			return d, 0, fmt.Errorf("document %q, member %s: %w", shortened(d.ID), m.Key, err)
		}
		seen |= bit
	}
	end := scan.Over()
	if end < 0 {
		return d, end, errNoJSON
	}
	d.Body = b[:end:end]
	if d.ID == "" {
		return d, 0, fmt.Errorf("%w: a document without _id", ErrMalformed)
	}
	return d, end, nil
}

// take reads a member of a document, and returns its bit, or 0 if the member is unknown.
func (d *Document) take(m *jsontext.Member, value []byte, want DocRef) (bit uint, err error) {
	switch string(m.Key) {
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
		d.attachments = span{m.Value, m.End}
		if !isObject(value) {
			err = fmt.Errorf("%w: not an object", ErrMalformed)
		}
		return 8, err
	}
	return 0, nil
}

func flag(raw []byte) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%w: neither true nor false", ErrMalformed)
}

// maxAttachments is the maximum number of attachments of a document. It bounds memory, because an attachment takes more
// memory than the six bytes that can name it.
const maxAttachments = 100_000

// Attachment describes an attachment, as in its document.
type Attachment struct {
	Name        string
	ContentType string
	Digest      string // "md5-" and base64, of the stored bytes
	RevPos      int64
	Length      int64 // bytes of the content, not compressed; -1 if unknown
	// Encoding is "gzip" if the bytes are transferred compressed, in EncodedLength bytes.
	Encoding      string
	EncodedLength int64 // -1 if unknown

	Stub    bool // the bytes are not here
	Follows bool // the bytes come after the document, in a multipart body
	Inline  bool // the bytes are in the document's body, in base64
}

// size returns the number of bytes transferred, or -1.
func (a Attachment) size() int64 {
	if a.Encoding != "" {
		return a.EncodedLength
	}
	return a.Length
}

// HasAttachments reports whether the document has attachments. It is fast, and false if Body is not a document.
func (d Document) HasAttachments() bool {
	raw := d.rawAttachments()
	return len(raw) > 0 && raw[jsontext.PastBlank(raw, 1)] != '}'
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

// Attachments returns the document's attachments in the order of the JSON text, in which their bytes follow.
func (d Document) Attachments() ([]Attachment, error) {
	var all []Attachment
	err := d.eachAttachment(func(a Attachment, _, _ []byte) error {
		all = append(all, a)
		return nil
	})
	return all, err
}

// eachAttachment calls visit for each attachment with its name, as spelled in the JSON text, and the object that
// describes it.
func (d Document) eachAttachment(visit func(a Attachment, name, object []byte) error) error {
	raw := d.rawAttachments()
	if len(raw) == 0 {
		return nil
	}
	n := 0
	for m := range jsontext.Members(raw) {
		a, err := parseAttachment(string(m.Key), raw[m.Value:m.End])
		if n++; n > maxAttachments {
			err = fmt.Errorf("%w: more than %d", ErrLimit, maxAttachments)
		}
		if err == nil {
			err = visit(a, raw[m.Start:m.KeyEnd], raw[m.Value:m.End])
		}
		if err != nil {
			return fmt.Errorf("attachments of document %q: %w", shortened(d.ID), err)
		}
	}
	return nil
}

func parseAttachment(name string, raw []byte) (Attachment, error) {
	a := Attachment{Name: name, Length: -1, EncodedLength: -1}
	if !isObject(raw) {
		return a, fmt.Errorf("%w: attachment %q is not an object", ErrMalformed, name)
	}
	for m := range jsontext.Members(raw) {
		var err error
		value := raw[m.Value:m.End]
		switch string(m.Key) {
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
			return a, fmt.Errorf("attachment %q, member %s: %w", name, m.Key, err)
		}
	}
	if a.Encoding != "" && a.Length == a.EncodedLength {
		a.Length = -1 // CouchDB says the encoded length if the client has compressed the content
	}
	return a, nil
}

// count reads a number that is not negative.
func count(raw []byte) (int64, error) {
	n, err := strconv.ParseUint(string(raw), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %w is not a count", ErrMalformed, quoted(string(raw)))
	}
	return int64(n), nil
}

// withAttachments returns the document with each attachment's object replaced by the result of edit. All bytes outside
// the value of "_attachments" stay the same.
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

// following returns the document with its stubs changed to follows. Attachments stay compressed if compressed is set and
// they are in gzip of known size. It calls measure for lengths that the document does not say: CouchDB does not take
// attachments without their lengths.
func (d Document) following(compressed bool, measure func(Attachment) (int64, error)) (Document, error) {
	return d.withAttachments(func(a Attachment, object []byte) ([]byte, error) {
		if !a.Stub {
			return object, nil
		}
		added := `"follows":true`
		if compressed && a.Encoding == "gzip" && a.EncodedLength >= 0 {
			return withoutMembers(object, added, "stub"), nil
		}
		if a.Length < 0 {
			length, err := measure(a)
			if err != nil {
				return nil, err
			}
			added = fmt.Sprintf(`"length":%d,%s`, length, added)
			object = withoutMembers(object, "", "length")
		}
		if a.Encoding != "" {
			object = uncompressed(a, object)
		}
		return withoutMembers(object, added, "stub"), nil
	})
}

// uncompressed returns the description of a compressed attachment without what is true only of the compressed bytes, as its
// digest is.
func uncompressed(a Attachment, object []byte) []byte {
	if a.Length < 0 {
		object = withoutMembers(object, "", "length") // it is the encoded length
	}
	return withoutMembers(object, "", "encoding", "encoded_length", "digest")
}

// withoutMembers returns an object without the named members, and with added, if not empty, as its last member.
func withoutMembers(object []byte, added string, names ...string) []byte {
	kept := []byte{'{'}
	for m := range jsontext.Members(object) {
		if slices.Contains(names, string(m.Key)) {
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, object[m.Start:m.End]...)
	}
	if len(kept) > 1 && added != "" {
		kept = append(kept, ',')
	}
	return append(append(kept, added...), '}')
}

// appendQuoted appends s as a JSON string with the fewest escapes, like CouchDB: < and & stay as they are.
func appendQuoted(b []byte, s string) []byte {
	start := len(b)
	b = append(append(append(b, '"'), s...), '"')
	if jsontext.PastPlain(b, start+1) == len(b)-1 {
		return b
	}
	escaped, err := jsontext.Encode(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return append(b[:start], escaped...)
}

// appendStrings appends a JSON array of strings, and end.
func appendStrings(b []byte, list []string, end ...byte) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, s)
	}
	b = append(b, ']')
	return append(b, end...)
}
