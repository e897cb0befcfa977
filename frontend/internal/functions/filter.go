package functions

import (
	"context"
	"encoding/json"
	"strings"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/script"
)

// Filter is a filter of one changes feed. It is not safe for concurrent use.
type Filter struct {
	functions *Functions
	program   *script.Program
	single    bool // it takes one document at a time
}

// Filter returns the filter function of a design document, or the map function of a view that is one. kind is filter or
// view. The filter does not change with later revisions. The error is a [web.Failure].
func (f *Functions) Filter(db *docstore.Database, doc *docstore.Document, kind, name string) (*Filter, error) {
	var members, functions map[string]json.RawMessage
	if err := json.Unmarshal(doc.Body, &members); err != nil {
		return nil, err
	}
	if members[kind+"s"] == nil {
		return nil, web.NotFound("missing json key: " + kind + "s")
	}
	if json.Unmarshal(members[kind+"s"], &functions) != nil || functions[name] == nil {
		return nil, web.NotFound("missing json key: " + name)
	}
	if l := members["language"]; l != nil && string(l) != `"`+language+`"` {
		return nil, failed("unknown_query_language", strings.Trim(string(l), `"`))
	}
	path := []string{kind + "s", name}
	if kind == "view" {
		path = append(path, "map")
	}
	design := docstore.Design{ID: doc.ID, Rev: doc.Rev}
	read := func() (*docstore.Document, error) { return doc, nil }
	return &Filter{functions: f, program: program(db, design, kind, path, read)}, nil
}

// Pass returns which documents pass the filter: of all, or of the first one alone if all of them need more time or memory
// than one call may have. From then on the filter takes one at a time. docs and request are JSON texts. The error is a
// [web.Failure] if the function fails for a document; passed has the documents before it.
func (f *Filter) Pass(ctx context.Context, docs []string, request string) (passed []bool, err error) {
	if len(docs) > 1 && !f.single {
		out, err := f.functions.call(ctx, f.program, argument(docs, request))
		if err == nil && len(out.Passed) == len(docs) || out.Ended || ctx.Err() != nil {
			return out.Passed, thrown(out, err)
		}
		f.single = true
	}
	out, err := f.functions.call(ctx, f.program, argument(docs[:1], request))
	if err == nil && len(out.Passed) != 1 {
		err = failed("unknown_error", f.program.Name+": the function has changed how results are made")
	}
	return out.Passed, thrown(out, err)
}

// thrown returns the failure of a feed whose filter threw an exception, which has one name in CouchDB.
func thrown(out outcome, err error) error {
	if len(out.Error) == 0 {
		return err
	}
	return failed("error", out.Error[0]+": "+out.Error[1])
}

func argument(docs []string, request string) string {
	return `{"docs":[` + strings.Join(docs, ",") + `],"req":` + request + `}`
}
