package jobs_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
	"settee/replicator/jobs"
)

// The jobs that crash are listed by the first crash of their series, until they recover or end. The
// jobs whose target refuses revisions are listed by the latest refusal.
func TestTroubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		list := func(order jobs.Order, f jobs.Filter) []string {
			t.Helper()
			found := []string{}
			for after := (fdbjobs.Position{}); ; {
				page, err := b.store.Lists.List(b.Context(), f, jobs.ListOptions{Limit: 2, Order: order, After: after})
				require.NoError(t, err)
				for _, job := range page.Jobs {
					found = append(found, *job.Args.DocID)
				}
				if page.Next == nil {
					return found
				}
				require.Len(t, page.Jobs, 2)
				after = *page.Next
			}
		}
		crashing := func() []string { t.Helper(); return list(jobs.ByCrash, jobs.Filter{}) }
		refused := func() []string { t.Helper(); return list(jobs.ByRefusal, jobs.Filter{}) }
		crash := func(run *jobs.Run, errorCount int) {
			t.Helper()
			require.NoError(t, run.Crash(b.Context(), time.Now().Add(time.Minute), errorCount, replicator.TextFault("", "no")))
		}
		refuse := func(run *jobs.Run) {
			t.Helper()
			require.NoError(t, run.ListRefused(b.Context(), []replicator.Failure{{ID: "x"}}, 1))
			require.NoError(t, run.Update(b.Context(), func(s *replicator.JobState) { s.Stats.DocWriteFailures++ }))
		}
		waits := func() jobs.Waits {
			t.Helper()
			w, err := b.store.Lists.Waits(b.Context(), time.Now().Add(-3*time.Second))
			require.NoError(t, err)
			return w
		}
		b.create(repdb)
		b.create("a/_replicator")
		require.Zero(t, waits())
		next := func() { <-time.After(time.Second) }
		first := map[string]time.Time{}
		for _, doc := range []string{"e", "d", "c", "b", "a"} {
			b.put(repdb, doc, "", fmt.Sprintf(`"doc_ids": ["%s"]`, doc))
			run := b.accept()
			refuse(run)
			first[doc] = time.Now().UTC().Truncate(time.Second)
			crash(run, 1)
			next()
		}
		b.put("a/_replicator", "z", "", `"doc_ids": ["z"]`)
		run := b.accept()
		refuse(run)
		crash(run, 1)
		require.Equal(t, []string{"e", "d", "c", "b", "a", "z"}, crashing())
		require.Equal(t, []string{"z", "a", "b", "c", "d", "e"}, refused())
		require.Equal(t, []string{"z"}, list(jobs.ByCrash, jobs.Filter{Database: "a/_replicator"}))
		require.NoError(t, b.database("a/_replicator").Delete(b.Context()))
		require.Equal(t, []string{"e", "d", "c", "b", "a"}, crashing(), "a deleted database has no jobs")
		require.Equal(t, jobs.Waits{Crashing: first["e"].Local(), LongCrashing: 3}, waits(), "e, d and c: the others have crashed for less than 3 seconds")
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, refused())

		// A job that runs again has not recovered yet.
		<-time.After(time.Minute - 4500*time.Millisecond)
		counts, err := b.store.Lists.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, first["e"].Add(time.Minute), counts.Due.UTC())
		run = b.accept()
		require.Equal(t, []string{"e", "d", "c", "b", "a"}, crashing())
		require.Equal(t, []string{"d", "c", "b", "a"}, list(jobs.ByCrash, jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{"crashing"}}}))
		crash(run, 2)
		require.Equal(t, first["e"], b.get(run.Job().ID).State.CrashingSince)
		require.Equal(t, []string{"e", "d", "c", "b", "a"}, crashing(), "its first crash counts")

		run = b.accept()
		require.Equal(t, "d", *run.Job().Args.DocID)
		refuse(run)
		require.Equal(t, []string{"d", "a", "b", "c", "e"}, refused())
		require.NoError(t, run.Update(b.Context(), func(s *replicator.JobState) { s.ErrorCount = 0 }))
		require.Equal(t, []string{"e", "c", "b", "a"}, crashing(), "it has recovered")
		crash(run, 1)
		require.Equal(t, []string{"e", "c", "b", "a", "d"}, crashing(), "a new series")

		run = b.accept()
		require.Equal(t, "c", *run.Job().Args.DocID)
		require.NoError(t, run.Complete(b.Context(), func(s *replicator.JobState) { s.Stats.DocWriteFailures = 1 }))
		rev := b.document(repdb, "b")["_rev"].(string)
		b.remove(repdb, "b", rev)
		run = b.accept()
		require.Equal(t, "a", *run.Job().Args.DocID)
		b.put(repdb, "a", b.document(repdb, "a")["_rev"].(string), `"doc_ids": ["other"]`)
		require.Equal(t, []string{"e", "d"}, crashing(), "it has another definition")
		require.ErrorIs(t, run.Update(b.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)
		b.accept()
		require.Equal(t, []string{"e", "d"}, crashing())
		require.Equal(t, []string{"d", "e"}, refused())
		require.Len(t, b.times(replicator.MarkFailing), 3, "and z, until upkeep")
		for _, id := range []string{"e", "d"} {
			b.remove(repdb, id, b.document(repdb, id)["_rev"].(string))
		}
		for _, task := range b.store.Upkeep.Tasks() {
			require.NoError(t, task.Run(b.Context(), nil))
		}
		assert.Empty(t, b.times(replicator.MarkFailing))
		assert.Empty(t, b.times(replicator.MarkDocumentsRefused))
	})
}

