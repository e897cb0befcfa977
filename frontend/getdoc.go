package frontend

import (
	"crypto/md5" // as CouchDB's entity tags
	"errors"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"

	"settee/pkg/docstore"
)

const localPrefix = "_local/"

// getDocument answers GET /{db}/{doc}.
func (h *Handler) getDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id := pathValue(r, "doc")
	ask, err := readDocumentQuery(r)
	switch {
	case err != nil:
		return err
	case ask.leaves:
		return sendLeaves(w, r, db, id, &ask)
	case strings.HasPrefix(id, localPrefix):
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
	show := ask.shown()
	show.sequence, show.revsInfo = ask.hasMeta(ask.localSeq), ask.hasMeta(ask.revsInfo)
	// What these say changes without the revision.
	if !show.sequence && !show.revsInfo && len(doc.Conflicts)+len(doc.DeletedConflicts) == 0 {
		etag := `"` + doc.Rev.String() + `"`
		if matches(r, etag) {
			notModified(w, etag)
			return nil
		}
		w.Header().Set("ETag", etag)
	}
	c := contentsOf(r.Context(), db, doc, ask.attsSince)
	switch {
	case !ask.attachments || len(doc.Attachments) == 0:
		return sendDocument(w, r, doc, show)
	case accepts(r, relatedType) && len(c.sent(doc)) > 0:
		show.encodings, show.content = true, c.following
		return newRelated(doc, show, c).respond(w, r)
	}
	show.content = c.inline
	return sendInline(w, r, doc, show)
}

// hasMeta reports whether something is to be said of the whole document that was asked for:
// as in CouchDB, not where the request names a revision.
func (ask *documentQuery) hasMeta(asked bool) bool {
	return asked && (ask.latest || ask.rev == docstore.Rev{})
}

// readDocument reads the revision that was asked for. As in CouchDB latest is the winning
// revision, whichever one the request names.
func readDocument(r *http.Request, db *docstore.Database, id string, ask *documentQuery) (*docstore.Document, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	opts := docstore.GetOptions{
		Conflicts: ask.hasMeta(ask.conflicts || ask.deletedConflicts), Sequence: ask.hasMeta(ask.localSeq),
	}
	if !ask.latest {
		opts.Rev = ask.rev
	}
	doc, err := db.Get(ctx, id, opts)
	if errors.Is(err, docstore.ErrDocumentID) {
		return nil, notFound("missing") // no document can have this id
	}
	if err != nil {
		return nil, docFailure(err)
	}
	if !ask.conflicts {
		doc.Conflicts = nil
	}
	if !ask.deletedConflicts {
		doc.DeletedConflicts = nil
	}
	return accessOf(r).reads(db, doc)
}

// sendLocal answers with a local document. It has no history, so no revision of it can be
// asked for.
func sendLocal(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	if ask.rev != (docstore.Rev{}) && !ask.latest {
		return notFound("missing")
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	local, err := db.GetLocal(ctx, id)
	if errors.Is(err, docstore.ErrDocumentID) {
		return badRequest("Invalid _local document id.")
	}
	if err != nil {
		return docFailure(err)
	}
	etag := localTag(local)
	if matches(r, etag) {
		notModified(w, etag)
		return nil
	}
	w.Header().Set("ETag", etag)
	_, n, _ := strings.Cut(local.Rev, "-")
	doc := &docstore.Document{ID: local.ID, Rev: docstore.Rev{ID: n}, Body: local.Body, Path: []string{n}}
	return sendDocument(w, r, doc, ask.shown())
}

// localTag is the entity tag of a local document: two contents may have the same revision.
func localTag(local *docstore.LocalDocument) string {
	sum := md5.Sum(append([]byte(local.Rev+"\n"), local.Body...))
	return `"` + strings.ToUpper(new(big.Int).SetBytes(sum[:]).Text(36)) + `"`
}

// sendDocument sends a document without contents.
func sendDocument(w http.ResponseWriter, r *http.Request, doc *docstore.Document, show shown) error {
	return sendMeasured(w, r, "application/json", func(to io.Writer) error {
		a := appender{to: to}
		return a.document(doc, show).raw("\n").err
	})
}

// sendMeasured sends an answer that write makes, which is called twice: an answer that is
// not large is made faster than it is kept.
func sendMeasured(w http.ResponseWriter, r *http.Request, contentType string, write func(io.Writer) error) error {
	var size counter
	if err := write(&size); err != nil {
		return err
	}
	setLength(w, int64(size))
	return sendBody(w, r, contentType, func(out *stream) error { return write(out) })
}

func setLength(w http.ResponseWriter, length int64) {
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
}

// sendBody sends an answer that write makes, if the request wants it.
func sendBody(w http.ResponseWriter, r *http.Request, contentType string, write func(*stream) error) error {
	if r.Method == http.MethodHead {
		write = func(*stream) error { return nil }
	}
	return sendStream(w, r, contentType, write)
}

// sendStream sends an answer that write makes. An error before anything was sent is the
// answer.
func sendStream(w http.ResponseWriter, r *http.Request, contentType string, write func(*stream) error) error {
	out := newStream(w, r, http.StatusOK, contentType)
	if err := write(out); err != nil {
		return err
	}
	return out.end()
}

// counter counts what is written.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// sendInline sends a document with contents inside it. Its length is not known before they
// have been decoded.
func sendInline(w http.ResponseWriter, r *http.Request, doc *docstore.Document, show shown) error {
	return sendBody(w, r, "application/json", func(out *stream) error {
		a := appender{to: out}
		return a.document(doc, show).raw("\n").err
	})
}
