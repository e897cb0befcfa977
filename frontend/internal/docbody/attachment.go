package docbody

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// DefaultContentType is that of an attachment of which nobody says what it is.
const DefaultContentType = "application/octet-stream"

// Attachment is an attachment of a document that a client sent: a stub, which is one that
// the document has already; one that follows in a part of its own; or one that is inline.
type Attachment struct {
	Name          string
	ContentType   string
	Stub, Follows bool
	// Digest is md5- and the digest in base64, of the content as it is stored; empty if the
	// client did not say, or gave one of another kind. What it says of an inline attachment
	// may be that of an encoded content somewhere else, and is not given.
	Digest string
	// RevPos is the position of the revision that brought the attachment; 0 if the client
	// did not say.
	RevPos int64
	// Length is how many bytes the content has, -1 if the client did not say. An inline
	// attachment has it always.
	Length int64
	// Encoding is the content coding of an attachment that follows: gzip, or empty.
	// EncodedLength is how many bytes it has so, -1 if the client did not say.
	Encoding      string
	EncodedLength int64

	content content
	spool   *Spool
}

// Inline reports whether the content is part of the JSON.
func (a *Attachment) Inline() bool { return !a.Stub && !a.Follows }

// Open returns a reader of the content of an inline attachment, which was checked to be
// base64. It reads from the spool, as any number of readers may.
func (a *Attachment) Open() io.Reader {
	return base64.NewDecoder(base64.StdEncoding, a.content.open(a.spool))
}

// sent returns how many bytes of content the client announces, -1 if it does not.
func (a *Attachment) sent() int64 {
	if a.Encoding != "" {
		return a.EncodedLength
	}
	return a.Length
}

// attachments reads _attachments.
func (r *reading) attachments() error {
	r.doc.Attachments = nil
	last := map[string]int{}
	err := r.members(func(name string) error {
		r.left -= int64(len(r.key.text))
		if r.peek() != '{' {
			return refuse(DocumentInvalid, "the attachment %s must be an object", quote(name))
		}
		if strings.HasPrefix(name, "_") {
			return refuse(BadRequest, "Attachment name '%.200s' starts with prohibited character '_'", name)
		}
		a := Attachment{Name: name, ContentType: DefaultContentType, Length: -1, EncodedLength: -1, spool: r.spool}
		if err := r.attachment(&a); err != nil {
			return err
		}
		last[name] = len(r.doc.Attachments)
		r.doc.Attachments = append(r.doc.Attachments, a)
		return nil
	})
	if err != nil {
		return err
	}
	all := r.doc.Attachments
	r.doc.Attachments = all[:0]
	for i, a := range all {
		if last[a.Name] != i {
			continue // there is a later one of that name
		}
		r.doc.Attachments = append(r.doc.Attachments, a)
	}
	return nil
}

// attachment reads one attachment.
func (r *reading) attachment(a *Attachment) error {
	err := r.members(func(name string) error {
		if name == "data" && r.peek() == '"' {
			var err error
			a.content, err = r.content()
			return err
		}
		value, err := r.capture()
		if err != nil {
			return err
		}
		if what := a.read(name, value); what != "" {
			return refuse(DocumentInvalid, "`%s` of the attachment %s must be %s", name, quote(a.Name), what)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.check(r.opts.Attachment)
}

// read reads a member of an attachment, or says what it must be.
func (a *Attachment) read(name string, value []byte) string {
	if string(value) == "null" {
		return ""
	}
	read := func(into any, what string) string {
		if json.Unmarshal(value, into) != nil {
			return what
		}
		return ""
	}
	const number = "a whole number of at least 0"
	count := func(into *int64) string {
		var n int64
		if what := read(&n, number); what != "" || n < 0 {
			return number
		}
		*into = n
		return ""
	}
	switch name {
	case "content_type":
		return read(&a.ContentType, "a string")
	case "stub":
		return read(&a.Stub, "true or false")
	case "follows":
		return read(&a.Follows, "true or false")
	case "digest":
		return read(&a.Digest, "a string")
	case "encoding":
		return read(&a.Encoding, "a string")
	case "revpos":
		return count(&a.RevPos)
	case "length":
		return count(&a.Length)
	case "encoded_length":
		return count(&a.EncodedLength)
	}
	return ""
}

// check checks an attachment whose members have all been read.
func (a *Attachment) check(limit Limit) error {
	a.Follows = a.Follows && !a.Stub
	if !strings.HasPrefix(a.Digest, "md5-") {
		a.Digest = ""
	}
	if a.Encoding == "identity" {
		a.Encoding = ""
	}
	switch {
	case a.Stub:
		return nil
	case a.Inline() && !a.content.good():
		return refuse(BadRequest, "Invalid attachment data for %.200s", a.Name)
	case a.Inline():
		a.Digest, a.Encoding, a.EncodedLength = "", "", -1
		a.Length = a.content.length
	case a.Encoding != "" && a.Encoding != "gzip":
		return refuse(DocumentInvalid, "`encoding` of the attachment %s must be gzip or identity", quote(a.Name))
	}
	if !limit.allows(a.sent()) {
		return limit.refuse(AttachmentTooLarge, fmt.Sprintf("the attachment %s", quote(a.Name)))
	}
	return nil
}
