package frontend

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"settee/pkg/docstore"
)

// contents sends what is in the attachments of one revision of a document. They are read
// while they are sent, a piece at a time.
type contents struct {
	ctx context.Context
	db  *docstore.Database
	id  string // the document's
	// since is the position of a revision that the client has: what that revision has is not
	// sent, but stays a stub.
	since int64
}

// contentsOf returns the contents of a revision, but for those that a client has which has
// one of the revisions in since.
func contentsOf(ctx context.Context, db *docstore.Database, doc *docstore.Document, since []docstore.Rev) contents {
	return contents{ctx, db, doc.ID, lastCommon(doc, since)}
}

// lastCommon returns the position of the latest revision of a document's path that is among
// revs, 0 if none is.
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

// sent returns the attachments whose contents are to be sent.
func (c contents) sent(doc *docstore.Document) (sent []docstore.Attachment) {
	for _, attachment := range doc.Attachments {
		if c.isSent(attachment) {
			sent = append(sent, attachment)
		}
	}
	return sent
}

func (c contents) isSent(attachment docstore.Attachment) bool { return attachment.RevPos > c.since }

// inline is the content of shown for contents in the document itself, in base64 and, as in
// CouchDB, always without the encoding in which they are stored.
func (c contents) inline(a *appender, attachment docstore.Attachment) {
	if !c.isSent(attachment) {
		a.stub(attachment)
		return
	}
	a.raw(`,"data":"`)
	if a.err == nil {
		a.err = c.encode(a.to, attachment)
	}
	a.raw(`"`)
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

// following is the content of shown for contents that follow the document, in parts of
// their own.
func (c contents) following(a *appender, attachment docstore.Attachment) {
	if !c.isSent(attachment) {
		a.stub(attachment)
		return
	}
	a.raw(`,"length":`).number(shownLength(attachment)).raw(`,"follows":true`)
}

func (c contents) open(attachment docstore.Attachment) *docstore.AttachmentReader {
	return c.db.ReadAttachment(c.ctx, c.id, attachment)
}

// copy sends a content as it is stored.
func (c contents) copy(to io.Writer, attachment docstore.Attachment) error {
	_, err := io.Copy(to, c.open(attachment))
	return contentFailure(err)
}

// contentFailure returns what a client is told of an error of a content: only if nothing of
// the answer has been sent, otherwise the connection is cut.
func contentFailure(err error) error {
	if errors.Is(err, docstore.ErrNotFound) {
		return unavailable("the revision was replaced while its attachments were read: ask again")
	}
	return err
}

// decoded returns a content without the encoding in which it is stored.
func decoded(stored io.Reader, encoding string) (io.Reader, error) {
	switch encoding {
	case "":
		return stored, nil
	case "gzip":
		plain, err := gzip.NewReader(stored)
		if errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, undecodable("it is stored as gzip, but is none")
		}
		if err != nil {
			return nil, contentFailure(err)
		}
		return plain, nil
	}
	return nil, undecodable(fmt.Sprintf("it is stored as %q, which this node cannot decode", encoding))
}

func undecodable(why string) error {
	return &failure{http.StatusNotAcceptable, "not_acceptable",
		"the attachment can only be read as it was written, with its encoding in Accept-Encoding: " + why}
}
