package worker_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
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
		const refusing = "http://127.0.0.1:1/wire" // no system gives this port to a test's server

		for _, test := range []struct {
			number         int
			source, target string
			reason         string // the recorded one names another host
		}{
			{68, missing, good, "could not open " + bare + "-nosuchdb/"},
			{69, good, missing, "could not open " + bare + "-nosuchdb/"},
			{70, couchtest.As(good, rand.Text(), wrong), good, ""},
			{71, refusing, good, ""},
		} {
			failure := fails(t, replication(t, test.source, test.target))
			var want, got struct{ Error, Reason string }
			require.NoError(t, json.Unmarshal([]byte(couchtest.Recorded(t, test.number).Body), &want))
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
		_, target := stubs(t, 0)
		target.fail("GET ", 404, `{"error":"not_found","reason":"Database does not exist."}`)
		target.fail("PUT ", 401, `{"error":"unauthorized","reason":"You are not a server admin."}`)
		for url, as := range map[string]string{target.URL: "", couchtest.As(target.URL, "me", wrong): ` as "me"`} {
			failure = fails(t, replication(t, good, url, `"create_target":true`))
			require.Equal(t, "unauthorized", failure.Code)
			require.Equal(t, "unauthorized to access or create database "+target.URL+"/"+as+": You are not a server admin.", failure.Reason)
		}
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
	// With other statuses Retry-After is not a request for a pause.
	target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Retry-After", "3600")
		return refuse(w, http.StatusForbidden, `{"error":"forbidden","reason":"no"}`)
	})
	require.Zero(t, fails(t, replication(t, source.URL, target.URL)).RetryAfter)
}

// As in CouchDB there is no database where JSON does not describe one, such as at the URL of a server.
func TestURLsOfOtherThings(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	for _, body := range []string{`{"couchdb":"Welcome","version":"3.5.0"}`, `{}`, `["a"]`, `7`} {
		target.on("GET ", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool { return refuse(w, http.StatusOK, body) })
		failure := fails(t, replication(t, source.URL, target.URL, `"create_target":true`))
		require.Equal(t, "db_not_found: could not open "+target.URL+"/", failure.Error(), body)
	}
}

// A job's use of the node's resources is bounded, whatever its settings.
func TestGreedySettingsAreBounded(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 6)
	rep := replication(t, source.URL, target.URL)
	cfg := testConfig()
	cfg.WorkerBatchSize, cfg.WorkerProcesses, cfg.HTTPConnections = math.MaxInt32, math.MaxInt32, math.MaxInt32
	result, err := worker.Run(t.Context(), worker.Job{Replication: rep}, cfg, &recorder{})
	require.NoError(t, err)
	require.EqualValues(t, 6, result.Stats.DocsWritten)
}

func TestEndpointsThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	rep := replication(t, "http://a.example/db", "http://b.example/db")
	rep.Source.URL += "?x=1" // no parser returns this
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
		if isQuestion(r) {
			return false
		}
		since = append(since, r.URL.Query().Get("since"))
		if len(since) > 3 {
			rows := strings.Join(source.rows[3:], ",")
			fmt.Fprintf(w, `{"results":[%s],"last_seq":"6-x"}`, rows)
			return true
		}
		cutOff(w, `{"results":[`+source.rows[len(since)-1]+",")
		return true
	})
	// One failure in a row is allowed, and these are never in a row.
	result := run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.RetriesPerRequest = 1 })
	require.Equal(t, []string{"0", "1-x", "2-x", "3-x"}, since)
	require.EqualValues(t, 6, result.Stats.DocsWritten)
	require.Equal(t, `"6-x"`, string(result.CheckpointedSourceSeq))

	source, target = stubs(t, 6)
	opened := 0
	source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if isQuestion(r) {
			return false
		}
		opened++
		cutOff(w, `{"results":[`)
		return true
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

	// Without a filter, a new spelling of the sequence means nothing.
	source.fail("GET /_changes", 200, `{"results":[],"last_seq":"0-xyz"}`)
	result = run(t, replication(t, source.URL, target.URL))
	require.Equal(t, `0`, string(result.CheckpointedSourceSeq))
	require.Equal(t, `{"ok":true,"no_changes":true}`, string(result.History))
}

func TestDatabasesThatAreMadeAnew(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source", "target"} {
		// The server says that the database is another one.
		source, target := stubs(t, 2)
		peer := side(name, source, target)
		peer.on("POST /_ensure_full_commit", func(http.ResponseWriter, *http.Request, []byte) bool {
			peer.anew()
			return false
		})
		failure := fails(t, replication(t, source.URL, target.URL))
		require.Equal(t, "checkpoint_commit_failure", failure.Code)
		require.Contains(t, failure.Reason, name)
		require.Empty(t, source.locals)
		require.Empty(t, target.locals)

		// It does not say so, and the checkpoint is gone.
		source, target = stubs(t, 2)
		peer = side(name, source, target)
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
		require.Contains(t, failure.Reason, name)
	}
}

