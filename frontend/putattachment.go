package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"settee/frontend/internal/docbody"
	"settee/pkg/docstore"
)

// attachmentPath returns the document and the attachment of a path.
func attachmentPath(r *http.Request) (id, name string, err error) {
	if id, err = documentID(r); err != nil {
		return "", "", err
	}
	name = pathValue(r, "attachment")
	switch {
	case strings.HasPrefix(id, localPrefix):
		err = badRequest("_local documents do not accept attachments.")
	case strings.HasPrefix(name, "_"):
		err = badRequest(fmt.Sprintf("Attachment name '%s' starts with prohibited character '_'", cut(name)))
	case !utf8.ValidString(name):
		err = badRequest("Attachment name is not UTF-8 encoded")
	}
	return id, name, err
}

// putAttachment answers PUT /{db}/{doc}/{attachment}: the body is the content. If there is
// no such document it is made.
func (h *Handler) putAttachment(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, name, err := attachmentPath(r)
	if err != nil {
		return err
	}
	opts, err := contentOptions(r.Header)
	if err != nil {
		return err
	}
	rev, err := statedRev(r, "")
	if err != nil {
		return err
	}
	if err := mayWriteAttachment(r, db, id); err != nil {
		return err
	}
	edit := docstore.Edit{ID: id} // where no revision is named it is a new document
	if rev != "" {
		if edit, _, err = withoutAttachment(r, db, id, rev, name); err != nil {
			return err
		}
	}
	body, err := h.receive(w, r)
	if err != nil {
		return err
	}
	if limit := h.attachmentLimit(); r.ContentLength > limit.Bytes {
		w.Header().Set("Connection", "close") // the body is not read
		return attachmentTooLarge(name, limit)
	}
	out := h.newWriter(r, db)
	defer out.discard()
	upload, err := out.store(id, name, body, opts)
	if err != nil {
		return err
	}
	// A body in chunks may have its digest behind it.
	if digest := r.Trailer.Get("Content-MD5"); digest != "" && "md5-"+digest != upload.Digest() {
		return docFailure(docstore.ErrDigest)
	}
	added := docstore.EditAttachment{Name: name, Type: r.Header.Get("Content-Type"), Upload: upload}
	if added.Type == "" {
		added.Type = docbody.DefaultContentType
	}
	edit.Attachments = append(edit.Attachments, added)
	rev, err = out.edit(edit, false)
	if err != nil {
		return err
	}
	w.Header().Set("Location", documentURL(r, id, name))
	return respond(w, r, http.StatusCreated, written{true, id, rev})
}

// mayWriteAttachment refuses to change attachments of a document that is another user's.
func mayWriteAttachment(r *http.Request, db *docstore.Database, id string) error {
	ctx, cancel := storeContext(r)
	defer cancel()
	return accessOf(r).writesAttachments(ctx, db, id)
}

// contentOptions reads what the headers of a request say of its content.
func contentOptions(header http.Header) (docstore.UploadOptions, error) {
	var opts docstore.UploadOptions
	switch encoding := strings.ToLower(strings.TrimSpace(header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip":
		opts.Encoding = encoding
	default:
		return opts, badContentType("Only gzip and identity content-encodings are supported")
	}
	if digest := header.Get("Content-MD5"); digest != "" {
		opts.Digest = "md5-" + digest
	}
	return opts, nil
}

// withoutAttachment returns an edit that leaves the revision of a document as it is, but for
// one attachment, which is left out, and whether there is that attachment.
func withoutAttachment(r *http.Request, db *docstore.Database, id, rev, name string) (edit docstore.Edit, had bool, err error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	doc, err := readRevision(ctx, db, id, rev)
	if rev != "" && errors.Is(err, docstore.ErrNotFound) {
		err = docstore.ErrConflict // it has been replaced, or never was
	}
	if err != nil {
		return edit, false, docFailure(err)
	}
	edit = docstore.Edit{ID: id, Rev: doc.Rev, Deleted: doc.Deleted, Body: doc.Body}
	for _, a := range doc.Attachments {
		if a.Name == name {
			had = true
			continue
		}
		edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: a.Name, Digest: a.Digest()})
	}
	return edit, had, nil
}

// deleteAttachment answers DELETE /{db}/{doc}/{attachment}.
func (h *Handler) deleteAttachment(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, name, err := attachmentPath(r)
	if err != nil {
		return err
	}
	rev, err := statedRev(r, "")
	if err != nil {
		return err
	}
	if err := mayWriteAttachment(r, db, id); err != nil {
		return err
	}
	edit, had, err := withoutAttachment(r, db, id, rev, name)
	switch {
	case err != nil:
		return err
	case !had:
		return notFound("Document is missing attachment")
	case rev == "":
		return docFailure(docstore.ErrConflict)
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	if err := accessOf(r).writes(ctx, db, &edit, false); err != nil {
		return err
	}
	deleted, err := db.Put(ctx, edit)
	if err != nil {
		return docFailure(err)
	}
	return respond(w, r, http.StatusOK, written{true, id, deleted.String()})
}
