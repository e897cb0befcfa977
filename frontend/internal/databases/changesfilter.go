package databases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
	"settee/pkg/selector"
)

// changesFilter is which changes a feed shows. The zero value shows all of them.
type changesFilter struct {
	ids      map[string]bool    // _doc_ids, if not nil: changes of these documents
	design   bool               // _design: changes of design documents
	selector *selector.Selector // _selector, if not nil: revisions that match
	function *functions.Filter  // of a design document, if not nil: revisions that pass
}

// all reports whether the filter shows every change.
func (f *changesFilter) all() bool { return f.ids == nil && !f.design && !f.readsDocuments() }

// readsDocuments reports whether the filter needs the documents.
func (f *changesFilter) readsDocuments() bool { return f.selector != nil || f.function != nil }

// readFilter reads the filter from the query and the body.
func (e *Endpoints) readFilter(ctx context.Context, q *web.Query, body map[string]json.RawMessage, db *docstore.Database) (f changesFilter, err error) {
	switch name := q.Text("filter"); {
	case name == "":
	case name == "_doc_ids":
		f.ids, err = readIDs(q, body)
	case name == "_selector":
		f.selector, err = readSelector(body)
	case name == "_design":
		f.design = true
	case name == "_view":
		f.function, err = e.readFunction(ctx, db, q.Text("view"), "view")
	case strings.HasPrefix(name, "_"):
		err = web.BadRequest("unknown builtin filter name: there are _doc_ids, _selector, _design and _view")
	default:
		f.function, err = e.readFunction(ctx, db, name, "filter")
	}
	return f, err
}

// readIDs reads doc_ids from the body, or from the query if the body has none.
func readIDs(q *web.Query, body map[string]json.RawMessage) (map[string]bool, error) {
	text, given := body["doc_ids"]
	if !given {
		text = []byte(q.Text("doc_ids"))
	}
	if !jsontext.Valid(text) {
		text = nil
	}
	ids, ok := jsontext.Strings(text)
	if !ok {
		return nil, web.BadRequest("`doc_ids` filter parameter is not a list of doc ids.")
	}
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}

func readSelector(body map[string]json.RawMessage) (*selector.Selector, error) {
	if body == nil {
		return nil, web.BadRequest("Selector must be specified in POST payload")
	}
	text, given := body["selector"]
	if !given || !bytes.HasPrefix(text, []byte("{")) {
		return nil, web.BadRequest("Selector error: expected a JSON object")
	}
	parsed, err := selector.Parse(text)
	var wrong *selector.Error
	if errors.As(err, &wrong) {
		return nil, web.BadRequest(wrong.Reason)
	}
	return parsed, err
}

// readFunction returns the filter that a function of a design document is. kind is filter or view.
func (e *Endpoints) readFunction(ctx context.Context, db *docstore.Database, name, kind string) (*functions.Filter, error) {
	if name == "" {
		return nil, web.BadRequest("`" + kind + "` filter parameter is not provided.")
	}
	var parts []string
	for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return c == '/' }) {
		if decoded, err := url.PathUnescape(part); err == nil {
			part = decoded
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 && kind == "filter" {
		return nil, nil
	}
	if len(parts) != 2 {
		return nil, web.BadRequest("`" + kind + "` must be of the form `designname/" + kind + "name`")
	}
	design, err := db.Get(ctx, designPrefix+parts[0], docstore.GetOptions{})
	if err != nil {
		return nil, web.StoreFailure(err)
	}
	return e.Functions.Filter(db, design, kind, parts[1])
}

// passing returns the revisions of a change that pass the filter. If there are none the change is not shown. The
// candidates are the winner, or all leaves with style=all_docs.
func (f *feed) passing(ctx context.Context, row *docstore.ChangeRow) ([]docstore.Rev, error) {
	candidates := row.Revs
	if !f.request.leaves {
		candidates = candidates[:1]
	}
	filter := &f.request.filter
	switch {
	case filter.ids != nil && !filter.ids[row.ID], filter.design && !strings.HasPrefix(row.ID, designPrefix):
		return nil, nil
	case filter.selector == nil:
		return candidates, nil
	}
	return f.matching(ctx, row, candidates)
}

// matching returns the candidates that match the selector. The first candidate is the document of the row.
func (f *feed) matching(ctx context.Context, row *docstore.ChangeRow, candidates []docstore.Rev) (matched []docstore.Rev, err error) {
	winner := *row.Document
	if f.request.leaves {
		// As in CouchDB: a leaf that is read by its revision has no _conflicts.
		winner.Conflicts = nil
	}
	memory, large := web.MemoryOf(f.r), bodies{ctx, f.db}
	match := func(doc *docstore.Document) error {
		loaded, err := large.load(memory, doc)
		if err != nil {
			return err
		}
		defer memory.Give(loaded)
		var text bytes.Buffer
		whole := web.Appender{To: &text}
		if (shown{}).document(&whole, doc); whole.Err != nil {
			return whole.Err
		}
		matches, err := f.request.filter.selector.Match(ctx, text.Bytes())
		if matches {
			matched = append(matched, doc.Rev)
		}
		if errors.Is(err, selector.ErrTooMuchWork) {
			return web.BadRequest(fmt.Sprintf("Selector error: %v %.200q", selector.ErrTooMuchWork, doc.ID))
		}
		return err
	}
	if err := match(&winner); err != nil || len(candidates) == 1 {
		return matched, err
	}
	for leaf, err := range f.db.OpenRevs(ctx, row.ID, docstore.OpenRevsOptions{Revs: candidates[1:], LargeBody: largeBody}) {
		if err != nil {
			return nil, err
		}
		if leaf.Document == nil {
			continue // it was replaced meanwhile, and the feed will have the document again
		}
		if err := match(leaf.Document); err != nil {
			return nil, err
		}
	}
	return matched, nil
}
