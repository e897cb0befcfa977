package frontend

import (
	"bytes"
	"cmp"
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
	revsInfo  bool // _revs_info
	// encodings adds to each attachment how it is encoded (att_encoding_info).
	encodings bool
	// content appends the members that say where an attachment's content is; nil is
	// appender.stub.
	content func(*appender, docstore.Attachment)
}

// revInfo says of a revision whether it can be read.
type revInfo struct {
	Rev    string `json:"rev"`
	Status string `json:"status"` // available, deleted or missing
}

// revisions is _revisions: Start is the position of the first of IDs, which lead from a
// revision to its ancestors.
type revisions struct {
	Start int64    `json:"start"`
	IDs   []string `json:"ids"`
}

// document appends a document, in CouchDB's order.
func (a *appender) document(doc *docstore.Document, show shown) *appender {
	a.raw(`{"_id":`).string(doc.ID).raw(`,"_rev":`).string(doc.Rev.String())
	if members := bodyMembers(doc.Body); len(members) > 0 {
		a.raw(",").bytes(members)
	}
	if doc.Deleted {
		a.raw(`,"_deleted":true`)
	}
	if show.revisions {
		a.raw(`,"_revisions":`).value(revisions{doc.Rev.Pos, doc.Path})
	}
	if show.revsInfo {
		a.raw(`,"_revs_info":`).value(revInfos(doc))
	}
	if len(doc.Conflicts) > 0 {
		a.raw(`,"_conflicts":`).value(revTexts(doc.Conflicts))
	}
	if len(doc.DeletedConflicts) > 0 {
		a.raw(`,"_deleted_conflicts":`).value(revTexts(doc.DeletedConflicts))
	}
	if show.sequence {
		a.raw(`,"_local_seq":`).string(doc.Sequence.String())
	}
	if len(doc.Attachments) > 0 {
		a.raw(`,"_attachments":{`)
		for i, attachment := range doc.Attachments {
			if i > 0 {
				a.raw(",")
			}
			a.string(attachment.Name).raw(":").attachment(attachment, show)
		}
		a.raw("}")
	}
	return a.raw("}")
}

// bodyMembers returns what stands between the braces of a JSON object. It is on one line,
// whatever it was when it was written: listings and feeds are read by lines.
func bodyMembers(body []byte) []byte {
	if bytes.ContainsAny(body, "\r\n") {
		var line bytes.Buffer
		if json.Compact(&line, body) == nil { // docstore has checked it
			body = line.Bytes()
		}
	}
	body = bytes.TrimSpace(body)
	return bytes.TrimSpace(body[1 : len(body)-1])
}

// revInfos says what can be read of a document's path: only leaves can be.
func revInfos(doc *docstore.Document) []revInfo {
	infos := make([]revInfo, len(doc.Path))
	for i, id := range doc.Path {
		infos[i] = revInfo{docstore.Rev{Pos: doc.Rev.Pos - int64(i), ID: id}.String(), "missing"}
	}
	infos[0].Status = "available"
	if doc.Deleted {
		infos[0].Status = "deleted"
	}
	return infos
}

// attachment appends what a document says of one of its attachments.
func (a *appender) attachment(attachment docstore.Attachment, show shown) *appender {
	a.raw(`{"content_type":`).string(attachment.Type).raw(`,"revpos":`).number(attachment.RevPos)
	a.raw(`,"digest":`).string(attachment.Digest())
	if show.content != nil {
		show.content(a, attachment)
	} else {
		a.stub(attachment)
	}
	if show.encodings && attachment.Encoding != "" {
		a.raw(`,"encoding":`).string(attachment.Encoding).raw(`,"encoded_length":`).number(attachment.StoredLength)
	}
	return a.raw("}")
}

// stub appends that an attachment's content is not here.
func (a *appender) stub(attachment docstore.Attachment) {
	a.raw(`,"length":`).number(shownLength(attachment)).raw(`,"stub":true`)
}

// shownLength is how long a content is without its encoding; or, as in CouchDB, with it, if
// nobody said how long it is without.
func shownLength(attachment docstore.Attachment) int64 {
	return cmp.Or(attachment.Length, attachment.StoredLength)
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

// string appends a string. Most have nothing that would have to be escaped.
func (a *appender) string(text string) *appender {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return a.value(text)
		}
	}
	return a.raw(`"`).raw(text).raw(`"`)
}

func (a *appender) number(n int64) *appender { return a.raw(strconv.FormatInt(n, 10)) }
