package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/worker"
)

// since records the since of each changes feed of a stub, and answers from there.
func since(s *stub) *[]string {
	var asked []string
	s.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		from := r.URL.Query().Get("since")
		if isQuestion(r) {
			return false
		}
		asked = append(asked, from)
		rows := s.rows[min(number(from), len(s.rows)):]
		last, _ := json.Marshal(strings.Split(s.rows[len(s.rows)-1], `"`)[3])
		return refuse(w, 200, `{"results":[`+strings.Join(rows, ",")+`],"last_seq":`+string(last)+`}`)
	})
	return &asked
}

func TestOnlyOneCheckpointCouldBeWritten(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 2)
	asked := since(source)
	rep := replication(t, source.URL, target.URL)
	run(t, rep)

	// The target has the checkpoint of the second run, the source does not.
	source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
	source.noCheckpoints()
	require.Equal(t, "checkpoint_commit_failure", fails(t, rep).Code)
	source.on("PUT /_local/", nil)
	result := run(t, rep)
	require.Equal(t, []string{"0", "2-x", "2-x"}, *asked, "what both know of counts")
	require.Equal(t, `"3-x"`, string(result.CheckpointedSourceSeq))

	// The target has no checkpoint.
	source, target = stubs(t, 2)
	asked = since(source)
	target.noCheckpoints()
	rep = replication(t, source.URL, target.URL)
	require.Equal(t, "checkpoint_commit_failure", fails(t, rep).Code)
	target.on("PUT /_local/", nil)
	run(t, rep)
	require.Equal(t, []string{"0", "0"}, *asked)
}

func TestCheckpointsThatAreLost(t *testing.T) {
	t.Parallel()
	// Between two runs.
	for _, side := range []int{0, 1} {
		source, target := stubs(t, 2)
		asked := since(source)
		rep := replication(t, source.URL, target.URL)
		run(t, rep)
		clear([]*stub{source, target}[side].locals)
		run(t, rep)
		run(t, rep)
		require.Equal(t, []string{"0", "0", "2-x"}, *asked)
	}
	// Within a run, on a server that says that the database is the same, and that checks for conflicts.
	source, target := stubs(t, 2)
	asked := since(source)
	rep := replication(t, source.URL, target.URL)
	run(t, rep)
	source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
	target.on("POST /_bulk_docs", func(http.ResponseWriter, *http.Request, []byte) bool {
		target.mu.Lock()
		defer target.mu.Unlock()
		clear(target.locals)
		return false
	})
	target.on("PUT /_local/", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		target.mu.Lock()
		defer target.mu.Unlock()
		conflict := len(target.locals) == 0 && strings.Contains(string(body), `"_rev"`)
		return conflict && refuse(w, 409, `{"error":"conflict","reason":"Document update conflict."}`)
	})
	run(t, rep)
	run(t, rep)
	require.Equal(t, []string{"0", "2-x", "3-x"}, *asked)
}

func TestSinceSeqAndUseCheckpoints(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 4)
	asked := since(source)
	// It applies only without a checkpoint.
	from := replication(t, source.URL, target.URL, `"since_seq":"2-x"`)
	result := run(t, from)
	require.EqualValues(t, 2, result.Stats.DocsWritten)
	source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
	run(t, from)
	require.Equal(t, []string{"2-x", "4-x"}, *asked)
	// Another since_seq is another replication, and so is none.
	corrected := replication(t, source.URL, target.URL, `"since_seq":"1-x"`)
	run(t, corrected)
	run(t, corrected)
	run(t, replication(t, source.URL, target.URL))
	require.Equal(t, []string{"2-x", "4-x", "1-x", "5-x", "0"}, *asked)
	*asked = nil

	// With use_checkpoints false, none is read or written, and since_seq applies each time.
	for _, m := range []*stub{source, target} {
		m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.NotContains(t, r.URL.Path, "_local")
			assert.NotContains(t, r.URL.Path, "_ensure_full_commit")
			m.ServeHTTP(w, r)
		})
	}
	run(t, replication(t, source.URL, target.URL, `"since_seq":"1-x"`, `"use_checkpoints":false`))
	run(t, replication(t, source.URL, target.URL, `"use_checkpoints":false`))
	run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.NoCheckpoints = true })
	require.Equal(t, []string{"1-x", "0", "0"}, *asked)
}

// CouchDB before 3.5.2 left since_seq out of ids, and began at it in each run.
func TestCheckpointsOfCouchDBBeforeSinceSeqWasInIDs(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 4)
	asked := since(source)
	run(t, replication(t, source.URL, target.URL)) // has the id that such a CouchDB gives to all of them
	from := replication(t, source.URL, target.URL, `"since_seq":"2-x"`)
	run(t, from)
	require.Equal(t, []string{"0", "2-x"}, *asked, "the checkpoint is of a session that began elsewhere")

	for _, s := range []*stub{source, target} { // as if since_seq had been 2-x
		s.mu.Lock()
		for id, doc := range s.locals {
			s.locals[id] = strings.Replace(doc, `"start_last_seq":0`, `"start_last_seq":"2-x"`, 1)
		}
		s.mu.Unlock()
	}
	beginning, err := worker.FindBeginning(t.Context(), from, testConfig())
	require.NoError(t, err)
	require.Equal(t, `"4-x"`, string(beginning.Seq))
	source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
	run(t, from)
	run(t, from)
	require.Equal(t, []string{"0", "2-x", "4-x", "5-x"}, *asked)
}

