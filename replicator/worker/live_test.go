package worker_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

func TestCopiesALargeTree(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		p := couchtest.Population{Seed: 1, Docs: 1_100, Conflicted: 100, Deleted: 100, Attachments: couchtest.Sizes(1, 30, 2<<20)}
		if testkit.Race { // slow, and the size shows no races
			p = couchtest.Population{Seed: 1, Docs: 550, Conflicted: 50, Deleted: 50, Attachments: couchtest.Sizes(1, 30, 200_000)}
		}
		began := time.Now()
		source, target := pair(t, peer, p)
		t.Logf("populated in %s", time.Since(began).Round(time.Millisecond))

		began = time.Now()
		result := run(t, replication(t, source, target))
		t.Logf("replicated in %s", time.Since(began).Round(time.Millisecond))

		began = time.Now()
		couchtest.SameTrees(t, source, target)
		t.Logf("compared in %s", time.Since(began).Round(time.Millisecond))

		stats := result.Stats
		require.Equal(t, stats.MissingRevisionsFound, stats.RevisionsChecked)
		require.Equal(t, stats.MissingRevisionsFound, stats.DocsRead)
		require.Equal(t, stats.MissingRevisionsFound, stats.DocsWritten)
		require.Equal(t, stats.MissingRevisionsFound, stats.BulkGetAttempts)
		require.Equal(t, stats.MissingRevisionsFound-30, stats.BulkGetDocs)
		require.Zero(t, stats.DocWriteFailures)
	})
}

func TestResultsHaveTheRecordedShape(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(2))
		shapes := map[int]string{
			65: string(run(t, replication(t, source, target)).History),
			66: string(run(t, replication(t, source, target)).History),
			67: string(run(t, replication(t, source, peer.DB(t, "ids"), `"doc_ids":["doc-000059","never"]`)).History),
		}
		for number, got := range shapes {
			require.True(t, json.Valid([]byte(got)))
			require.Equal(t, shape(couchtest.Recorded(t, number).Body), shape(got), number)
		}
	})
}

// shape returns a JSON text without the values that differ from run to run.
func shape(body string) []string {
	var names []string
	decoder := json.NewDecoder(strings.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return names
		}
		switch token := token.(type) {
		case json.Delim:
			names = append(names, token.String())
		case string:
			if strings.ContainsAny(token, " -") || len(token) == 32 {
				token = "..."
			}
			names = append(names, token)
		case float64:
			names = append(names, "...")
		case bool:
			names = append(names, "true or false")
		}
	}
}

func TestASecondRunHasNothingToDo(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(3))
		first := run(t, replication(t, source, target))
		couchtest.SameTrees(t, source, target)
		require.Equal(t, first.SourceSeq, first.CheckpointedSourceSeq)
		require.Equal(t, first.SourceSeq, first.ThroughSeq)

		from, to := newProxy(t, source, nil), newProxy(t, target, nil)
		// Checkpoint ids depend on the URLs, so the URLs must be the same through the proxy.
		again := run(t, replication(t, source, target))
		require.Zero(t, again.RunStats)
		require.Equal(t, first.Stats, again.Stats)
		require.Equal(t, first.ThroughSeq, again.ThroughSeq)
		require.Equal(t, strings.Replace(string(first.History), `{"ok":true,`, `{"ok":true,"no_changes":true,`, 1), string(again.History))

		through := run(t, replication(t, from.URL, to.URL))
		require.Zero(t, through.Stats.DocsRead)
		require.Equal(t, first.Stats.RevisionsChecked, through.Stats.RevisionsChecked)
		require.Zero(t, from.count("POST /_bulk_get"))
		require.Zero(t, to.count("POST /_bulk_docs"))
	})
}

