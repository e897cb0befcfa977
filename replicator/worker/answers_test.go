package worker_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator/worker"
)

// An answer of a proxy or a gateway is not about a document: the document counts as neither written nor refused.
func TestAnswersThatAreNotAboutADocument(t *testing.T) {
	t.Parallel()
	source, _ := stubs(t, 2)
	source.add("_design/d", "1-a", `{"_id":"_design/d","_rev":"1-a"}`)
	answering := func(answer string) *stub {
		target := newStub(t)
		status, body, _ := strings.Cut(answer, " ")
		target.fail("PUT /_design/d", number(status), body)
		return target
	}
	for _, answer := range []string{
		`200 {"error":"timeout","reason":"The request could not be processed in a reasonable amount of time."}`,
		`200 {}`, `200 null`, `200 "done"`,
		`401 <html>`, `402 {"error":"over_quota","reason":"Account exceeded its data usage quota."}`,
		`403 <html>blocked`, `404 {"status":404,"error":"Not Found"}`, `409 <html>`, `423 `, `451 `,
	} {
		target := answering(answer)
		_ = fails(t, replication(t, source.URL, target.URL))
		for _, local := range target.locals {
			require.NotContains(t, local, "3-x", answer)
		}
	}
	for _, answer := range []string{
		`200 {"error":"forbidden","reason":"no"}`, `400 {"error":"content_md5_mismatch","reason":"no"}`,
		`403 {"error":"partition_overflow","reason":"no"}`, `413 <html>`,
	} {
		result := run(t, replication(t, source.URL, answering(answer).URL))
		require.EqualValues(t, 1, result.Stats.DocWriteFailures, answer)
		require.EqualValues(t, 2, result.Stats.DocsWritten)
	}
	target := newStub(t)
	target.fail("POST /_bulk_docs", 400, `{"status":400,"error":"Bad Request","path":"/db/_bulk_docs"}`)
	_ = fails(t, replication(t, source.URL, target.URL))
	require.Empty(t, target.locals)
}

// A proxy cuts off all answers after some minutes. A run without changes tolerates that any number of times.
func TestAnIdleFeedIsCutAgainAndAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		source.add("d0", "1-a", `{"_id":"d0","_rev":"1-a"}`)
		var opened atomic.Int32
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Query().Get("feed") != "continuous" {
				return false
			}
			opened.Add(1)
			beat(w, r, 3*time.Minute)
			panic(http.ErrAbortHandler)
		})
		r := begin(`"continuous":true`)
		time.Sleep(time.Hour)
		require.Greater(t, opened.Load(), int32(15))
		r.stop()
		require.ErrorIs(t, r.end(t), worker.ErrStopped)

		// A feed that is cut off at once fails.
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Query().Get("feed") != "continuous" {
				return false
			}
			beat(w, r, 0)
			panic(http.ErrAbortHandler)
		})
		require.ErrorContains(t, begin(`"continuous":true`).end(t), "the changes feed was cut")
	})
}

func beat(w http.ResponseWriter, r *http.Request, d time.Duration) {
	for began := time.Now(); ; time.Sleep(10 * time.Second) {
		_, _ = fmt.Fprint(w, "\n")
		w.(http.Flusher).Flush()
		if time.Since(began) >= d || r.Context().Err() != nil {
			return
		}
	}
}

// A live feed does not say how far it has got if its filter passes nothing.
func TestAFilterThatLetsNothingThroughMakesProgress(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		var last atomic.Int32
		source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Query().Get("feed") == "continuous" {
				beat(w, r, 24*time.Hour)
				return true
			}
			return refuse(w, 200, fmt.Sprintf(`{"results":[],"last_seq":"%d-x","pending":0}`, last.Add(100)))
		})
		r := begin(`"continuous":true`, `"selector":{"a":1}`)
		time.Sleep(time.Hour)
		r.stop()
		require.ErrorIs(t, r.end(t), worker.ErrStopped)
		require.Greater(t, last.Load(), int32(1000))
		require.Equal(t, fmt.Sprintf(`"%d-x"`, last.Load()), string(r.result.CheckpointedSourceSeq))
	})
}