func TestCheckpointsRememberFiftySessions(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 1)
	rep := replication(t, source.URL, target.URL)
	var sessions []string
	for i := range 53 {
		result := run(t, rep)
		source.add(fmt.Sprint("more", i), "1-a", fmt.Sprintf(`{"_id":"more%d","_rev":"1-a"}`, i))
		var written struct {
			Session string `json:"session_id"`
		}
		require.NoError(t, json.Unmarshal(result.History, &written))
		sessions = append([]string{written.Session}, sessions...)
	}
	for _, s := range []*stub{source, target} {
		for _, doc := range s.locals {
			var stored struct {
				History []struct {
					Session string `json:"session_id"`
				}
			}
			require.NoError(t, json.Unmarshal([]byte(doc), &stored))
			require.Len(t, stored.History, 50)
			for i, entry := range stored.History {
				require.Equal(t, sessions[i], entry.Session)
			}
		}
	}
}

// A database that is created anew just when a checkpoint is written does not keep the checkpoint.
func TestACheckpointIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source", "target"} {
		source, target := stubs(t, 2)
		peer := side(name, source, target)
		var written []string
		peer.on("PUT /_local/", func(_ http.ResponseWriter, _ *http.Request, body []byte) bool {
			peer.anew()
			written = append(written, string(body))
			return false
		})
		rep := replication(t, source.URL, target.URL)
		failure := fails(t, rep)
		require.Equal(t, "checkpoint_commit_failure", failure.Code)
		require.Contains(t, failure.Reason, "the "+name+" database")
		require.Len(t, written, 2)
		require.Contains(t, written[0], "source_last_seq")
		require.NotContains(t, written[1], "source_last_seq")
		asked := since(source)
		run(t, rep)
		require.Equal(t, []string{"0"}, *asked)
	}
}

// Nor does it if the run fails at that moment because other requests meet the new database.
func TestACheckpointOfARunThatFailsIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source", "target"} {
		source, target := stubs(t, 3)
		asked := since(source)
		anew, reading, failed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		source.on("POST /_bulk_get", func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			switch {
			case strings.Contains(string(body), `"d1"`):
				<-anew
				<-reading
				return refuse(w, 401, `{"error":"unauthorized","reason":"no"}`)
			case strings.Contains(string(body), `"d2"`):
				close(reading)
				<-r.Context().Done() // ended by the failure of the other request
				close(failed)
				return true
			}
			return false
		})
		peer := side(name, source, target)
		first := true
		peer.on("PUT /_local/", func(http.ResponseWriter, *http.Request, []byte) bool {
			peer.anew()
			if first {
				first = false
				close(anew)
				<-failed
			}
			return false
		})
		rep := replication(t, source.URL, target.URL, `"worker_batch_size":1`, `"worker_processes":3`, `"checkpoint_interval":1`)
		_ = fails(t, rep) // with the error of either one
		require.Len(t, peer.locals, 1)
		for _, doc := range peer.locals {
			require.NotContains(t, doc, "source_last_seq")
		}
		source.on("POST /_bulk_get", nil)
		run(t, rep)
		require.Equal(t, []string{"0", "0"}, *asked)
	}
}

