package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/worker"
)

// doing runs a replication until it reports the given activity, and returns that report.
func doing(t *testing.T, what replicator.Doing, rep *replicator.Replication, edit ...func(*worker.Config)) *replicator.Activity {
	t.Helper()
	activity, _ := activityOf(t, func(a *replicator.Activity) bool { return a.Doing == what }, rep, edit...)
	return activity
}

// activityOf runs a replication until a report matches, and returns the report and the run, which continues.
func activityOf(
	t *testing.T, fits func(*replicator.Activity) bool, rep *replicator.Replication, edit ...func(*worker.Config),
) (*replicator.Activity, *running) {
	t.Helper()
	cfg := testConfig()
	cfg.ReportInterval = time.Millisecond
	for _, e := range edit {
		e(&cfg)
	}
	found := make(chan *replicator.Activity, 1)
	var seen []replicator.Doing
	r := start(t, worker.Job{Replication: rep}, cfg, func(r *running) {
		r.report = func(p worker.Progress) error {
			if len(seen) == 0 || seen[len(seen)-1] != p.Activity.Doing {
				seen = append(seen, p.Activity.Doing)
			}
			if len(found) == 0 && fits(p.Activity) {
				found <- p.Activity
			}
			return nil
		}
	})
	select {
	case activity := <-found:
		return activity, r
	case <-r.done:
		require.Fail(t, "the run ended before", "%v, it was %v", r.err, seen)
	case <-time.After(patience):
		require.Fail(t, "the run does something else")
	}
	return nil, nil
}

// silent blocks a request until its context ends.
func silent(s *stub, request string) {
	s.on(request, func(w http.ResponseWriter, r *http.Request, _ []byte) bool { return stay(w, r, "") })
}

// live makes a stub's continuous feed wait for ever.
func live(s *stub) {
	s.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		return r.URL.Query().Get("feed") == "continuous" && stay(w, r, "")
	})
}

func longPause(cfg *worker.Config) { cfg.RetryBase = 40 * time.Second }

// held checks what an activity of a run that began at some time says about the one request that holds up the run.
func held(t *testing.T, began time.Time, a *replicator.Activity, want replicator.Wait, pause time.Duration) {
	t.Helper()
	require.Len(t, a.Waiting, 1)
	got := a.Waiting[0]
	require.Equal(t, a.Since, got.Since)
	require.WithinRange(t, got.Since, began, time.Now())
	require.WithinRange(t, got.Until, began.Add(pause), time.Now().Add(pause+pause/4), "chance adds a quarter at most")
	f := got.Fault
	require.NotNil(t, f)
	require.Equal(t, []any{want.Endpoint, want.Method, want.Path, want.Attempt, want.Attempts},
		[]any{string(f.Side), f.Method, f.Path, f.Attempt, f.Attempts})
	require.Equal(t, want.Fault.Code, f.Code)
	require.Equal(t, want.Fault.Request, f.Request)
	got.Since, got.Until, got.Fault = time.Time{}, time.Time{}, want.Fault
	require.Equal(t, want, got)
}

