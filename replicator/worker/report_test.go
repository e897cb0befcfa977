package worker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/worker"
)

// dated is a report, and when it was made.
type dated struct {
	at time.Duration // since the run's start
	worker.Progress
}

// datedReports returns the reports so far. The bubble must be quiet.
func datedReports(r *running, began time.Time) []dated {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]dated, len(r.reports))
	for i, p := range r.reports {
		out[i] = dated{r.times[i].Sub(began), p}
	}
	return out
}

// feedOnDemand makes a stub's continuous feed send a new document for each call of the function that it returns.
func feedOnDemand(s *stub) (next func()) {
	rows := make(chan string, 1)
	s.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Query().Get("feed") != "continuous" {
			return false
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case row := <-rows:
				_, _ = io.WriteString(w, row+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return true
			}
		}
	})
	n := 0
	return func() {
		n++
		id := fmt.Sprintf("new%d", n)
		s.mu.Lock()
		s.docs[id+" 1-a"] = fmt.Sprintf(`{"_id":%q,"_rev":"1-a"}`, id)
		s.mu.Unlock()
		rows <- fmt.Sprintf(`{"seq":"%d-x","id":%q,"changes":[{"rev":"1-a"}]}`, n, id)
	}
}

func TestProgressIsLive(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		next := feedOnDemand(source)
		began := time.Now()
		require.Zero(t, began.Nanosecond())
		time.Sleep(300 * time.Millisecond)
		r := begin(`"continuous":true`, `"checkpoint_interval":600000`)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		idle := datedReports(r, began)
		require.LessOrEqual(t, idle[0].at, 1300*time.Millisecond, "the start is known")
		require.JSONEq(t, `0`, string(idle[0].SourceSeq))
		require.JSONEq(t, `0`, string(idle[0].ThroughSeq))
		require.JSONEq(t, `0`, string(idle[0].CheckpointedSourceSeq))
		require.Equal(t, new(int64(0)), idle[0].ChangesPending)
		unchanged := func(before, report dated) {
			require.Zero(t, report.at%time.Second, "together with other runs")
			require.Equal(t, 10*time.Second, report.at-before.at.Truncate(time.Second))
		}
		for i, report := range idle[1:] {
			unchanged(idle[i], report)
		}

		// Seven seconds of changes.
		const changes = 70
		busy := time.Since(began)
		for range changes {
			next()
			time.Sleep(100 * time.Millisecond)
		}
		stopped := time.Since(began)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		told := datedReports(r, began)[len(idle):]
		require.LessOrEqual(t, told[0].at, busy+time.Second)
		require.Positive(t, told[0].Stats.DocsWritten)
		for i, report := range told[1:] {
			gap := report.at - told[i].at
			if report.at <= stopped {
				require.Equal(t, 2*time.Second, gap)
			}
			if told[i].Stats.DocsWritten == changes {
				unchanged(told[i], report)
			} else {
				require.LessOrEqual(t, gap, 2*time.Second)
			}
		}
		last := told[len(told)-1]
		require.EqualValues(t, changes, last.Stats.DocsWritten)
		require.JSONEq(t, `"70-x"`, string(last.SourceSeq))
		require.JSONEq(t, `"70-x"`, string(last.ThroughSeq))
		require.Equal(t, new(int64(0)), last.ChangesPending)

		r.stop()
		require.ErrorIs(t, r.ended(), worker.ErrStopped)
	})
}

func TestAShortRunReportsNothingBeforeItsEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		source.addSmall(3)
		target.on("POST /_revs_diff", func(http.ResponseWriter, *http.Request, []byte) bool {
			time.Sleep(700 * time.Millisecond)
			return false
		})
		r := begin()
		require.NoError(t, r.ended())
		require.Empty(t, r.reports)
		require.EqualValues(t, 3, r.result.Stats.DocsWritten)
	})
}

