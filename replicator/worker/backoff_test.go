package worker_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/replicator"
	"settee/replicator/worker"
)

// An endpoint that refuses everything with 429 ends a run with an error that says so.
func TestEndpointsThatRefuseEverything(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"GET /_changes", "POST /_revs_diff", "POST /_bulk_docs", "PUT /d1"} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 2)
			if request == "PUT /d1" {
				source.add("_design/x", "1-a", `{"_id":"_design/x","_rev":"1-a"}`)
				target.fail("PUT /_design/x", 429, `{"error":"too_many_requests","reason":"later"}`)
			}
			for _, s := range []*stub{source, target} {
				s.fail(request, 429, `{"error":"too_many_requests","reason":"later"}`)
			}
			failure := fails(t, replication(t, source.URL, target.URL))
			require.Equal(t, "max_backoff", failure.Code)
			require.ErrorIs(t, failure, couch.ErrBackedOff)
			require.Contains(t, failure.Reason, "429 too_many_requests: later: backed off: the wait between two requests has come up to 100ms")
			require.GreaterOrEqual(t, failure.RetryAfter, 10*time.Second)
		})
	}
}

// A 429 that one run meets delays the others, and their reports say so.
func TestARunSaysThatItIsHeldBack(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	source.on("GET ", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Retry-After", "50")
		return refuse(w, 429, `{"error":"busy","reason":"later"}`)
	})
	shared := &worker.Shared{}
	with := func(cfg *worker.Config) { cfg.Shared = shared }
	began := time.Now()
	doing(t, replicator.DoingRateLimited, replication(t, source.URL, target.URL), with)
	source.on("GET ", nil)
	a := doing(t, replicator.DoingRateLimited, replication(t, source.URL, target.URL), with)
	require.Len(t, a.Waiting, 1)
	w := a.Waiting[0]
	require.Equal(t, "source", w.Endpoint)
	require.Equal(t, "too many requests: the server has refused other requests with 429", w.Error)
	require.True(t, w.RateLimited)
	require.Equal(t, 1, w.Attempt)
	require.Zero(t, w.Attempts)
	// Retry-After counts from the refusal. The requests that it holds back are spread over less than a second.
	require.WithinRange(t, w.Until, began.Add(50*time.Second), time.Now().Add(51*time.Second))
}
