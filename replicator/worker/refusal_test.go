package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// refusals collects the refusals of a run.
type refusals struct {
	all []replicator.Failure
}

func (r *refusals) collect(cfg *worker.Config) {
	cfg.ListRefused = func(_ context.Context, failures []replicator.Failure, _ int64) error {
		r.all = append(r.all, failures...)
		return nil
	}
}

// without returns the refusals without their times, after checking that those are within the test.
func (r *refusals) without(t *testing.T) []replicator.Failure {
	t.Helper()
	var all []replicator.Failure
	for _, f := range r.all {
		require.WithinDuration(t, time.Now(), f.Time, time.Minute)
		f.Time = time.Time{}
		all = append(all, f)
	}
	return all
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
		RevisionsChecked: 3, MissingRevisionsFound: 3, DocCounts: replicator.DocCounts{DocsRead: 3, DocsWritten: 3}, BulkGetDocs: 2, BulkGetAttempts: 2,
	}, result.Stats)
}

func TestRefusedDocumentsAreCounted(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
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
		require.Zero(t, run(t, replication(t, source, target)).RunStats, "refused documents are not tried again")
	})
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
	require.Equal(t, []replicator.Failure{{ID: "d7", Rev: "1-a", Status: 413, Code: "too_large", Reason: "the request entity is too large"}}, r.without(t))
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 40, MissingRevisionsFound: 40, DocCounts: replicator.DocCounts{DocsRead: 40, DocsWritten: 39, DocWriteFailures: 1},
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

// A server reports failures to write in the same place as refusals. Only refused documents are skipped.
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

func TestRefusalsThatNameNoDocumentAreLookedInto(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 8)
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return strings.Contains(string(body), `"d5"`) && refuse(w, 201, `[{"error":"forbidden","reason":"no"}]`)
	})
	var r refusals
	result := run(t, replication(t, source.URL, target.URL), r.collect)
	require.Equal(t, []replicator.Failure{{ID: "d5", Rev: "1-a", Status: 403, Code: "forbidden", Reason: "no"}}, r.without(t))
	require.EqualValues(t, 7, result.Stats.DocsWritten)
}

func TestOneBadDocumentDoesNotSpoilItsPortion(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 8)
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return strings.Contains(string(body), `"d5"`) && refuse(w, 400, `{"error":"doc_validation","reason":"Bad special document member: _x"}`)
	})
	target.fail("PUT /d5", 400, `{"error":"doc_validation","reason":"Bad special document member: _x"}`)
	require.EqualValues(t, 1, run(t, replication(t, source.URL, target.URL)).Stats.DocWriteFailures)

	source, target = stubs(t, 8)
	target.fail("POST /_bulk_docs", 400, `<html>Bad Request</html>`)
	require.Equal(t, "bulk_docs_failed", fails(t, replication(t, source.URL, target.URL)).Code)
	source, target = stubs(t, 8)
	target.fail("POST /_bulk_docs", 403, `{"error":"forbidden","reason":"read-only"}`)
	// The reason names the request: the database can be accessed.
	failure := fails(t, replication(t, source.URL, target.URL))
	require.Equal(t, "bulk_docs_failed", failure.Code)
	require.Equal(t, "target: POST "+target.URL+"/_bulk_docs: 403 forbidden: read-only (without a user)", failure.Reason)

	source, target = stubs(t, 8)
	source.fail("GET /_changes", 403, `{"error":"forbidden","reason":"by a gateway"}`)
	failure = fails(t, replication(t, source.URL, target.URL))
	require.Equal(t, "forbidden", failure.Code)
	require.Regexp(t, "^source: GET "+regexp.QuoteMeta(source.URL)+"/_changes.*: 403 forbidden: by a gateway \\(without a user\\)$", failure.Reason)
}