func TestStatisticsGoOnUnderTheSameID(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(4))
		rep := replication(t, source, target)
		first := run(t, rep)
		couchtest.Populate(t, source, couchtest.Population{Seed: 40, Docs: 70})

		var r recorder
		job := worker.Job{Replication: rep, ReplicationID: first.ReplicationID, Stats: first.Stats}
		second, err := worker.Run(t.Context(), job, testConfig(), &r)
		require.NoError(t, err)
		couchtest.SameTrees(t, source, target)
		require.Equal(t, first.Stats.DocsWritten+70, second.Stats.DocsWritten)
		require.EqualValues(t, 70, second.RunStats.DocsWritten)
		require.Equal(t, first.ReplicationID, second.ReplicationID)
		require.Len(t, r.ids, 1)
		require.Equal(t, first.ReplicationID, r.ids[0].String())

		var history struct {
			History []struct {
				Session string `json:"session_id"`
				Written int64  `json:"docs_written"`
			}
		}
		require.NoError(t, json.Unmarshal(second.History, &history))
		require.Len(t, history.History, 2)
		require.Equal(t, second.Stats.DocsWritten, history.History[0].Written)
		require.Equal(t, first.Stats.DocsWritten, history.History[1].Written)

		job.ReplicationID = "another"
		third, err := worker.Run(t.Context(), job, testConfig(), &recorder{})
		require.NoError(t, err)
		require.Equal(t, second.Stats, third.Stats, "those of the checkpoint")
	})
}

func TestContinuousCarriesANewDocumentOver(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(5))
		checkpointed := make(chan string)
		rep := replication(t, source, target, `"continuous":true`, `"checkpoint_interval":50`)
		r := start(t, worker.Job{Replication: rep}, testConfig(), func(r *running) {
			r.report = func(p worker.Progress) error { // each checkpoint is reported
				select {
				case checkpointed <- string(p.CheckpointedSourceSeq):
				case <-r.stopped.Done():
				}
				return nil
			}
		})
		await := func() {
			for seq := number(updateSeq(t, source)); number(<-checkpointed) != seq; {
			}
			couchtest.SameTrees(t, source, target)
		}
		await()
		for _, id := range []string{"new", "newer"} {
			post(t, source+"/_bulk_docs", `{"docs":[{"_id":"`+id+`"}]}`)
			await()
		}
		r.stop()
		require.ErrorIs(t, r.end(t), worker.ErrStopped)
		require.Equal(t, r.result.SourceSeq, r.result.CheckpointedSourceSeq)
		require.Nil(t, r.result.History)
		require.True(t, strings.HasSuffix(r.result.ReplicationID, "+continuous"))

		again := run(t, replication(t, source, target))
		require.Zero(t, again.RunStats, "continuous and one-shot runs share their checkpoints")
	})
}

func TestCreatesTheTarget(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(6))
		created := target + "-new"
		t.Cleanup(func() { peer.Remove(t, created) })
		for range 2 {
			result := run(t, replication(t, source, created, `"create_target":true`, `"create_target_params":{"q":1}`))
			require.True(t, strings.HasSuffix(result.ReplicationID, "+create_target"))
		}
		couchtest.SameTrees(t, source, created)
	})
}