// A run that makes no progress is listed after a while, until it goes on or ends, whatever the results of its writes.
func TestStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, jobs.Options{StuckAfter: time.Minute})
		stuck := func() (found []string) {
			t.Helper()
			page, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10, Order: jobs.ByStuck})
			require.NoError(t, err)
			for _, job := range page.Jobs {
				found = append(found, job.ID)
				require.Equal(t, b.times(replicator.MarkStuck)[job.ID], job.State.StuckSince.Unix())
			}
			return found
		}
		pass := func(d time.Duration) { <-time.After(d) }
		var runs []*jobs.Run
		var ids []string
		for i := range 3 {
			ids = append(ids, b.replicate(fmt.Sprintf(`"doc_ids": ["%d"]`, i)).ID)
			runs = append(runs, b.accept())
			require.NoError(t, runs[i].Start(t.Context(), "node", "pid"))
		}
		began := time.Now()
		// The second one waits for longer than the first, and the third one for changes.
		doing := func(i int, what replicator.Doing, since time.Time) error {
			return runs[i].Update(t.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: what, Since: since} })
		}
		report := func() {
			t.Helper()
			require.NoError(t, doing(0, replicator.DoingCopying, began.Add(time.Second)))
			require.NoError(t, doing(1, replicator.DoingRetrying, began))
			require.NoError(t, doing(2, replicator.DoingWaiting, began))
		}
		for range 5 {
			pass(10 * time.Second)
			report()
		}
		require.Empty(t, stuck())
		pass(11 * time.Second)
		report()
		require.ElementsMatch(t, ids[:2], stuck())
		require.Equal(t, map[string]int64{ids[0]: began.Unix(), ids[1]: began.Unix()}, b.times(replicator.MarkStuck))
		require.NoError(t, doing(1, replicator.DoingCopying, time.Now()))
		require.Len(t, stuck(), 2, "another activity is no progress")
		progress := func(i int) error {
			return runs[i].Update(t.Context(), func(s *replicator.JobState) { s.Progressed(time.Now()) })
		}
		require.NoError(t, progress(1))
		require.Equal(t, []string{ids[0]}, stuck())

		// The rows follow writes whose results are unknown.
		for i := range 3 {
			b.db.mute.Store(true)
			require.ErrorIs(t, doing(0, replicator.DoingCopying, began.Add(time.Duration(i)*time.Second)), kv.ErrCommitUnknown, i)
			b.db.mute.Store(false)
		}
		require.NoError(t, doing(0, replicator.DoingCopying, began.Add(time.Second)))
		require.Equal(t, []string{ids[0]}, stuck())
		require.Len(t, b.times(replicator.MarkStuck), 1)
		b.check()

		// Its node dies. It stays stuck in its next run; the time without a run does not count.
		requeued := make(chan []string, 1)
		stop := b.monitor(func(ids []string) { requeued <- ids })
		last := time.Now()
		pass(30 * time.Second)
		require.NoError(t, progress(1))
		require.NoError(t, doing(2, replicator.DoingWaiting, time.Now()))
		require.Equal(t, []string{ids[0]}, <-requeued)
		stop()
		require.Equal(t, []string{ids[0]}, stuck())
		runs[0] = b.accept()
		require.NoError(t, runs[0].Start(t.Context(), "other", "pid"))
		require.Equal(t, []string{ids[0]}, stuck())
		require.InDelta(t, began.Add(time.Since(last)).Unix(), b.times(replicator.MarkStuck)[ids[0]], 1)

		// It stays so after a crash, and not after its end.
		require.NoError(t, runs[0].Crash(t.Context(), time.Now(), 1, replicator.TextFault("", "no")))
		require.Equal(t, []string{ids[0]}, stuck())
		require.NoError(t, b.accept().Complete(t.Context(), nil))
		require.Empty(t, b.times(replicator.MarkStuck))
		require.NoError(t, runs[2].Complete(t.Context(), nil))
	})
}

