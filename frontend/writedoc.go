package frontend

import (
	"net/http"
	"net/url"
	"strings"

	"settee/frontend/internal/docbody"
	"settee/pkg/docstore"
)

// written is the answer to a document that was written. In batch mode it has no revision.
type written struct {
	OK  bool   `json:"ok"`
	ID  string `json:"id"`
	Rev string `json:"rev,omitempty"`
}

// localDeleted is what CouchDB says is the revision of a local document that was deleted.
const localDeleted = "0-0"

// documentID returns the document of a path.
func documentID(r *http.Request) (string, error) {
	id := pathValue(r, "doc")
	if id == "_local" || id == localPrefix {
		return "", badRequest("Invalid _local document id.")
	}
	return id, bodyFailure(docbody.CheckID(id))
}

// statedRev returns the revision that a request says it replaces, or, of a replicated
// document, writes: in the document, as ?rev= or as If-Match. Those that are there must
// be the same. Empty is none.
func statedRev(r *http.Request, inDocument string) (string, error) {
	rev := inDocument
	if q := newQuery(r); q.err != nil {
		return "", q.err
	} else if q.has("rev") {
		stated := q.text("rev")
		if err := checkStated(stated); err != nil {
			return "", err
		}
		if rev != "" && rev != stated {
			return "", badRequest("Document rev from request body and query string have different values")
		}
		rev = stated
	}
	if header := r.Header.Get("If-Match"); header != "" {
		stated := strings.Trim(header, `"`)
		if err := checkStated(stated); err != nil {
			return "", err
		}
		if rev != "" && rev != stated {
			return "", badRequest("Document rev and etag have different values")
		}
		rev = stated
	}
	return rev, nil
}

// checkStated takes the revisions of local documents, too.
func checkStated(rev string) error {
	if strings.HasPrefix(rev, "0-") {
		return nil
	}
	_, err := parseRev(rev)
	return err
}

// putDocument answers PUT /{db}/{doc}.
func (h *Handler) putDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, err := documentID(r)
	if err != nil {
		return err
	}
	q := newQuery(r)
	replicated := !q.flag("new_edits", true)
	if q.err != nil {
		return q.err
	}
	out := h.newWriter(r, db)
	defer out.discard()
	if docbody.IsRelated(r.Header.Get("Content-Type")) {
		return h.putRelated(w, r, out, id, replicated)
	}
	s, err := h.spool(w, r)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // what was only read
	doc, err := docbody.ReadDocument(s, h.documentOptions())
	if err != nil {
		return bodyFailure(err)
	}
	doc.ID = id
	rev, err := out.document(doc, replicated, nil)
	if err != nil {
		return err
	}
	if q.text("batch") == "ok" {
		return respond(w, r, http.StatusAccepted, written{OK: true, ID: id})
	}
	return respondPut(w, r, doc, rev)
}

// putRelated writes a document whose attachments follow it. They are stored as they arrive.
func (h *Handler) putRelated(w http.ResponseWriter, r *http.Request, out *writer, id string, replicated bool) error {
	body, err := h.receive(w, r)
	if err != nil {
		return err
	}
	related, err := docbody.ReadRelated(body, r.Header.Get("Content-Type"), h.documentOptions())
	if err != nil {
		return bodyFailure(err)
	}
	defer func() { _ = related.Close() }() // what was only read
	doc := related.Document
	doc.ID = id
	rev, err := out.document(doc, replicated, related)
	if err != nil {
		return err
	}
	return respondPut(w, r, doc, rev)
}

func respondPut(w http.ResponseWriter, r *http.Request, doc *docbody.Document, rev string) error {
	w.Header().Set("ETag", writtenTag(doc.ID, rev, doc.Body))
	w.Header().Set("Location", documentURL(r, doc.ID))
	status := http.StatusCreated
	if doc.Deleted {
		status = http.StatusOK
	}
	return respond(w, r, status, written{true, doc.ID, rev})
}

// writtenTag is the entity tag of a document that was written.
func writtenTag(id, rev string, body []byte) string {
	if strings.HasPrefix(id, localPrefix) {
		return localTag(&docstore.LocalDocument{ID: id, Rev: rev, Body: body})
	}
	return `"` + rev + `"`
}

// documentURL returns the URL of a document, or of an attachment of one.
func documentURL(r *http.Request, id string, attachment ...string) string {
	path := couchEscape(pathValue(r, "db")) + "/" + couchEscape(id)
	for _, name := range attachment {
		path += "/" + couchEscape(name)
	}
	return absoluteURL(r, path)
}

// couchEscape encodes a segment of a path as CouchDB does: all but letters, digits and
// -._: is percent-encoded.
func couchEscape(text string) string {
	escaped := strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	return strings.NewReplacer("%3A", ":", "~", "%7E").Replace(escaped)
}

// postDocument answers POST /{db}: it writes a document whose id is in its JSON, or is
// made here.
func (h *Handler) postDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if err := requireJSON(r.Header); err != nil {
		return err
	}
	s, err := h.spool(w, r)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // what was only read
	doc, err := docbody.ReadDocument(s, h.documentOptions())
	if err != nil {
		return bodyFailure(err)
	}
	if doc.ID == "" {
		doc.ID, doc.Rev, doc.Revisions = newUUID(), "", nil
	}
	out := h.newWriter(r, db)
	defer out.discard()
	rev, err := out.document(doc, false, nil)
	if err != nil {
		return err
	}
	if newQuery(r).text("batch") == "ok" {
		return respond(w, r, http.StatusAccepted, written{OK: true, ID: doc.ID})
	}
	w.Header().Set("Location", documentURL(r, doc.ID))
	return respond(w, r, http.StatusCreated, written{true, doc.ID, rev})
}

// deleteDocument answers DELETE /{db}/{doc}.
func (h *Handler) deleteDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, err := documentID(r)
	if err != nil {
		return err
	}
	rev, err := statedRev(r, "")
	if err != nil {
		return err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	if strings.HasPrefix(id, localPrefix) {
		if err := db.DeleteLocal(ctx, id); err != nil {
			return docFailure(err)
		}
		return respond(w, r, http.StatusOK, written{true, id, localDeleted})
	}
	// A document that is not there is not a conflict.
	if _, err := db.Get(ctx, id, docstore.GetOptions{}); err != nil {
		return docFailure(err)
	}
	edit, err := newEdit(&docbody.Document{ID: id, Deleted: true}, rev, false)
	if err != nil {
		return err
	}
	if err := accessOf(r).writes(ctx, db, &edit, false); err != nil {
		return err
	}
	deleted, err := db.Put(ctx, edit)
	if err != nil {
		return docFailure(err)
	}
	w.Header().Set("ETag", `"`+deleted.String()+`"`)
	return respond(w, r, http.StatusOK, written{true, id, deleted.String()})
}
