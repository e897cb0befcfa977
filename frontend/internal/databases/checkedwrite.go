package databases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"settee/frontend/internal/access"
	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// designPrefix begins the ids of design documents.
const designPrefix = "_design/"

// maxRounds is how often edits are decided about again because what their functions got has changed meanwhile.
const maxRounds = 10

// errUndecided refuses an edit that no function has decided about yet.
var errUndecided = errors.New("validate functions have not decided about the edit")

// checkedWrite writes edits that validate functions, or the check of design documents, decide about.
//
// A function may run for seconds, and a transaction may not. So the transaction only finds out what the functions would
// get (the revision, the one that it replaces, and the design documents), and refuses an edit whose verdict is not of the
// same. Then the functions run outside, and the edit is written again. The transaction of that write conflicts with
// changes of all of these.
type checkedWrite struct {
	*writer
	edits      []docstore.Edit
	replicated bool
	cases      []verdictCase

	// user and security are arguments of all functions, as JSON. nil: not made yet.
	user, security json.RawMessage
}

// verdictCase is an edit, what the functions get, and what they have said.
type verdictCase struct {
	change  *docstore.Change // as the last transaction has found it
	designs []docstore.Design
	decided bool
	err     error // of the functions: why they refuse the edit
}

// write writes edits. It returns the results of [docstore.Database.Write], and a [web.Failure] for what functions refuse.
func (w *writer) write(edits []docstore.Edit, replicated bool) ([]docstore.Result, error) {
	c := &checkedWrite{writer: w, edits: edits, replicated: replicated, cases: make([]verdictCase, len(edits))}
	results := make([]docstore.Result, len(edits))
	left := make([]int, len(edits))
	for i := range left {
		left[i] = i
	}
	for rounds := 0; len(left) > 0; rounds++ {
		made, err := c.attempt(left)
		if err != nil {
			return nil, err
		}
		var undecided []int
		for k, i := range left {
			results[i] = made[k]
			if errors.Is(made[k].Err, errUndecided) {
				undecided = append(undecided, i)
			}
		}
		if len(undecided) < len(left) {
			rounds = 0
		}
		if rounds == maxRounds {
			for _, i := range undecided {
				results[i].Err = docstore.ErrConflict
			}
			break
		}
		for _, i := range undecided {
			if err := c.decide(i); err != nil {
				return nil, err
			}
		}
		left = undecided
	}
	return results, nil
}

// attempt writes the edits with the indexes some.
func (c *checkedWrite) attempt(some []int) ([]docstore.Result, error) {
	edits := make([]docstore.Edit, len(some))
	for k, i := range some {
		edits[k] = c.edits[i]
	}
	ctx, cancel := web.StoreContext(c.r)
	defer cancel()
	made, err := c.db.Write(ctx, edits, docstore.WriteOptions{
		Replicated: c.replicated,
		Check: func(edit int, change *docstore.Change, designs []docstore.Design) error {
			return c.verdict(some[edit], change, designs)
		},
	})
	return made, web.StoreFailure(err)
}

// verdict returns what the functions have said about an edit, or errUndecided.
func (c *checkedWrite) verdict(edit int, change *docstore.Change, designs []docstore.Design) error {
	v := &c.cases[edit]
	isDesign := strings.HasPrefix(change.ID, designPrefix)
	if !isDesign {
		if validators, known := c.functions.Validators(c.db, designs); known && len(validators) == 0 {
			return nil
		}
	}
	if v.decided && (isDesign || v.change.Parent == change.Parent && slices.Equal(v.designs, designs)) {
		return v.err
	}
	*v = verdictCase{change: change, designs: designs}
	return errUndecided
}

// decide asks the functions about an edit. If a document that it needs was replaced meanwhile the edit stays undecided.
func (c *checkedWrite) decide(edit int) error {
	v := &c.cases[edit]
	err := c.ask(v, &c.edits[edit])
	if errors.Is(err, functions.ErrStale) || errors.Is(err, docstore.ErrNotFound) {
		return nil
	}
	var refused *web.Failure
	if err != nil && !errors.As(err, &refused) {
		return web.StoreFailure(err)
	}
	v.decided, v.err = true, err
	return nil
}

func (c *checkedWrite) ask(v *verdictCase, edit *docstore.Edit) error {
	ctx := c.r.Context()
	if strings.HasPrefix(edit.ID, designPrefix) {
		return c.functions.CheckDesign(ctx, c.db, edit.ID, v.change.Body)
	}
	validators, err := c.functions.Learn(ctx, c.db, v.designs)
	if err != nil || len(validators) == 0 {
		return err
	}
	write, err := c.arguments(ctx, v.change, edit)
	if err != nil {
		return err
	}
	return c.functions.Validate(ctx, c.db, validators, write)
}

// arguments returns what validate functions get for an edit.
func (c *checkedWrite) arguments(ctx context.Context, change *docstore.Change, edit *docstore.Edit) (write functions.Write, err error) {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	write.Old = json.RawMessage("null")
	if change.Parent != (docstore.Rev{}) {
		old, err := c.db.Get(ctx, change.ID, docstore.GetOptions{Rev: change.Parent})
		if err != nil {
			return write, err
		}
		if write.Old, err = functionText(old, c.revsLimit); err != nil {
			return write, err
		}
	}
	if c.security == nil {
		if c.security, err = c.db.Security(ctx); err != nil {
			return write, err
		}
		if c.user, err = jsontext.Encode(userContextOf(c.r, c.db)); err != nil {
			return write, err
		}
	}
	write.Security, write.User = c.security, c.user
	// As in CouchDB, functions get the _rev and _revisions that the client states.
	doc := docstore.Document{ID: change.ID, Deleted: change.Deleted, Body: change.Body.Bytes(), Attachments: change.Attachments}
	switch {
	case c.replicated:
		doc.Rev, doc.Path = change.Rev, edit.Path
	case edit.Rev != (docstore.Rev{}):
		doc.Rev, doc.Path = edit.Rev, []string{edit.Rev.ID}
	}
	write.Doc, err = functionText(&doc, len(doc.Path))
	return write, err
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