// A request that is repeated shows before the run has changed anything.
func TestTroubleIsReportedWithinASecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		source.fail("GET ", 500, `{"error":"internal","reason":"ill"}`)
		began := time.Now()
		r := begin(`"continuous":true`)
		time.Sleep(time.Second)
		synctest.Wait()
		told := datedReports(r, began)
		require.Len(t, told, 1)
		require.Equal(t, replicator.DoingRetrying, told[0].Activity.Doing)
		require.Nil(t, told[0].SourceSeq, "it is not known")
		r.cancel(nil)
		_ = r.ended()
	})
}

// ReportInterval is the longest time between two reports even if changes come just before one is due.
func TestAChangeDelaysNoReport(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		next := feedOnDemand(source)
		began := time.Now()
		r := begin(`"continuous":true`, `"checkpoint_interval":600000`)
		time.Sleep(time.Second)
		for range 10 {
			time.Sleep(9900 * time.Millisecond)
			next()
		}
		synctest.Wait()
		told := datedReports(r, began)
		for i, report := range told[1:] {
			require.LessOrEqual(t, report.at-told[i].at, 10*time.Second)
		}
		r.stop()
		require.ErrorIs(t, r.ended(), worker.ErrStopped)
	})
}

// A report that cannot wait, such as the one after a checkpoint, does not delay the report of a change after it.
func TestAReportThatCannotWaitDelaysNoOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		next := feedOnDemand(source)
		began := time.Now()
		r := begin(`"continuous":true`, `"checkpoint_interval":5000`)
		time.Sleep(time.Second)
		next()
		checkpointed := func(told []dated) bool { return string(told[len(told)-1].CheckpointedSourceSeq) == `"1-x"` }
		told := datedReports(r, began)
		for len(told) == 0 || !checkpointed(told) {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			told = datedReports(r, began)
		}
		changed := time.Since(began)
		next()
		time.Sleep(time.Second)
		synctest.Wait()
		told = datedReports(r, began)
		last := told[len(told)-1]
		require.EqualValues(t, 2, last.Stats.DocsWritten)
		require.LessOrEqual(t, last.at, changed+time.Second)
		r.stop()
		require.ErrorIs(t, r.ended(), worker.ErrStopped)
	})
}

func TestStatisticsStartFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	rep := replication(t, "http://a.example/db", "http://b.example/db")
	id, err := rep.ID(serverUUID, "")
	require.NoError(t, err)
	ofJob := replicator.Stats{RevisionsChecked: 5, MissingRevisionsFound: 6, DocCounts: replicator.DocCounts{DocsRead: 7, DocsWritten: 8, DocWriteFailures: 9}, BulkGetDocs: 10, BulkGetAttempts: 11}
	for name, test := range map[string]struct {
		counters string
		job      replicator.Stats
		jobID    string
		want     replicator.Stats
	}{
		"of the checkpoint alone": {
			counters: `,"missing_checked":1,"missing_found":2,"docs_read":3,"docs_written":4,"doc_write_failures":5,"bulk_get_docs":6,"bulk_get_attempts":7`,
			want:     replicator.Stats{RevisionsChecked: 1, MissingRevisionsFound: 2, DocCounts: replicator.DocCounts{DocsRead: 3, DocsWritten: 4, DocWriteFailures: 5}, BulkGetDocs: 6, BulkGetAttempts: 7},
		},
		"of the job alone": {job: ofJob, jobID: id.String(), want: ofJob},
		"the larger of both": {
			counters: `,"missing_checked":6,"missing_found":5,"docs_read":8,"docs_written":7,"doc_write_failures":10,"bulk_get_docs":9,"bulk_get_attempts":12`,
			job:      ofJob, jobID: id.String(),
			want: replicator.Stats{RevisionsChecked: 6, MissingRevisionsFound: 6, DocCounts: replicator.DocCounts{DocsRead: 8, DocsWritten: 8, DocWriteFailures: 10}, BulkGetDocs: 10, BulkGetAttempts: 12},
		},
		"of a job with another id": {
			counters: `,"docs_written":1`, job: ofJob, jobID: "another", want: replicator.Stats{DocCounts: replicator.DocCounts{DocsWritten: 1}},
		},
		"that make no sense": {
			counters: `,"missing_checked":-1,"missing_found":1e300,"docs_read":"3","docs_written":9223372036854775807,"doc_write_failures":null,"bulk_get_docs":[],"bulk_get_attempts":1.5`,
		},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			source, target, cfg := piped(t)
			source.addSmall(2)
			local := `{"_rev":"0-1","session_id":"s","source_last_seq":"2-x","history":[{"session_id":"s","recorded_seq":"2-x"` + test.counters +
				`},{"session_id":"r","recorded_seq":"1-x","docs_written":1000}]}`
			source.locals[id.Base], target.locals[id.Base] = local, local
			release := make(chan struct{})
			source.on("GET /_changes", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				<-release
				return refuse(w, 200, `{"results":[{"seq":"3-x","id":"d0","changes":[{"rev":"1-a"}]}],"last_seq":"3-x","pending":0}`)
			})
			r := start(t, worker.Job{Replication: rep, ReplicationID: test.jobID, Stats: test.job}, cfg)
			time.Sleep(time.Second)
			synctest.Wait()
			r.mu.Lock()
			require.Len(t, r.reports, 1)
			first := r.reports[0]
			r.mu.Unlock()
			require.Equal(t, test.want, first.Stats)
			require.Zero(t, first.RunStats)
			for _, seq := range []json.RawMessage{first.SourceSeq, first.ThroughSeq, first.CheckpointedSourceSeq} {
				require.JSONEq(t, `"2-x"`, string(seq))
			}

			close(release)
			require.NoError(t, r.ended())
			own := replicator.Stats{RevisionsChecked: 1, MissingRevisionsFound: 1, DocCounts: replicator.DocCounts{DocsRead: 1, DocsWritten: 1}, BulkGetDocs: 1, BulkGetAttempts: 1}
			want := test.want
			want.Add(own)
			require.Equal(t, own, r.result.RunStats)
			require.Equal(t, want, r.result.Stats)
			for _, text := range []string{string(r.result.History), source.locals[id.Base], target.locals[id.Base]} {
				var recorded struct {
					History []json.RawMessage `json:"history"`
				}
				require.NoError(t, json.Unmarshal([]byte(text), &recorded))
				var stats replicator.CheckpointStats
				require.NoError(t, json.Unmarshal(recorded.History[0], &stats))
				require.Equal(t, want, replicator.Stats(stats))
			}
		})
	}
}

// With a filter, the changes that the source counts are those before the filter.
func TestPendingChangesOfAFilteredFeed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		source.addSmall(5)
		steps := make(chan struct{})
		source.on("POST /_changes", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, `{"results":[`)
			for i, row := range source.rows {
				if i > 0 {
					row = "," + row
				}
				_, _ = io.WriteString(w, row)
				w.(http.Flusher).Flush()
				<-steps
			}
			_, _ = io.WriteString(w, `],"last_seq":"105-x","pending":0}`)
			return true
		})
		// The second row comes while the source counts. There are a hundred others, which do not pass.
		source.on("GET /_changes", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			steps <- struct{}{}
			time.Sleep(time.Second)
			return refuse(w, 200, `{"results":[{"seq":"2-x","id":"d1","changes":[{"rev":"1-a"}]}],"last_seq":"2-x","pending":103}`)
		})
		written := make(chan struct{})
		target.on("POST /_bulk_docs", func(http.ResponseWriter, *http.Request, []byte) bool {
			<-written
			return false
		})
		r := begin(`"selector":{"a":1}`, `"worker_batch_size":1`)
		latest := func() *int64 {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.reports[len(r.reports)-1].ChangesPending
		}
		time.Sleep(900 * time.Millisecond)
		require.Nil(t, latest(), "the source was not asked yet")
		time.Sleep(4 * time.Second)
		require.Equal(t, new(int64(105)), latest(), "two were read and wait to be written")
		steps <- struct{}{}
		time.Sleep(3 * time.Second)
		require.Equal(t, new(int64(105)), latest(), "a row that was read is not counted twice")
		close(written)
		time.Sleep(3 * time.Second)
		require.Equal(t, new(int64(102)), latest())
		close(steps)
		require.NoError(t, r.ended())
		require.Zero(t, *r.result.ChangesPending)
	})
}
