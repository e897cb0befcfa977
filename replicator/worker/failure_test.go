package worker_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

func TestFailuresHaveTheRecordedWords(t *testing.T) {
	couchtest.EachWithAdmin(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		good := peer.DB(t, "wire")
		missing := good + "-nosuchdb"
		bare, _, password := couchtest.Credentials(good)
		const wrong = "wr0ng-word"
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		refusing := "http://" + listener.Addr().String() + "/wire"
		require.NoError(t, listener.Close())

		for _, test := range []struct {
			number, source, target string
			reason                 string // the recorded one has another host in it
		}{
			{"068", missing, good, "could not open " + bare + "-nosuchdb/"},
			{"069", good, missing, "could not open " + bare + "-nosuchdb/"},
			{"070", couchtest.As(good, rand.Text(), wrong), good, ""},
			{"071", refusing, good, ""},
		} {
			failure := fails(t, replication(t, test.source, test.target))
			var want, got struct{ Error, Reason string }
			_, body := recorded(t, test.number)
			require.NoError(t, json.Unmarshal(body, &want))
			state := replicator.JobState{State: replicator.StateFailed}
			state.SetError(failure.Code, failure.Reason)
			got.Error, got.Reason = state.ErrorBody()
			require.Equal(t, want.Error, got.Error, test.number)
			require.NotEmpty(t, got.Reason)
			require.NotContains(t, failure.Error(), password)
			require.NotContains(t, failure.Error(), wrong)
			if test.reason != "" {
				require.Equal(t, test.reason, got.Reason)
			}
		}
		source, _ := stubs(t, 0)
		source.fail("GET ", 401, `{"error":"unauthorized","reason":"Authentication required."}`)
		failure := fails(t, replication(t, source.URL, good))
		require.Equal(t, "unauthorized", failure.Code)
		require.Equal(t, "unauthorized to access or create database "+source.URL+"/: Authentication required.", failure.Reason)
		source.fail("GET ", 403, `{"error":"forbidden","reason":"You are not allowed to access this db."}`)
		require.Equal(t, "forbidden", fails(t, replication(t, source.URL, good)).Code)
		require.Equal(t, "nxdomain", fails(t, replication(t, "http://nowhere.invalid/db", good)).Code)
	})
}

func TestServersThatWantToBeLeftAlone(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	for _, status := range []int{429, 503} {
		target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Retry-After", "3600")
			return refuse(w, status, `{"error":"busy","reason":"later"}`)
		})
		failure := fails(t, replication(t, source.URL, target.URL))
		require.Equal(t, time.Hour, failure.RetryAfter)
		require.Contains(t, []string{"max_backoff", "revs_diff_failed"}, failure.Code)
		require.ErrorAs(t, failure, new(*couch.Error))
	}
	// With another status it is not about being left alone.
	target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Retry-After", "3600")
		return refuse(w, http.StatusForbidden, `{"error":"forbidden","reason":"no"}`)
	})
	require.Zero(t, fails(t, replication(t, source.URL, target.URL)).RetryAfter)
}

// What a node shares among all jobs is bounded, whatever a job was once allowed to
// ask for.
func TestGreedyOptionsAreBounded(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 6)
	rep := replication(t, source.URL, target.URL)
	greedy := math.MaxInt32
	rep.WorkerBatchSize, rep.WorkerProcesses, rep.HTTPConnections = &greedy, &greedy, &greedy
	result, err := worker.Run(t.Context(), worker.Job{Replication: rep}, testConfig(), &recorder{})
	require.NoError(t, err)
	require.EqualValues(t, 6, result.Stats.DocsWritten)
}

func TestEndpointsThatNobodyCanOpen(t *testing.T) {
	t.Parallel()
	rep := replication(t, "http://a.example/db", "http://b.example/db")
	rep.Source.URL += "?x=1" // as no parser leaves it
	_, err := worker.Run(t.Context(), worker.Job{Replication: rep}, testConfig(), &recorder{})
	var failure *worker.Error
	require.ErrorAs(t, err, &failure)
	require.Contains(t, failure.Reason, "source: ")
}

