package jobs_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// problems returns what jobs need attention for: kind, code, side, host and the number of jobs.
func (b *bundle) problems() (found []string) {
	b.Helper()
	all, err := b.store.Lists.Problems(b.Context())
	require.NoError(b, err)
	for i, p := range all {
		found = append(found, fmt.Sprintf("%s %s %s %s %d", p.Kind, p.Code, p.Side, p.Host, p.Jobs))
		first, since, err := b.store.Lists.FirstOf(b.Context(), &all[i], 100)
		require.NoError(b, err)
		require.Len(b, first, int(p.Jobs))
		require.False(b, since.IsZero())
		for _, job := range first {
			require.True(b, replicator.Explain(job.Facts(time.Now(), nil)).Attention, "%s is a problem, and is not told as one", job.ID)
		}
	}
	return found
}

// doc adds a document, and begins its run.
func (b *bundle) doc(database, id string) *jobs.Run {
	b.Helper()
	b.put(database, id, "", `"doc_ids": ["`+id+`"]`)
	return b.accept()
}

// sourceFault returns a fault of the source.
func sourceFault(code replicator.FaultCode, detail string) *replicator.Fault {
	return replicator.FaultAt(code, replicator.SideSource, replicator.Endpoint{URL: "http://a.example:5984/db"}, replicator.RequestOpen, detail)
}

// Jobs with one kind, code, side and host are one problem, whatever the texts are.
func TestProblemsByCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, jobs.Options{StuckAfter: time.Minute})
		b.create(repdb)
		b.create("a/_replicator")
		crash := func(database, id string, f *replicator.Fault) {
			t.Helper()
			require.NoError(t, b.doc(database, id).Crash(b.Context(), time.Now().Add(time.Hour), 1, f))
		}
		require.Empty(t, b.problems())

		// The text of an expired certificate has the time in it, and that of a lost revision the document.
		crash(repdb, "t1", sourceFault(replicator.FaultTLSExpired, "x509: certificate has expired or is not yet valid: current time 2026-01-02T03:04:05Z"))
		crash("a/_replicator", "t2", sourceFault(replicator.FaultTLSExpired, "x509: certificate has expired or is not yet valid: current time 2026-01-02T03:05:06Z"))
		lost := sourceFault(replicator.FaultMissingRevision, "404")
		for _, id := range []string{"x", "y"} {
			lost.Document = &replicator.DocRef{ID: id, Rev: "1-a"}
			crash(repdb, id, lost)
		}
		// A proxy is one thing, for whatever endpoint it was asked.
		for _, host := range []string{"http://c.example/db", "http://d.example/db"} {
			f := replicator.FaultAt(replicator.FaultProxyRefused, replicator.SideTarget, replicator.Endpoint{URL: host}, replicator.RequestOpen, "407")
			f.Proxy = "http://proxy.example:3128"
			crash(repdb, host[7:8], f)
		}
		// What only words describe is a problem of its own.
		crash(repdb, "w", replicator.TextFault("", "odd"))
		require.Equal(t, []string{
			"failing missing_revision source a.example:5984 2", "failing proxy_refused  proxy.example:3128 2",
			"failing tls_expired source a.example:5984 2", "failing unknown   1",
		}, b.problems())
		b.check()

		// Pauses need nobody: that of a database changes no job, and that of a document only its own. Nor do deleted databases.
		waits := func() jobs.Waits {
			w, err := b.store.Lists.Waits(b.Context(), time.Now())
			require.NoError(t, err)
			return w
		}
		require.Equal(t, 7, waits().LongCrashing)
		weigh := func(weight float64) {
			t.Helper()
			require.NoError(t, b.store.Shares.SetWeights(b.Context(), map[string]float64{repdb: weight}))
		}
		weigh(0)
		require.Equal(t, []string{"failing tls_expired source a.example:5984 1"}, b.problems())
		require.Equal(t, 1, waits().LongCrashing)
		weigh(1)
		b.put(repdb, "w", b.document(repdb, "w")["_rev"].(string), `"doc_ids": ["w"], "paused": true`)
		require.Len(t, b.problems(), 3)
		require.Equal(t, 6, waits().LongCrashing)
		require.NoError(t, b.database("a/_replicator").Delete(b.Context()))
		require.Equal(t, []string{
			"failing missing_revision source a.example:5984 2", "failing proxy_refused  proxy.example:3128 2", "failing tls_expired source a.example:5984 1",
		}, b.problems())
		weigh(0)
		require.Empty(t, b.problems())
		require.Zero(t, waits())
		b.check()
	})
}