// A run that is killed after it has written a checkpoint into a database created anew cannot retract it. The next run
// does.
func TestACheckpointOfAKilledRunIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source", "target"} {
		for _, killedAt := range []string{"the other write", "the confirmation"} {
			for _, earlier := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, killed at %s, earlier checkpoint: %v", name, killedAt, earlier), func(t *testing.T) {
					t.Parallel()
					source, target := stubs(t, 2)
					peer := side(name, source, target)
					asked := since(source)
					rep := replication(t, source.URL, target.URL)
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					var watched atomic.Bool // set for the run to be killed
					handle := func(s *stub) http.HandlerFunc {
						return func(w http.ResponseWriter, r *http.Request) {
							if !watched.Load() {
								s.ServeHTTP(w, r)
								return
							}
							write := r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/_local/")
							peer.mu.Lock()
							anew := peer.instance == `"1700000001"`
							if write && s == peer && !anew {
								peer.instance = `"1700000001"`
								clear(peer.locals)
							}
							peer.mu.Unlock()
							// The target is written first.
							if anew && (killedAt == "the other write" || !write) && ctx.Err() == nil {
								cancel(errKilled)
								panic(http.ErrAbortHandler)
							}
							s.ServeHTTP(w, r)
						}
					}
					source.Config.Handler, target.Config.Handler = handle(source), handle(target)
					if earlier {
						run(t, rep)
						source.add("new", "1-a", `{"_id":"new","_rev":"1-a"}`)
						*asked = nil
					}
					watched.Store(true)
					_, err := worker.Run(ctx, worker.Job{Replication: rep}, testConfig(), &recorder{})
					require.Equal(t, errKilled, err)
					require.Len(t, peer.locals, 1)
					for _, doc := range peer.locals {
						require.Contains(t, doc, "source_last_seq", "the checkpoint is there")
					}
					watched.Store(false)

					// A failed run does not leave it for another replicator, either.
					source.fail("POST /_bulk_get", 401, `{"error":"unauthorized","reason":"no"}`)
					target.fail("POST /_revs_diff", 401, `{"error":"unauthorized","reason":"no"}`)
					*asked = nil
					_ = fails(t, rep)
					for _, doc := range peer.locals {
						require.NotContains(t, doc, "source_last_seq")
					}
					source.on("POST /_bulk_get", nil)
					target.on("POST /_revs_diff", nil)
					run(t, rep)
					run(t, rep)
					require.Equal(t, []string{"0", "0", fmt.Sprintf("%d-x", len(source.rows))}, *asked)
				})
			}
		}
	}
}

// Servers whose instance_start_time is their start time lose no checkpoint when they restart.
func TestACheckpointOutlastsItsServer(t *testing.T) {
	t.Parallel()
	for before, after := range map[string]string{
		`"1700000000000"`: `"1700000001000"`, `"1700000000000000"`: `"1700000001000000"`, `1700000000`: `1700000001`,
		`"0"`: `"1700000000"`, `"1700000000"`: `"0"`,
	} {
		source, target := stubs(t, 2)
		asked := since(source)
		rep := replication(t, source.URL, target.URL)
		source.instance, target.instance = before, before
		result := run(t, rep)
		require.NotContains(t, string(result.History), "about")
		source.instance, target.instance = after, after
		result = run(t, rep)
		require.NotContains(t, string(result.History), "about")
		require.Equal(t, []string{"0", "2-x"}, *asked, before)
	}
}

// If only some nodes of a cluster send instance_start_time, the database does not count as created anew.
func TestServersThatNoLongerTellTheInstance(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 2)
	target.on("POST /_ensure_full_commit", func(http.ResponseWriter, *http.Request, []byte) bool {
		target.mu.Lock()
		defer target.mu.Unlock()
		target.instance = `"0"`
		return false
	})
	run(t, replication(t, source.URL, target.URL))
	require.Len(t, target.locals, 1)
}

// The statistics only grow: within a run, across its failures, and from one run to the next.
func TestStatisticsNeverShrink(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 60)
	target.fail("PUT /d7", 403, `{"error":"forbidden","reason":"no"}`)
	rep := replication(t, source.URL, target.URL, `"worker_batch_size":7`, `"worker_processes":1`, `"checkpoint_interval":1`)
	var last replicator.Stats
	grows := func(s replicator.Stats) {
		require.GreaterOrEqual(t, s.RevisionsChecked, last.RevisionsChecked)
		require.GreaterOrEqual(t, s.MissingRevisionsFound, last.MissingRevisionsFound)
		require.GreaterOrEqual(t, s.DocsRead, last.DocsRead)
		require.GreaterOrEqual(t, s.DocsWritten, last.DocsWritten)
		require.GreaterOrEqual(t, s.DocWriteFailures, last.DocWriteFailures)
		require.GreaterOrEqual(t, s.BulkGetDocs, last.BulkGetDocs)
		require.GreaterOrEqual(t, s.BulkGetAttempts, last.BulkGetAttempts)
		last = s
	}
	cfg := testConfig()
	cfg.ReportInterval, cfg.RetriesPerRequest = time.Millisecond, 0
	job := worker.Job{Replication: rep}
	for _, failing := range []string{"POST /_bulk_docs", "POST /_revs_diff", "POST /_bulk_get", ""} {
		var calls atomic.Int32
		for _, s := range []*stub{source, target} {
			s.on(failing, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				return calls.Add(1) > 1 && refuse(w, 401, `{"error":"unauthorized","reason":"no"}`)
			})
		}
		result, err := worker.Run(t.Context(), job, cfg, &recorder{report: func(p worker.Progress) error {
			grows(p.Stats)
			return nil
		}})
		require.Equal(t, failing == "", err == nil)
		grows(result.Stats)
		for _, s := range []*stub{source, target} {
			s.on(failing, nil)
		}
		written := 0
		for _, body := range target.bodies() {
			written += len(idsIn(t, body))
		}
		require.EqualValues(t, written, result.Stats.DocsWritten, "nothing is left out, however the run ended")
		job.ReplicationID, job.Stats = result.ReplicationID, result.Stats
	}
}
