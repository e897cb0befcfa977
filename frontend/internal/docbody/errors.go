package docbody

import "fmt"

// Code is CouchDB's code for an error.
type Code string

// The codes of errors in a body.
const (
	BadRequest         Code = "bad_request"
	BadContentType     Code = "bad_content_type"
	DocumentInvalid    Code = "doc_validation"
	DocumentID         Code = "illegal_docid"
	TooLarge           Code = "too_large"
	DocumentTooLarge   Code = "document_too_large"
	AttachmentTooLarge Code = "attachment_too_large"
)

// Error is the reason why a body is refused.
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

// Limit is a size limit in bytes. The zero value is unlimited.
type Limit struct {
	Bytes int64
	// Name is the name of the setting.
	Name string
}

// allows reports whether n bytes are within the limit.
func (l Limit) allows(n int64) bool { return l.Bytes <= 0 || n <= l.Bytes }

// refuse returns the error for a size above the limit.
func (l Limit) refuse(code Code, what string) error {
	return refuse(code, "%s has more than %d bytes, which is the limit (%s)", what, l.Bytes, l.Name)
}

// Options are the limits on documents.
type Options struct {
	// Document limits the size of a document's body.
	Document Limit
	// Attachment limits the stored size of an attachment.
	Attachment Limit
	// MaxAttachments is the most attachments of a document; 0 is any number.
	MaxAttachments int
	// KeptBytes and KeptDocuments are the most bytes of a body and the most documents in it that [ReadBulk] keeps in memory,
	// if none of them has attachments. It reads the documents of other bodies a second time.
	KeptBytes     int64
	KeptDocuments int
	// Spool says where [ReadRelated] keeps the document.
	Spool SpoolOptions
	// RevID returns the normal form of a revision's id, or an error if it is not valid. nil: all ids are valid.
	RevID func(id string) (string, error)
}

func (o *Options) revID(id string) (string, error) {
	if o.RevID == nil {
		return id, nil
	}
	return o.RevID(id)
}

// quote quotes client input, shortened.
func quote(text string) string { return fmt.Sprintf("%.200q", text) }