// Each way of writing a document has its own kind of refusal.
func TestRefusalsOnEachWay(t *testing.T) {
	t.Parallel()
	const large = `{"error":"document_too_large","reason":"d1"}`
	withAttachment := func(s *stub) { s.attach("d1", "123") }
	nothing := func(*stub) {}
	bulk := func(status int, answer string) func(*stub) {
		return func(s *stub) {
			s.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
				return strings.Contains(string(body), `"d1"`) && refuse(w, status, answer)
			})
		}
	}
	single := func(status int, answer string) func(*stub) {
		return func(s *stub) { s.fail("PUT /d1", status, answer) }
	}
	both := func(first, second func(*stub)) func(*stub) {
		return func(s *stub) {
			first(s)
			second(s)
		}
	}
	for name, test := range map[string]struct {
		source, target func(*stub)
		want           replicator.Failure
	}{
		"one of many": {nothing, bulk(201, `[{"id":"d1","rev":"1-a","error":"forbidden","reason":"no"}]`),
			replicator.Failure{Status: 403, Code: "forbidden", Reason: "no"}},
		"one of many is too large": {nothing, bulk(201, `[{"id":"d1","rev":"1-a","error":"document_too_large","reason":"d1"}]`),
			replicator.Failure{Status: 413, Code: "document_too_large", Reason: "d1"}},
		"one of many has an id that may not be": {nothing, both(bulk(201, `[{"id":"d1","error":"illegal_docid","reason":"too long"}]`),
			single(400, `{"error":"illegal_docid","reason":"too long"}`)),
			replicator.Failure{Status: 400, Code: "illegal_docid", Reason: "too long"}},
		"all for one that is too large": {nothing, bulk(413, large),
			replicator.Failure{Status: 413, Code: "document_too_large", Reason: "d1"}},
		"all for one that is too large for a proxy": {nothing, bulk(413, `<html>nginx</html>`),
			replicator.Failure{Status: 413, Code: "Request Entity Too Large"}},
		"all for an id that may not be": {nothing, both(bulk(400, `{"error":"illegal_docid","reason":"Document id is too long"}`),
			single(400, `{"error":"illegal_docid","reason":"Document id is too long"}`)),
			replicator.Failure{Status: 400, Code: "illegal_docid", Reason: "Document id is too long"}},
		"with an attachment": {withAttachment, single(403, `{"error":"forbidden","reason":"no"}`),
			replicator.Failure{Status: 403, Code: "forbidden", Reason: "no"}},
		"with an attachment that is too large": {withAttachment, single(413, `{"error":"attachment_too_large","reason":"f"}`),
			replicator.Failure{Status: 413, Code: "attachment_too_large", Reason: "f"}},
		"with an attachment, as PouchDB Server says it": {withAttachment, single(201, `[{"id":"d1","error":"forbidden","reason":"no"}]`),
			replicator.Failure{Status: 403, Code: "forbidden", Reason: "no"}},
		"with an attachment whose name may not be": {withAttachment, single(400, `{"error":"bad_request","reason":"Attachment name '_x' starts with prohibited character '_'"}`),
			replicator.Failure{Status: 400, Code: "bad_request", Reason: "Attachment name '_x' starts with prohibited character '_'"}},
		"with an attachment and an id that is too long for a URL": {withAttachment, single(414, ``),
			replicator.Failure{Status: 414, Code: "Request URI Too Long"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 4)
			test.source(source)
			test.target(target)
			var r refusals
			var told []worker.Refusal
			result := run(t, replication(t, source.URL, target.URL), r.collect, func(cfg *worker.Config) {
				cfg.Refused = func(refusal worker.Refusal) { told = append(told, refusal) }
			})
			require.Equal(t, r.all, told)
			test.want.ID, test.want.Rev = "d1", "1-a"
			require.Equal(t, []replicator.Failure{test.want}, r.without(t))
			require.EqualValues(t, 1, result.Stats.DocWriteFailures)
			require.EqualValues(t, 3, result.Stats.DocsWritten)
			require.EqualValues(t, 4, result.Stats.DocsRead)
		})
	}
	// A proxy's error is not about the document.
	for _, status := range []int{400, 404, 405, 407, 408, 429, 500, 502} {
		source, target := stubs(t, 4)
		withAttachment(source)
		target.fail("PUT /d1", status, `<html>`)
		require.NotEmpty(t, fails(t, replication(t, source.URL, target.URL)).Reason)
		require.Empty(t, target.locals)
	}
}