func TestFeedsThatBreakOffGoOn(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 6)
	var since []string
	source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		since = append(since, r.URL.Query().Get("since"))
		if len(since) > 3 {
			rows := strings.Join(source.rows[3:], ",")
			fmt.Fprintf(w, `{"results":[%s],"last_seq":"6-x"}`, rows)
			return true
		}
		fmt.Fprintf(w, `{"results":[%s,`, source.rows[len(since)-1])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	// One failure in a row is allowed, and none of these are in a row.
	result := run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.RetriesPerRequest = 1 })
	require.Equal(t, []string{"0", "1-x", "2-x", "3-x"}, since)
	require.EqualValues(t, 6, result.Stats.DocsWritten)
	require.Equal(t, `"6-x"`, string(result.CheckpointedSourceSeq))

	source, target = stubs(t, 6)
	opened := 0
	source.on("GET /_changes", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		opened++
		fmt.Fprint(w, `{"results":[`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	failure := fails(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.RetriesPerRequest = 2 })
	require.Contains(t, failure.Reason, "the changes feed was cut")
	require.Equal(t, 3, opened)
}

func TestFilteredFeedsRecordHowFarTheyLooked(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 0)
	source.fail("POST /_changes", 200, `{"results":[],"last_seq":"99-x","pending":0}`)
	result := run(t, replication(t, source.URL, target.URL, `"selector":{"a":1}`))
	require.Equal(t, `"99-x"`, string(result.CheckpointedSourceSeq))
	require.Contains(t, string(result.History), `"no_changes":true`)
	require.EqualValues(t, 0, *result.ChangesPending)

	// Without a filter there was nothing to look at, and the sequence's spelling says nothing.
	source.fail("GET /_changes", 200, `{"results":[],"last_seq":"0-xyz"}`)
	result = run(t, replication(t, source.URL, target.URL))
	require.Equal(t, `0`, string(result.CheckpointedSourceSeq))
	require.Equal(t, `{"ok":true,"no_changes":true}`, string(result.History))
}

func TestDatabasesThatAreMadeAnew(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"source", "target"} {
		// The server has a word for it.
		source, target := stubs(t, 2)
		peer := map[string]*stub{"source": source, "target": target}[side]
		peer.on("POST /_ensure_full_commit", func(http.ResponseWriter, *http.Request, []byte) bool {
			peer.mu.Lock()
			defer peer.mu.Unlock()
			peer.instance = `"1700000001"`
			return false
		})
		failure := fails(t, replication(t, source.URL, target.URL))
		require.Equal(t, "checkpoint_commit_failure", failure.Code)
		require.Contains(t, failure.Reason, side)
		require.Empty(t, source.locals)
		require.Empty(t, target.locals)

		// It has none, but the checkpoint is gone.
		source, target = stubs(t, 2)
		peer = map[string]*stub{"source": source, "target": target}[side]
		peer.instance = `"0"`
		rep := replication(t, source.URL, target.URL)
		run(t, rep)
		source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
		peer.on("POST /_ensure_full_commit", func(http.ResponseWriter, *http.Request, []byte) bool {
			peer.mu.Lock()
			defer peer.mu.Unlock()
			clear(peer.locals)
			return false
		})
		failure = fails(t, rep)
		require.Equal(t, "checkpoint_commit_failure", failure.Code)
		require.Contains(t, failure.Reason, side)
	}
}

func TestCheckpointsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	conflict := func(s *stub, stored string) {
		puts := 0
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/_local/") {
				if puts++; puts == 1 {
					s.mu.Lock()
					s.locals[strings.TrimPrefix(r.URL.Path, "/db/_local/")] = stored
					s.mu.Unlock()
					refuse(w, 409, `{"error":"conflict","reason":"Document update conflict."}`)
					return
				}
			}
			s.ServeHTTP(w, r)
		})
	}
	source, target := stubs(t, 2)
	conflict(target, `{"_rev":"0-7","session_id":"another's","history":[]}`)
	failure := fails(t, replication(t, source.URL, target.URL))
	require.Equal(t, "checkpoint_commit_failure", failure.Code)
	require.ErrorIs(t, failure, couch.ErrConflict)
	require.Contains(t, failure.Reason, "target")
	require.Empty(t, source.locals, "the target comes first")

	source, target = stubs(t, 2)
	conflict(target, `{"_rev":"0-7","history":[]}`) // not news: no session wrote it
	run(t, replication(t, source.URL, target.URL))
	require.Len(t, source.locals, 1)

	source, target = stubs(t, 2)
	source.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			refuse(w, 403, `{"error":"forbidden","reason":"read-only"}`)
			return
		}
		source.ServeHTTP(w, r)
	})
	failure = fails(t, replication(t, source.URL, target.URL))
	require.Equal(t, "checkpoint_commit_failure", failure.Code)
	require.Contains(t, failure.Reason, "use_checkpoints")
	result := run(t, replication(t, source.URL, target.URL, `"use_checkpoints":false`))
	require.Equal(t, `{"ok":true,"use_checkpoints":false}`, string(result.History))

	source, target = stubs(t, 2)
	target.fail("POST /_ensure_full_commit", 500, `{"error":"disk","reason":"full"}`)
	failure = fails(t, replication(t, source.URL, target.URL))
	require.Contains(t, failure.Reason, "Failure on target commit")
	target.fail("POST /_ensure_full_commit", 404, `{"error":"not_found","reason":"missing"}`)
	run(t, replication(t, source.URL, target.URL))
}

func TestAStopWhoseCheckpointFails(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 2)
	target.fail("POST /_ensure_full_commit", 500, `{"error":"disk","reason":"full"}`)
	source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Query().Get("feed") == "continuous" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		}
		return false
	})
	cfg := testConfig()
	cfg.RetriesPerRequest = -1
	cfg.ReportInterval = 10 * time.Millisecond
	through := make(chan string)
	r := start(t, worker.Job{Replication: replication(t, source.URL, target.URL, `"continuous":true`)}, cfg, func(r *running) {
		r.report = func(p worker.Progress) error {
			select {
			case through <- string(p.ThroughSeq):
			default: // the test has seen enough
			}
			return nil
		}
	})
	for <-through != `"2-x"` {
	}
	close(r.stop)
	err := r.end(t)
	require.ErrorIs(t, err, worker.ErrStopped)
	var failure *worker.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "checkpoint_commit_failure", failure.Code)
}

func TestBulkAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 10)
	asked := 0
	source.on("POST /_bulk_get", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		if asked++; asked > 2 {
			return false
		}
		n := strings.Count(string(body), `"id"`)
		fmt.Fprintf(w, `{"results":[{"id":"d%d","docs":[{"ok":{"_id":"d%d","_rev":"1-a"}}]},`, 10-n, 10-n)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	result := run(t, replication(t, source.URL, target.URL))
	require.Equal(t, 3, asked)
	require.EqualValues(t, 10, result.Stats.DocsWritten)
}

func TestPendingChangesAreAskedFor(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 4)
	blocked := make(chan struct{})
	release := sync.OnceFunc(func() { close(blocked) })
	t.Cleanup(release) // before the servers are closed
	target.on("POST /_revs_diff", func(http.ResponseWriter, *http.Request, []byte) bool {
		<-blocked
		return false
	})
	source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Query().Get("limit") == "1" {
			if r.URL.Query().Get("since") != "2-x" {
				return refuse(w, 500, `{"error":"internal","reason":"asked before two rows were read"}`) // it asks again
			}
			fmt.Fprint(w, `{"results":[{"seq":"9-x","id":"z","changes":[{"rev":"1-a"}]}],"last_seq":"9-x","pending":6}`)
			return true
		}
		fmt.Fprintf(w, `{"results":[%s`, strings.Join(source.rows[:2], ","))
		w.(http.Flusher).Flush()
		<-blocked
		fmt.Fprintf(w, `,%s],"last_seq":"4-x","pending":0}`, strings.Join(source.rows[2:], ","))
		return true
	})
	cfg := testConfig()
	cfg.ReportInterval = 10 * time.Millisecond
	known := make(chan int64, 1)
	r := start(t, worker.Job{Replication: replication(t, source.URL, target.URL)}, cfg, func(r *running) {
		r.report = func(p worker.Progress) error {
			if p.ChangesPending != nil && len(known) == 0 {
				known <- *p.ChangesPending
			}
			return nil
		}
	})
	// Seven beyond what was read, and the two that were read and wait.
	require.EqualValues(t, 9, <-known)
	release()
	require.NoError(t, r.end(t))
	require.EqualValues(t, 0, *r.result.ChangesPending)
}

