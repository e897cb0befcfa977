package worker_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// refusals collects what a run tells of.
type refusals struct {
	mu  sync.Mutex
	all []worker.Refusal
}

func (r *refusals) collect(cfg *worker.Config) {
	cfg.Refused = func(refusal worker.Refusal) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, refusal)
	}
}

func TestBytesPassAsTheyCame(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	docs := []string{
		`{"z":1.0,"_id":"a","_rev":"1-a","n":12345678901234567890,"s":"\u00e9\/<&>","e":1E+2}`,
		`{ "_rev" : "1-a", "_id" : "b" ,	"dup":1,"dup":2 , "deep":[[[{"":null}]]]}`,
	}
	source.add("a", "1-a", docs[0])
	source.add("b", "1-a", docs[1])
	design := `{"views":{},"_rev":"1-a","_id":"_design/d", "x":-0.0}`
	source.add("_design/d", "1-a", design)
	result := run(t, replication(t, source.URL, target.URL))
	require.ElementsMatch(t, []string{`{"new_edits":false,"docs":[` + docs[0] + `,` + docs[1] + `]}`, design}, target.bodies())
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 3, MissingRevisionsFound: 3, DocsRead: 3, DocsWritten: 3, BulkGetDocs: 2, BulkGetAttempts: 2,
	}, result.Stats)
}

func TestRefusedDocumentsAreCounted(t *testing.T) {
	t.Parallel()
	server := couchtest.Shared(t)
	source, target := server.DB(t, "source"), server.DB(t, "target")
	post(t, target+"/_bulk_docs", `{"docs":[{"_id":"_design/v","validate_doc_update":
		"function(doc) { if (doc.bad) throw({forbidden: 'bad document'}); if (doc.who) throw({unauthorized: 'who are you'}); }"}]}`)
	post(t, source+"/_bulk_docs", `{"new_edits":false,"docs":[
		{"_id":"good","_rev":"1-a"},{"_id":"bad","_rev":"1-b","bad":true},{"_id":"who","_rev":"1-c","who":1},
		{"_id":"_design/bad","_rev":"1-d","bad":true},
		{"_id":"att","_rev":"1-e","bad":true,"_attachments":{"f":{"content_type":"a/b","data":"AAAA"}}},
		{"_id":"who att","_rev":"1-f","who":true,"_attachments":{"f":{"content_type":"a/b","data":"AAAA"}}}]}`)
	var r refusals
	result := run(t, replication(t, source, target), r.collect)
	require.EqualValues(t, 4, result.Stats.DocWriteFailures)
	require.EqualValues(t, 2, result.Stats.DocsWritten, "design documents are not validated")
	require.EqualValues(t, 6, result.Stats.DocsRead)
	said := map[string]string{}
	for _, refusal := range r.all {
		said[refusal.ID+" "+refusal.Rev] = refusal.Code + ": " + refusal.Reason
	}
	require.Equal(t, map[string]string{
		"bad 1-b": "forbidden: bad document", "who 1-c": "unauthorized: who are you",
		"att 1-e": "forbidden: bad document", "who att 1-f": "unauthorized: who are you",
	}, said)
	require.Zero(t, run(t, replication(t, source, target)).Stats, "they are not tried again")
}

func TestPortionsThatAreTooLargeAreSplit(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 40)
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		large := strings.Count(string(body), `"_id"`) > 6 || strings.Contains(string(body), `"d7"`)
		return large && refuse(w, 413, `{"error":"too_large","reason":"the request entity is too large"}`)
	})
	target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return strings.Count(string(body), `1-a`) > 15 && refuse(w, 413, `{"error":"too_large","reason":"the request entity is too large"}`)
	})
	var r refusals
	result := run(t, replication(t, source.URL, target.URL), r.collect)
	var written []string
	for _, body := range target.bodies() {
		ids := idsIn(t, body)
		require.LessOrEqual(t, len(ids), 6)
		written = append(written, ids...)
	}
	require.Len(t, written, 39)
	require.NotContains(t, written, "d7")
	require.Equal(t, []worker.Refusal{{ID: "d7", Rev: "1-a", Status: 413, Code: "too_large", Reason: "the request entity is too large"}}, r.all)
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 40, MissingRevisionsFound: 40, DocsRead: 40, DocsWritten: 39, DocWriteFailures: 1,
		BulkGetDocs: 40, BulkGetAttempts: 40,
	}, result.Stats)
}

func TestPortionsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	filler := strings.Repeat("x", 300<<10)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		source.add(id, "1-a", `{"_id":"`+id+`","_rev":"1-a","x":"`+filler+`"}`)
	}
	source.add("large", "1-a", `{"_id":"large","_rev":"1-a","x":"`+strings.Repeat("y", 3<<20)+`"}`)
	run(t, replication(t, source.URL, target.URL))
	total := 0
	for _, body := range target.bodies() {
		n := len(idsIn(t, body))
		total += n
		require.True(t, n == 1 || len(body) < 1<<20, "%d documents in %d bytes", n, len(body))
	}
	require.Equal(t, 8, total)
}

