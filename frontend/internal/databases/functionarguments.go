package databases

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"settee/frontend/internal/access"
	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// functionArguments has what validate functions get for the documents of a write.
type functionArguments struct {
	*writer
	user, security json.RawMessage // the same for all documents; nil: not made yet
}

// of returns the arguments for an edit. change is the edit as a transaction has found it.
func (f *functionArguments) of(ctx context.Context, edit *docstore.Edit, change *docstore.Change) (args functions.Arguments, err error) {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	args.Old = json.RawMessage("null")
	if change.Parent != (docstore.Rev{}) {
		old, err := f.db.Get(ctx, change.ID, docstore.GetOptions{Rev: change.Parent})
		if err != nil {
			return args, err
		}
		if args.Old, err = functionText(old, config.FunctionRevsLimit.Get(f.endpoints.Settings.Current())); err != nil {
			return args, err
		}
	}
	if f.security == nil {
		if f.security, err = f.db.Security(ctx); err != nil {
			return args, err
		}
		if f.user, err = jsontext.Encode(userContextOf(f.r, f.db)); err != nil {
			return args, err
		}
	}
	args.Security, args.User = f.security, f.user
	// As in CouchDB, functions get the _rev and _revisions that the client states.
	doc := docstore.Document{ID: change.ID, Deleted: change.Deleted, Body: change.Body.Bytes(), Attachments: change.Attachments}
	switch {
	case f.replicated:
		doc.Rev, doc.Path = change.Rev, edit.Path
	case edit.Rev != (docstore.Rev{}):
		doc.Rev, doc.Path = edit.Rev, []string{edit.Rev.ID}
	}
	args.Doc, err = functionText(&doc, len(doc.Path))
	return args, err
}

// userContext is the user of a request as functions see it.
type userContext struct {
	Database string   `json:"db"`
	Name     *string  `json:"name"`
	Roles    []string `json:"roles"`
}

func userContextOf(r *http.Request, db *docstore.Database) userContext {
	user := access.UserOf(r)
	return userContext{db.Name(), user.UserName(), append([]string{}, user.Roles...)}
}

// functionText returns a document as functions get it, with at most so many revisions.
func functionText(doc *docstore.Document, revisions int) ([]byte, error) {
	short := *doc
	short.DeletedConflicts = nil
	var text bytes.Buffer
	whole := web.Appender{To: &text}
	shown{revisions: revisions}.document(&whole, &short)
	return text.Bytes(), whole.Err
}
