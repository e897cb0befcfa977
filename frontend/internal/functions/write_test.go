package functions_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/web"
	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

// TestWriteBySelector has validate functions that are selectors, as CouchDB has them after 3.5.3.
func TestWriteBySelector(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.design("_design/v", `{"language":"query","validate_doc_update":{
		"newDoc":{"year":{"$type":"number"}}, "$or":[{"oldDoc":null}, {"oldDoc.year":{"$lt":2000}}]}}`)
	const reason = "document is not valid"
	_, err := r.put("a", docstore.Rev{}, `{"year":"1979"}`)
	forbidden(t, err, reason)
	rev, err := r.put("a", docstore.Rev{}, `{"year":1979}`)
	require.NoError(t, err)
	rev, err = r.put("a", rev, `{"year":2001}`)
	require.NoError(t, err)
	_, err = r.put("a", rev, `{"year":2002}`)
	forbidden(t, err, reason)
	results := r.write(true,
		docstore.Edit{ID: "b", Pos: 1, Path: []string{"a"}}, docstore.Edit{ID: "c", Pos: 1, Path: []string{"a"}, Body: docjson.Must(`{"year":1}`)})
	require.Len(t, results, 2)
	forbidden(t, results[0].Err, reason)
	require.NoError(t, results[1].Err)

	for _, function := range []string{`{"$no":1}`, `{"":1}`, `"function () {}"`} {
		r.design("_design/v", `{"language":"query","validate_doc_update":`+function+`}`)
		_, err := r.put("new", docstore.Rev{}, `{}`)
		failed(t, err, "_design/v validate_doc_update: ")
	}
	r.design("_design/v", `{"validate_doc_update":{"newDoc":{}}}`) // a selector is no JavaScript
	_, err = r.put("new", docstore.Rev{}, `{}`)
	failed(t, err, "")
	r.design("_design/v", `{"language":"query","validate_doc_update":{}}`)
	_, err = r.put("new", docstore.Rev{}, `{}`)
	require.NoError(t, err)
}

// TestWriteWithHostileFunctions has functions without end. Each fails its own write, with an error that names it.
func TestWriteWithHostileFunctions(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	r := open(t, "couchdb/os_process_timeout=500")
	other := r.NewDatabase("other")
	for _, body := range []string{
		`while (true);`,
		`[].indexOf.call({length: Math.pow(2, 53) - 1}, 1)`,
		`var s = "x"; while (true) s += s`,
		`"x".repeat(1 << 28)`,
		`(function f() { f() })()`,
	} {
		r.design("_design/v", webtest.Validating("function () { "+body+" }"))
		_, err := r.put("new", docstore.Rev{}, `{}`)
		failed(t, err, "_design/v validate_doc_update: ")
		r.design("_design/f", webtest.Filtering("function () { "+body+" }"))
		passed, err := r.filter("_design/f")
		failed(t, err, "_design/f filters.f: ")
		require.Empty(t, passed)
		results, err := r.functions.Write(t.Context(), other, []docstore.Edit{webtest.Doc(rand.Text(), `{}`)}, docstore.WriteOptions{}, nil)
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
	}
	_, err := r.db.Get(t.Context(), "new", docstore.GetOptions{})
	require.ErrorIs(t, err, docstore.ErrNotFound)
	r.design("_design/v", `{"language":"javascript"}`)
	_, err = r.put("new", docstore.Rev{}, `{}`)
	require.NoError(t, err)
}

// TestWriteWithRefusedFunctions has a validate function that fills its memory until it is refused. Nothing is written
// unchecked, another function of the design document runs, and so does the repaired one.
func TestWriteWithRefusedFunctions(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	r := open(t)
	fills, _ := json.Marshal(`function () { var a = []; while (true) a.push({}) }`)
	r.design("_design/v", `{"validate_doc_update":`+string(fills)+`,"filters":{"f":"function (doc) { return true }"}}`)
	for range 3 {
		_, err := r.put("new", docstore.Rev{}, `{}`)
		failed(t, err, "")
	}
	_, err := r.put("new", docstore.Rev{}, `{}`)
	failed(t, err, "_design/v validate_doc_update: it needed more memory than it may have repeatedly, and is not called again until 20")
	got := failure(t, err)
	require.Equal(t, "os_process_error", got.Code)
	_, err = r.db.Get(t.Context(), "new", docstore.GetOptions{})
	require.ErrorIs(t, err, docstore.ErrNotFound)
	passed, err := r.filter("_design/v")
	require.NoError(t, err)
	require.Equal(t, []bool{true}, passed)
	r.design("_design/v", webtest.Validating(`function () {}`))
	_, err = r.put("new", docstore.Rev{}, `{}`)
	require.NoError(t, err)
}