// A server that does not say when a database was created gets a checkpoint at the start, so that its loss shows in the first run.
func TestDatabasesThatAreMadeAnewBeforeTheFirstCheckpoint(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source", "target"} {
		source, target := stubs(t, 2)
		peer := side(name, source, target)
		peer.instance = `"0"`
		once := sync.Once{}
		peer.on("POST /_ensure_full_commit", func(http.ResponseWriter, *http.Request, []byte) bool {
			once.Do(func() {
				peer.mu.Lock()
				defer peer.mu.Unlock()
				clear(peer.locals)
			})
			return false
		})
		rep := replication(t, source.URL, target.URL)
		failure := fails(t, rep)
		require.Equal(t, "checkpoint_commit_failure", failure.Code)
		require.Contains(t, failure.Reason, "the "+name+" database")
		asked := since(source)
		run(t, rep)
		require.Equal(t, []string{"0"}, *asked)

		// One that may only be read fails with its checkpoint, as before.
		source, target = stubs(t, 2)
		source.instance = `"0"`
		source.fail("PUT /_local/", 403, `{"error":"forbidden","reason":"no"}`)
		require.Contains(t, fails(t, replication(t, source.URL, target.URL)).Reason, "use_checkpoints")
		require.NotEmpty(t, target.bodies())
	}
}

func TestCheckpointsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	// conflict makes the first write meet another checkpoint.
	conflict := func(s *stub, stored string) {
		puts := 0
		s.on("PUT /_local/", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if puts++; puts > 1 {
				return false
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.locals[strings.TrimPrefix(r.URL.Path, "/db/_local/")] = stored
			return refuse(w, 409, `{"error":"conflict","reason":"Document update conflict."}`)
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
	conflict(target, `{"_rev":"0-7","history":[]}`) // harmless: no session wrote it
	run(t, replication(t, source.URL, target.URL))
	require.Len(t, source.locals, 1)

	source, target = stubs(t, 2)
	source.fail("PUT /_local/", 403, `{"error":"forbidden","reason":"read-only"}`)
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
	live(source)
	_, r := activityOf(t, func(a *replicator.Activity) bool { return a.Doing == replicator.DoingWaiting },
		replication(t, source.URL, target.URL, `"continuous":true`), func(cfg *worker.Config) { cfg.RetriesPerRequest = 0 })
	r.stop()
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
		cutOff(w, fmt.Sprintf(`{"results":[{"id":"d%d","docs":[{"ok":{"_id":"d%d","_rev":"1-a"}}]},`, 10-n, 10-n))
		return true
	})
	result := run(t, replication(t, source.URL, target.URL))
	require.Equal(t, 3, asked)
	require.EqualValues(t, 10, result.Stats.DocsWritten)
}

func TestPendingChangesAreAskedFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		source.addSmall(4)
		blocked := make(chan struct{})
		target.on("POST /_revs_diff", func(http.ResponseWriter, *http.Request, []byte) bool {
			<-blocked
			return false
		})
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if isQuestion(r) {
				assert.Equal(t, "2-x", r.URL.Query().Get("since"), "two rows were read")
				fmt.Fprint(w, `{"results":[{"seq":"9-x","id":"z","changes":[{"rev":"1-a"}]}],"last_seq":"9-x","pending":6}`)
				return true
			}
			fmt.Fprintf(w, `{"results":[%s`, strings.Join(source.rows[:2], ","))
			w.(http.Flusher).Flush()
			<-blocked
			fmt.Fprintf(w, `,%s],"last_seq":"4-x","pending":0}`, strings.Join(source.rows[2:], ","))
			return true
		})
		r := begin()
		time.Sleep(25 * time.Second) // two reports; the source may be silent for 30 s
		synctest.Wait()
		r.mu.Lock()
		pending := r.reports[len(r.reports)-1].ChangesPending
		r.mu.Unlock()
		// Seven after those read, and two that were read and wait.
		require.Equal(t, new(int64(9)), pending)
		close(blocked)
		require.NoError(t, r.ended())
		require.Zero(t, *r.result.ChangesPending)
	})
}

// Documents with attachments are streamed, so their requests cannot be repeated. The revision is read again.
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

// A source that refuses a feed after its first rows refuses it each time, and the run ends, however long the feed was
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
