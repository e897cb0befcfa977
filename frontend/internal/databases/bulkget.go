package databases

import (
	"cmp"
	"errors"
	"io"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// BulkGet answers POST /{db}/_bulk_get. It reads and sends one document after the other.
func (e *Endpoints) BulkGet(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	list, err := e.readList(w, r, "docs", "Missing JSON list of 'docs'.", "`docs` must be a list of objects with an `id`")
	if err != nil {
		return err
	}
	ask, err := readBulkQuery(r, db)
	if err != nil {
		return err
	}
	bulk := &bulkReader{r, db, ask, list}
	if !web.Accepts(r, "application/json") && (web.Accepts(r, mixedType) || web.Accepts(r, relatedType)) {
		return bulk.sendMixed(w)
	}
	return web.SendBody(w, r, "application/json", func(out *web.Stream) error { return bulk.writeJSON(out) })
}

// readBulkQuery reads the parameters, which apply to all documents. As in CouchDB a parameter of a single document
// is refused.
func readBulkQuery(r *http.Request, db *docstore.Database) (documentQuery, error) {
	q := web.NewQuery(r)
	for _, name := range []string{"open_revs", "new_edits", "w", "rev", "atts_since"} {
		if q.Has(name) {
			return documentQuery{}, web.BadRequest(`"` + name + `" query parameter is not acceptable`)
		}
	}
	return readDocumentQuery(r, db)
}

// bulkReader reads the documents that a request lists.
type bulkReader struct {
	r    *http.Request
	db   *docstore.Database
	ask  documentQuery // for all documents
	docs *jsonList
}

// bulkItem is one of the documents to read. If it is malformed, that is an error of the item and not of the
// request.
type bulkItem struct {
	id  string
	raw string // id as JSON
	ask documentQuery
	err *bulkError
}

// bulkError is the reason why a document, or a leaf, is not in the answer. rev is JSON.
type bulkError struct {
	rev, code, reason string
	leaf              bool // the leaf of a listed revision is missing
}

func (b *bulkReader) item(i int) bulkItem {
	item := bulkItem{raw: "null", ask: b.ask}
	text := b.docs.at(i)
	if text[0] != '{' {
		item.err = &bulkError{rev: "null", code: "bad_request", reason: "document must be a JSON object"}
		return item
	}
	members := map[string][]byte{}
	for m := range jsontext.Members(text) {
		switch name := string(m.Key); name {
		case "id", "rev", "atts_since":
			members[name] = text[m.Value:m.End]
		}
	}
	item.err = cmp.Or(item.setID(members["id"]), item.setRev(members["rev"]), item.setAttsSince(members["atts_since"]))
	return item
}

func (item *bulkItem) setID(raw []byte) *bulkError {
	if raw == nil {
		return &bulkError{rev: "null", code: "bad_request", reason: "document id missed"}
	}
	var isString bool
	item.raw = string(raw)
	if item.id, isString = jsontext.String(raw); !isString {
		return &bulkError{rev: "null", code: "illegal_docid", reason: "Document id must be a string"}
	}
	return nil
}

func (item *bulkItem) setRev(raw []byte) *bulkError {
	if raw == nil {
		return nil
	}
	text, _ := jsontext.String(raw)
	rev, err := docstore.ParseRev(text)
	if err != nil {
		return &bulkError{rev: string(raw), code: "bad_request", reason: "Invalid rev format"}
	}
	item.ask.openRevs = []docstore.Rev{rev}
	return nil
}

func (item *bulkItem) setAttsSince(raw []byte) *bulkError {
	if raw == nil {
		return nil
	}
	since, err := parseRevisions(raw)
	if err != nil {
		return &bulkError{rev: string(raw), code: "bad_request", reason: "`atts_since` must be a list of revisions"}
	}
	if len(since) > 0 {
		item.ask.attachments, item.ask.attsSince = true, since
	}
	return nil
}

// each reads the leaves of a document. It calls ok with each of them, and failed with the reason why there is none.
func (b *bulkReader) each(item *bulkItem, ok func(*docstore.Document) error, failed func(*bulkError) error) error {
	if item.err != nil {
		return failed(item.err)
	}
	found := false
	for leaf, err := range openRevs(b.r, b.db, item.id, &item.ask) {
		var refused *web.Failure
		if errors.As(err, &refused) && (refused.Status == http.StatusBadRequest || // no document can have this id
			refused.Status == http.StatusForbidden) {
			return failed(&bulkError{rev: "null", code: refused.Code, reason: refused.Reason})
		}
		if err != nil {
			return err
		}
		found = true
		if leaf.Document == nil {
			err = failed(&bulkError{`"` + leaf.Rev.String() + `"`, "not_found", "missing", true})
		} else {
			err = ok(leaf.Document)
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return failed(&bulkError{rev: `"undefined"`, code: "not_found", reason: "missing"})
	}
	return nil
}

func (b *bulkReader) writeJSON(to io.Writer) error {
	a := &web.Appender{To: to}
	a.Raw(`{"results":[`)
	for i := range b.docs.len() {
		item := b.item(i)
		a.Raw(web.Separator(i)).Raw(`{"id":`).Raw(item.raw).Raw(`,"docs":[`)
		leaves := 0
		next := func() *web.Appender {
			leaves++
			return a.Raw(web.Separator(leaves - 1))
		}
		err := b.each(&item, func(doc *docstore.Document) error {
			c := contentsOf(b.r.Context(), b.db, doc, item.ask.attsSince)
			return item.ask.inline(c).document(next().Raw(`{"ok":`), doc).Raw("}").Err
		}, func(e *bulkError) error {
			return e.write(next().Raw(`{"error":`), &item).Raw("}").Err
		})
		if err != nil {
			return err
		}
		if a.Raw("]}").Err != nil {
			return a.Err
		}
	}
	return a.Raw("]}\n").Err
}

// write appends the error of a document, as an object.
func (e *bulkError) write(a *web.Appender, item *bulkItem) *web.Appender {
	a.Raw(`{"rev":`).Raw(e.rev).Raw(`,"reason":`).Text(e.reason)
	return a.Raw(`,"id":`).Raw(item.raw).Raw(`,"error":`).Text(e.code).Raw("}")
}

// sendMixed sends the documents as the parts of multipart/mixed, with their contents.
func (b *bulkReader) sendMixed(w http.ResponseWriter) error {
	mediaType := mixedType
	if !web.Accepts(b.r, mixedType) {
		mediaType = relatedType
	}
	boundary := bulkBoundary()
	return web.SendBody(w, b.r, mediaType+`; boundary="`+boundary+`"`, func(out *web.Stream) error {
		a := &web.Appender{To: out}
		for i := range b.docs.len() {
			item := b.item(i)
			err := b.each(&item, func(doc *docstore.Document) error {
				a.Raw("\r\n--").Raw(boundary)
				return writeBulkPart(a, doc, contentsOf(b.r.Context(), b.db, doc, item.ask.attsSince), &item.ask)
			}, func(e *bulkError) error {
				a.Raw("\r\n--").Raw(boundary).Raw("\r\nContent-Type: application/json; error=\"true\"\r\n\r\n")
				if e.leaf {
					return a.Raw(`{"rev":`).Raw(e.rev).Raw(`,"error":`).Text(e.code).Raw(`,"reason":`).Text(e.reason).Raw("}").Err
				}
				return e.write(a, &item).Err
			})
			if err != nil {
				return err
			}
		}
		if b.docs.len() > 0 {
			a.Raw("\r\n--").Raw(boundary).Raw("--\r\n")
		}
		return a.Err
	})
}

// bulkBoundary returns a boundary of CouchDB's form for _bulk_get.
func bulkBoundary() string { return "--" + web.NewUUID() }

// writeBulkPart appends the headers and the body of the part of a document.
func writeBulkPart(a *web.Appender, doc *docstore.Document, c contents, ask *documentQuery) error {
	part := newRelated(doc, ask.following(c), c)
	part.boundary = bulkBoundary()
	return part.writePart(a, "\r\nX-Doc-Id: "+headerText(doc.ID)+"\r\nX-Rev-Id: "+headerText(doc.Rev.String())+
		"\r\nContent-Type: multipart/related; boundary="+part.boundary).Err
}
