package frontend

import (
	"iter"
	"net/http"
	"strings"

	"settee/pkg/docstore"
)

// sendLeaves answers GET /{db}/{doc}?open_revs=.
func sendLeaves(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	if accepts(r, mixedType) {
		return sendLeavesMixed(w, r, db, id, ask)
	}
	return sendStream(w, r, "application/json", func(out *stream) error {
		a, i := &appender{to: out}, 0
		a.raw("[")
		for leaf, err := range openRevs(r, db, id, ask) {
			if err != nil {
				return err
			}
			a.raw(separator(i))
			i++
			if leaf.Document == nil {
				a.raw(`{"missing":`).string(leaf.Rev.String()).raw("}")
				continue
			}
			c := contentsOf(r.Context(), db, leaf.Document, ask.attsSince)
			a.raw(`{"ok":`).document(leaf.Document, ask.inline(c)).raw("}")
			if a.err != nil {
				return a.err
			}
		}
		if i == 0 {
			return notFound("missing")
		}
		return a.raw("]\n").err
	})
}

// openRevs reads the leaves that were asked for; for HEAD only whether there is one. Local
// documents have none.
func openRevs(r *http.Request, db *docstore.Database, id string, ask *documentQuery) iter.Seq2[docstore.OpenRev, error] {
	return func(yield func(docstore.OpenRev, error) bool) {
		leaves := db.OpenRevs(r.Context(), id, docstore.OpenRevsOptions{Revs: ask.openRevs, Latest: ask.latest})
		if strings.HasPrefix(id, localPrefix) {
			leaves = allMissing(ask.openRevs)
		}
		for leaf, err := range leaves {
			if err != nil {
				yield(leaf, docFailure(err))
				return
			}
			if r.Method == http.MethodHead {
				yield(docstore.OpenRev{Rev: leaf.Rev}, nil)
				return
			}
			if leaf.Document != nil {
				if leaf.Document, err = accessOf(r).reads(db, leaf.Document); err != nil {
					yield(leaf, err)
					return
				}
			}
			if !yield(leaf, nil) {
				return
			}
		}
	}
}

func allMissing(revs []docstore.Rev) iter.Seq2[docstore.OpenRev, error] {
	return func(yield func(docstore.OpenRev, error) bool) {
		for _, rev := range revs {
			if !yield(docstore.OpenRev{Rev: rev}, nil) {
				return
			}
		}
	}
}

// sendLeavesMixed sends leaves as multipart/mixed. As in CouchDB they come with their
// contents, whether attachments were asked for or not.
func sendLeavesMixed(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	boundary := newBoundary()
	return sendStream(w, r, mixedType+`; boundary="`+boundary+`"`, func(out *stream) error {
		a, found := &appender{to: out}, false
		a.raw("--").raw(boundary)
		for leaf, err := range openRevs(r, db, id, ask) {
			if err != nil {
				return err
			}
			found = true
			if leaf.Document == nil {
				a.raw("\r\nContent-Type: application/json; error=\"true\"\r\n\r\n")
				a.raw(`{"missing":`).string(leaf.Rev.String()).raw("}")
			} else {
				a.leafPart(leaf.Document, contentsOf(r.Context(), db, leaf.Document, ask.attsSince), ask)
			}
			if a.raw("\r\n--").raw(boundary).err != nil {
				return a.err
			}
		}
		if !found {
			return notFound("missing")
		}
		return a.raw("--").err
	})
}

// leafPart appends the headers and the body of the part of a document: multipart/related if
// contents are sent, otherwise JSON.
func (a *appender) leafPart(doc *docstore.Document, c contents, ask *documentQuery) {
	show := ask.following(c)
	part := newRelated(doc, show, c)
	if len(part.sent) == 0 {
		a.raw("\r\nContent-Type: application/json\r\n\r\n").document(doc, show)
		return
	}
	a.raw("\r\nContent-Type: ").raw(part.contentType()).raw("\r\n\r\n")
	if a.err == nil {
		a.err = part.write(a.to, c.copy)
	}
}
