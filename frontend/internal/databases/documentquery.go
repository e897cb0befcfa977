package databases

import (
	"bytes"
	"encoding/json"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// documentQuery has the parameters of a request that reads documents.
type documentQuery struct {
	// rev is the revision to read. The zero value is the winning one. latest: its latest descendant.
	rev    docstore.Rev
	latest bool
	// leaves: the request has open_revs. openRevs are the revisions; nil means all leaves.
	leaves   bool
	openRevs []docstore.Rev

	// revs is the most revisions of _revisions, the database's _revs_limit. 0 is none.
	revs                                            int
	revsInfo, conflicts, deletedConflicts, localSeq bool
	// attachments: documents have their contents, except those that the revisions in attsSince have.
	attachments  bool
	attsSince    []docstore.Rev
	encodingInfo bool
}

// documentParameters are the parameters that GetDocument reads.
var documentParameters = web.Parameters(func(q *web.Query) { _, _ = readDocumentParameters(q, nil, nil) })

// readDocumentQuery reads the parameters of a request.
func readDocumentQuery(r *http.Request, db *docstore.Database) (documentQuery, error) {
	return readDocumentParameters(web.NewQuery(r), r, db)
}

// readDocumentParameters is readDocumentQuery. The request and the database may be nil if there are no parameters.
func readDocumentParameters(q *web.Query, r *http.Request, db *docstore.Database) (documentQuery, error) {
	ask := documentQuery{
		latest:           q.Flag("latest", false),
		revsInfo:         q.Flag("revs_info", false),
		conflicts:        q.Flag("conflicts", false),
		deletedConflicts: q.Flag("deleted_conflicts", false),
		localSeq:         q.Flag("local_seq", false),
		attachments:      q.Flag("attachments", false),
		encodingInfo:     q.Flag("att_encoding_info", false),
	}
	if q.Flag("revs", false) {
		// A smaller limit counts at once. Paths are cut when documents are written.
		ctx, cancel := web.StoreContext(r)
		defer cancel()
		var err error
		if ask.revs, err = db.RevsLimit(ctx); err != nil {
			q.Fail(web.StoreFailure(err))
		}
	}
	if q.Flag("meta", false) {
		ask.revsInfo, ask.conflicts, ask.deletedConflicts = true, true, true
	}
	if q.Has("rev") {
		ask.rev = readRevisionText(q, "rev", q.Text("rev"))
	}
	if q.Has("atts_since") {
		ask.attachments, ask.attsSince = true, readRevisions(q, "atts_since")
	}
	if q.Has("open_revs") && q.Text("open_revs") != "all" {
		// As in CouchDB an empty list asks for the document.
		ask.openRevs = readRevisions(q, "open_revs")
		ask.leaves = len(ask.openRevs) > 0
	} else {
		ask.leaves = q.Has("open_revs")
	}
	return ask, q.Err
}

// readRevisionText parses a revision that a parameter has.
func readRevisionText(q *web.Query, name, text string) docstore.Rev {
	rev, err := docstore.ParseRev(text)
	if err != nil {
		q.Fail(badRevision(name))
	}
	return rev
}

func badRevision(name string) error {
	return web.BadRequest("Invalid rev format: `" + name + "` must be a number, a dash and an id, as 1-967a00dff5e02add41819138abb3284d")
}

// readRevisions reads a parameter that is a JSON list of revisions.
func readRevisions(q *web.Query, name string) (revs []docstore.Rev) {
	list := []byte(q.Text(name))
	if !jsontext.Valid(list) {
		q.Fail(web.ErrInvalidJSON)
		return nil
	}
	if bytes.TrimSpace(list)[0] != '[' {
		q.Fail(web.BadRequest("Invalid list of revisions"))
		return nil
	}
	for _, element := range jsontext.Elements(list) {
		text, _ := jsontext.String(element)
		revs = append(revs, readRevisionText(q, name, text))
	}
	return revs
}

// shown returns how the document is shown, without contents.
func (ask *documentQuery) shown() shown {
	return shown{revisions: ask.revs, encodings: ask.encodingInfo}
}

// inline returns how a document is shown with contents inside it, if the request asks for them.
func (ask *documentQuery) inline(c contents) shown {
	show := ask.shown()
	show.bodies = bodies{c.ctx, c.db}
	if ask.attachments {
		show.content = c.inline
	}
	return show
}

// following returns how a document is shown whose contents follow it. As in CouchDB their encodings are always
// shown, because the contents are sent encoded.
func (ask *documentQuery) following(c contents) shown {
	show := ask.shown()
	show.bodies, show.encodings, show.content = bodies{c.ctx, c.db}, true, c.following
	return show
}

// parseRevisions parses a JSON list of revisions.
func parseRevisions(text json.RawMessage) ([]docstore.Rev, error) {
	var texts []string
	if err := json.Unmarshal(text, &texts); err != nil {
		return nil, err
	}
	revs := make([]docstore.Rev, len(texts))
	for i := range texts {
		var err error
		if revs[i], err = docstore.ParseRev(texts[i]); err != nil {
			return nil, err
		}
	}
	return revs, nil
}