// TestWriteWhileFunctionsChange writes documents while the validate function changes. The changes feed has no document
// after a function that refuses it.
func TestWriteWhileFunctionsChange(t *testing.T) {
	t.Parallel()
	r := open(t)
	const epochs = 8
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := r.put(fmt.Sprintf("doc-%d-%d", w, i), docstore.Rev{}, fmt.Sprintf(`{"epoch":%d}`, i%epochs))
				var refused *web.Failure
				if err != nil && assert.ErrorAs(t, err, &refused) {
					assert.Equal(t, web.Failure{Status: http.StatusForbidden, Code: "forbidden", Reason: "late"}, *refused)
				}
			}
		})
	}
	for epoch := range epochs {
		r.design("_design/v", fmt.Sprintf(`{"epoch":%d,%s`, epoch,
			webtest.Validating(fmt.Sprintf(`function (doc) { if (doc.epoch < %d) throw {forbidden: "late"} }`, epoch))[1:]))
	}
	close(stop)
	writers.Wait()
	// A design document is in the feed at its last change only.
	var last bool
	for row, err := range r.db.Changes(docstore.ChangesOptions{Documents: true}).All(t.Context()) {
		require.NoError(t, err)
		if row.ID == "_design/v" {
			last = true
		} else if last {
			require.Contains(t, string(row.Document.Body), fmt.Sprint(epochs-1), row.ID)
		}
	}
	require.True(t, last)
	_, err := r.put("late", docstore.Rev{}, `{"epoch":1}`)
	forbidden(t, err, "late")
	design, err := r.db.Get(t.Context(), "_design/v", docstore.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, r.write(false, docstore.Edit{ID: "_design/v", Rev: design.Rev, Deleted: true})[0].Err)
	_, err = r.put("late", docstore.Rev{}, `{"epoch":1}`)
	require.NoError(t, err)
}

// TestWriteOfDesignDocuments has design documents that CouchDB refuses.
func TestWriteOfDesignDocuments(t *testing.T) {
	t.Parallel()
	r := open(t)
	for body, want := range map[string][2]string{
		`{"views":[]}`:                                    {"invalid_design_doc", "`views` field must have object type"},
		`{"views":{"a":{"map":1}}}`:                       {"invalid_design_doc", "`views.a.map` field must have string type"},
		`{"views":{"a":{}}}`:                              {"invalid_design_doc", "View `a` must contain map function"},
		`{"validate_doc_update":1}`:                       {"invalid_design_doc", "`validate_doc_update` field must have object or string type"},
		`{"options":{"partitioned":true}}`:                {"invalid_design_doc", "partitioned option cannot be true in a non-partitioned database."},
		`{"views":{"a":{"map":"f","reduce":"_no"}}}`:      {"invalid_design_doc", "`_no` is not a supported reduce function."},
		`{"views":{"a":{"map":"f","reduce":"_top_101"}}}`: {"invalid_design_doc", "rank value must be between 1 and 100"},
	} {
		_, err := r.put("_design/d", docstore.Rev{}, body)
		got := failure(t, err)
		require.Equal(t, http.StatusBadRequest, got.Status, body)
		require.Equal(t, want, [2]string{got.Code, got.Reason}, body)
	}
	_, err := r.put("_design/d", docstore.Rev{}, `{"views":{"a":{"map":"function ("}}}`)
	got := failure(t, err)
	require.Equal(t, http.StatusBadRequest, got.Status)
	require.Contains(t, got.Reason, "Compilation of the map function in the 'a' view failed: ")
	_, err = r.put("_design/d", docstore.Rev{}, `{"language":"erlang","views":{"a":{"map":"fun"}}}`) // which is stored and not run
	require.NoError(t, err)
}
