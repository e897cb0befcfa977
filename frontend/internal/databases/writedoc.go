package databases

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"settee/frontend/internal/access"
	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// written is the answer to a document that was written. With batch=ok it has no revision.
type written struct {
	OK  bool   `json:"ok"`
	ID  string `json:"id"`
	Rev string `json:"rev,omitempty"`
}

// localDeleted is the revision of a deleted local document in CouchDB's answers.
const localDeleted = "0-0"

// documentID returns the id of the document of a path.
func documentID(r *http.Request) (string, error) {
	id := web.PathValue(r, "doc")
	if id == "_local" || id == localPrefix {
		return "", web.BadRequest("Invalid _local document id.")
	}
	return id, bodyFailure(docbody.CheckID(id))
}

// statedRev returns the revision that a request replaces, or the one that it writes if the document is replicated.
// The document, ?rev= and If-Match can state it. If several do, they have to agree. It is empty if none does.
func statedRev(r *http.Request, inDocument string) (string, error) {
	rev := inDocument
	if q := web.NewQuery(r); q.Err != nil {
		return "", q.Err
	} else if q.Has("rev") {
		stated := q.Text("rev")
		if err := checkStated(stated); err != nil {
			return "", err
		}
		if rev != "" && rev != stated {
			return "", web.BadRequest("Document rev from request body and query string have different values")
		}
		rev = stated
	}
	if header := r.Header.Get("If-Match"); header != "" {
		stated := strings.Trim(header, `"`)
		if err := checkStated(stated); err != nil {
			return "", err
		}
		if rev != "" && rev != stated {
			return "", web.BadRequest("Document rev and etag have different values")
		}
		rev = stated
	}
	return rev, nil
}

// checkStated checks a revision that a request states. It accepts revisions of local documents, too.
func checkStated(rev string) error {
	if strings.HasPrefix(rev, "0-") {
		return nil
	}
	_, err := parseRev(rev)
	return err
}

// PutDocument answers PUT /{db}/{doc}.
func (e *Endpoints) PutDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, err := documentID(r)
	if err != nil {
		return err
	}
	q := web.NewQuery(r)
	replicated := !q.Flag("new_edits", true)
	if q.Err != nil {
		return q.Err
	}
	if docbody.IsRelated(r.Header.Get("Content-Type")) {
		return e.putRelated(w, r, db, id, replicated)
	}
	doc, rev, err := e.writeBody(w, r, db, replicated, func(doc *docbody.Document) { doc.ID = id })
	if batched(q, err) {
		return web.Respond(w, r, http.StatusAccepted, written{OK: true, ID: id})
	}
	if err != nil {
		return err
	}
	return respondPut(w, r, doc, rev)
}

// batched reports whether a write that ended with err is answered as one that happens later (batch=ok). Such a write
// leaves a document as it is if there is a conflict. Only other refusals are answered.
func batched(q *web.Query, err error) bool {
	var refused *web.Failure
	return q.Text("batch") == "ok" && (err == nil || errors.As(err, &refused) && refused.Status == http.StatusConflict)
}

// writeBody writes the document in the body of a request, after name has set its id, and returns it and its revision.
func (e *Endpoints) writeBody(w http.ResponseWriter, r *http.Request, db *docstore.Database,
	replicated bool, name func(*docbody.Document),
) (*docbody.Document, string, error) {
	s, err := e.spool(w, r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = s.Close() }() // it was only read
	doc, err := docbody.ReadDocument(s, e.documentOptions())
	if err != nil {
		return nil, "", bodyFailure(err)
	}
	name(doc)
	out := e.newWriter(r, db)
	defer out.discard()
	rev, err := out.document(doc, replicated, nil)
	return doc, rev, err
}

