package databases

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"settee/frontend/internal/access"
	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

// CopyDocument answers COPY /{db}/{doc}: it writes a revision, with its attachments, as a revision of another
// document.
func (e *Endpoints) CopyDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, err := documentID(r)
	if err != nil {
		return err
	}
	target, err := destination(r.Header, config.DecodePlusToSpace.Get(e.Settings.Current()))
	if err != nil {
		return err
	}
	rev, err := statedRev(r, "")
	if err != nil {
		return err
	}
	source, err := copySource(r, db, id, rev)
	if err != nil {
		return err
	}
	out := e.newWriter(r, db, false)
	defer out.close()
	copied, err := out.copy(source, target)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", writtenTag(target.ID, copied, source.Body))
	w.Header().Set("Location", documentURL(r, target.ID))
	return web.Respond(w, r, http.StatusCreated, written{true, target.ID, copied})
}

// destination parses the Destination header: the id of the document to write, percent-encoded, and maybe ?rev= with
// the revision that is replaced. If plusIsSpace is true, a + in the id means a space.
func destination(header http.Header, plusIsSpace bool) (*docbody.Document, error) {
	text := header.Get("Destination")
	if text == "" {
		return nil, web.BadRequest("Destination header is mandatory for COPY.")
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		return nil, web.BadRequest("Destination URL must be relative.")
	}
	path, query, _ := strings.Cut(text, "?")
	if plusIsSpace {
		path = web.PlusToSpace(path)
	}
	id, err := url.PathUnescape(path)
	values, errQuery := url.ParseQuery(query)
	if err != nil || errQuery != nil {
		return nil, web.BadRequest("the Destination header is not percent-encoded as it should be")
	}
	target := &docbody.Document{ID: id, Rev: values.Get("rev")}
	if values.Has("rev") {
		if err := checkStated(target.Rev); err != nil {
			return nil, err
		}
	}
	return target, bodyFailure(docbody.CheckID(id))
}

// copySource reads the revision to copy.
func copySource(r *http.Request, db *docstore.Database, id, rev string) (*docstore.Document, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if err := access.RightsOf(r).Opens(db, id); err != nil {
		return nil, err
	}
	if isLocal(id) {
		local, err := db.GetLocal(ctx, id)
		if err != nil {
			return nil, web.StoreFailure(err)
		}
		return &docstore.Document{ID: id, Body: local.Body}, nil
	}
	if err := access.RightsOf(r).ReadsAttachments(ctx, db, id); err != nil { // the attachments are copied, too
		return nil, err
	}
	doc, err := readRevision(ctx, db, id, rev)
	if err != nil {
		return nil, web.StoreFailure(err)
	}
	return doc, access.RightsOf(r).ReadsWhole(db, doc)
}

// readRevision reads a revision of a document. If rev is empty it is the winning revision.
func readRevision(ctx context.Context, db *docstore.Database, id, rev string) (*docstore.Document, error) {
	var opts docstore.GetOptions
	if rev != "" {
		var err error
		if opts.Rev, err = parseRev(rev); err != nil {
			return nil, err
		}
	}
	return db.Get(ctx, id, opts)
}

// copy writes source as a revision of target.
func (w *writer) copy(source *docstore.Document, target *docbody.Document) (string, error) {
	if err := w.takeForWrite(int64(len(source.Body))); err != nil {
		return "", err
	}
	var err error
	if target.Body, err = docjson.Parse(source.Body); err != nil {
		return "", web.StoreFailure(err)
	}
	target.Deleted = source.Deleted
	one, err := w.newEntry(target)
	if err != nil {
		return "", err
	}
	for _, a := range source.Attachments {
		if isLocal(target.ID) {
			break
		}
		upload, err := w.upload(target.ID, a.Name, w.db.ReadAttachment(w.r.Context(), source.ID, a), docstore.UploadOptions{
			Digest: a.Digest(), Encoding: a.Encoding, DecodedLength: &a.Length,
		})
		if err != nil {
			return "", err
		}
		one.Attachments = append(one.Attachments, docstore.EditAttachment{Name: a.Name, Type: a.Type, Upload: upload})
	}
	return w.writeOne(one)
}
