package frontend

import (
	"encoding/json"
	"net/http"

	"settee/pkg/docstore"
)

// documentQuery is what a request says of the documents, or the one, that it reads.
type documentQuery struct {
	// rev is the revision to read, zero the winning one; latest its latest descendant.
	rev    docstore.Rev
	latest bool
	// leaves: open_revs was asked for. openRevs are its revisions, nil is all leaves.
	leaves   bool
	openRevs []docstore.Rev

	revs, revsInfo, conflicts, deletedConflicts, localSeq bool
	// attachments: with contents, but for those of the revisions in attsSince.
	attachments  bool
	attsSince    []docstore.Rev
	encodingInfo bool
}

func readDocumentQuery(r *http.Request) (documentQuery, error) {
	q := newQuery(r)
	ask := documentQuery{
		latest:           q.flag("latest", false),
		revs:             q.flag("revs", false),
		revsInfo:         q.flag("revs_info", false),
		conflicts:        q.flag("conflicts", false),
		deletedConflicts: q.flag("deleted_conflicts", false),
		localSeq:         q.flag("local_seq", false),
		attachments:      q.flag("attachments", false),
		encodingInfo:     q.flag("att_encoding_info", false),
	}
	if q.flag("meta", false) {
		ask.revsInfo, ask.conflicts, ask.deletedConflicts = true, true, true
	}
	if q.has("rev") {
		ask.rev = q.revision("rev", q.text("rev"))
	}
	if q.has("atts_since") {
		ask.attachments, ask.attsSince = true, q.revisions("atts_since", "")
	}
	if q.has("open_revs") && q.text("open_revs") != "all" {
		// An empty list asks for the document, as in CouchDB.
		ask.openRevs = q.revisions("open_revs", "all or ")
		ask.leaves = len(ask.openRevs) > 0
	} else {
		ask.leaves = q.has("open_revs")
	}
	return ask, q.err
}

// revision reads a revision that a parameter has.
func (q *query) revision(name, text string) docstore.Rev {
	rev, err := docstore.ParseRev(text)
	if err != nil && q.err == nil {
		q.err = badRevision(name)
	}
	return rev
}

func badRevision(name string) error {
	return badRequest("Invalid rev format: `" + name + "` must be a number, a dash and an id, as 1-967a00dff5e02add41819138abb3284d")
}

// revisions reads a parameter that is a JSON list of revisions, or what else it may be.
func (q *query) revisions(name, otherwise string) (revs []docstore.Rev) {
	var texts []string
	if q.json(name, otherwise+"a list of revisions", &texts) {
		for _, text := range texts {
			revs = append(revs, q.revision(name, text))
		}
	}
	return revs
}

// shown returns how the document is shown that was asked for, without contents.
func (ask *documentQuery) shown() shown {
	return shown{revisions: ask.revs, encodings: ask.encodingInfo}
}

// inline returns how a document is shown with contents inside it, if they were asked for.
func (ask *documentQuery) inline(c contents) shown {
	show := ask.shown()
	if ask.attachments {
		show.content = c.inline
	}
	return show
}

// following returns how a document is shown whose contents follow it. As in CouchDB it
// always says how they are encoded, because they are sent so.
func (ask *documentQuery) following(c contents) shown {
	show := ask.shown()
	show.encodings, show.content = true, c.following
	return show
}

// parseRevisions reads a JSON list of revisions from a body.
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