func TestARunSaysWhichRequestHoldsItUp(t *testing.T) {
	t.Parallel()
	t.Run("the source is ill", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		source.fail("GET ", 500, `{"error":"internal","reason":"ill"}`)
		url := strings.Replace(source.URL, "://", "://me:s3cret@", 1)
		began := time.Now()
		a := doing(t, replicator.DoingRetrying, replication(t, url, target.URL), longPause)
		held(t, began, a, replicator.Wait{
			Endpoint: "source", Method: "GET", Path: "/db", Error: "500 internal: ill", Attempt: 2, Attempts: 6,
			Fault: &replicator.Fault{Code: replicator.FaultServerError, Request: replicator.RequestOpen},
		}, 40*time.Second)
		require.Zero(t, a.BatchesInFlight)
		require.Zero(t, a.LastProgress)
	})
	for _, status := range []int{429, 503} {
		t.Run(fmt.Sprint("the target wants to be left alone ", status), func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 1)
			target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				w.Header().Set("Retry-After", "50")
				return refuse(w, status, `{"error":"busy","reason":"later"}`)
			})
			began := time.Now()
			a := doing(t, replicator.DoingRateLimited, replication(t, source.URL, target.URL, `"retries_per_request":2`))
			held(t, began, a, replicator.Wait{
				Endpoint: "target", Method: "POST", Path: "/db/_bulk_docs", Error: fmt.Sprint(status, " busy: later"),
				RateLimited: true, Attempt: 2, Attempts: map[int]int{429: 0, 503: 3}[status],
				Fault: &replicator.Fault{
					Code:    map[int]replicator.FaultCode{429: replicator.FaultRateLimited, 503: replicator.FaultServerError}[status],
					Request: replicator.RequestWriteDocuments,
				},
			}, 50*time.Second)
			require.Equal(t, 1, a.BatchesInFlight)
		})
	}
	t.Run("the feed breaks off", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		source.on("GET /_changes", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			cutOff(w, `{"results":[`)
			return true
		})
		began := time.Now()
		a := doing(t, replicator.DoingRetrying, replication(t, source.URL, target.URL), longPause)
		require.Contains(t, a.Waiting[0].Error, "the changes feed was cut")
		a.Waiting[0].Error = ""
		held(t, began, a, replicator.Wait{
			Endpoint: "source", Method: "GET", Path: "/db/_changes", Attempt: 2, Attempts: 6,
			Fault: &replicator.Fault{Code: replicator.FaultClosedEarly, Request: replicator.RequestReadChanges},
		}, 40*time.Second)
	})
	t.Run("a revision is missing", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 0)
		source.add("a/ü", "1-a", "")
		began := time.Now()
		a := doing(t, replicator.DoingRetrying, replication(t, source.URL, target.URL),
			func(cfg *worker.Config) { cfg.MissingDocRetry = 40 * time.Second })
		held(t, began, a, replicator.Wait{
			Endpoint: "source", Method: "GET", Path: "/db/a%2F%C3%BC",
			Error:   "missing_doc: revision 1-a: the source announced a revision that it does not have",
			Attempt: 2, Attempts: 2,
			Fault: &replicator.Fault{Code: replicator.FaultMissingRevision, Request: replicator.RequestReadDocument},
		}, 40*time.Second)
	})
	t.Run("a stream breaks off", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 0)
		source.add("_design/d", "1-a", "{}") // design documents are read one by one
		source.on("GET /_design/d", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
			cutOff(w, "--edge\r\nContent-Type: application/json\r\n\r\n{")
			return true
		})
		began := time.Now()
		a := doing(t, replicator.DoingRetrying, replication(t, source.URL, target.URL), longPause)
		a.Waiting[0].Error = ""
		held(t, began, a, replicator.Wait{
			Endpoint: "source", Method: "GET", Path: "/db/_design/d", Attempt: 2, Attempts: 3,
			Fault: &replicator.Fault{Code: replicator.FaultClosedEarly, Request: replicator.RequestReadDocument},
		}, 40*time.Second)
	})
	t.Run("of each endpoint one is told", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 40)
		source.fail("POST /_bulk_get", 404, `{"error":"not_found","reason":"missing"}`)
		for i := range 10 { // fewer than are read at a time
			source.fail(fmt.Sprintf("GET /d%d", i), 500, `{"error":"internal","reason":"ill"}`)
		}
		source.on("GET /d2", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Retry-After", "1")
			return refuse(w, 503, `{"error":"busy","reason":"later"}`)
		})
		target.fail("POST /_ensure_full_commit", 500, `{"error":"internal","reason":"ill"}`)
		a := doing(t, replicator.DoingRateLimited, replication(t, source.URL, target.URL, `"worker_batch_size":1`, `"worker_processes":20`), longPause)
		require.Len(t, a.Waiting, 1)
		require.Equal(t, "/db/d2", a.Waiting[0].Path)
		require.Greater(t, a.BatchesInFlight, 1)
	})
}

func TestARunSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	t.Run("the databases", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		silent(source, "GET ")
		began := time.Now()
		a := doing(t, replicator.DoingStarting, replication(t, source.URL, target.URL))
		require.Equal(t, replicator.Activity{Doing: replicator.DoingStarting, Since: a.Since}, *a)
		require.WithinRange(t, a.Since, began, time.Now())
	})
	t.Run("rows", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		silent(source, "GET /_changes")
		a := doing(t, replicator.DoingReading, replication(t, source.URL, target.URL))
		require.Equal(t, replicator.Activity{Doing: replicator.DoingReading, Since: a.Since}, *a)
	})
	t.Run("rows that pass a filter", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		silent(source, "POST /_changes")
		doing(t, replicator.DoingFiltering, replication(t, source.URL, target.URL, `"selector":{"a":1}`))
	})
	t.Run("the target", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 9)
		silent(target, "POST /_revs_diff")
		rep := replication(t, source.URL, target.URL, `"worker_processes":2`, `"worker_batch_size":2`)
		a, r := activityOf(t, func(a *replicator.Activity) bool { return a.BatchesInFlight == 2 }, rep)
		require.Equal(t, replicator.DoingCopying, a.Doing)
		require.Empty(t, a.Waiting)
		r.cancel(nil)
		_ = r.end(t)
		require.Nil(t, r.result.Activity, "it does nothing any more")
	})
	t.Run("changes", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 3)
		live(source)
		var tries atomic.Int32
		target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			return tries.Add(1) == 1 && refuse(w, 500, `{"error":"internal","reason":"ill"}`)
		})
		a := doing(t, replicator.DoingWaiting, replication(t, source.URL, target.URL, `"continuous":true`))
		require.Zero(t, a.BatchesInFlight)
		require.Empty(t, a.Waiting, "what failed once has succeeded")
		require.False(t, a.LastProgress.IsZero())
		require.False(t, a.Since.Before(a.LastProgress))
	})
	t.Run("the last checkpoint", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		silent(target, "POST /_ensure_full_commit")
		a := doing(t, replicator.DoingFinishing, replication(t, source.URL, target.URL))
		require.False(t, a.LastProgress.IsZero())
	})
	t.Run("what it began, to stop", func(t *testing.T) {
		t.Parallel()
		source, target := stubs(t, 1)
		stopped, stop := context.WithCancel(context.Background())
		target.on("POST /_revs_diff", func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			stop()
			<-r.Context().Done()
			return true
		})
		cfg := testConfig()
		cfg.ReportInterval, cfg.StopTimeout = time.Millisecond, time.Minute
		stopping := make(chan struct{})
		r := start(t, worker.Job{Replication: replication(t, source.URL, target.URL)}, cfg, func(r *running) {
			r.stopped = stopped
			r.report = func(p worker.Progress) error {
				if p.Activity.Doing == replicator.DoingStopping {
					select {
					case <-stopping:
					default:
						close(stopping)
					}
				}
				return nil
			}
		})
		<-stopping
		r.cancel(nil)
		_ = r.end(t)
	})
}

