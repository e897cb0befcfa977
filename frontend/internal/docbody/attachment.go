package docbody

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// DefaultContentType is the content type of an attachment without one.
const DefaultContentType = "application/octet-stream"

// Attachment is an attachment of a document that a client sent: a stub, which the document has already, one that
// follows in a part of its own, or an inline one.
type Attachment struct {
	Name          string
	ContentType   string
	Stub, Follows bool
	// Digest is "md5-" and the base64 digest of the stored content. It is empty if the client sent none or one of
	// another kind, and for inline attachments, whose digest may be of a content encoded elsewhere.
	Digest string
	// RevPos is the generation of the revision that added the attachment, or -1 if the client sent none.
	RevPos int64
	// Length is the size of the content in bytes, or -1 if the client sent none. It is always set for an inline
	// attachment.
	Length int64
	// Encoding is the content coding of an attachment that follows: "gzip" or empty. EncodedLength is its encoded size
	// in bytes, or -1 if the client sent none.
	Encoding      string
	EncodedLength int64

	content content
	spool   *Spool
}

// Inline reports whether the content is part of the JSON.
func (a *Attachment) Inline() bool { return !a.Stub && !a.Follows }

// Open returns a reader for the content of an inline attachment. It reads from the spool. Several readers may be used
// at a time.
func (a *Attachment) Open() io.Reader {
	return base64.NewDecoder(base64.StdEncoding, a.content.open(a.spool))
}

// sent returns the size in bytes of the content that the client sends, or -1 if it is unknown.
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
		r.left -= int64(len(r.key))
		if !r.begins('{') {
			return refuse(DocumentInvalid, "the attachment %s must be an object", quote(name))
		}
		if strings.HasPrefix(name, "_") {
			return refuse(BadRequest, "Attachment name '%.200s' starts with prohibited character '_'", name)
		}
		a := Attachment{Name: name, ContentType: DefaultContentType, RevPos: -1, Length: -1, EncodedLength: -1, spool: r.spool}
		if err := r.attachment(&a); err != nil {
			return err
		}
		if most := r.opts.MaxAttachments; most > 0 && len(r.doc.Attachments) == most {
			return refuse(DocumentTooLarge, "the document has more than %d attachments, which is the limit", most)
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
			continue // a later one has the same name
		}
		r.doc.Attachments = append(r.doc.Attachments, a)
	}
	return nil
}

func (r *reading) attachment(a *Attachment) error {
	err := r.members(func(name string) error {
		if name == "data" && r.begins('"') {
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

// read reads a member of an attachment. On failure it returns what the member must be.
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

// check checks an attachment after all its members were read.
func (a *Attachment) check(limit Limit) error {
	a.Follows = a.Follows && !a.Stub
	if !strings.HasPrefix(a.Digest, "md5-") || a.Digest == "md5-" { // old attachments of CouchDB have a digest without a sum
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
