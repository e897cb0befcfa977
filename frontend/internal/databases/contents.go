package databases

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// contents sends the attachments of one revision of a document. They are read in pieces while they are sent.
type contents struct {
	ctx context.Context
	db  *docstore.Database
	id  string // of the document
	// since is the position of the latest revision that the client has. Attachments that this revision has are sent
	// as stubs.
	since int64
}

// contentsOf returns the contents of a revision. The client has the revisions in since.
func contentsOf(ctx context.Context, db *docstore.Database, doc *docstore.Document, since []docstore.Rev) contents {
	return contents{ctx, db, doc.ID, lastCommon(doc, since)}
}

// lastCommon returns the position of the latest revision in the path of a document that is among revs, 0 if none
// is.
func lastCommon(doc *docstore.Document, revs []docstore.Rev) int64 {
	if len(revs) == 0 {
		return 0
	}
	known := make(map[docstore.Rev]bool, len(revs))
	for _, rev := range revs {
		known[rev] = true
	}
	for i, id := range doc.Path {
		if pos := doc.Rev.Pos - int64(i); known[docstore.Rev{Pos: pos, ID: id}] {
			return pos
		}
	}
	return 0
}

// sent returns the attachments whose contents are sent.
func (c contents) sent(doc *docstore.Document) (sent []docstore.Attachment) {
	for _, attachment := range doc.Attachments {
		if c.isSent(attachment) {
			sent = append(sent, attachment)
		}
	}
	return sent
}

func (c contents) isSent(attachment docstore.Attachment) bool { return attachment.RevPos > c.since }

// inline is shown.content for contents in the document itself, in base64. As in CouchDB they are always decoded.
func (c contents) inline(a *web.Appender, attachment docstore.Attachment) {
	if !c.isSent(attachment) {
		writeStub(a, attachment)
		return
	}
	a.Raw(`,"data":"`).Do(func(to io.Writer) error { return c.encode(to, attachment) }).Raw(`"`)
}

func (c contents) encode(to io.Writer, attachment docstore.Attachment) error {
	plain, err := decoded(c.open(attachment), attachment.Encoding)
	if err != nil {
		return err
	}
	encoder := base64.NewEncoder(base64.StdEncoding, to)
	if _, err := io.Copy(encoder, plain); err != nil {
		return contentFailure(err)
	}
	return encoder.Close()
}

// following is shown.content for contents that follow the document, in parts of their own.
func (c contents) following(a *web.Appender, attachment docstore.Attachment) {
	if !c.isSent(attachment) {
		writeStub(a, attachment)
		return
	}
	a.Raw(`,"length":`).Number(attachment.Length).Raw(`,"follows":true`)
}

// open opens a content. The request has the memory for a document, or for a page of them, and one content at a time.
func (c contents) open(attachment docstore.Attachment) *docstore.AttachmentReader {
	return c.db.ReadAttachment(c.ctx, c.id, attachment)
}

// copy writes a content as it is stored.
func (c contents) copy(to io.Writer, attachment docstore.Attachment) error {
	_, err := io.Copy(to, c.open(attachment))
	return contentFailure(err)
}

// contentFailure returns the failure for an error of reading or decoding a content. It returns other errors, and nil,
// as they are.
func contentFailure(err error) error {
	switch {
	case errors.Is(err, docstore.ErrNotFound):
		return web.Unavailable("the revision was replaced while it was read: ask again")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, new(flate.CorruptInputError)),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return undecodable("it is stored as gzip, but is none")
	}
	return err
}

// decoded returns a stored content without its encoding.
func decoded(stored io.Reader, encoding string) (io.Reader, error) {
	switch encoding {
	case "":
		return stored, nil
	case "gzip":
		plain, err := gzip.NewReader(stored)
		if err != nil {
			return nil, contentFailure(err)
		}
		return plain, nil
	}
	return nil, undecodable(fmt.Sprintf("it is stored as %q, which this node cannot decode", encoding))
}

func undecodable(why string) error {
	return web.NewFailure(http.StatusNotAcceptable, "not_acceptable",
		"the attachment can only be read as it was written, with its encoding in Accept-Encoding: "+why)
}
