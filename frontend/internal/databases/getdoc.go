package databases

import (
	"crypto/md5" // as CouchDB's entity tags
	"errors"
	"io"
	"math/big"
	"net/http"
	"strings"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// The prefixes of the ids of local documents and of design documents.
const (
	localPrefix  = "_local/"
	designPrefix = "_design/"
)

func isLocal(id string) bool { return strings.HasPrefix(id, localPrefix) }

// GetDocument answers GET /{db}/{doc}.
func (e *Endpoints) GetDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id := web.PathValue(r, "doc")
	ask, err := readDocumentQuery(r, db)
	switch {
	case err != nil:
		return err
	case ask.leaves:
		return sendLeaves(w, r, db, id, &ask)
	}
	if err := access.RightsOf(r).Opens(db, id); err != nil {
		return err
	}
	if isLocal(id) {
		return sendLocal(w, r, db, id, &ask)
	}
	return sendRevision(w, r, db, id, &ask)
}

// sendRevision answers with one revision of a document.
func sendRevision(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	doc, err := readDocument(r, db, id, ask)
	if err != nil {
		return err
	}
	if err := takeMemory(r, documentCost(doc, ask.attachments)); err != nil {
		return err
	}
	show := ask.shown()
	show.bodies = bodies{r.Context(), db}
	show.sequence, show.revsInfo = ask.hasMeta(ask.localSeq), ask.hasMeta(ask.revsInfo)
	// These members can change without the revision.
	if !show.sequence && !show.revsInfo && len(doc.Conflicts)+len(doc.DeletedConflicts) == 0 {
		if web.NotModified(w, r, `"`+doc.Rev.String()+`"`) {
			return nil
		}
	}
	c := contentsOf(r.Context(), db, doc, ask.attsSince)
	switch {
	case !ask.attachments || len(doc.Attachments) == 0:
		return sendDocument(w, r, doc, show)
	case web.Accepts(r, relatedType) && len(c.sent(doc)) > 0:
		show.encodings, show.content = true, c.following
		return newRelated(doc, show, c).respond(w, r)
	}
	show.content = c.inline
	return sendInline(w, r, doc, show)
}

// hasMeta reports whether a member about the whole document is shown. As in CouchDB it is not if the request names
// a revision.
func (ask *documentQuery) hasMeta(asked bool) bool {
	return asked && (ask.latest || ask.rev == docstore.Rev{})
}

// readDocument reads the revision that the request asks for. As in CouchDB latest is the winning revision,
// whichever one the request names.
func readDocument(r *http.Request, db *docstore.Database, id string, ask *documentQuery) (*docstore.Document, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	opts := docstore.GetOptions{
		Conflicts: ask.hasMeta(ask.conflicts || ask.deletedConflicts), Sequence: ask.hasMeta(ask.localSeq),
		LargeBody: largeBody,
	}
	if !ask.latest {
		opts.Rev = ask.rev
	}
	doc, err := db.Get(ctx, id, opts)
	if errors.Is(err, docstore.ErrDocumentID) {
		return nil, web.NotFound("missing") // no document can have this id
	}
	if err != nil {
		return nil, web.StoreFailure(err)
	}
	if !ask.conflicts {
		doc.Conflicts = nil
	}
	if !ask.deletedConflicts {
		doc.DeletedConflicts = nil
	}
	return access.RightsOf(r).Reads(db, doc)
}

// sendLocal answers with a local document. It has no history, so the request cannot ask for a revision.
func sendLocal(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	if ask.rev != (docstore.Rev{}) && !ask.latest {
		return web.NotFound("missing")
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	local, err := db.GetLocal(ctx, id)
	if errors.Is(err, docstore.ErrDocumentID) {
		return web.BadRequest("Invalid _local document id.")
	}
	if err != nil {
		return web.StoreFailure(err)
	}
	if web.NotModified(w, r, localTag(local)) {
		return nil
	}
	if err := takeMemory(r, int64(len(local.Body))); err != nil {
		return err
	}
	return sendDocument(w, r, documentOf(local), ask.shown())
}

// documentOf returns a local document as a document.
func documentOf(local *docstore.LocalDocument) *docstore.Document {
	_, n, _ := strings.Cut(local.Rev, "-")
	return &docstore.Document{ID: local.ID, Rev: docstore.Rev{ID: n}, Body: local.Body, Path: []string{n}}
}

// localTag returns the entity tag of a local document. It depends on the content, because two contents may have the
// same revision.
func localTag(local *docstore.LocalDocument) string {
	return digestTag(append([]byte(local.Rev+"\n"), local.Body...))
}

// digestTag returns an entity tag that is a digest, in CouchDB's form.
func digestTag(text []byte) string {
	sum := md5.Sum(text)
	return `"` + strings.ToUpper(new(big.Int).SetBytes(sum[:]).Text(36)) + `"`
}

// sendDocument sends a document without contents.
func sendDocument(w http.ResponseWriter, r *http.Request, doc *docstore.Document, show shown) error {
	return web.SendMeasured(w, r, "application/json", func(to io.Writer) error {
		a := web.Appender{To: to}
		return show.document(&a, doc).Raw("\n").Err
	})
}

// sendInline sends a document with contents inside it. The length is not known before the contents are decoded.
func sendInline(w http.ResponseWriter, r *http.Request, doc *docstore.Document, show shown) error {
	return web.SendBody(w, r, "application/json", func(out *web.Stream) error {
		a := web.Appender{To: out}
		return show.document(&a, doc).Raw("\n").Err
	})
}
