package functions

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// designPrefix begins the ids of design documents.
const designPrefix = "_design/"

// maxRounds is how often edits are decided about again because what their functions got has changed meanwhile.
const maxRounds = 10

// errUndecided refuses an edit that no function has decided about yet.
var errUndecided = errors.New("validate functions have not decided about the edit")

// Arguments are what a validate function gets for an edit, as JSON texts.
type Arguments struct {
	Doc      json.RawMessage `json:"doc"`
	Old      json.RawMessage `json:"old"` // the revision that is replaced, or null
	User     json.RawMessage `json:"user"`
	Security json.RawMessage `json:"security"`
}

// Write writes edits if validate functions, or the check of design documents, accept them; opts has no Check. It returns the results and errors
// of [docstore.Database.Write]. The error of a result is a [web.Failure] if functions refuse the edit. arguments is called
// for an edit that functions decide about, with the change that a transaction has found the edit to be.
//
// A function may run for seconds, and a transaction may not. So the transaction only finds out what the functions would
// get (the revision, the one that it replaces, and the design documents), and refuses an edit whose verdict is not of the
// same. Then the functions run outside, and the edit is written again. The transaction of that write conflicts with
// changes of all of these.
func (f *Functions) Write(ctx context.Context, db *docstore.Database, edits []docstore.Edit, opts docstore.WriteOptions,
	arguments func(context.Context, *docstore.Edit, *docstore.Change) (Arguments, error),
) ([]docstore.Result, error) {
	w := &checkedWrite{f, db, opts, arguments}
	results := make([]docstore.Result, len(edits))
	left := make([]*checkedEdit, len(edits))
	for i := range edits {
		left[i] = &checkedEdit{edit: &edits[i], result: &results[i]}
	}
	for rounds := 0; len(left) > 0; rounds++ {
		undecided, err := w.attempt(ctx, left)
		if err != nil {
			return nil, err
		}
		if len(undecided) < len(left) {
			rounds = 0
		}
		if rounds == maxRounds {
			for _, e := range undecided {
				e.result.Err = docstore.ErrConflict
			}
			break
		}
		for _, e := range undecided {
			if err := w.decide(ctx, e); err != nil {
				return nil, err
			}
		}
		left = undecided
	}
	return results, nil
}

// checkedWrite is a call of Write.
type checkedWrite struct {
	functions *Functions
	db        *docstore.Database
	opts      docstore.WriteOptions // without Check
	arguments func(context.Context, *docstore.Edit, *docstore.Change) (Arguments, error)
}

// checkedEdit is an edit, what the functions get, and what they have said.
type checkedEdit struct {
	edit   *docstore.Edit
	result *docstore.Result // of the last attempt

	change  *docstore.Change // as the last transaction has found it
	designs []docstore.Design
	decided bool
	err     error // of the functions: why they refuse the edit
}

// attempt writes edits, and returns those that functions have to decide about first.
func (w *checkedWrite) attempt(ctx context.Context, some []*checkedEdit) (undecided []*checkedEdit, err error) {
	edits := make([]docstore.Edit, len(some))
	for i, e := range some {
		edits[i] = *e.edit
	}
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	opts := w.opts
	opts.Check = func(i int, change *docstore.Change, designs []docstore.Design) error {
		return w.verdict(some[i], change, designs)
	}
	results, err := w.db.Write(ctx, edits, opts)
	if err != nil {
		return nil, err
	}
	for i, e := range some {
		*e.result = results[i]
		if errors.Is(results[i].Err, errUndecided) {
			undecided = append(undecided, e)
		}
	}
	return undecided, nil
}

// verdict returns what the functions have said about an edit, or errUndecided.
func (w *checkedWrite) verdict(e *checkedEdit, change *docstore.Change, designs []docstore.Design) error {
	isDesign := strings.HasPrefix(change.ID, designPrefix)
	if !isDesign {
		if validators, known := w.functions.validators(w.db, designs); known && len(validators) == 0 {
			return nil
		}
	}
	if e.decided && (isDesign || e.change.Parent == change.Parent && slices.Equal(e.designs, designs)) {
		return e.err
	}
	e.change, e.designs, e.decided, e.err = change, designs, false, nil
	return errUndecided
}

// decide asks the functions about an edit. If a document that it needs was replaced meanwhile the edit stays undecided.
func (w *checkedWrite) decide(ctx context.Context, e *checkedEdit) error {
	err := w.ask(ctx, e)
	if errors.Is(err, errStale) || errors.Is(err, docstore.ErrNotFound) {
		return nil
	}
	if err != nil && !errors.As(err, new(*web.Failure)) {
		return err
	}
	e.decided, e.err = true, err
	return nil
}

func (w *checkedWrite) ask(ctx context.Context, e *checkedEdit) error {
	if strings.HasPrefix(e.edit.ID, designPrefix) {
		return w.functions.checkDesign(ctx, w.db, e.edit.ID, e.change.Body)
	}
	validators, err := w.functions.learn(ctx, w.db, e.designs)
	if err != nil || len(validators) == 0 {
		return err
	}
	arguments, err := w.arguments(ctx, e.edit, e.change)
	if err != nil {
		return err
	}
	return w.functions.validate(ctx, w.db, validators, arguments)
}
