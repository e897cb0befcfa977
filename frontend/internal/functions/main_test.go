package functions_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// room is a database with functions, without requests.
type room struct {
	*webtest.Node
	functions *functions.Functions
	db        *docstore.Database
}

// open opens the database db on a store in memory. The settings are section/key=value.
func open(t *testing.T, settings ...string) *room {
	t.Helper()
	n := webtest.Open(t, webtest.Memory(t), docstore.Hooks{}, settings...)
	r := &room{Node: n, functions: functions.New(n.Config, n.MemoryLimit()), db: n.NewDatabase("db")}
	t.Cleanup(r.functions.Close)
	return r
}

// write writes edits. Functions get bodies only: ids and revisions are the caller's matter.
func (r *room) write(replicated bool, edits ...docstore.Edit) []docstore.Result {
	results, err := r.functions.Write(r.Context(), r.db, edits, docstore.WriteOptions{Replicated: replicated},
		func(ctx context.Context, _ *docstore.Edit, change *docstore.Change) (functions.Arguments, error) {
			empty := json.RawMessage("{}")
			args := functions.Arguments{Doc: change.Body.Bytes(), Old: json.RawMessage("null"), User: empty, Security: empty}
			if change.Parent == (docstore.Rev{}) {
				return args, nil
			}
			old, err := r.db.Get(ctx, change.ID, docstore.GetOptions{Rev: change.Parent})
			if err == nil {
				args.Old = old.Body
			}
			return args, err
		})
	if err != nil {
		return []docstore.Result{{Err: err}}
	}
	return results
}

// put writes a document over a revision, which may be zero.
func (r *room) put(id string, over docstore.Rev, body string) (docstore.Rev, error) {
	result := r.write(false, docstore.Edit{ID: id, Rev: over, Body: docjson.Must(body)})[0]
	return result.Rev, result.Err
}

// design writes a design document, over the one that is there.
func (r *room) design(id, body string) {
	r.Helper()
	var over docstore.Rev
	if old, err := r.db.Get(r.Context(), id, docstore.GetOptions{}); err == nil {
		over = old.Rev
	}
	_, err := r.put(id, over, body)
	require.NoError(r, err)
}

// filter calls the filter f of a design document for an empty document.
func (r *room) filter(id string) ([]bool, error) {
	r.Helper()
	design, err := r.db.Get(r.Context(), id, docstore.GetOptions{})
	require.NoError(r, err)
	f, err := r.functions.Filter(r.db, design, "filter", "f")
	require.NoError(r, err)
	return f.Pass(r.Context(), []string{"{}"}, "{}")
}

// forbidden requires that a function has refused a write.
func forbidden(t *testing.T, err error, reason string) {
	t.Helper()
	require.Equal(t, web.Failure{Status: http.StatusForbidden, Code: "forbidden", Reason: reason}, *failure(t, err))
}

// failed requires that a function could not decide, with a reason that contains a text.
func failed(t *testing.T, err error, says string) {
	t.Helper()
	f := failure(t, err)
	require.Equal(t, http.StatusInternalServerError, f.Status, f.Reason)
	require.Contains(t, f.Reason, says)
}

func failure(t *testing.T, err error) *web.Failure {
	t.Helper()
	var f *web.Failure
	require.ErrorAs(t, err, &f)
	return f
}
