package databases

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// GetAttachment answers GET /{db}/{doc}/{attachment}.
func (e *Endpoints) GetAttachment(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id := web.PathValue(r, "doc")
	if isLocal(id) {
		return web.BadRequest("_local documents do not accept attachments.")
	}
	ask, err := readDocumentQuery(r, db)
	if err != nil {
		return err
	}
	attachment, err := readAttachment(r, db, id, &ask)
	if err != nil {
		return err
	}
	etag := `"` + base64.StdEncoding.EncodeToString(attachment.MD5[:]) + `"`
	if web.NotModified(w, r, etag) {
		return nil
	}
	if err := takeMemory(r, contentCost); err != nil {
		return err
	}
	out := contentAnswer{mediaType: cmp.Or(headerText(attachment.Type), "application/octet-stream"), etag: etag, length: attachment.StoredLength}
	content := db.ReadAttachment(r.Context(), id, attachment)
	if attachment.Encoding != "" {
		return out.sendEncoded(w, r, attachment, content)
	}
	ranges, err := web.ParseRanges(web.RangeHeader(r, etag), attachment.StoredLength)
	if err != nil {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", attachment.StoredLength))
		return err
	}
	w.Header().Set("Accept-Ranges", "bytes")
	if len(ranges) > 0 {
		return out.sendRanges(w, r, content, ranges)
	}
	return out.send(w, r, http.StatusOK, content)
}

// readAttachment reads the attachment of a path, without its content.
func readAttachment(r *http.Request, db *docstore.Database, id string, ask *documentQuery) (docstore.Attachment, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if err := access.RightsOf(r).ReadsAttachments(ctx, db, id); err != nil {
		return docstore.Attachment{}, err
	}
	doc, err := db.Get(ctx, id, docstore.GetOptions{Rev: ask.rev, Latest: ask.latest})
	if errors.Is(err, docstore.ErrDocumentID) {
		return docstore.Attachment{}, web.NotFound("missing") // no document can have this id
	}
	if err != nil {
		return docstore.Attachment{}, web.StoreFailure(err)
	}
	if err := access.RightsOf(r).ReadsWhole(db, doc); err != nil {
		return docstore.Attachment{}, err
	}
	attachment, found := doc.Attachment(web.PathValue(r, "attachment"))
	if !found {
		return attachment, web.NotFound("Document is missing attachment")
	}
	return attachment, nil
}

// contentAnswer is an answer with the content of an attachment.
type contentAnswer struct {
	mediaType string
	etag      string
	length    int64 // of the content; a negative length is unknown
	// encoding is the Content-Encoding of the answer, contentRange its Content-Range.
	encoding, contentRange string
}

// setHeaders sets the headers of all answers with contents. A content must not run as a script of this node's
// origin.
func (c *contentAnswer) setHeaders(w http.ResponseWriter) {
	w.Header().Set("ETag", c.etag)
	w.Header().Set("Content-Security-Policy", "sandbox")
}

// sendEncoded sends a content that is stored encoded. It decodes the content if the client does not accept the
// encoding.
func (c *contentAnswer) sendEncoded(w http.ResponseWriter, r *http.Request, attachment docstore.Attachment, content io.Reader) error {
	w.Header().Set("Accept-Ranges", "none")
	w.Header().Set("Vary", "Accept-Encoding")
	if web.AcceptsEncoding(r, attachment.Encoding) {
		c.encoding = attachment.Encoding
		return c.send(w, r, http.StatusOK, content)
	}
	plain, err := decoded(content, attachment.Encoding)
	if err != nil {
		return err
	}
	if c.length = attachment.Length; !attachment.HasLength() {
		c.length = -1 // the answer ends where the content does
	}
	return c.send(w, r, http.StatusOK, plain)
}

// send sends a content, and checks its length. It reads the first bytes before the answer begins, so that an error
// there still has a status.
func (c *contentAnswer) send(w http.ResponseWriter, r *http.Request, status int, content io.Reader) error {
	begun := bufio.NewReaderSize(content, web.StreamBuffer)
	if r.Method != http.MethodHead {
		if _, err := begun.Peek(1); err != nil && err != io.EOF {
			return contentFailure(err)
		}
	}
	c.setHeaders(w)
	if c.encoding != "" {
		w.Header().Set("Content-Encoding", c.encoding)
	}
	if c.contentRange != "" {
		w.Header().Set("Content-Range", c.contentRange)
	}
	if c.length >= 0 {
		web.SetLength(w, c.length)
	}
	out := web.NewStream(w, r, status, c.mediaType)
	if r.Method == http.MethodHead {
		return out.End()
	}
	n, err := io.Copy(out, begun)
	if err == nil && c.length >= 0 && n != c.length {
		err = fmt.Errorf("an attachment has %d bytes, and not the %d that it was written with", n, c.length)
	}
	if err != nil {
		return contentFailure(err)
	}
	return out.End()
}

// sendRanges sends a single part as it is, and several as multipart/byteranges.
func (c *contentAnswer) sendRanges(w http.ResponseWriter, r *http.Request, content io.ReadSeeker, ranges []web.Range) error {
	if len(ranges) > 1 {
		return c.sendByteRanges(w, r, content, ranges)
	}
	part, err := ranges[0].Part(content)
	if err != nil {
		return err
	}
	c.contentRange, c.length = ranges[0].ContentRange(c.length), ranges[0].Length()
	return c.send(w, r, http.StatusPartialContent, part)
}

// sendByteRanges sends parts as multipart/byteranges.
func (c *contentAnswer) sendByteRanges(w http.ResponseWriter, r *http.Request, content io.ReadSeeker, ranges []web.Range) error {
	c.setHeaders(w)
	boundary := web.NewUUID()
	out := web.NewStream(w, r, http.StatusPartialContent, `multipart/byteranges; boundary="`+boundary+`"`)
	if r.Method == http.MethodHead {
		return out.End()
	}
	a := web.Appender{To: out}
	a.Raw("--").Raw(boundary)
	for _, b := range ranges {
		part, err := b.Part(content)
		if err != nil {
			return err
		}
		a.Raw("\r\nContent-Type: ").Raw(c.mediaType)
		a.Raw("\r\nContent-Range: ").Raw(b.ContentRange(c.length)).Raw("\r\n\r\n")
		a.Do(func(to io.Writer) error {
			_, err := io.Copy(to, part)
			return err
		})
		if a.Raw("\r\n--").Raw(boundary).Err != nil {
			return contentFailure(a.Err)
		}
	}
	if a.Raw("--").Err != nil {
		return a.Err
	}
	return out.End()
}
