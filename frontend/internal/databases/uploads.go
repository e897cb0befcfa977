package databases

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/rs/zerolog"

	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/budget"
	"settee/pkg/docstore"
)

// upload stores a content of a document while it arrives, before a revision refers to it.
func (w *writer) upload(id, name string, content io.Reader, opts docstore.UploadOptions) (*docstore.Upload, error) {
	memory := web.MemoryOf(w.r)
	if err := memory.Take(w.r.Context(), contentCost, budget.Most); err != nil {
		return nil, err
	}
	defer memory.Give(contentCost)
	limit := w.endpoints.attachmentLimit()
	opts.MaxLength = limit.Bytes
	upload, err := w.db.Upload(w.r.Context(), id, content, opts)
	var refused *web.Failure
	switch {
	case err == nil:
		w.unused = append(w.unused, upload)
		return upload, nil
	case errors.As(err, &refused):
		return nil, refused // the body could not be received
	case errors.Is(err, docstore.ErrTooLarge):
		return nil, attachmentTooLarge(name, limit)
	}
	return nil, web.StoreFailure(bodyFailure(err))
}

func attachmentTooLarge(name string, limit docbody.Limit) error {
	return web.NewFailure(http.StatusRequestEntityTooLarge, string(docbody.AttachmentTooLarge),
		fmt.Sprintf("the attachment %.200q has more than %d bytes, which is the limit (%s)", name, limit.Bytes, limit.Name))
}

// attachments returns the attachments of a document that was received. It stores their contents: those in the document,
// and those that follow it.
func (w *writer) attachments(doc *docbody.Document) ([]docstore.EditAttachment, error) {
	attachments := make([]docstore.EditAttachment, len(doc.Attachments))
	for i := range doc.Attachments {
		a := &doc.Attachments[i]
		attachments[i] = docstore.EditAttachment{
			Name: a.Name, Type: a.ContentType, Digest: a.Digest, Length: stated(a.Length), RevPos: stated(a.RevPos),
		}
		if !a.Inline() {
			continue
		}
		var err error
		if attachments[i].Upload, err = w.upload(doc.ID, a.Name, a.Open(), docstore.UploadOptions{}); err != nil {
			return nil, err
		}
	}
	for w.related != nil {
		i, content, err := w.related.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, bodyFailure(err)
		}
		a := &doc.Attachments[i]
		attachments[i].Upload, err = w.upload(doc.ID, a.Name, content, docstore.UploadOptions{
			Digest: a.Digest, Encoding: a.Encoding, DecodedLength: stated(a.Length),
		})
		if err != nil {
			return nil, err
		}
	}
	return attachments, nil
}

// stated returns a number of an attachment that a client has sent, or nil if it is negative: the client sent none.
func stated(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// used records that revisions refer to all contents that were stored so far, if all documents were written. A replicated
// revision may have been there already, with other contents.
func (w *writer) used(entries []*entry) {
	unused := w.replicated
	for _, one := range entries {
		unused = unused || one.err != nil
	}
	if !unused {
		w.unused = w.unused[:0]
	}
}

// discard discards the stored contents that no revision refers to, even if the client has hung up. If it fails,
// upkeep will discard them.
func (w *writer) discard() {
	if len(w.unused) == 0 {
		return
	}
	ctx, cancel := web.LastingStoreContext(w.r)
	defer cancel()
	for _, upload := range w.unused {
		if err := w.db.Discard(ctx, upload); err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("an upload that is not used could not be discarded; upkeep will")
			break
		}
	}
	w.unused = nil
}