// putRelated writes a document whose attachments follow it. They are stored while they arrive.
func (e *Endpoints) putRelated(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, replicated bool) error {
	body, err := web.OpenBody(w, r, web.RequestLimit(e.Settings.Current()))
	if err != nil {
		return err
	}
	opts := e.documentOptions()
	opts.Spool = e.spoolOptions(r)
	related, err := docbody.ReadRelated(body, r.Header.Get("Content-Type"), opts)
	if err != nil {
		return bodyFailure(err)
	}
	defer func() { _ = related.Close() }() // it was only read
	if err := e.takeForWrite(r, int64(related.Document.Body.Len())); err != nil {
		return err
	}
	doc := related.Document
	doc.ID = id
	out := e.newWriter(r, db)
	defer out.discard()
	rev, err := out.document(doc, replicated, related)
	if err != nil {
		return err
	}
	return respondPut(w, r, doc, rev)
}

func respondPut(w http.ResponseWriter, r *http.Request, doc *docbody.Document, rev string) error {
	w.Header().Set("ETag", writtenTag(doc.ID, rev, doc.Body.Bytes()))
	w.Header().Set("Location", documentURL(r, doc.ID))
	status := http.StatusCreated
	if doc.Deleted {
		status = http.StatusOK
	}
	return web.Respond(w, r, status, written{true, doc.ID, rev})
}

// writtenTag returns the entity tag of a document that was written.
func writtenTag(id, rev string, body []byte) string {
	if strings.HasPrefix(id, localPrefix) {
		return localTag(&docstore.LocalDocument{ID: id, Rev: rev, Body: body})
	}
	return `"` + rev + `"`
}

// documentURL returns the URL of a document, or of an attachment of one.
func documentURL(r *http.Request, id string, attachment ...string) string {
	path := couchEscape(web.PathValue(r, "db")) + "/" + couchEscape(id)
	for _, name := range attachment {
		path += "/" + couchEscape(name)
	}
	return web.AbsoluteURL(r, path)
}

// couchEscape percent-encodes a segment of a path as CouchDB does: all characters except letters, digits and -._:
func couchEscape(text string) string {
	escaped := strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	return strings.NewReplacer("%3A", ":", "~", "%7E").Replace(escaped)
}

// PostDocument answers POST /{db}: it writes a document. The id is in its JSON, or a new one.
func (e *Endpoints) PostDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if err := web.RequireJSON(r); err != nil {
		return err
	}
	doc, rev, err := e.writeBody(w, r, db, false, func(doc *docbody.Document) {
		if doc.ID == "" {
			doc.ID, doc.Rev, doc.Revisions = e.UUIDs.New(e.Settings.Current()), "", nil
		}
	})
	if batched(web.NewQuery(r), err) {
		return web.Respond(w, r, http.StatusAccepted, written{OK: true, ID: doc.ID})
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", documentURL(r, doc.ID))
	return web.Respond(w, r, http.StatusCreated, written{true, doc.ID, rev})
}

// DeleteDocument answers DELETE /{db}/{doc}.
func (e *Endpoints) DeleteDocument(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	id, err := documentID(r)
	if err != nil {
		return err
	}
	rev, err := statedRev(r, "")
	if err != nil {
		return err
	}
	if err := access.RightsOf(r).Opens(db, id); err != nil {
		return err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if strings.HasPrefix(id, localPrefix) {
		if err := db.DeleteLocal(ctx, id); err != nil {
			return web.StoreFailure(err)
		}
		return web.Respond(w, r, http.StatusOK, written{true, id, localDeleted})
	}
	// A missing document is 404, and not a conflict.
	if _, err := db.Get(ctx, id, docstore.GetOptions{}); err != nil {
		return web.StoreFailure(err)
	}
	edit, err := newEdit(&docbody.Document{ID: id, Deleted: true}, rev, false)
	if err != nil {
		return err
	}
	deleted, err := e.newWriter(r, db).edit(edit, false)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", `"`+deleted+`"`)
	return web.Respond(w, r, http.StatusOK, written{true, id, deleted})
}
