package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"settee/pkg/docstore"
)

// revsAtOnce is about how many documents' revisions are looked up before what was found is
// sent.
const revsAtOnce = 500

func (h *Handler) revsDiff(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return h.compareRevs(w, r, db, "{", "}\n", func(list *appender, diff docstore.RevsDiff) {
		list.raw(`{"missing":`).value(revTexts(diff.Missing))
		if len(diff.PossibleAncestors) > 0 {
			slices.Reverse(diff.PossibleAncestors) // the winner first, as in feeds
			list.raw(`,"possible_ancestors":`).value(revTexts(diff.PossibleAncestors))
		}
		list.raw("}")
	})
}

func (h *Handler) missingRevs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return h.compareRevs(w, r, db, `{"missing_revs":{`, "}}\n", func(list *appender, diff docstore.RevsDiff) {
		list.value(revTexts(diff.Missing))
	})
}

// compareRevs sends an object of what is missing of the documents that are asked about.
func (h *Handler) compareRevs(w http.ResponseWriter, r *http.Request, db *docstore.Database,
	head, tail string, write func(*appender, docstore.RevsDiff),
) error {
	body, err := h.readJSON(w, r)
	if err != nil {
		return err
	}
	queries, err := parseRevsQueries(body)
	if err != nil {
		return err
	}
	out := newStream(w, r, http.StatusOK, "application/json")
	list := appender{to: out}
	list.raw(head)
	comma := ""
	for some := range slices.Chunk(queries, revsAtOnce) {
		diffs, err := compareSome(r, db, some)
		if err != nil {
			return err
		}
		for _, diff := range diffs {
			list.raw(comma).value(diff.ID).raw(":")
			if write(&list, diff); list.err != nil {
				return list.err
			}
			comma = ","
		}
	}
	if list.raw(tail); list.err != nil {
		return list.err
	}
	return out.end()
}

func compareSome(r *http.Request, db *docstore.Database, queries []docstore.RevsQuery) ([]docstore.RevsDiff, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	diffs, err := db.RevsDiff(ctx, queries)
	if err != nil {
		return nil, docFailure(err)
	}
	return diffs, nil
}

// parseRevsQueries reads an object whose members are documents, each with a list of
// revisions.
func parseRevsQueries(text []byte) ([]docstore.RevsQuery, error) {
	if !json.Valid(text) {
		return nil, badRequest("invalid UTF-8 JSON")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if opening, _ := decoder.Token(); opening != json.Delim('{') {
		return nil, badRequest("Request body must be a JSON object")
	}
	var queries []docstore.RevsQuery
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		id, _ := name.(string)
		revs, err := parseRevs(id, value)
		if err != nil {
			return nil, err
		}
		queries = append(queries, docstore.RevsQuery{ID: id, Revs: revs})
	}
	return queries, nil
}

// parseRevs reads a list of revisions of a document: sorted, and each once.
func parseRevs(id string, text json.RawMessage) ([]docstore.Rev, error) {
	var texts []*string
	if json.Unmarshal(text, &texts) != nil || texts == nil || hasNil(texts) {
		return nil, badRequest(fmt.Sprintf("`%s` must be a list of revisions, which are strings such as 1-967a00dff5e02add", cut(id)))
	}
	revs := make([]docstore.Rev, len(texts))
	for i, text := range texts {
		rev, err := docstore.ParseRev(*text)
		if err != nil {
			return nil, badRequest(fmt.Sprintf("`%s` has the revision %q: a revision is a number from 1, a hyphen and an id",
				cut(id), cut(*text)))
		}
		revs[i] = rev
	}
	slices.SortFunc(revs, docstore.Rev.Compare)
	return slices.Compact(revs), nil
}
