package frontend

import (
	"cmp"
	"errors"
	"io"
	"net/http"

	"settee/pkg/docstore"
)

// bulkGet answers POST /{db}/_bulk_get. What is asked for is read and sent one document
// after the other.
func (h *Handler) bulkGet(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	body, err := h.readListBody(w, r)
	if err != nil {
		return err
	}
	var docs []byte
	_ = eachMember(body, func(name string, value []byte) error { // valid
		if name == "docs" {
			docs = value
		}
		return nil
	})
	if docs == nil {
		return badRequest("Missing JSON list of 'docs'.")
	}
	list, ok := newJSONList(docs)
	if !ok {
		return badRequest("`docs` must be a list of objects with an `id`")
	}
	ask, err := readBulkQuery(r)
	if err != nil {
		return err
	}
	bulk := &bulkReader{r, db, ask, list}
	if !accepts(r, "application/json") && (accepts(r, mixedType) || accepts(r, relatedType)) {
		return bulk.sendMixed(w)
	}
	return sendBody(w, r, "application/json", func(out *stream) error { return bulk.writeJSON(out) })
}

// readBulkQuery reads what is asked of all documents. As in CouchDB what belongs to one
// document is no parameter.
func readBulkQuery(r *http.Request) (documentQuery, error) {
	q := newQuery(r)
	for _, name := range []string{"open_revs", "new_edits", "w", "rev", "atts_since"} {
		if q.has(name) {
			return documentQuery{}, badRequest(`"` + name + `" query parameter is not acceptable`)
		}
	}
	return readDocumentQuery(r)
}

// bulkReader reads the documents that a request lists.
type bulkReader struct {
	r    *http.Request
	db   *docstore.Database
	ask  documentQuery // of all of them
	docs *jsonList
}

// bulkItem is a document that was asked for. What cannot be used of it is an error of its
// own, not of the request.
type bulkItem struct {
	id  string
	raw string // id as JSON
	ask documentQuery
	err *bulkError
}

// bulkError is why a document, or a leaf, is not in the answer. rev is JSON.
type bulkError struct {
	rev, code, reason string
	leaf              bool // a revision is missing that was asked for
}

func (b *bulkReader) item(i int) bulkItem {
	item := bulkItem{raw: "null", ask: b.ask}
	text := b.docs.at(i)
	if text[0] != '{' {
		item.err = &bulkError{rev: "null", code: "bad_request", reason: "document must be a JSON object"}
		return item
	}
	members := map[string][]byte{}
	_ = eachMember(text, func(name string, value []byte) error { // valid
		switch name {
		case "id", "rev", "atts_since":
			members[name] = value
		}
		return nil
	})
	item.err = cmp.Or(item.setID(members["id"]), item.setRev(members["rev"]), item.setAttsSince(members["atts_since"]))
	return item
}

func (item *bulkItem) setID(raw []byte) *bulkError {
	if raw == nil {
		return &bulkError{rev: "null", code: "bad_request", reason: "document id missed"}
	}
	var isString bool
	item.raw = string(raw)
	if item.id, isString = jsonString(raw); !isString {
		return &bulkError{rev: "null", code: "illegal_docid", reason: "Document id must be a string"}
	}
	return nil
}

func (item *bulkItem) setRev(raw []byte) *bulkError {
	if raw == nil {
		return nil
	}
	text, _ := jsonString(raw)
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

// each reads the leaves of a document, or says why there are none.
func (b *bulkReader) each(item *bulkItem, ok func(*docstore.Document) error, failed func(*bulkError) error) error {
	if item.err != nil {
		return failed(item.err)
	}
	found := false
	for leaf, err := range openRevs(b.r, b.db, item.id, &item.ask) {
		var refused *failure
		if errors.As(err, &refused) && refused.status == http.StatusBadRequest { // no document can have this id
			return failed(&bulkError{rev: "null", code: refused.code, reason: refused.reason})
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
	a := &appender{to: to}
	a.raw(`{"results":[`)
	for i := range b.docs.len() {
		item := b.item(i)
		a.raw(separator(i)).raw(`{"id":`).raw(item.raw).raw(`,"docs":[`)
		leaves := 0
		next := func() *appender {
			leaves++
			return a.raw(separator(leaves - 1))
		}
		err := b.each(&item, func(doc *docstore.Document) error {
			c := contentsOf(b.r.Context(), b.db, doc, item.ask.attsSince)
			return next().raw(`{"ok":`).document(doc, item.ask.inline(c)).raw("}").err
		}, func(e *bulkError) error {
			return next().raw(`{"error":`).bulkError(&item, e).raw("}").err
		})
		if err != nil {
			return err
		}
		if a.raw("]}").err != nil {
			return a.err
		}
	}
	return a.raw("]}\n").err
}

func (a *appender) bulkError(item *bulkItem, e *bulkError) *appender {
	a.raw(`{"rev":`).raw(e.rev).raw(`,"reason":`).string(e.reason)
	return a.raw(`,"id":`).raw(item.raw).raw(`,"error":`).string(e.code).raw("}")
}

// separator returns what stands before an element of a JSON list.
func separator(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// sendMixed sends the documents as the parts of multipart/mixed, with their contents.
func (b *bulkReader) sendMixed(w http.ResponseWriter) error {
	mediaType := mixedType
	if !accepts(b.r, mixedType) {
		mediaType = relatedType
	}
	boundary := bulkBoundary()
	return sendBody(w, b.r, mediaType+`; boundary="`+boundary+`"`, func(out *stream) error {
		a := &appender{to: out}
		for i := range b.docs.len() {
			item := b.item(i)
			err := b.each(&item, func(doc *docstore.Document) error {
				a.raw("\r\n--").raw(boundary)
				return a.bulkPart(doc, contentsOf(b.r.Context(), b.db, doc, item.ask.attsSince), &item.ask)
			}, func(e *bulkError) error {
				a.raw("\r\n--").raw(boundary).raw("\r\nContent-Type: application/json; error=\"true\"\r\n\r\n")
				if e.leaf {
					return a.raw(`{"rev":`).raw(e.rev).raw(`,"error":`).string(e.code).raw(`,"reason":`).string(e.reason).raw("}").err
				}
				return a.bulkError(&item, e).err
			})
			if err != nil {
				return err
			}
		}
		if b.docs.len() > 0 {
			a.raw("\r\n--").raw(boundary).raw("--\r\n")
		}
		return a.err
	})
}

// bulkBoundary returns a boundary of CouchDB's form for _bulk_get.
func bulkBoundary() string { return "--" + newBoundary() }

// bulkPart appends the headers and the body of the part of a document.
func (a *appender) bulkPart(doc *docstore.Document, c contents, ask *documentQuery) error {
	part := newRelated(doc, ask.following(c), c)
	if len(part.sent) > 0 {
		part.boundary = bulkBoundary()
		a.raw("\r\nX-Doc-Id: ").raw(headerText(doc.ID)).raw("\r\nX-Rev-Id: ").raw(headerText(doc.Rev.String()))
		a.raw("\r\nContent-Type: multipart/related; boundary=").raw(part.boundary).raw("\r\n\r\n")
		if a.err == nil {
			a.err = part.write(a.to, c.copy)
		}
		return a.err
	}
	return a.raw("\r\nContent-Type: application/json\r\n\r\n").document(doc, part.show).err
}
