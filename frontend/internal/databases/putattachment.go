package databases

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"settee/frontend/internal/access"
	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

// attachmentPath returns the document and the attachment of a path.
func attachmentPath(r *http.Request) (id, name string, err error) {
	if id, err = documentID(r); err != nil {
		return "", "", err
	}
	name = web.PathValue(r, "attachment")
	switch {
	case isLocal(id):
		err = web.BadRequest("_local documents do not accept attachments.")
	case strings.HasPrefix(name, "_"):
		err = web.BadRequest(fmt.Sprintf("Attachment name '%s' starts with prohibited character '_'", web.Cut(name)))
	case !utf8.ValidString(name):
		err = web.BadRequest("Attachment name is not UTF-8 encoded")
	}
	return id, name, err
}

// PutAttachment answers PUT /{db}/{doc}/{attachment}: the body is the content. If there is no such document, it
// creates one. As in CouchDB the attachment becomes the first one of the document.
func (e *Endpoints) PutAttachment(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
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
	one := &entry{Edit: docstore.Edit{ID: id}} // without a revision it is a new document
	if rev != "" {
		if one.Edit, _, err = withoutAttachment(r, db, id, rev, name); err != nil {
			return err
		}
	}
	body, err := web.OpenBody(w, r, web.RequestLimit(e.Settings.Current()))
	if err != nil {
		return err
	}
	if limit := e.attachmentLimit(); r.ContentLength > limit.Bytes {
		web.CloseConnection(w)
		return attachmentTooLarge(name, limit)
	}
	out := e.newWriter(r, db, false)
	defer out.close()
	upload, err := out.upload(id, name, body, opts)
	if err != nil {
		return err
	}
	// The trailer of a chunked body may have its digest.
	if digest := r.Trailer.Get("Content-MD5"); digest != "" && "md5-"+digest != upload.Digest() {
		return web.StoreFailure(docstore.ErrDigest)
	}
	added := docstore.EditAttachment{Name: name, Type: r.Header.Get("Content-Type"), Upload: upload}
	if added.Type == "" {
		added.Type = docbody.DefaultContentType
	}
	one.Attachments = slices.Insert(one.Attachments, 0, added)
	rev, err = out.writeOne(one)
	if err != nil {
		return err
	}
	w.Header().Set("Location", documentURL(r, id, name))
	return web.Respond(w, r, http.StatusCreated, written{true, id, rev})
}

// mayWriteAttachment returns why the user may not change attachments of a document.
func mayWriteAttachment(r *http.Request, db *docstore.Database, id string) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	return access.RightsOf(r).WritesAttachments(ctx, db, id)
}

// contentOptions reads the headers about the content.
func contentOptions(header http.Header) (docstore.UploadOptions, error) {
	var opts docstore.UploadOptions
	switch encoding := strings.ToLower(strings.TrimSpace(header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip":
		opts.Encoding = encoding
	default:
		return opts, web.BadContentType("Only gzip and identity content-encodings are supported")
	}
	if digest := header.Get("Content-MD5"); digest != "" {
		opts.Digest = "md5-" + digest
	}
	return opts, nil
}

// withoutAttachment returns an edit that removes one attachment from a revision, and whether the revision had the
// attachment.
func withoutAttachment(r *http.Request, db *docstore.Database, id, rev, name string) (edit docstore.Edit, had bool, err error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	doc, err := readRevision(ctx, db, id, rev)
	if rev != "" && errors.Is(err, docstore.ErrNotFound) {
		err = replacedOrUnknown(ctx, db, id, rev)
	}
	if err != nil {
		return edit, false, web.StoreFailure(err)
	}
	edit = docstore.Edit{ID: id, Rev: doc.Rev, Deleted: doc.Deleted}
	if edit.Body, err = docjson.Parse(doc.Body); err != nil {
		return edit, false, web.StoreFailure(err)
	}
	for _, a := range doc.Attachments {
		if a.Name == name {
			had = true
			continue
		}
		edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: a.Name, Digest: a.Digest()})
	}
	return edit, had, nil
}

// replacedOrUnknown returns why a revision without a body cannot be edited.
func replacedOrUnknown(ctx context.Context, db *docstore.Database, id, rev string) error {
	parsed, err := docstore.ParseRev(rev)
	if err != nil {
		return err
	}
	missing, err := db.RevsDiff(ctx, []docstore.RevsQuery{{ID: id, Revs: []docstore.Rev{parsed}}})
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return web.NewFailure(http.StatusConflict, "not_found", "missing_rev") // as in CouchDB, with both
	}
	return docstore.ErrConflict
}

// DeleteAttachment answers DELETE /{db}/{doc}/{attachment}.
func (e *Endpoints) DeleteAttachment(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
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
		return web.NotFound("Document is missing attachment")
	case rev == "":
		return web.StoreFailure(docstore.ErrConflict)
	}
	deleted, err := e.newWriter(r, db, false).writeOne(&entry{Edit: edit})
	if err != nil {
		return err
	}
	return web.Respond(w, r, http.StatusOK, written{true, id, deleted})
}
