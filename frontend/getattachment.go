package frontend

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"settee/pkg/docstore"
)

// getAttachment answers GET /{db}/{doc}/{attachment}.
func (h *Handler) getAttachment(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id := pathValue(r, "doc")
	if strings.HasPrefix(id, localPrefix) {
		return badRequest("_local documents do not accept attachments.")
	}
	ask, err := readDocumentQuery(r)
	if err != nil {
		return err
	}
	attachment, err := readAttachment(r, db, id, &ask)
	if err != nil {
		return err
	}
	etag := `"` + base64.StdEncoding.EncodeToString(attachment.MD5[:]) + `"`
	if matches(r, etag) {
		notModified(w, etag)
		return nil
	}
	out := contentAnswer{mediaType: cmp.Or(attachment.Type, "application/octet-stream"), etag: etag, length: attachment.StoredLength}
	content := db.ReadAttachment(r.Context(), id, attachment)
	if attachment.Encoding != "" {
		return out.sendEncoded(w, r, attachment, content)
	}
	ranges, err := parseRanges(rangeHeader(r, etag), attachment.StoredLength)
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

// readAttachment reads what the document says of the attachment that was asked for.
func readAttachment(r *http.Request, db *docstore.Database, id string, ask *documentQuery) (docstore.Attachment, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	if err := accessOf(r).readsAttachments(ctx, db, id); err != nil {
		return docstore.Attachment{}, err
	}
	doc, err := db.Get(ctx, id, docstore.GetOptions{Rev: ask.rev, Latest: ask.latest})
	if errors.Is(err, docstore.ErrDocumentID) {
		return docstore.Attachment{}, notFound("missing") // no document can have this id
	}
	if err != nil {
		return docstore.Attachment{}, docFailure(err)
	}
	if err := accessOf(r).readsWhole(db, doc); err != nil {
		return docstore.Attachment{}, err
	}
	attachment, found := doc.Attachment(pathValue(r, "attachment"))
	if !found {
		return attachment, notFound("Document is missing attachment")
	}
	return attachment, nil
}

// contentAnswer is an answer with an attachment's content.
type contentAnswer struct {
	mediaType string
	etag      string
	length    int64 // of the answer, or of the content that it has parts of; negative: not known
	// encoding is the Content-Encoding of the answer, contentRange its Content-Range.
	encoding, contentRange string
}

// setHeaders sets what all answers have. What a client stored shall not run as a script of
// this node's origin.
func (c *contentAnswer) setHeaders(w http.ResponseWriter) {
	w.Header().Set("ETag", c.etag)
	w.Header().Set("Content-Security-Policy", "sandbox")
}

// sendEncoded sends a content that is stored with an encoding: so, if the client takes it,
// otherwise decoded.
func (c *contentAnswer) sendEncoded(w http.ResponseWriter, r *http.Request, attachment docstore.Attachment, content io.Reader) error {
	w.Header().Set("Accept-Ranges", "none")
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsEncoding(r, attachment.Encoding) {
		c.encoding = attachment.Encoding
		return c.send(w, r, http.StatusOK, content)
	}
	plain, err := decoded(content, attachment.Encoding)
	if err != nil {
		return err
	}
	if c.length = attachment.Length; c.length == 0 {
		c.length = -1 // nobody said: the answer ends where the content does
	}
	return c.send(w, r, http.StatusOK, plain)
}

// send sends a content, which has to be as long as was said. It reads the first of it
// before the answer begins: what goes wrong until then still has a status.
func (c *contentAnswer) send(w http.ResponseWriter, r *http.Request, status int, content io.Reader) error {
	begun := bufio.NewReaderSize(content, streamBuffer)
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
		setLength(w, c.length)
	}
	out := newStream(w, r, status, c.mediaType)
	if r.Method == http.MethodHead {
		return out.end()
	}
	n, err := io.Copy(out, begun)
	if err == nil && c.length >= 0 && n != c.length {
		err = fmt.Errorf("an attachment has %d bytes, and not the %d that it was written with", n, c.length)
	}
	if err != nil {
		return contentFailure(err)
	}
	return out.end()
}
