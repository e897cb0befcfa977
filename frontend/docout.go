package frontend

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"

	"settee/pkg/docstore"
)

// shown says which members that begin with an underscore a document is sent with, besides
// those that each one has. The zero value is what CouchDB sends if nothing is asked for.
type shown struct {
	revisions bool // _revisions
	sequence  bool // _local_seq
	// revsInfo, if not nil, is _revs_info.
	revsInfo []revInfo
	// encodings adds to each attachment how it is encoded (att_encoding_info).
	encodings bool
	// content appends the members that say where an attachment's content is; nil is that of
	// a stub.
	content func(*appender, docstore.Attachment)
}

// revInfo says of a revision whether it can be read: available, missing or deleted.
type revInfo struct {
	Rev    string `json:"rev"`
	Status string `json:"status"`
}

// document appends a document, in CouchDB's order.
func (a *appender) document(doc *docstore.Document, show shown) *appender {
	a.raw(`{"_id":`).value(doc.ID).raw(`,"_rev":`).value(doc.Rev.String())
	if doc.Deleted {
		a.raw(`,"_deleted":true`)
	}
	if body := bytes.TrimSpace(doc.Body); len(body) > 2 { // {}
		if members := bytes.TrimSpace(body[1 : len(body)-1]); len(members) > 0 {
			a.raw(",").bytes(members)
		}
	}
	if show.revisions {
		a.raw(`,"_revisions":`).value(revisions{doc.Rev.Pos, doc.Path})
	}
	if show.revsInfo != nil {
		a.raw(`,"_revs_info":`).value(show.revsInfo)
	}
	if show.sequence {
		a.raw(`,"_local_seq":`).value(doc.Sequence.String())
	}
	if len(doc.Conflicts) > 0 {
		a.raw(`,"_conflicts":`).value(revTexts(doc.Conflicts))
	}
	if len(doc.DeletedConflicts) > 0 {
		a.raw(`,"_deleted_conflicts":`).value(revTexts(doc.DeletedConflicts))
	}
	if len(doc.Attachments) > 0 {
		a.raw(`,"_attachments":{`)
		for i, attachment := range doc.Attachments {
			if i > 0 {
				a.raw(",")
			}
			a.value(attachment.Name).raw(":").attachment(attachment, show)
		}
		a.raw("}")
	}
	return a.raw("}")
}

// attachment appends what a document says of one of its attachments.
func (a *appender) attachment(attachment docstore.Attachment, show shown) *appender {
	a.raw(`{"content_type":`).value(attachment.Type).raw(`,"revpos":`).number(attachment.RevPos)
	a.raw(`,"digest":`).value(attachment.Digest())
	if show.content != nil {
		show.content(a, attachment)
	} else {
		a.raw(`,"length":`).number(attachment.Length).raw(`,"stub":true`)
	}
	if show.encodings && attachment.Encoding != "" {
		a.raw(`,"encoding":`).value(attachment.Encoding).raw(`,"encoded_length":`).number(attachment.StoredLength)
	}
	return a.raw("}")
}

func revTexts(revs []docstore.Rev) []string {
	texts := make([]string, len(revs))
	for i, rev := range revs {
		texts[i] = rev.String()
	}
	return texts
}

// appender makes JSON of pieces. Its first error is kept.
type appender struct {
	to  io.Writer
	err error
}

func (a *appender) raw(text string) *appender {
	if a.err == nil {
		_, a.err = io.WriteString(a.to, text)
	}
	return a
}

func (a *appender) bytes(text []byte) *appender {
	if a.err == nil {
		_, a.err = a.to.Write(text)
	}
	return a
}

// value appends strings, and lists and structs of those and of numbers, which can all be
// encoded.
func (a *appender) value(v any) *appender {
	if a.err != nil {
		return a
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if a.err = encoder.Encode(v); a.err != nil {
		return a
	}
	return a.bytes(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

func (a *appender) number(n int64) *appender { return a.raw(strconv.FormatInt(n, 10)) }