// A feed that ends has few sequences, because they are costly. After a cut all rows have one.
func TestFewSequences(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
		couchtest.Populate(t, source, couchtest.Population{Seed: 1, Docs: 400})
		var mu sync.Mutex
		var queries []url.Values // of feeds
		from := newProxy(t, source, func(w http.ResponseWriter, r *http.Request, path string) bool {
			query := r.URL.Query()
			if path != "/_changes" || query.Get("limit") == "1" { // a question how much is left
				return false
			}
			mu.Lock()
			queries = append(queries, query)
			whole := len(queries) > 1
			mu.Unlock()
			if whole {
				return false
			}
			text := forwarded(t, source, r, path)
			if _, is := peer.(*couchtest.CouchDB); is {
				assert.Contains(t, text, `"seq":null`)
				assert.Less(t, strings.Count(text, `"seq":"`), 20)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text[:len(text)*3/4])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		result := run(t, replication(t, from.URL, target, `"worker_batch_size":100`))
		couchtest.SameTrees(t, source, target)
		require.GreaterOrEqual(t, result.Stats.DocsWritten, int64(400))
		require.Less(t, result.Stats.DocsWritten, int64(450), "the rows after the last sequence are read again")
		mu.Lock()
		require.Len(t, queries, 2)
		require.Equal(t, "50", queries[0].Get("seq_interval"))
		require.False(t, queries[1].Has("seq_interval"))
		require.NotEqual(t, queries[0].Get("since"), queries[1].Get("since"), "it continues")
		mu.Unlock()

		again := run(t, replication(t, from.URL, target, `"worker_batch_size":100`))
		require.Zero(t, again.RunStats.RevisionsChecked, "the checkpoint is at the end")
		run(t, replication(t, from.URL, target, `"doc_ids":["x"]`))
		mu.Lock()
		defer mu.Unlock()
		require.False(t, queries[len(queries)-1].Has("seq_interval"), "a filter may pass few rows")
	})
}

func TestSourcesWithoutBulkGet(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(7))
		from := newProxy(t, source, func(w http.ResponseWriter, r *http.Request, path string) bool {
			return path == "/_bulk_get" && refuse(w, 404, `{"error":"not_found","reason":"missing"}`)
		})
		result := run(t, replication(t, from.URL, target, `"worker_batch_size":10`, `"worker_processes":1`))
		couchtest.SameTrees(t, source, target)
		require.Zero(t, result.Stats.BulkGetAttempts)
		require.Equal(t, result.Stats.MissingRevisionsFound, result.Stats.DocsWritten)
		require.Equal(t, 1, from.count("POST /_bulk_get"), "it is remembered")

		other := peer.DB(t, "target")
		run(t, replication(t, from.URL, other, `"use_bulk_get":false`))
		couchtest.SameTrees(t, source, other)
		require.Equal(t, 1, from.count("POST /_bulk_get"))
	})
}

func TestDocumentIDsFiltersAndSince(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source := peer.DB(t, "source")
		post(t, source+"/_bulk_docs", `{"new_edits":false,"docs":[
		{"_id":"_design/d","_rev":"1-a","filters":{"even":"function(doc, req) { return doc.n % req.query.by == 0; }"}},
		{"_id":"a","_rev":"1-a","n":1},{"_id":"b","_rev":"1-a","n":2}]}`)
		middle := updateSeq(t, source)
		post(t, source+"/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"c","_rev":"1-a","n":3},{"_id":"d","_rev":"1-a","n":4}]}`)
		ids := func(more ...string) []string {
			target := peer.DB(t, "target")
			run(t, replication(t, source, target, more...))
			var list []string
			for id := range couchtest.Trees(t, target) {
				list = append(list, id)
			}
			return list
		}
		require.ElementsMatch(t, []string{"_design/d", "a", "b", "c", "d"}, ids())
		require.ElementsMatch(t, []string{"a", "d"}, ids(`"doc_ids":["a","d","x"]`))
		require.ElementsMatch(t, []string{"b", "d"}, ids(`"filter":"d/even"`, `"query_params":{"by":"2","conflicts":"no"}`))
		require.ElementsMatch(t, []string{"c", "d"}, ids(`"since_seq":`+middle))
		require.Empty(t, ids(`"doc_ids":["x"]`))
		if server, is := peer.(*couchtest.CouchDB); is && !server.Release(t).Before36 {
			require.ElementsMatch(t, []string{"_design/d", "a", "b", "c", "d"}, ids(`"since_seq":"2000-01-01T00:00:00Z"`))
			require.Empty(t, ids(`"since_seq":"2099-01-01T00:00:00Z"`))
		}

		target := peer.DB(t, "target")
		failure := fails(t, replication(t, source, target, `"filter":"d/odd"`))
		require.Equal(t, "filter_fetch_error", failure.Code)
		failure = fails(t, replication(t, source, target, `"filter":"e/odd"`))
		require.Equal(t, "filter_fetch_error", failure.Code)
		require.Contains(t, failure.Reason, "Couldn't open document `_design/e`")
		if _, couchDB := peer.(*couchtest.CouchDB); couchDB {
			require.ElementsMatch(t, []string{"a"}, ids(`"selector":{"n":1}`))
		} else {
			failure = fails(t, replication(t, source, target, `"selector":{"n":1}`))
			require.Equal(t, "error", failure.Code)
		}
	})
}

