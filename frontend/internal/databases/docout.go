package databases

import (
	"bytes"
	"encoding/json"
	"io"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// shown is which optional members with an underscore a document is sent with. The zero value is what CouchDB sends
// without parameters.
type shown struct {
	revisions int  // the most ids in _revisions, 0 without it
	sequence  bool // _local_seq
	revsInfo  bool // _revs_info
	// encodings adds the encoding of each attachment (att_encoding_info).
	encodings bool
	// bodies reads what the document does not have in memory.
	bodies bodies
	// content appends the members for the content of an attachment. nil means writeStub.
	content func(*web.Appender, docstore.Attachment)
}

// revInfo is the status of a revision.
type revInfo struct {
	Rev    string `json:"rev"`
	Status string `json:"status"` // available, deleted or missing
}

// revisions is the member _revisions. Start is the position of the first of IDs. IDs lead from a revision to its
// ancestors.
type revisions struct {
	Start int64    `json:"start"`
	IDs   []string `json:"ids"`
}

// document appends a document. The order of its members is CouchDB's.
func (show shown) document(a *web.Appender, doc *docstore.Document) *web.Appender {
	a.Raw(`{"_id":`).Text(doc.ID)
	if doc.Rev != (docstore.Rev{}) {
		a.Raw(`,"_rev":`).Text(doc.Rev.String())
	}
	a.Do(func(to io.Writer) error { return show.bodies.writeMembers(to, doc, ",") })
	if doc.Deleted {
		a.Raw(`,"_deleted":true`)
	}
	if show.revisions > 0 {
		a.Raw(`,"_revisions":`).Value(revisions{doc.Rev.Pos, doc.Path[:min(len(doc.Path), show.revisions)]})
	}
	if show.revsInfo {
		a.Raw(`,"_revs_info":`).Value(revInfos(doc))
	}
	if len(doc.Conflicts) > 0 {
		a.Raw(`,"_conflicts":`).Value(revTexts(doc.Conflicts))
	}
	if len(doc.DeletedConflicts) > 0 {
		a.Raw(`,"_deleted_conflicts":`).Value(revTexts(doc.DeletedConflicts))
	}
	if show.sequence {
		a.Raw(`,"_local_seq":`).Text(doc.Sequence.String())
	}
	if len(doc.Attachments) > 0 {
		a.Raw(`,"_attachments":{`)
		for i, attachment := range doc.Attachments {
			show.attachment(a.Raw(web.Separator(i)).Text(attachment.Name).Raw(":"), attachment)
		}
		a.Raw("}")
	}
	return a.Raw("}")
}

// bodyMembers returns the text between the braces of a JSON object, on one line: clients read listings and feeds
// line by line.
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

// revInfos returns the status of each revision of a document's path. Only leaves are available.
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

// attachment appends an attachment of a document.
func (show shown) attachment(a *web.Appender, attachment docstore.Attachment) *web.Appender {
	a.Raw(`{"content_type":`).Text(attachment.Type).Raw(`,"revpos":`).Number(attachment.RevPos)
	a.Raw(`,"digest":`).Text(attachment.Digest())
	if show.content != nil {
		show.content(a, attachment)
	} else {
		writeStub(a, attachment)
	}
	if show.encodings && attachment.Encoding != "" {
		a.Raw(`,"encoding":`).Text(attachment.Encoding).Raw(`,"encoded_length":`).Number(attachment.StoredLength)
	}
	return a.Raw("}")
}

// writeStub appends the members of an attachment without its content.
func writeStub(a *web.Appender, attachment docstore.Attachment) {
	a.Raw(`,"length":`).Number(attachment.Length).Raw(`,"stub":true`)
}

func revTexts(revs []docstore.Rev) []string {
	texts := make([]string, len(revs))
	for i, rev := range revs {
		texts[i] = rev.String()
	}
	return texts
}