// A filter may take long to leave out changes, but only as long as there are such changes.
func TestAFilteredFeedOfHeartbeatsEnds(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	const nothingBut = "source: the changes feed of http://a.example/db/ has had nothing but heartbeats for "
	for name, test := range map[string]struct {
		left  string // the source's count of the changes left
		info  string // the source's description with the number of documents
		lasts time.Duration
		says  string
	}{
		"no changes are left":     {left: `{"results":[],"last_seq":"0","pending":0}`, lasts: 5 * time.Minute, says: ": 0 changes are left"},
		"some are left":           {left: `{"results":[],"last_seq":"0","pending":36000}`, lasts: 65 * time.Minute, says: ": 36000 changes are left"},
		"more than a source has":  {left: `{"results":[],"last_seq":"0","pending":1000000000000000}`, lasts: 24 * time.Hour, says: "1000000000000000 changes are left"},
		"documents are counted":   {left: `{"results":[],"last_seq":"0"}`, info: `"doc_count":5000,"doc_del_count":1000`, lasts: 15 * time.Minute, says: ": 6000 changes are left"},
		"it does not say":         {left: `{"results":[],"last_seq":"0"}`, lasts: 24 * time.Hour, says: "how many changes are left is not known"},
		"it gives another answer": {left: `{"results":`, info: `"doc_count":-5`, lasts: 24 * time.Hour, says: "how many changes are left is not known"},
	} {
		for _, continuous := range []string{"false", "true"} {
			testkit.RunBubble(t, name+", continuous: "+continuous, func(t *testing.T) {
				source, _, begin := pipedStubs(t)
				source.add("a", "1-a", `{"_id":"a","_rev":"1-a"}`)
				var quiet time.Time // start of the heartbeats
				source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					_, _ = fmt.Fprintf(w, `{"results":[%s`, source.rows[0])
					quiet = time.Now()
					beat(w, r, 48*time.Hour)
					return true
				})
				source.fail("GET /_changes", 200, test.left)
				if test.info != "" {
					source.fail("GET ", 200, `{"db_name":"db","update_seq":"9",`+test.info+`}`)
				}
				err := begin(`"continuous":`+continuous, `"selector":{"a":1}`, `"retries_per_request":1`).ended()
				require.ErrorContains(t, err, nothingBut+test.lasts.String())
				require.ErrorContains(t, err, test.says)
				require.InDelta(t, test.lasts, time.Since(quiet), float64(10*time.Second))
			})
		}
	}
	testkit.RunBubble(t, "it comes to its end", func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		source.add("a", "1-a", `{"_id":"a","_rev":"1-a"}`)
		source.add("b", "1-a", `{"_id":"b","_rev":"1-a"}`)
		source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			_, _ = fmt.Fprintf(w, `{"results":[%s`, source.rows[0])
			beat(w, r, 59*time.Minute)
			_, _ = fmt.Fprintf(w, `,%s`, source.rows[1])
			beat(w, r, 59*time.Minute)
			_, _ = fmt.Fprint(w, `],"last_seq":"9-x"}`)
			return true
		})
		source.fail("GET /_changes", 200, `{"results":[],"last_seq":"0","pending":36000}`)
		// A slow target does not count as silence of the source.
		target.on("POST /_revs_diff", func(http.ResponseWriter, *http.Request, []byte) bool {
			time.Sleep(25 * time.Second)
			return false
		})
		require.NoError(t, begin(`"selector":{"a":1}`).ended())
		require.Len(t, target.bodies(), 2)
	})
}

// A source that only supports GET is read document by document.
func TestASourceForGETOnly(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 6)
	source.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			refuse(w, 403, `<html>403 Forbidden`)
			return
		}
		source.ServeHTTP(w, r)
	})
	result := run(t, replication(t, source.URL, target.URL, `"use_checkpoints":false`))
	require.EqualValues(t, 6, result.Stats.DocsWritten)
}

// Many possible ancestors make a URL long. Servers and proxies have different words for that.
func TestASourceForShortURLsOnly(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		`414 <html>`, `431 `, `400 <html>`, `400 {"error":"bad_request","reason":"Bad request"}`, `403 <html>`,
		`404 <html>`, `404 {"error":"not_found","reason":"missing"}`,
	} {
		source, target := stubs(t, 1)
		source.add("_design/d", "1-a", `{"_id":"_design/d","_rev":"1-a"}`)
		var long atomic.Int32
		status, body, _ := strings.Cut(answer, " ")
		source.on("GET /_design/d", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if len(r.URL.RequestURI()) <= 1024 {
				return false
			}
			long.Add(1)
			return refuse(w, number(status), body)
		})
		var ancestors []string
		for i := range 60 {
			ancestors = append(ancestors, fmt.Sprintf(`"1-%032d"`, i))
		}
		target.fail("POST /_revs_diff", 200,
			`{"_design/d":{"missing":["1-a"],"possible_ancestors":[`+strings.Join(ancestors, ",")+`]}}`)
		result := run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.MissingDocRetry = time.Hour })
		require.EqualValues(t, 1, result.Stats.DocsWritten, answer)
		require.EqualValues(t, 1, long.Load(), answer)
	}
}