func TestAChangedFilterEndsTheRun(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(8))
		post(t, source+"/_bulk_docs", `{"docs":[{"_id":"_design/d","filters":{"all":"function() { return true; }"}}]}`)
		reports := make(chan worker.Progress, 10)
		rep := replication(t, source, target, `"continuous":true`, `"filter":"d/all"`, `"checkpoint_interval":20`)
		r := start(t, worker.Job{Replication: rep}, testConfig(), func(r *running) {
			r.report = func(p worker.Progress) error {
				reports <- p
				return nil
			}
		})
		before, all := <-reports, number(updateSeq(t, source))
		for number(string(before.CheckpointedSourceSeq)) < all {
			before = <-reports
		}
		post(t, source+"/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"_design/d","_rev":"9-b","filters":{"all":"function() { return 1; }"}}]}`)
		require.ErrorIs(t, r.end(t), worker.ErrIDChanged)
		require.Equal(t, before.CheckpointedSourceSeq, r.result.CheckpointedSourceSeq, "the old filter may have left out what the new one passes")
	})
}

func TestStopAndGoOn(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, couchtest.Population{Seed: 9, Docs: 400})
		batches := 0
		reached := make(chan struct{})
		to := newProxy(t, target, nil)
		from := newProxy(t, source, func(_ http.ResponseWriter, r *http.Request, path string) bool {
			if path == "/_bulk_get" {
				if batches++; batches == 3 {
					close(reached)
					hang(r) // until the batch is abandoned
				}
			}
			return false
		})
		rep := replication(t, from.URL, to.URL, `"worker_processes":1`, `"worker_batch_size":100`)
		cfg := testConfig()
		cfg.StopTimeout, cfg.ReportInterval = 10*time.Second, time.Millisecond
		written := make(chan struct{})
		r := start(t, worker.Job{Replication: rep}, cfg, func(r *running) {
			r.report = func(p worker.Progress) error {
				if p.Stats.DocsWritten == 200 {
					select {
					case <-written:
					default:
						close(written)
					}
				}
				return nil
			}
		})
		<-reached
		<-written
		r.stop()
		require.ErrorIs(t, r.end(t), worker.ErrStopped)
		require.NotErrorIs(t, r.err, worker.ErrIDChanged)
		require.EqualValues(t, 200, r.result.Stats.DocsWritten)
		require.Equal(t, 200, number(string(r.result.CheckpointedSourceSeq)))
		require.Nil(t, r.result.History)

		rest := run(t, rep)
		require.EqualValues(t, 200, rest.RunStats.RevisionsChecked)
		require.EqualValues(t, 200, rest.RunStats.DocsWritten)
		require.EqualValues(t, 400, rest.Stats.DocsWritten)
		couchtest.SameTrees(t, source, target)
	})
}

func TestStopBeforeAnything(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	asked := make(chan struct{}, 1)
	source.on("GET ", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		asked <- struct{}{}
		return stay(w, r, "")
	})
	r := start(t, worker.Job{Replication: replication(t, source.URL, target.URL)}, testConfig())
	<-asked
	r.stop()
	require.Equal(t, worker.ErrStopped, r.end(t))
}

func TestCancelEndsARunAtOnce(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 300)
	stuck := make(chan struct{}, 10)
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		stuck <- struct{}{}
		return stay(w, r, "")
	})
	r := start(t, worker.Job{Replication: replication(t, source.URL, target.URL, `"worker_batch_size":100`)}, testConfig())
	<-stuck
	cause := errors.New("the lock is gone")
	r.cancel(cause)
	require.Equal(t, cause, r.end(t))
	require.Empty(t, target.locals)
}

