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

// documentID returns the id of the document of a path.
func documentID(r *http.Request) (string, error) {
	id := web.PathValue(r, "doc")
	if id == "_local" || id == localPrefix {
		return "", web.BadRequest("Invalid _local document id.")
	}
	return id, bodyFailure(docbody.CheckID(id))
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
	out := e.newWriter(r, db, replicated)
	defer out.close()
	doc, err := out.receive(w, id)
	if err != nil {
		return err
	}
	rev, err := out.writeOne(doc)
	switch {
	case out.related == nil && batched(q, err):
		return web.Respond(w, r, http.StatusAccepted, written{OK: true, ID: id})
	case err != nil:
		return err
	}
	w.Header().Set("ETag", writtenTag(id, rev, doc.Body.Bytes()))
	w.Header().Set("Location", documentURL(r, id))
	status := http.StatusCreated
	if doc.Deleted {
		status = http.StatusOK
	}
	return web.Respond(w, r, status, written{true, id, rev})
}

// batched reports whether a write that ended with err is answered as one that happens later (batch=ok). Such a write
// leaves a document as it is if there is a conflict. Only other refusals are answered.
func batched(q *web.Query, err error) bool {
	var refused *web.Failure
	return q.Text("batch") == "ok" && (err == nil || errors.As(err, &refused) && refused.Status == http.StatusConflict)
}

// writtenTag returns the entity tag of a document that was written.
func writtenTag(id, rev string, body []byte) string {
	if isLocal(id) {
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
	out := e.newWriter(r, db, false)
	defer out.close()
	doc, err := out.receive(w, "")
	if err != nil {
		return err
	}
	rev, err := out.writeOne(doc)
	switch {
	case batched(web.NewQuery(r), err):
		return web.Respond(w, r, http.StatusAccepted, written{OK: true, ID: doc.ID})
	case err != nil:
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
	if !isLocal(id) {
		ctx, cancel := web.StoreContext(r)
		defer cancel()
		// A missing document is 404, and not a conflict.
		if _, err := db.Get(ctx, id, docstore.GetOptions{}); err != nil {
			return web.StoreFailure(err)
		}
	}
	out := e.newWriter(r, db, false)
	defer out.close()
	one, err := out.newEntry(&docbody.Document{ID: id, Rev: rev, Deleted: true})
	if err != nil {
		return err
	}
	one.mustExist = true
	deleted, err := out.writeOne(one)
	if err != nil {
		return err
	}
	if !isLocal(id) {
		w.Header().Set("ETag", `"`+deleted+`"`)
	}
	return web.Respond(w, r, http.StatusOK, written{true, id, deleted})
}
