package docbody

import (
	"fmt"
	"strings"
)

// Code is CouchDB's word for what is wrong.
type Code string

// What can be wrong with a body.
const (
	BadRequest         Code = "bad_request"
	BadContentType     Code = "bad_content_type"
	DocumentInvalid    Code = "doc_validation"
	DocumentID         Code = "illegal_docid"
	TooLarge           Code = "too_large"
	DocumentTooLarge   Code = "document_too_large"
	AttachmentTooLarge Code = "attachment_too_large"
)

// Error is why a body is refused.
type Error struct {
	Code   Code
	Reason string
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

func refuse(code Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

var (
	errJSON      error = &Error{BadRequest, "invalid UTF-8 JSON"}
	errNotObject error = &Error{BadRequest, "Document must be a JSON object"}
)

// Limit is the most bytes that something may have. The zero value is no limit.
type Limit struct {
	Bytes int64
	// Name is how an operator knows it.
	Name string
}

// allows reports whether something may have n bytes.
func (l Limit) allows(n int64) bool { return l.Bytes <= 0 || n <= l.Bytes }

// refuse is the error of something that has more.
func (l Limit) refuse(code Code, what string) error {
	return refuse(code, "%s has more than %d bytes, which is the limit (%s)", what, l.Bytes, l.Name)
}

// Options say what documents may be.
type Options struct {
	// Document is the limit of a document's body.
	Document Limit
	// Attachment is that of an attachment, as it is stored.
	Attachment Limit
	// BodyMember reports whether a member is part of a document's body. nil is all whose
	// names do not begin with an underscore. The others say something of the document.
	BodyMember func(name string) bool
}

func (o *Options) bodyMember(name string) bool {
	if o.BodyMember == nil {
		return !strings.HasPrefix(name, "_")
	}
	return o.BodyMember(name)
}

// quote shows at most some bytes of what a client sent.
func quote(text string) string { return fmt.Sprintf("%.200q", text) }
