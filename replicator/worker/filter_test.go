package worker_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// feeds records the requests for a changes feed, and answers with all rows but one.
func feeds(s *stub) *[]string {
	var asked []string
	note := func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if isQuestion(r) {
			return false
		}
		q := r.URL.Query()
		q.Del("heartbeat")
		asked = append(asked, r.Method+" "+q.Encode()+" "+string(body))
		return refuse(w, 200, `{"results":[`+s.rows[0]+`],"last_seq":"2-x","pending":0}`)
	}
	s.on("GET /_changes", note)
	s.on("POST /_changes", note)
	return &asked
}

// The source gets the parameters that select documents. Lists and selectors are in the body, which has room for them.
func TestFiltersAreTheSources(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ fields, want string }{
		"doc_ids": {`"doc_ids":["é","d0"]`,
			`POST feed=normal&filter=_doc_ids&since=0&style=all_docs {"doc_ids":["d0","é"]}`},
		"no doc_ids": {`"doc_ids":[]`,
			`POST feed=normal&filter=_doc_ids&since=0&style=all_docs {"doc_ids":[]}`},
		"selector": {`"selector":{"z":1.0,"a":{"$gt":"é"}}`,
			`POST feed=normal&filter=_selector&since=0&style=all_docs {"selector":{"z":1.0,"a":{"$gt":"é"}}}`},
		"function": {`"filter":"d/f","query_params":{"a":"x y","feed":"no","since":"7","style":"no","conflicts":"no","doc_ids":["d"],"include_docs":false}`,
			`GET a=x+y&conflicts=no&doc_ids=%5B%22d%22%5D&feed=normal&filter=d%2Ff&include_docs=false&since=0&style=all_docs `},
		"function, winners only": {`"filter":"d/f","winning_revs_only":true,"query_params":{"style":"all_docs"}`,
			`GET feed=normal&filter=d%2Ff&since=0 `},
		"view": {`"filter":"_view","query_params":{"view":"d/v"}`,
			`GET feed=normal&filter=_view&since=0&style=all_docs&view=d%2Fv `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 2)
			source.on("GET /_design/d", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				return refuse(w, 200, `{"_id":"_design/d","filters":{"f":"function() {}"}}`)
			})
			asked := feeds(source)
			result := run(t, replication(t, source.URL, target.URL, test.fields))
			require.Equal(t, []string{test.want}, *asked)
			require.EqualValues(t, 1, result.Stats.DocsWritten)
			require.Equal(t, `"2-x"`, string(result.CheckpointedSourceSeq), "up to where the source looked")
		})
	}
}

func TestViewsFilter(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
		post(t, source+"/_bulk_docs", `{"new_edits":false,"docs":[
		{"_id":"_design/d","_rev":"1-a","views":{"v":{"map":"function(doc) { if (doc.n > 1) emit(doc.n); }"}}},
		{"_id":"a","_rev":"1-a","n":1},{"_id":"b","_rev":"1-a","n":2},{"_id":"c","_rev":"1-a","n":3}]}`)
		run(t, replication(t, source, target, `"filter":"_view"`, `"query_params":{"view":"d/v"}`))
		trees := couchtest.Trees(t, target)
		require.Len(t, trees, 2)
		require.Contains(t, trees, "b")
		require.Contains(t, trees, "c")
	})
}

// Every failure to read the filter's code has the same error code.
func TestFiltersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 2)
	rep := replication(t, source.URL, target.URL, `"filter":"d/f"`)
	for _, test := range []struct {
		status int
		answer string
		reason string
	}{
		{404, `{"error":"not_found","reason":"missing"}`, "Couldn't open document `_design/d` from source database `" + source.URL + "/`: not_found"},
		{404, `{"error":"not_found","reason":"Database does not exist."}`, "db_not_found"},
		{401, `{"error":"unauthorized","reason":"You are not authorized"}`, "unauthorized"},
		{500, `{"error":"internal","reason":"ill"}`, "500 internal: ill"},
		{429, `{"error":"too_many_requests","reason":"later"}`, "max_backoff"},
		{200, `{"_id":"_design/d"}`, "no filter function `f`"},
		{200, `{"_id":"_design/d","filters":{"f":1}}`, "no filter function `f`"},
		{200, `<html>`, "a document that is not a JSON object"},
	} {
		source.on("GET /_design/d", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Retry-After", "100")
			return refuse(w, test.status, test.answer)
		})
		failure := fails(t, rep)
		require.Equal(t, "filter_fetch_error", failure.Code)
		require.Contains(t, failure.Reason, test.reason)
		if test.status == 429 {
			require.Equal(t, 100*time.Second, failure.RetryAfter)
		}
	}
	source.fail("GET /_design/d", 200, `{"_id":"_design/d","filters":{"f":"function() {}"}}`)
	target.fail("POST /_revs_diff", 500, `{}`)
	require.NotEqual(t, "filter_fetch_error", fails(t, rep).Code)
}

// A live feed keeps the filter it began with. The run also reads the code of a filter that passes nothing.
func TestAFilterThatLetsNothingPassMayChange(t *testing.T) {
	t.Parallel()
	for _, checkpoints := range []string{"true", "false"} {
		for name, test := range map[string]struct {
			answer string
			want   string
		}{
			"changed": {`{"_id":"_design/d","filters":{"f":"function() { return true; }"}}`, worker.ErrIDChanged.Error()},
			"gone":    {`{"_id":"_design/d","filters":{}}`, "filter_fetch_error: "},
		} {
			t.Run(name+", checkpoints "+checkpoints, func(t *testing.T) {
				t.Parallel()
				source, target := stubs(t, 0)
				var waits atomic.Bool
				source.on("GET /_design/d", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
					if waits.Load() {
						return refuse(w, 200, test.answer)
					}
					return refuse(w, 200, `{"_id":"_design/d","filters":{"f":"function() {}"}}`)
				})
				source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if r.URL.Query().Get("feed") != "continuous" {
						return refuse(w, 200, `{"results":[],"last_seq":"0"}`)
					}
					waits.Store(true)
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
					<-r.Context().Done()
					return true
				})
				rep := replication(t, source.URL, target.URL, `"filter":"d/f"`, `"continuous":true`,
					`"checkpoint_interval":5`, `"use_checkpoints":`+checkpoints)
				r := start(t, worker.Job{Replication: rep, Stats: replicator.Stats{}}, testConfig())
				require.ErrorContains(t, r.end(t), test.want)
			})
		}
	}
}
