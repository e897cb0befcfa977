package databases

import (
	"iter"
	"net/http"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// sendLeaves answers GET /{db}/{doc}?open_revs=.
func sendLeaves(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	if err := takeMemory(r, pageCost); err != nil {
		return err
	}
	if web.Accepts(r, mixedType) {
		return sendLeavesMixed(w, r, db, id, ask)
	}
	return web.SendStream(w, r, "application/json", func(out *web.Stream) error {
		a, i := &web.Appender{To: out}, 0
		a.Raw("[")
		for leaf, err := range openRevs(r, db, id, ask) {
			if err != nil {
				return err
			}
			a.Raw(web.Separator(i))
			i++
			if leaf.Document == nil {
				a.Raw(`{"missing":`).Text(leaf.Rev.String()).Raw("}")
				continue
			}
			c := contentsOf(r.Context(), db, leaf.Document, ask.attsSince)
			ask.inline(c).document(a.Raw(`{"ok":`), leaf.Document).Raw("}")
			if a.Err != nil {
				return a.Err
			}
		}
		if i == 0 {
			return web.NotFound("missing")
		}
		return a.Raw("]\n").Err
	})
}

// openRevs yields the leaves that the request asks for. For HEAD it yields at most one, without its document. Local
// documents, and those that do not exist for the user, have no leaves.
func openRevs(r *http.Request, db *docstore.Database, id string, ask *documentQuery) iter.Seq2[docstore.OpenRev, error] {
	return func(yield func(docstore.OpenRev, error) bool) {
		leaves := db.OpenRevs(r.Context(), id, docstore.OpenRevsOptions{Revs: ask.openRevs, Latest: ask.latest, LargeBody: largeBody})
		if isLocal(id) || access.RightsOf(r).Opens(db, id) != nil {
			leaves = allMissing(ask.openRevs)
		}
		for leaf, err := range leaves {
			if err != nil {
				yield(leaf, web.StoreFailure(err))
				return
			}
			if r.Method == http.MethodHead {
				yield(docstore.OpenRev{Rev: leaf.Rev}, nil)
				return
			}
			if leaf.Document != nil {
				if leaf.Document, err = access.RightsOf(r).Reads(db, leaf.Document); err != nil {
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

// sendLeavesMixed sends leaves as multipart/mixed. As in CouchDB they always have their contents.
func sendLeavesMixed(w http.ResponseWriter, r *http.Request, db *docstore.Database, id string, ask *documentQuery) error {
	boundary := web.NewUUID()
	return web.SendStream(w, r, mixedType+`; boundary="`+boundary+`"`, func(out *web.Stream) error {
		a, found := &web.Appender{To: out}, false
		a.Raw("--").Raw(boundary)
		for leaf, err := range openRevs(r, db, id, ask) {
			if err != nil {
				return err
			}
			found = true
			if leaf.Document == nil {
				a.Raw("\r\nContent-Type: application/json; error=\"true\"\r\n\r\n")
				a.Raw(`{"missing":`).Text(leaf.Rev.String()).Raw("}")
			} else {
				c := contentsOf(r.Context(), db, leaf.Document, ask.attsSince)
				part := newRelated(leaf.Document, ask.following(c), c)
				part.writePart(a, "\r\nContent-Type: "+part.contentType())
			}
			if a.Raw("\r\n--").Raw(boundary).Err != nil {
				return a.Err
			}
		}
		if !found {
			return web.NotFound("missing")
		}
		return a.Raw("--").Err
	})
}