// If the source has changes but none passes the filter, the user must see that.
func TestARunSaysThatItsFilterLetsNothingPass(t *testing.T) {
	t.Parallel()
	passesNothing := func(source *stub) {
		source.addSmall(3)
		source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Query().Get("feed") == "continuous" {
				return stay(w, r, "")
			}
			return refuse(w, 200, `{"results":[],"last_seq":"3-x","pending":0}`)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		passesNothing(source)
		var asked atomic.Int32
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			assert.Equal(t, "3-x", r.URL.Query().Get("since"))
			asked.Add(1)
			return refuse(w, 200, `{"results":[{"seq":"4-x","id":"x","changes":[{"rev":"1-a"}]}],"last_seq":"4-x","pending":3}`)
		})
		r := begin(`"continuous":true`, `"selector":{"a":1}`)
		time.Sleep(25 * time.Second) // two reports; the source may be silent for 30 s
		synctest.Wait()
		require.Positive(t, asked.Load())
		r.mu.Lock()
		a := r.reports[len(r.reports)-1].Activity
		r.mu.Unlock()
		require.Equal(t, replicator.DoingFiltering, a.Doing)
		require.Empty(t, a.Waiting)
		require.Zero(t, a.BatchesInFlight)
	})

	// A failed count of the changes left does not hold up the run.
	source, target := stubs(t, 0)
	passesNothing(source)
	source.fail("GET /_changes", 500, `{"error":"internal","reason":"ill"}`)
	rep := replication(t, source.URL, target.URL, `"continuous":true`, `"selector":{"a":1}`)
	a, r := activityOf(t, func(a *replicator.Activity) bool { return a.Doing == replicator.DoingWaiting }, rep, longPause)
	require.Empty(t, a.Waiting)
	r.stop()
	require.ErrorIs(t, r.end(t), worker.ErrStopped)
	for _, p := range r.reports {
		require.Empty(t, p.Activity.Waiting)
	}
}

func TestARunSaysThatTheTargetRefuses(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 6)
	var batches atomic.Int32
	source.on("POST /_bulk_get", func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if batches.Add(1) == 3 {
			<-r.Context().Done()
		}
		return false
	})
	target.on("POST /_bulk_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		var all []string
		for _, id := range idsIn(t, string(body)) {
			all = append(all, `{"id":"`+id+`","rev":"1-a","error":"forbidden","reason":"read-only"}`)
		}
		return refuse(w, 201, `[`+strings.Join(all, ",")+`]`)
	})
	began := time.Now()
	rep := replication(t, source.URL, target.URL, `"worker_processes":1`, `"worker_batch_size":2`)
	a, _ := activityOf(t, func(a *replicator.Activity) bool { return a.Refusing != nil && a.Refusing.Count == 4 }, rep)
	require.Equal(t, replicator.DoingRefused, a.Doing)
	require.Equal(t, a.Since, a.Refusing.Since)
	require.False(t, a.Since.Before(began.Truncate(time.Second)))
	require.Contains(t, []string{"d1", "d3"}, a.Refusing.Latest.ID, "the last one of a batch; both batches may be written at the same time")
	require.Equal(t, "read-only", a.Refusing.Latest.Reason)

	// A target that accepts some documents is not refusing.
	source, target = stubs(t, 6)
	live(source)
	target.fail("POST /_bulk_docs", 201, `[{"id":"d1","rev":"1-a","error":"forbidden","reason":"no"}]`)
	a = doing(t, replicator.DoingWaiting, replication(t, source.URL, target.URL, `"continuous":true`))
	require.Nil(t, a.Refusing)
}
