package databases

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rs/zerolog"

	"settee/frontend/internal/access"
	"settee/frontend/internal/docbody"
	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/pkg/budget"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// writer writes the documents of one request. The contents of attachments are stored before the revisions that
// refer to them. Contents that no revision refers to are discarded at the end of the request.
type writer struct {
	r         *http.Request
	db        *docstore.Database
	functions *functions.Functions
	revsLimit int           // of stored documents that functions get
	limit     docbody.Limit // of each attachment
	newID     func() string // returns the id of a document without one
	stored    []*docstore.Upload
}

func (e *Endpoints) newWriter(r *http.Request, db *docstore.Database) *writer {
	settings := e.Settings.Current()
	return &writer{
		r: r, db: db, functions: e.Functions, revsLimit: config.FunctionRevsLimit.Get(settings), limit: e.attachmentLimit(),
		newID: func() string { return e.UUIDs.New(settings) },
	}
}

// store stores a content of a document while it arrives.
func (w *writer) store(id, name string, content io.Reader, opts docstore.UploadOptions) (*docstore.Upload, error) {
	memory := web.MemoryOf(w.r)
	if err := memory.Take(w.r.Context(), contentCost, budget.Most); err != nil {
		return nil, err
	}
	defer memory.Give(contentCost)
	opts.MaxLength = w.limit.Bytes
	upload, err := w.db.Upload(w.r.Context(), id, content, opts)
	var refused *web.Failure
	switch {
	case err == nil:
		w.stored = append(w.stored, upload)
		return upload, nil
	case errors.As(err, &refused):
		return nil, refused // the body could not be received
	case errors.Is(err, docstore.ErrTooLarge):
		return nil, attachmentTooLarge(name, w.limit)
	}
	return nil, web.StoreFailure(bodyFailure(err))
}

func attachmentTooLarge(name string, limit docbody.Limit) error {
	return web.NewFailure(http.StatusRequestEntityTooLarge, string(docbody.AttachmentTooLarge),
		fmt.Sprintf("the attachment %.200q has more than %d bytes, which is the limit (%s)", name, limit.Bytes, limit.Name))
}

// inline stores the inline attachments of a document, and returns all its attachments as attachments of an edit. Those
// whose contents follow have no upload yet.
func (w *writer) inline(doc *docbody.Document) ([]docstore.EditAttachment, error) {
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
		if attachments[i].Upload, err = w.store(doc.ID, a.Name, a.Open(), docstore.UploadOptions{}); err != nil {
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

// document writes the document of a request, with its attachments, and returns its revision. related has the
// contents that follow the document; nil means none.
func (w *writer) document(doc *docbody.Document, replicated bool, related *docbody.Related) (string, error) {
	rev, err := statedRev(w.r, doc.Rev)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(doc.ID, localPrefix) {
		return w.local(doc, rev)
	}
	edit, err := newEdit(doc, rev, replicated)
	if err != nil {
		return "", err
	}
	if edit.Attachments, err = w.inline(doc); err != nil {
		return "", err
	}
	if related != nil {
		if err := w.following(doc, related, edit.Attachments); err != nil {
			return "", err
		}
	}
	return w.edit(edit, replicated)
}

// following stores the contents that follow a document, as the uploads of its attachments.
func (w *writer) following(doc *docbody.Document, related *docbody.Related, into []docstore.EditAttachment) error {
	for {
		i, content, err := related.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return bodyFailure(err)
		}
		a := doc.Attachments[i]
		into[i].Upload, err = w.store(doc.ID, a.Name, content, docstore.UploadOptions{
			Digest: a.Digest, Encoding: a.Encoding, DecodedLength: stated(a.Length),
		})
		if err != nil {
			return err
		}
	}
}

// edit writes an edit, and returns its revision.
func (w *writer) edit(edit docstore.Edit, replicated bool) (string, error) {
	if err := access.RightsOf(w.r).Writes(w.r.Context(), w.db, &edit, replicated); err != nil {
		return "", err
	}
	results, err := w.write([]docstore.Edit{edit}, replicated)
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return "", web.StoreFailure(err)
	}
	if !replicated { // a replicated revision may have been there already, with other uploads
		w.used()
	}
	return results[0].Rev.String(), nil
}

// local writes or deletes a local document. As in CouchDB it is written without its attachments.
func (w *writer) local(doc *docbody.Document, rev string) (string, error) {
	if err := access.RightsOf(w.r).WritesLocal(w.db); err != nil {
		return "", err
	}
	ctx, cancel := web.StoreContext(w.r)
	defer cancel()
	if doc.Deleted {
		if err := w.db.DeleteLocal(ctx, doc.ID); err != nil && !errors.Is(err, docstore.ErrNotFound) {
			return "", web.StoreFailure(err)
		}
		return localDeleted, nil
	}
	rev, err := w.db.PutLocal(ctx, doc.ID, rev, doc.Body)
	if errors.Is(err, docstore.ErrRevision) {
		return "", web.BadRequest("Invalid rev format")
	}
	if err != nil {
		return "", web.StoreFailure(err)
	}
	return rev, nil
}

// used records that revisions refer to all contents that were stored so far.
func (w *writer) used() { w.stored = w.stored[:0] }

// discard discards the stored contents that no revision refers to, even if the client has hung up. If it fails,
// upkeep will discard them.
func (w *writer) discard() {
	if len(w.stored) == 0 {
		return
	}
	ctx, cancel := web.LastingStoreContext(w.r)
	defer cancel()
	for _, upload := range w.stored {
		if err := w.db.Discard(ctx, upload); err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("an upload that is not used could not be discarded; upkeep will")
			break
		}
	}
	w.stored = nil
}
