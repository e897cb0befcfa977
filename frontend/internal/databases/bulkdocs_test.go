package databases_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

func TestBulkDocs(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	rev := n.Put("/db/old", `{}`).Rev(t)
	got := n.PostJSON("/db/_bulk_docs", `{"docs":[
		{"_id":"a","v":1,"_attachments":{"f":{"data":"aGVs\nbG8="}}}, {"v":2}, {"_id":"old","_rev":"`+rev+`","_deleted":true},
		{"_id":"old2","_rev":"1-x"}, {"_id":"a","v":3}, {"_id":"_local/l","v":4}, {"_id":"_design/d"},
		{"_id":"s","_rev":"1-x","_attachments":{"f":{"stub":true}}}, {"_id":"`+strings.Repeat("x", 2001)+`","_attachments":{"f":{"data":""}}},
		{"_id":"r","_rev":"1-`+strings.Repeat("x", 300)+`"}, {"_id":"_local/m","_rev":"5-x"}, {"_id":"last"}]}`)
	results := got.Results(t)
	require.Len(t, results, 12)
	type m = map[string]any
	made := results[1]["id"].(string)
	require.Regexp(t, "^[0-9a-f]{32}$", made)
	for i, id := range map[int]string{0: "a", 1: made, 6: "_design/d", 11: "last"} {
		require.Equal(t, m{"ok": true, "id": id, "rev": n.doc(db, id).Rev.String()}, results[i])
	}
	require.Equal(t, "hello", n.content(db, n.doc(db, "a"), "f"))
	require.Equal(t, true, results[2]["ok"])
	_, err := db.Get(t.Context(), "old", docstore.GetOptions{})
	require.ErrorIs(t, err, docstore.ErrDeleted)
	for _, i := range []int{3, 4} {
		delete(results[i], "id")
		require.Equal(t, m{"error": "conflict", "reason": "Document update conflict."}, results[i])
	}
	require.Equal(t, m{"ok": true, "id": "_local/l", "rev": "0-1"}, results[5])
	require.Equal(t, m{"id": "s", "error": "conflict", "reason": "Document update conflict."}, results[7])
	require.Equal(t, "illegal_docid", results[8]["error"])
	require.Equal(t, m{"id": "r", "error": "conflict", "reason": "Document update conflict."}, results[9])
	require.Equal(t, m{"id": "_local/m", "error": "bad_request", "reason": "Invalid rev format"}, results[10])

	require.Equal(t, "[]\n", n.PostJSON("/db/_bulk_docs", `{"docs":[]}`).Body)
}

func TestBulkDocsReplicated(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	got := n.PostJSON("/db/_bulk_docs", `{"docs":[
		{"_id":"a","_revisions":{"start":3,"ids":["c","b","a"]},"v":1,"_attachments":{"f":{"data":"aGVsbG8=","revpos":2,"digest":"md5-x"}}},
		{"_id":"a","_rev":"2-x","_deleted":true},
		{"_id":"p","_rev":"5-p","_revisions":{"start":1,"ids":["p","o"]}},
		{"_id":"_local/l","_rev":"0-3","v":1}, {"_id":"_local/m","_rev":"5-x","v":1}, {"_id":"_design/d","_rev":"1-x"}],
		"new_edits":false}`)
	results := got.Results(t)
	require.Len(t, results, 2)
	type m = map[string]any
	require.Equal(t, m{"id": "p", "rev": "1-p", "error": "bad_request", "reason": results[0]["reason"]}, results[0])
	require.Equal(t, m{"id": "_local/m", "rev": "5-x", "error": "bad_request", "reason": "Invalid rev format"}, results[1])
	doc := n.doc(db, "a")
	require.Equal(t, []string{"c", "b", "a"}, doc.Path)
	require.Equal(t, "hello", n.content(db, doc, "f"))
	require.Equal(t, int64(2), doc.Attachments[0].RevPos)
	local, err := db.GetLocal(t.Context(), "_local/l")
	require.NoError(t, err)
	require.Equal(t, "0-4", local.Rev)

	before := n.rows()
	again := n.PostJSON("/db/_bulk_docs", `{"new_edits":false,"docs":[
		{"_id":"a","_rev":"3-c","_attachments":{"f":{"data":"b3RoZXI="}}}]}`)
	require.Equal(t, "[]\n", again.Body)
	require.Equal(t, before, n.rows())
}

