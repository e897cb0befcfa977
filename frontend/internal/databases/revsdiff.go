package databases

import (
	"net/http"
	"slices"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// revsAtOnce is the number of documents whose revisions are looked up before the results are sent.
const revsAtOnce = 500

// RevsDiff answers POST /{db}/_revs_diff.
func (e *Endpoints) RevsDiff(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.compareRevs(w, r, db, "{", "}\n", func(list *web.Appender, diff docstore.RevsDiff) {
		list.Raw(`{"missing":`).Value(revTexts(diff.Missing))
		if len(diff.PossibleAncestors) > 0 {
			slices.Reverse(diff.PossibleAncestors) // the winner first, as in feeds
			list.Raw(`,"possible_ancestors":`).Value(revTexts(diff.PossibleAncestors))
		}
		list.Raw("}")
	})
}

// MissingRevs answers POST /{db}/_missing_revs.
func (e *Endpoints) MissingRevs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.compareRevs(w, r, db, `{"missing_revs":{`, "}}\n", func(list *web.Appender, diff docstore.RevsDiff) {
		list.Value(revTexts(diff.Missing))
	})
}

// compareRevs sends an object with the missing revisions of the documents in the body. write writes the value of a
// document.
func (e *Endpoints) compareRevs(w http.ResponseWriter, r *http.Request, db *docstore.Database,
	head, tail string, write func(*web.Appender, docstore.RevsDiff),
) error {
	body, err := web.ReadJSON(w, r, e.Settings.Current())
	if err != nil {
		return err
	}
	queries, err := parseRevsQueries(body)
	if err != nil {
		return err
	}
	out := web.NewStream(w, r, http.StatusOK, "application/json")
	list := web.Appender{To: out}
	list.Raw(head)
	comma := ""
	for some := range slices.Chunk(queries, revsAtOnce) {
		diffs, err := compareSome(r, db, some)
		if err != nil {
			return err
		}
		for _, diff := range diffs {
			list.Raw(comma).Value(diff.ID).Raw(":")
			if write(&list, diff); list.Err != nil {
				return list.Err
			}
			comma = ","
		}
	}
	if list.Raw(tail); list.Err != nil {
		return list.Err
	}
	return out.End()
}

func compareSome(r *http.Request, db *docstore.Database, queries []docstore.RevsQuery) ([]docstore.RevsDiff, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	diffs, err := db.RevsDiff(ctx, queries)
	return diffs, web.StoreFailure(err)
}

// parseRevsQueries parses an object whose members are documents, each with a list of revisions.
func parseRevsQueries(text []byte) ([]docstore.RevsQuery, error) {
	if err := web.RequireObject(text); err != nil {
		return nil, err
	}
	var queries []docstore.RevsQuery
	for m := range jsontext.Members(text) {
		id := string(m.Key)
		revs, err := parseRevs(text[m.Value:m.End])
		if err != nil {
			return nil, err
		}
		queries = append(queries, docstore.RevsQuery{ID: id, Revs: revs})
	}
	return queries, nil
}

// parseRevs parses the revisions of a document. It returns them sorted, and each once. The errors are in the words of CouchDB
// after 3.5.3.
func parseRevs(text []byte) ([]docstore.Rev, error) {
	texts, ok := jsontext.Strings(text)
	switch {
	case !jsontext.IsArray(text):
		return nil, web.BadRequest("Invalid revisions, must be a list")
	case !ok:
		return nil, web.BadRequest("Invalid rev format")
	}
	revs := make([]docstore.Rev, len(texts))
	for i, text := range texts {
		rev, err := docstore.ParseRev(text)
		if err != nil {
			return nil, web.BadRequest("Invalid rev format")
		}
		revs[i] = rev
	}
	slices.SortFunc(revs, docstore.Rev.Compare)
	return slices.Compact(revs), nil
}