func TestReportsWhileAnEndpointHangs(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	silent(source, "GET /_design/d")
	cfg := testConfig()
	cfg.ReportInterval = 10 * time.Millisecond
	told := make(chan worker.Progress)
	lost := errors.New("the job's lock was taken")
	reports := 0
	earlier := replicator.Stats{DocCounts: replicator.DocCounts{DocsRead: 5}}
	// The id depends on the endpoint's missing answer.
	rep := replication(t, source.URL, target.URL, `"filter":"d/f"`)
	r := start(t, worker.Job{Replication: rep, ReplicationID: "x", Stats: earlier}, cfg, func(r *running) {
		r.report = func(p worker.Progress) error {
			told <- p
			if reports++; reports == 3 {
				return lost
			}
			return nil
		}
	})
	for range 3 {
		p := <-told
		require.Equal(t, "x", p.ReplicationID)
		require.Equal(t, earlier, p.Stats)
	}
	require.Equal(t, lost, r.end(t))
}

func TestIdentifyMayRefuse(t *testing.T) {
	t.Parallel()
	collision := errors.New("another job has this id")
	rep := replication(t, "http://nowhere.invalid/a", "http://nowhere.invalid/b") // no requests go there
	_, err := worker.Run(t.Context(), worker.Job{Replication: rep}, testConfig(),
		&recorder{identify: func(replicator.ID) error { return collision }})
	require.Equal(t, collision, err)
}

// A job is identified even if the databases cannot be opened. With a filter, that needs the filter's code and nothing
// from the target.
func TestIdentifyComesBeforeTheDatabasesAreOpened(t *testing.T) {
	t.Parallel()
	const code = `{"_id":"_design/d","filters":{"f":"function() {}"}}`
	for _, test := range []struct {
		members    string
		sourceAway bool
		design     string
		identified bool
		want       string
	}{
		{`"doc_ids":["x"]`, true, "", true, "source"},
		{`"create_target":true`, true, "", true, "source"},
		{`"filter":"d/f"`, false, code, true, "target"},
		{`"filter":"d/f","create_target":true`, false, code, true, "target"},
		{`"filter":"d/f"`, false, "{}", false, "filter_fetch_error"},
		{`"filter":"d/f"`, true, code, false, "source"},
	} {
		source, target := stubs(t, 1)
		const ill = `{"error":"internal","reason":"ill"}`
		target.fail("GET ", 500, ill)
		if test.sourceAway {
			source.fail("GET ", 500, ill)
		}
		source.fail("GET /_design/d", 200, test.design)
		cfg := testConfig()
		cfg.RetriesPerRequest = 0
		r := new(recorder)
		_, err := worker.Run(t.Context(), worker.Job{Replication: replication(t, source.URL, target.URL, test.members)}, cfg, r)
		require.ErrorContains(t, err, test.want, test.members)
		require.Equal(t, test.identified, len(r.ids) == 1, test.members)
	}
}

func TestProgressGoesIntoAJobState(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 3)
	result := run(t, replication(t, source.URL, target.URL))
	state := replicator.JobState{State: replicator.StateCompleted, ErrorCount: 3}
	result.CopyTo(&state)
	require.Equal(t, result.Stats, state.Stats)
	require.Equal(t, result.ReplicationID, state.ReplicationID)
	require.Equal(t, result.ThroughSeq, state.ThroughSeq)
	require.Equal(t, 3, state.ErrorCount)
}

func post(t testing.TB, target, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Less(t, response.StatusCode, 300)
}

// updateSeq returns the sequence of a database's last change, as JSON.
func updateSeq(t testing.TB, dbURL string) string {
	t.Helper()
	info, err := opened(t, dbURL).Info(t.Context())
	require.NoError(t, err)
	return string(info.UpdateSeq)
}