// A body that is wrong in one place is refused as a whole, wherever the place is.
func TestBulkDocsRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	before := n.rows()
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, `{"_id":"%d","v":"%s"},`, i, strings.Repeat("x", 1000))
	}
	for rest, want := range map[string]struct {
		code, reason string
	}{
		`{"_nope":1}]}`:                         {"doc_validation", "Bad special document member: _nope"},
		`{"_attachments":{"f":{"data":"x"}}}]}`: {"bad_request", "Invalid attachment data for f"},
		`5]}`:                                   {"bad_request", "Document must be a JSON object"},
		`{}]`:                                   {"bad_request", "invalid UTF-8 JSON"},
		`{}],"new_edits":1}`:                    {"bad_request", "`new_edits` parameter must be a boolean."},
		`{}],"new_edits":false}`:                {"bad_request", "When `new_edits: false`, the document needs `_rev` or `_revisions` specified"},
		`{}],"docs":{}}`:                        {"bad_request", "`docs` parameter must be an array."},
		`{"_attachments":{"f":{"follows":true}}}]}`: {"bad_request", `the attachment "f" cannot follow: the body is not multipart/related`},
	} {
		webtest.Refused(t, n.PostJSON("/db/_bulk_docs", `{"docs":[`+many.String()+rest), http.StatusBadRequest, want.code, want.reason)
	}
	for body, reason := range map[string]string{
		"": "Missing request body", "[]": "Request body must be a JSON object", "{}": "POST body must include `docs` parameter.",
	} {
		webtest.Refused(t, n.PostJSON("/db/_bulk_docs", body), http.StatusBadRequest, "bad_request", reason)
	}
	require.Equal(t, before, n.rows())
}

// A bulk write of any size is one request: the documents are written some hundred at a time.
func TestBulkDocsOfManyBatches(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	const count = 3000
	var body strings.Builder
	body.WriteString(`{"docs":[`)
	for i := range count {
		if i > 0 {
			body.WriteString(",")
		}
		fmt.Fprintf(&body, `{"_id":"%05d","v":"%s"}`, i, strings.Repeat("x", i%1000))
	}
	body.WriteString(`]}`)
	for _, failed := range []bool{false, true} {
		results := n.PostJSON("/db/_bulk_docs", body.String()).Results(t)
		require.Len(t, results, count)
		for i, result := range results {
			require.Equal(t, fmt.Sprintf("%05d", i), result["id"])
			require.Equal(t, failed, result["error"] == "conflict")
		}
	}
	info, err := db.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, count, info.DocCount)
}

// TestBulkDocsMissingStub: a stub without an attachment fails the request, as long as the answer has not begun.
func TestBulkDocsMissingStub(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	const stub = `{"_id":"s","_rev":"1-x","_attachments":{"f":{"stub":true}}}`
	got := n.PostJSON("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"a","_rev":"1-a"},`+stub+`,{"_id":"b","_rev":"1-b"}]}`)
	webtest.Refused(t, got, http.StatusPreconditionFailed, "missing_stub", "Invalid attachment stub in s for f")
	n.doc(db, "a")
	n.doc(db, "b")

	docs := strings.Repeat(`{"_id":"_local/x","_rev":"1-abc"},`, 1000) // each has a result
	results := n.PostJSON("/db/_bulk_docs", `{"new_edits":false,"docs":[`+docs+stub+`]}`).Results(t)
	require.Len(t, results, 1001)
	require.Equal(t, map[string]any{"id": "s", "rev": "1-x", "error": "missing_stub", "reason": "Invalid attachment stub in s for f"}, results[1000])
}
