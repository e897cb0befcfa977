package jobs_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// The fault of a job is the one of its latest run that failed, until the job has recovered or has another definition.
func TestFaultOfAJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		rev := b.put(repdb, "d", "", `"every": "1s"`)
		id := b.jobID(repdb, "d")
		accept := func() *jobs.Run {
			<-time.After(time.Second)
			return b.accept()
		}
		faultNow := func() replicator.FaultCode {
			if f := b.get(id).State.Fault; f != nil {
				return f.Code
			}
			return ""
		}
		crash := func() {
			f := replicator.FaultAt(replicator.FaultServerError, replicator.SideSource, replicator.Endpoint{URL: "http://a.example/db"},
				replicator.RequestReadChanges, "GET http://me:s3cr3t@a.example/db: 500")
			require.NoError(t, accept().Crash(b.Context(), time.Now(), 1, f))
		}
		crash()
		stored := b.get(id).State
		require.Equal(t, replicator.FaultServerError, stored.Fault.Code)
		require.Equal(t, "a.example", stored.Fault.Host)
		require.NotContains(t, stored.Fault.Detail, "s3cr3t")
		require.Equal(t, "http_request_failed: source: GET http://me:*****@a.example/db: 500", stored.Error)

		require.NoError(t, accept().Stop(b.Context(), replicator.EndMadeRoom, "it made room", nil))
		require.Equal(t, replicator.FaultServerError, faultNow(), "a stop is not a success")
		run := accept()
		require.Equal(t, replicator.FaultServerError, faultNow(), "nor is a start")
		require.NoError(t, run.Complete(b.Context(), nil))
		require.Empty(t, faultNow())

		crash()
		b.put(repdb, "d", rev, `"every": "2s"`)
		require.Empty(t, faultNow(), "it was of another definition")

		require.NoError(t, accept().Fail(b.Context(), &replicator.Fault{Code: replicator.FaultCollision, Word: "duplicate_job", Text: "no"}))
		require.Equal(t, replicator.FaultCollision, faultNow())
		require.Equal(t, "duplicate_job: no", b.get(id).State.Error)
	})
}

// The history and the runs say why each run has ended.
func TestCodesOfRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		b.put(repdb, "d", "", `"every": "1s"`)
		id := b.jobID(repdb, "d")
		accept := func() *jobs.Run {
			<-time.After(time.Second)
			return b.accept()
		}
		fault := &replicator.Fault{Code: replicator.FaultConnectRefused, Side: replicator.SideTarget, Detail: "no"}
		require.NoError(t, accept().Crash(b.Context(), time.Now(), 1, fault))
		require.NoError(t, accept().Stop(b.Context(), replicator.EndPaused, "the database is paused", nil))
		require.NoError(t, accept().Restart(b.Context(), "the replication id has changed"))
		require.NoError(t, accept().Complete(b.Context(), nil))
		lost := b.accept()
		stop := b.monitor(nil)
		again := b.accept()
		stop()
		require.NotSame(t, lost, again)
		want := []replicator.EndCode{replicator.EndNodeLost, replicator.EndCopied, replicator.EndNewID, replicator.EndPaused, "connect_refused"}
		var events, ended []replicator.EndCode
		for _, e := range b.get(id).State.History {
			if e.Type != replicator.EventStarted && e.Type != replicator.EventAdded {
				events = append(events, e.Code)
				require.NotEmpty(t, e.Reason, e.Code)
			}
		}
		require.Equal(t, want, events)
		records, err := b.store.Lists.Records(b.Context(), b.get(id))
		require.NoError(t, err)
		for _, text := range records.Runs {
			var run replicator.EndedRun
			require.NoError(t, json.Unmarshal(text, &run))
			ended = append(ended, run.Code)
		}
		require.Equal(t, want, ended)
	})
}