// What has attachments is streamed, so that its request cannot be repeated: the revision is read again.
func TestStreamsThatBreakOffBeginAnew(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, _ := pair(t, peer, couchtest.Population{Seed: 20, Docs: 3, Attachments: [][]int{{300_000}, {400_000, 200_000}, {10}}})
		first := func() func(string) bool {
			var mu sync.Mutex
			seen := map[string]bool{}
			return func(path string) bool {
				mu.Lock()
				defer mu.Unlock()
				was := seen[path]
				seen[path] = true
				return !was
			}
		}
		for name, breaks := range map[string]struct{ source, target func(string) bool }{
			"the target": {func(string) bool { return false }, first()},
			"the source": {first(), func(string) bool { return false }},
			"for ever":   {func(string) bool { return false }, func(string) bool { return true }},
		} {
			target := peer.DB(t, "target")
			to := newProxy(t, target, func(_ http.ResponseWriter, r *http.Request, path string) bool {
				if r.Method == http.MethodPut && strings.HasPrefix(path, "/doc-") && breaks.target(path) {
					_, _ = io.CopyN(io.Discard, r.Body, 200_000)
					panic(http.ErrAbortHandler)
				}
				return false
			})
			from := newProxy(t, source, func(w http.ResponseWriter, _ *http.Request, path string) bool {
				if strings.HasSuffix(path, ".bin") && breaks.source(path) {
					w.Header().Set("Content-Length", "300000")
					_, _ = w.Write(make([]byte, 100))
					panic(http.ErrAbortHandler)
				}
				return false
			})
			if name == "for ever" {
				failure := fails(t, replication(t, from.URL, to.URL), func(cfg *worker.Config) { cfg.RetriesPerRequest = 5 })
				require.Equal(t, "error", failure.Code)
				require.Contains(t, failure.Reason, "PUT "+to.URL)
				continue
			}
			result := run(t, replication(t, from.URL, to.URL))
			require.Zero(t, result.Stats.DocWriteFailures, name)
			require.EqualValues(t, 3, result.Stats.DocsWritten, name)
			couchtest.SameTrees(t, source, target)
		}
	})
}

// A source that refuses a feed after its first rows says so again however often it is asked, and however long it was
// alive before.
func TestAFeedThatIsRefusedInItsMiddle(t *testing.T) {
	t.Parallel()
	const words = "\n" + `{"code":400,"error":"bad_request","reason":"Selector error: too many steps"}` + "\n"
	for _, continuous := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			source, _, begin := pipedStubs(t)
			source.add("d0", "1-a", `{"_id":"d0","_rev":"1-a"}`)
			opened := 0
			source.on("POST /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				live := r.URL.Query().Get("feed") == "continuous"
				if live != continuous {
					return refuse(w, 200, `{"results":[],"last_seq":"0-x","pending":0}`)
				}
				opened++
				if live {
					fmt.Fprint(w, source.rows[0])
				} else {
					fmt.Fprint(w, `{"results":[`+"\n"+source.rows[0])
				}
				beat(w, r, 3*time.Minute)
				fmt.Fprint(w, words)
				return true
			})
			var failure *worker.Error
			r := begin(fmt.Sprintf(`"selector":{"a":1},"continuous":%t`, continuous))
			time.Sleep(time.Hour)
			require.ErrorAs(t, r.end(t), &failure)
			require.Contains(t, failure.Reason, "400 bad_request: Selector error: too many steps")
			require.Equal(t, 1, opened)
		})
	}
}