// npm's registry and others refuse parameters of feeds that they do not know.
func TestASourceForFewParametersOnly(t *testing.T) {
	t.Parallel()
	for _, parameter := range []string{"limit", "seq_interval", "heartbeat"} {
		source, target := stubs(t, 3)
		var refused, passed atomic.Int32
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if isQuestion(r) {
				return false
			}
			if r.URL.Query().Has(parameter) {
				refused.Add(1)
				return refuse(w, 400, `{"error":"bad_request","reason":"`+parameter+`"}`)
			}
			if passed.Add(1) == 1 {
				cutOff(w, `{"results":[`+source.rows[0]) // so that the feed is opened again
			}
			return false
		})
		result := run(t, replication(t, source.URL, target.URL))
		require.EqualValues(t, 3, result.Stats.DocsWritten)
		require.EqualValues(t, 1, refused.Load(), "once for a run")
	}
	// If that is not why, the first error counts.
	source, target := stubs(t, 3)
	source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		return refuse(w, 400, `{"error":"bad_request","reason":"with heartbeat: `+fmt.Sprint(r.URL.Query().Has("heartbeat"))+`"}`)
	})
	require.Contains(t, fails(t, replication(t, source.URL, target.URL)).Reason, "with heartbeat: true")
}

// A database that moved within its server is asked where it is now.
func TestDatabasesBehindARedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		source, target := stubs(t, 3)
		source.attach("d1", "123")
		for _, s := range []*stub{source, target} {
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if path, old := strings.CutPrefix(r.URL.RequestURI(), "/old/db"); old {
					w.Header().Set("Location", "/db"+path)
					w.WriteHeader(status)
					return
				}
				s.ServeHTTP(w, r)
			})
		}
		old := func(s *stub) string { return strings.TrimSuffix(s.URL, "/db") + "/old/db" }
		result := run(t, replication(t, old(source), old(target)))
		require.EqualValues(t, 3, result.Stats.DocsWritten, status)
		require.Len(t, source.locals, 1)
		require.Len(t, target.locals, 1)
	}
}

// If a stream is cut off after a leaf that was written, the leaf is not written or counted again.
func TestLeavesAreWrittenOnce(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	source.add("_design/d", "1-a", `{"_id":"_design/d","_rev":"1-a"}`)
	var asked atomic.Int32
	source.on("GET /_design/d", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
		const leaf = "--edge\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"_design/d\",\"_rev\":\"2-%s\"}\r\n"
		fmt.Fprintf(w, leaf+"--edge\r\n", "a")
		w.(http.Flusher).Flush()
		if asked.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, strings.TrimPrefix(leaf, "--edge\r\n")+"--edge--", "b")
		return true
	})
	result := run(t, replication(t, source.URL, target.URL))
	require.EqualValues(t, 3, asked.Load())
	require.EqualValues(t, 2, result.Stats.DocsRead)
	require.EqualValues(t, 2, result.Stats.DocsWritten)
	require.Len(t, target.bodies(), 2)
}

// A run that began with since=now and saw nothing must not make the next one skip changes.
func TestNowIsTheTimeOfTheFirstRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		var asked []string
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			query := r.URL.Query()
			switch {
			case query.Get("limit") == "1":
				return refuse(w, 500, `{}`)
			case query.Get("feed") == "continuous":
				beat(w, r, 24*time.Hour)
				return true
			}
			source.mu.Lock()
			defer source.mu.Unlock()
			asked = append(asked, query.Get("since"))
			rows := source.rows
			if query.Get("since") != "now" {
				rows = rows[number(query.Get("since")):]
			} else {
				rows = nil
			}
			return refuse(w, 200, fmt.Sprintf(`{"results":[%s],"last_seq":"%d-x","pending":0}`, strings.Join(rows, ","), len(source.rows)))
		})
		for i := range 2 {
			source.add(fmt.Sprint("d", i), "1-a", fmt.Sprintf(`{"_id":"d%d","_rev":"1-a"}`, i))
		}
		for range 2 {
			r := begin(`"continuous":true`, `"since_seq":"now"`)
			time.Sleep(time.Minute)
			r.stop()
			require.ErrorIs(t, r.end(t), worker.ErrStopped)
			source.mu.Lock()
			source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
			source.mu.Unlock()
		}
		require.Equal(t, []string{"now", "2-x"}, asked)
		require.Len(t, target.bodies(), 1)
		require.Equal(t, []string{"new"}, idsIn(t, target.bodies()[0]))
	})
}

// Nor may changes be skipped that the source cannot deliver.
func TestRevisionsThatAreMissingSinceNow(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Query().Get("feed") != "continuous" {
			return refuse(w, 200, `{"results":[],"last_seq":"4-x","pending":0}`)
		}
		fmt.Fprintln(w, `{"seq":"5-x","id":"gone","changes":[{"rev":"1-a"}]}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Query().Get("since") == "now" {
			return refuse(w, 200, `{"results":[],"last_seq":"5-x","pending":0}`)
		}
		return refuse(w, 200, `{"results":[{"seq":"5-x","id":"gone","changes":[{"rev":"1-a"}]}],"last_seq":"5-x","pending":0}`)
	})
	failure := fails(t, replication(t, source.URL, target.URL, `"continuous":true`, `"since_seq":"now"`))
	require.Equal(t, "missing_doc", failure.Code)
	for _, local := range target.locals {
		require.NotContains(t, local, "5-x")
	}
}