// A continuous job whose target lacks changes for long is listed until it has caught up, also while it does not run.
func TestBehindForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, jobs.Options{StuckAfter: time.Minute})
		job := b.replicate(`"continuous": true`)
		run := b.accept()
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		left := int64(5)
		report := func(what replicator.Doing) {
			t.Helper()
			require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
				s.Activity, s.ChangesPending = &replicator.Activity{Doing: what, Since: time.Now(), LastProgress: time.Now()}, &left
			}))
		}
		listed := func() (since int64) {
			t.Helper()
			page, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10, Order: jobs.ByLag})
			require.NoError(t, err)
			waits, err := b.store.Lists.Waits(b.Context(), time.Now())
			require.NoError(t, err)
			if len(page.Jobs) == 0 {
				require.Empty(t, b.times(replicator.MarkBehind))
				require.Zero(t, waits.Behind)
				return 0
			}
			require.Equal(t, map[string]int64{job.ID: waits.Behind.Unix()}, b.times(replicator.MarkBehind))
			return waits.Behind.Unix()
		}
		pass := func(d time.Duration) { <-time.After(d) }
		began := time.Now()
		report(replicator.DoingCopying)
		pass(50 * time.Second)
		report(replicator.DoingCopying)
		require.Zero(t, listed(), "for less than StuckAfter")
		pass(11 * time.Second)
		report(replicator.DoingReading)
		require.Equal(t, began.Unix(), listed())
		b.check()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Minute), 1, replicator.TextFault("", "no")))
		require.Equal(t, began.Unix(), listed())
		pass(time.Minute)
		run = b.accept()
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		report(replicator.DoingCopying)
		require.Equal(t, began.Unix(), listed())
		report(replicator.DoingWaiting)
		require.Zero(t, listed(), "it has caught up")

		// A run that is stopped while it is behind is listed at once: no run will say when it is late.
		now := time.Now()
		report(replicator.DoingCopying)
		require.Zero(t, listed())
		require.NoError(t, run.Stop(t.Context(), "", "", nil))
		require.Equal(t, now.Unix(), listed())
		run = b.accept()
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		require.NoError(t, run.Fail(t.Context(), replicator.TextFault("", "no")))
		require.Zero(t, listed())
	})
}