// A job is in one problem, until it needs nobody any more.
func TestProblemsOfAJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, jobs.Options{StuckAfter: time.Minute})
		b.create(repdb)
		run := b.doc(repdb, "d")
		report := func(a replicator.Activity) {
			t.Helper()
			require.NoError(t, run.Update(b.Context(), func(s *replicator.JobState) { s.Activity = &a }))
		}
		// The side of a job that is stuck is that of the request that is repeated.
		report(replicator.Activity{Doing: replicator.DoingCopying})
		<-time.After(time.Minute)
		report(replicator.Activity{Doing: replicator.DoingCopying})
		require.Equal(t, []string{"stuck unknown   1"}, b.problems())
		report(replicator.Activity{Doing: replicator.DoingRetrying, Waiting: []replicator.Wait{{Fault: &replicator.Fault{
			Code: replicator.FaultNoAnswer, Side: replicator.SideTarget, Host: "b.example",
		}}}})
		require.Equal(t, []string{"stuck no_answer target b.example 1"}, b.problems())
		require.NoError(t, run.Crash(b.Context(), time.Now(), 1, sourceFault(replicator.FaultStalled, "no")))
		require.Equal(t, []string{"failing stalled source a.example:5984 1"}, b.problems())
		run = b.accept()
		require.NoError(t, run.ListRefused(b.Context(), []replicator.Failure{{ID: "x"}}, 1))
		require.NoError(t, run.Complete(b.Context(), func(s *replicator.JobState) { s.Stats.DocWriteFailures = 1 }))
		require.Equal(t, []string{"documents_refused document_refused target b.example 1"}, b.problems(), "it has completed")
		<-time.After(replicator.RefusedFor - 24*time.Hour)
		require.Len(t, b.problems(), 1)
		<-time.After(48 * time.Hour)
		require.Empty(t, b.problems(), "that is old")

		// What failed elsewhere, as its document says, is nobody's matter here. What fails here is.
		b.put(repdb, "elsewhere", "", `"_replication_state": "failed", "_replication_state_reason": "no"`)
		require.Empty(t, b.problems())
		require.NoError(t, b.doc(repdb, "e").Fail(b.Context(), &replicator.Fault{Code: replicator.FaultInvalid, Detail: "no"}))
		require.Equal(t, []string{"failed invalid_definition   1"}, b.problems())
		b.remove(repdb, "e", b.document(repdb, "e")["_rev"].(string))
		require.Empty(t, b.problems())
		b.check()
		assert.Empty(t, b.times(replicator.MarkStuck))
	})
}

// The databases of a mirror are problems of their mirror, and so is what is wrong with the mirror as a whole.
func TestProblemsOfAMirror(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, child := b.mirrorOne("films")
	require.NoError(t, child.Crash(t.Context(), time.Now().Add(time.Hour), 1, sourceFault(replicator.FaultForbidden, "403")))
	all, err := b.store.Lists.Problems(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, mirror.Job().ID, all[0].Mirror)
	require.Equal(t, []string{"failing forbidden source a.example:5984 1"}, b.problems())

	tell := func(p replicator.MirrorProgress) {
		t.Helper()
		require.NoError(t, mirror.Update(t.Context(), func(s *replicator.JobState) { s.Mirror = &p }))
	}
	tell(replicator.MirrorProgress{Error: "401", ErrorSince: time.Now()})
	require.Equal(t, []string{"failing forbidden source a.example:5984 1", "source_unlistable source_unlistable source a.example 1"}, b.problems())
	tell(replicator.MirrorProgress{Target: replicator.MirrorTargetLook{Lost: &replicator.MirrorLoss{Databases: 1, At: time.Now()}}})
	require.Equal(t, []string{"failing forbidden source a.example:5984 1", "target_changed target_changed target b.example 1"}, b.problems())
	tell(replicator.MirrorProgress{})
	require.Len(t, b.problems(), 1)
	b.check()
}

// Watches that ask too seldom are problems by the host and the reason.
func TestLateWatchesAreProblems(t *testing.T) {
	t.Parallel()
	late := jobs.Late{Since: time.Unix(1, 0), Code: replicator.FaultFeedMissing, Jobs: 7}
	require.Equal(t, jobs.Problem{Jobs: 7, Attention: replicator.Attention{
		Kind: replicator.NeedsEarlier, Code: late.Code, Side: replicator.SideSource, Host: "a.example:5984", Since: late.Since,
	}}, jobs.LateProblem("http://a.example:5984/prefix/", late))
}