func TestIDsThatCannotBeReplicated(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 4)
	long := strings.Repeat("é", 20)
	source.add("", "1-a", `{"_id":"","_rev":"1-a"}`)
	source.add(long, "3-c", `{"_id":"`+long+`","_rev":"3-c"}`)
	source.add("d4", "1-a", `{"_id":"d4","_rev":"1-a"}`)
	var r refusals
	result := run(t, replication(t, source.URL, target.URL), r.collect, func(cfg *worker.Config) { cfg.MaxDocumentIDLength = 39 })
	require.Equal(t, []replicator.Failure{
		{Rev: "1-a", Status: 400, Code: "illegal_docid", Reason: "the document's id is empty"},
		{ID: long, Rev: "3-c", Status: 400, Code: "illegal_docid", Reason: "the document's id is longer than max_document_id_length"},
	}, r.without(t))
	require.EqualValues(t, 5, result.Stats.DocsWritten)
	require.EqualValues(t, 2, result.Stats.DocWriteFailures)
	require.Equal(t, `"7-x"`, string(result.CheckpointedSourceSeq))

	target = newStub(t)
	result = run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.MaxDocumentIDLength = 40 })
	require.EqualValues(t, 6, result.Stats.DocsWritten)
}

// A source does not write local documents of the target: checkpoints, and the marks of mirrors.
func TestLocalDocumentsAreNoChanges(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	source.add("_local/settee-mirror", "0-1", `{"_id":"_local/settee-mirror","_rev":"0-1"}`)
	var r refusals
	run(t, replication(t, source.URL, target.URL), r.collect)
	require.NotContains(t, strings.Join(target.bodies(), " "), "settee-mirror")
	require.Equal(t, []replicator.Failure{
		{ID: "_local/settee-mirror", Rev: "0-1", Status: 400, Code: "illegal_docid", Reason: "the document is local"},
	}, r.without(t))
}

func TestRefusalsAreListedBeforeACheckpointCoversThem(t *testing.T) {
	t.Parallel()
	const refusal = `[{"id":"d1","rev":"1-a","error":"forbidden","reason":"no"}]`
	source, target := stubs(t, 3)
	target.fail("POST /_bulk_docs", 201, refusal)
	unlisted := errors.New("the store is away")
	tell := func(cfg *worker.Config) {
		cfg.ListRefused = func(context.Context, []replicator.Failure, int64) error { return unlisted }
	}
	cfg := testConfig()
	tell(&cfg)
	result, err := worker.Run(t.Context(), worker.Job{Replication: replication(t, source.URL, target.URL)}, cfg, &recorder{})
	require.Equal(t, unlisted, err)
	require.EqualValues(t, 1, result.Stats.DocWriteFailures)
	require.Empty(t, target.locals)
	require.Empty(t, source.locals)

	// Also without checkpoints, and after an error.
	for _, fail := range []bool{false, true} {
		source, target = stubs(t, 3)
		target.fail("POST /_bulk_docs", 201, refusal)
		more := `"use_checkpoints":false`
		if fail {
			target.fail("POST /_ensure_full_commit", 500, `{}`)
			more = `"use_checkpoints":true`
		}
		var r refusals
		cfg := testConfig()
		r.collect(&cfg)
		_, err = worker.Run(t.Context(), worker.Job{Replication: replication(t, source.URL, target.URL, more)}, cfg, &recorder{})
		require.Equal(t, fail, err != nil)
		require.Len(t, r.without(t), 1)
	}
}

// The number of refusals that wait to be listed is bounded, and all are counted.
func TestTheLatestRefusalsAreListed(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	const n = 3*replicator.MaxFailures + 3
	source, target := stubs(t, n)
	target.fail("POST /_bulk_docs", 413, `{"error":"too_large","reason":"all of it"}`)
	seen := map[string]bool{}
	var counted int64
	result := run(t, replication(t, source.URL, target.URL, `"worker_processes":1,"http_connections":3`), func(cfg *worker.Config) {
		cfg.ListRefused = func(_ context.Context, failures []replicator.Failure, count int64) error {
			require.Len(t, failures, int(min(count, replicator.MaxFailures)))
			counted += count
			for _, f := range failures {
				seen[f.ID] = true
			}
			return nil
		}
	})
	require.EqualValues(t, n, result.Stats.DocWriteFailures)
	require.EqualValues(t, n, counted)
	for i := n - replicator.MaxFailures; i < n; i++ {
		require.True(t, seen[fmt.Sprintf("d%d", i)], i)
	}
}