// A server that could not write a document says so in the same place where it says that it does not want
// it. Only the latter is passed over.
func TestFailuresAreNotRefusals(t *testing.T) {
	t.Parallel()
	const internal = `[{"id":"d1","rev":"1-a","error":"internal_server_error","reason":"timeout"}]`
	for name, test := range map[string]struct {
		status   int
		answer   string
		code     string
		failures int64
	}{
		"written after all":   {201, `{"ok":true}`, "", 0},
		"refused after all":   {403, `{"error":"forbidden","reason":"no"}`, "", 1},
		"the server is ill":   {500, `{"error":"internal_server_error","reason":"timeout"}`, "error", 0},
		"the database's gone": {404, `{"error":"not_found","reason":"Database does not exist."}`, "db_not_found", 0},
		"not let in":          {401, `{"error":"unauthorized","reason":"no"}`, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 3)
			target.fail("POST /_bulk_docs", 201, internal)
			target.fail("PUT /d1", test.status, test.answer)
			if test.code != "" {
				require.Equal(t, test.code, fails(t, replication(t, source.URL, target.URL)).Code)
				require.Empty(t, target.locals, "no checkpoint was written")
				return
			}
			result := run(t, replication(t, source.URL, target.URL))
			require.Equal(t, test.failures, result.Stats.DocWriteFailures)
			require.Equal(t, 3-test.failures, result.Stats.DocsWritten)
		})
	}
}

func TestRefusalsThatNameNobodyAreLookedInto(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 8)
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return strings.Contains(string(body), `"d5"`) && refuse(w, 201, `[{"error":"forbidden","reason":"no"}]`)
	})
	var r refusals
	result := run(t, replication(t, source.URL, target.URL), r.collect)
	require.Equal(t, []worker.Refusal{{ID: "d5", Rev: "1-a", Code: "forbidden", Reason: "no"}}, r.all)
	require.EqualValues(t, 7, result.Stats.DocsWritten)
}

func TestOneBadDocumentDoesNotSpoilItsPortion(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 8)
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return strings.Contains(string(body), `"d5"`) && refuse(w, 400, `{"error":"doc_validation","reason":"Bad special document member: _x"}`)
	})
	require.EqualValues(t, 1, run(t, replication(t, source.URL, target.URL)).Stats.DocWriteFailures)

	source, target = stubs(t, 8)
	target.fail("POST /_bulk_docs", 400, `<html>Bad Request</html>`)
	require.Equal(t, "bulk_docs_failed", fails(t, replication(t, source.URL, target.URL)).Code)
	source, target = stubs(t, 8)
	target.fail("POST /_bulk_docs", 403, `{"error":"forbidden","reason":"read-only"}`)
	require.Equal(t, "forbidden", fails(t, replication(t, source.URL, target.URL)).Code)
}

func TestAnnouncedRevisionsThatAreMissing(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 3)
	delete(source.docs, "d1 1-a")
	failure := fails(t, replication(t, source.URL, target.URL))
	require.Equal(t, "missing_doc", failure.Code)
	require.Contains(t, failure.Reason, `document "d1", revision 1-a`)
	require.Empty(t, target.locals)

	// _bulk_get does not have it, the document's own URL does.
	source, target = stubs(t, 3)
	source.fail("POST /_bulk_get", 200, `{"results":[{"id":"d0","docs":[{"ok":{"_id":"d0","_rev":"1-a"}}]},{"id":"d1","docs":[{"error":{"id":"d1","rev":"1-a","error":"not_found","reason":"missing"}}]}]}`)
	result := run(t, replication(t, source.URL, target.URL))
	require.EqualValues(t, 3, result.Stats.DocsWritten)
	require.EqualValues(t, 1, result.Stats.BulkGetDocs)

	// It was updated since: a descendant answers for it.
	source, target = stubs(t, 2)
	source.docs["d1 1-a"] = `{"_id":"d1","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]}}`
	result = run(t, replication(t, source.URL, target.URL))
	require.EqualValues(t, 2, result.Stats.DocsWritten)
	require.EqualValues(t, 2, result.Stats.BulkGetDocs)
}

func TestStubsWhoseAttachmentsAreNotThere(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	about := func(how string) string {
		return `{"_id":"d","_rev":"2-b","_attachments":{"f":{"content_type":"a/b","revpos":1,"length":3,` + how + `}}}`
	}
	source.add("d", "2-b", about(`"stub":true`))
	target.fail("POST /_revs_diff", 200, `{"d":{"missing":["2-b"],"possible_ancestors":["1-a"]}}`)
	asked := 0
	source.on("GET /d", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		asked++
		w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
		body := "--edge\r\nContent-Type: application/json\r\n\r\n" + about(`"stub":true`) + "\r\n--edge--"
		if r.URL.Query().Get("atts_since") == "" {
			body = "--edge\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n--in\r\nContent-Type: application/json\r\n\r\n" +
				about(`"follows":true`) + "\r\n--in\r\n\r\n123\r\n--in--\r\n--edge--"
		}
		_, _ = w.Write([]byte(body))
		return true
	})
	target.on("PUT /d", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return !strings.Contains(string(body), "123") && refuse(w, 412, `{"error":"missing_stub","reason":"Invalid attachment stub in d for f"}`)
	})
	result := run(t, replication(t, source.URL, target.URL))
	require.Equal(t, 2, asked)
	require.EqualValues(t, 1, result.Stats.DocsWritten)
	require.EqualValues(t, 1, result.Stats.DocsRead)
	require.Len(t, target.bodies(), 1)
}