func TestAnnouncedRevisionsThatAreMissing(t *testing.T) {
	t.Parallel()
	// The feed still announces it.
	source, target := stubs(t, 3)
	delete(source.docs, "d1 1-a")
	for range 2 {
		var r refusals
		run(t, replication(t, source.URL, target.URL), r.collect)
		require.Len(t, r.all, 1)
		require.Equal(t, "missing_doc", r.all[0].Code)
		require.Contains(t, r.all[0].Reason, `document "d1", revision 1-a`)

		// The feed cannot be filtered by document id.
		source.fail("POST /_changes", 404, `{"error":"not_found","reason":"missing"}`)
		target = newStub(t)
	}

	// It was replaced, or the source no longer has the document, which is listed.
	for rows, failures := range map[string]int{`{"seq":"9-x","id":"d1","changes":[{"rev":"7-b"},{"rev":"1-aa"}]}`: 0, ``: 1} {
		asked := ""
		source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			asked = r.URL.Query().Get("since") + " " + r.URL.Query().Get("style") + " " + string(body)
			return refuse(w, 200, `{"results":[`+rows+`],"last_seq":"9-x"}`)
		})
		target = newStub(t)
		var listed []worker.Refusal
		result := run(t, replication(t, source.URL, target.URL), func(c *worker.Config) {
			c.Refused = func(f worker.Refusal) { listed = append(listed, f) }
		})
		require.EqualValues(t, 2, result.Stats.DocsWritten)
		require.EqualValues(t, failures, result.Stats.DocWriteFailures)
		require.Len(t, listed, failures)
		for _, f := range listed {
			require.Equal(t, "d1 1-a 404 not_found", fmt.Sprint(f.ID, " ", f.Rev, " ", f.Status, " ", f.Code))
		}
		require.Equal(t, `"3-x"`, string(result.CheckpointedSourceSeq))
		require.Equal(t, `0 all_docs {"doc_ids":["d1"]}`, asked)
	}

	// It appears a little later.
	source, target = stubs(t, 3)
	source.docs["d1 1-a"] = ""
	times := 0
	source.on("GET /d1", func(_ http.ResponseWriter, _ *http.Request, _ []byte) bool {
		if times++; times == 2 {
			source.mu.Lock()
			defer source.mu.Unlock()
			source.docs["d1 1-a"] = `{"_id":"d1","_rev":"1-a"}`
		}
		return false
	})
	began := time.Now()
	result := run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.MissingDocRetry = 50 * time.Millisecond })
	require.EqualValues(t, 3, result.Stats.DocsWritten)
	require.Equal(t, 2, times)
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)

	// _bulk_get does not return it, the document's own URL does.
	source, target = stubs(t, 3)
	source.fail("POST /_bulk_get", 200, `{"results":[{"id":"d0","docs":[{"ok":{"_id":"d0","_rev":"1-a"}}]},{"id":"d1","docs":[{"error":{"id":"d1","rev":"1-a","error":"not_found","reason":"missing"}}]}]}`)
	result = run(t, replication(t, source.URL, target.URL))
	require.EqualValues(t, 3, result.Stats.DocsWritten)
	require.EqualValues(t, 1, result.Stats.BulkGetDocs)

	// It was updated since, and the answer is a descendant.
	source, target = stubs(t, 2)
	source.docs["d1 1-a"] = `{"_id":"d1","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]}}`
	result = run(t, replication(t, source.URL, target.URL))
	require.EqualValues(t, 2, result.Stats.DocsWritten)
	require.EqualValues(t, 2, result.Stats.BulkGetDocs)
}

// A target that does not allow an id refuses the whole _revs_diff.
func TestIllegalIDsAreRefusedAlone(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	for _, id := range []string{"a", "b", "bad1", "c", "d", "bad2", "e"} {
		source.add(id, "1-a", fmt.Sprintf(`{"_id":%q,"_rev":"1-a"}`, id))
	}
	target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		return strings.Contains(string(body), `"bad`) && refuse(w, 400, `{"error":"illegal_docid","reason":"Doc id must be of form partition:id"}`)
	})
	var r refusals
	result := run(t, replication(t, source.URL, target.URL), r.collect)
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 7, MissingRevisionsFound: 7, DocCounts: replicator.DocCounts{DocsRead: 5, DocsWritten: 5, DocWriteFailures: 2}, BulkGetDocs: 5, BulkGetAttempts: 5,
	}, result.Stats)
	require.ElementsMatch(t, []replicator.Failure{
		{ID: "bad1", Rev: "1-a", Status: 400, Code: "illegal_docid", Reason: "Doc id must be of form partition:id"},
		{ID: "bad2", Rev: "1-a", Status: 400, Code: "illegal_docid", Reason: "Doc id must be of form partition:id"},
	}, r.without(t))
}
