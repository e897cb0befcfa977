package jobs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/jobs"
)

const pausedMember = `, "paused": true`

// reasonOf returns why a job is in its state, as people are told.
func reasonOf(job *jobs.Job) replicator.Reason {
	return replicator.Explain(job.Facts(time.Now(), nil)).Reason
}

// A paused job keeps its errors and the time of its next run, and has them again when it is resumed.
func TestPausedJobsKeepTheirWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		rev := b.put(repdb, "d", "", `"continuous": true`)
		id := b.jobID(repdb, "d")
		require.NoError(t, b.accept().Crash(t.Context(), time.Now().Add(time.Hour), 3, replicator.TextFault("", "no")))
		before := b.get(id)
		crashing := b.times(replicator.MarkFailing)
		require.Contains(t, crashing, id)
		b.db.on.Store(true)
		rev = b.put(repdb, "d", rev, `"continuous": true`+pausedMember)
		b.db.on.Store(false)
		b.check()
		paused := b.get(id)
		assert.Equal(t, replicator.StatePending, paused.Condition())
		assert.Equal(t, before.ReplicationID(), paused.ReplicationID())
		assert.Equal(t, replicator.ReasonDocument, reasonOf(paused))
		assert.Zero(t, paused.NextRun())
		counts, err := b.store.Lists.Counts(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, counts.Jobs[replicator.ShownPaused])
		waits, err := b.store.Lists.Waits(t.Context(), time.Now())
		require.NoError(t, err)
		assert.Zero(t, waits, "it needs nobody")

		// It does not run when it is asked to, or when other fields of the document change.
		time.Sleep(24 * time.Hour)
		_, err = b.store.Requests.RunNow(t.Context(), id)
		require.NoError(t, err)
		rev = b.put(repdb, "d", rev, `"continuous": true, "mine": 1`+pausedMember)
		assert.Equal(t, paused.Args.Paused.Since, b.get(id).Args.Paused.Since)
		assert.Zero(t, paused.NextRun())

		b.put(repdb, "d", rev, `"continuous": true, "paused": false`)
		b.check()
		resumed := b.get(id)
		assert.Equal(t, replicator.StateCrashing, resumed.Condition())
		assert.Equal(t, crashing, b.times(replicator.MarkFailing))
		assert.Equal(t, before.State.History, resumed.State.History)
		assert.Equal(t, 3, resumed.State.ErrorCount)
		assert.Equal(t, before.NextRun(), resumed.NextRun())
		assert.Nil(t, resumed.Args.Paused)
		b.accept()
	})
}

// A run whose job is paused hears of it at once, and its last progress is kept.
func TestPausedRun(t *testing.T) {
	for name, again := range map[string]bool{"paused": false, "paused and resumed": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				b := setup(t)
				b.create(repdb)
				rev := b.put(repdb, "d", "", "")
				id := b.jobID(repdb, "d")
				run := b.accept()
				require.NoError(t, run.Identify(t.Context(), parsedID(run.Job().Args.ReplicationID)))
				var lost error
				go func() { lost = run.Lost(t.Context()) }()
				synctest.Wait()
				rev = b.put(repdb, "d", rev, `"paused": true`)
				time.Sleep(time.Second)
				synctest.Wait()
				require.ErrorIs(t, lost, jobs.ErrEnding)
				if again {
					rev = b.put(repdb, "d", rev, "")
				}
				run.Last(replicator.DocCounts{DocsWritten: 7}, func(s *replicator.JobState) { s.Stats.DocsWritten = 7 })
				b.db.on.Store(true)
				require.NoError(t, run.Release(t.Context()))
				b.db.on.Store(false)
				b.check()

				job := b.get(id)
				assert.Equal(t, replicator.StatePending, job.Condition())
				assert.Equal(t, []string{"stopped", "started", "added"}, eventTypes(job))
				assert.Contains(t, job.State.History[0].Reason, "paused")
				assert.EqualValues(t, 7, job.State.Stats.DocsWritten)
				assert.Equal(t, !again, !(job.Args.Paused == nil))
				records, err := b.store.Lists.Records(t.Context(), job)
				require.NoError(t, err)
				runs := records.Runs
				require.Len(t, runs, 1)
				assert.Contains(t, string(runs[0]), `"outcome":"stopped"`)
				assert.Contains(t, string(runs[0]), `"docs_written":7`)
				if !again {
					b.put(repdb, "d", rev, "")
				}
				next := b.accept()
				assert.EqualValues(t, 7, next.Job().State.Stats.DocsWritten)
				require.NoError(t, next.Identify(t.Context(), parsedID(next.Job().Args.ReplicationID)))
				assert.EqualValues(t, 7, next.Job().State.Stats.DocsWritten)
				assert.Equal(t, []string{"started", "stopped", "started", "added"}, eventTypes(b.get(id)), "no node has died")
			})
		})
	}
}

// A document may be paused from its beginning, together with a change of its replication, and while its job is parked or
// waits for a schedule.
func TestPausesOfJobsThatDoNotRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		rev := b.put(repdb, "new", "", `"schedule": "0 3 * * *"`+pausedMember)
		id := b.jobID(repdb, "new")
		assert.Equal(t, replicator.ReasonDocument, reasonOf(b.get(id)))
		b.put(repdb, "new", rev, `"schedule": "0 3 * * *"`)
		assert.Equal(t, replicator.ReasonSchedule, reasonOf(b.get(id)), "it waits for its first time")
		assert.False(t, b.get(id).NextRun().IsZero())

		rev = b.put(repdb, "parked", "", `"continuous": true, "doc_ids": ["x"]`)
		id = b.jobID(repdb, "parked")
		run := b.accept()
		require.NoError(t, run.Parking(t.Context(), replicator.Parked{Server: "http://a.example/", Database: "db"}))
		woken, err := run.Park(t.Context(), nil)
		require.NoError(t, err)
		require.False(t, woken)
		assert.Equal(t, replicator.ReasonNoChanges, reasonOf(b.get(id)))
		rev = b.put(repdb, "parked", rev, `"continuous": true, "doc_ids": ["x"]`+pausedMember)
		b.check()
		assert.Equal(t, replicator.ReasonDocument, reasonOf(b.get(id)))
		_, err = b.store.Watches.Wake(t.Context(), "http://a.example/", []string{"db"})
		require.NoError(t, err)
		assert.Equal(t, replicator.ReasonDocument, reasonOf(b.get(id)), "a change does not wake it")
		rev = b.put(repdb, "parked", rev, `"continuous": true, "doc_ids": ["x"]`)
		assert.Equal(t, replicator.ReasonSlot, reasonOf(b.get(id)))
		queue, err := b.store.Lists.Queue(t.Context(), b.get(id))
		require.NoError(t, err)
		assert.Zero(t, *queue)

		// A run ends when its document is changed and paused at once.
		run = b.accept()
		b.put(repdb, "parked", rev, `"continuous": true, "doc_ids": ["y"]`+pausedMember)
		require.Error(t, run.Update(t.Context(), nothing))
		require.NoError(t, run.Release(t.Context()))
		b.check()
		assert.Equal(t, replicator.ReasonDocument, reasonOf(b.get(id)))
		assert.Equal(t, []string{"added"}, eventTypes(b.get(id)))
		counts, err := b.store.Lists.Counts(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, counts.Jobs[replicator.ShownPaused])
	})
}

// A mirror is paused with its databases in whatever state they are, and each goes on from there. What it lacks counts since the pause.
func TestPausedMirror(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		const definition = `{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}`
		mirror, failing := b.mirrorOne("failing")
		id := mirror.Job().ID
		require.NoError(t, failing.Crash(t.Context(), time.Now().Add(time.Hour), 3, replicator.TextFault("", "no")))
		start := func(database string) *jobs.Run {
			require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{database}, 0))
			_, err := asMirror(mirror).StartDatabases(t.Context(), 9)
			require.NoError(t, err)
			return b.accept()
		}
		require.NoError(t, start("ended").Fail(t.Context(), replicator.TextFault("", "no")))
		parked := start("parked")
		require.NoError(t, parked.Parking(t.Context(), replicator.Parked{Server: "http://a.example/", Database: "parked"}))
		_, err := parked.Park(t.Context(), nil)
		require.NoError(t, err)
		running := start("running")
		require.NoError(t, running.Update(t.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingWaiting} }))
		require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{"waiting"}, 0))
		before := b.states(mirror)
		require.Equal(t, map[string]replicator.MirroredState{
			"ended": "failed", "failing": "failing", "parked": "up_to_date", "running": "up_to_date", "waiting": "waiting",
		}, before)
		set := func(members string) {
			t.Helper()
			rev := b.document("_replicator", "m")["_rev"].(string)
			_, err := b.write("_replicator", "m", rev, []byte(definition+members+"}"))
			require.NoError(t, err)
		}
		follow := func() {
			t.Helper()
			b.db.on.Store(true)
			b.upkeep()
			b.db.on.Store(false)
			b.check()
		}

		time.Sleep(time.Hour)
		began := time.Now()
		set(pausedMember)
		require.ErrorIs(t, asMirror(mirror).AddDatabases(t.Context(), []string{"late"}, 0), fdbjobs.ErrHalt, "nothing is added from then on")
		require.NoError(t, mirror.Release(t.Context()))
		follow()
		require.ErrorIs(t, running.Update(t.Context(), nothing), fdbjobs.ErrHalt)
		require.NoError(t, running.Release(t.Context()))
		b.check()
		require.Equal(t, map[string]replicator.MirroredState{
			"ended": "failed", "failing": "paused", "parked": "paused", "running": "paused", "waiting": "paused",
		}, b.states(mirror))
		assert.Equal(t, replicator.ReasonDocument, reasonOf(b.get(id)))
		for _, database := range []string{"failing", "parked", "running", "waiting"} {
			assert.Equal(t, replicator.ReasonMirror, reasonOf(b.get(replicator.ChildJobID(id, database))), database)
		}
		assert.Contains(t, b.get(running.Job().ID).State.History[0].Reason, "the mirror is paused")
		counts, err := b.store.Lists.Counts(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 5, counts.Jobs[replicator.ShownPaused])
		assert.Zero(t, counts.Turn)
		summary := b.get(id).Summary
		assert.Zero(t, summary.LagsSince(), "it is not late")
		assert.False(t, replicator.Explain(b.get(id).Facts(time.Now(), nil)).Attention)
		_, err = b.store.Watches.Wake(t.Context(), "http://a.example/", []string{"parked"})
		require.NoError(t, err)
		_, err = b.store.Requests.RunNow(t.Context(), replicator.ChildJobID(id, "waiting"))
		require.NoError(t, err)
		_, err = b.store.Requests.RunNow(t.Context(), id)
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		follow()
		assert.Equal(t, replicator.ReasonMirror, reasonOf(b.get(parked.Job().ID)))
		counts, err = b.store.Lists.Counts(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 5, counts.Jobs[replicator.ShownPaused])

		set("")
		follow()
		mirror = b.accept()
		require.Equal(t, id, mirror.Job().ID)
		require.Equal(t, map[string]replicator.MirroredState{
			"ended": "failed", "failing": "failing", "parked": "copying", "running": "copying", "waiting": "waiting",
		}, b.states(mirror))
		now, err := asMirror(mirror).Summary(t.Context())
		require.NoError(t, err)
		assert.False(t, now.Behind.After(began), "it lags since the pause at the latest")
		n, err := asMirror(mirror).StartDatabases(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

// A paused database follows a new definition of its mirror, and those that waited for their turn wait for it again.
func TestPausedMirrorChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, child := b.mirrorOne("films")
	require.NoError(t, child.Complete(t.Context(), nil))
	require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{"books", "music"}, 0))
	set := func(members string) {
		rev := b.document("_replicator", "m")["_rev"].(string)
		_, err := b.write("_replicator", "m", rev, []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}`+members+`}`))
		require.NoError(t, err)
	}
	set(pausedMember)
	require.NoError(t, mirror.Release(t.Context()))
	b.upkeep()
	set(`, "worker_batch_size": 7`)
	mirror = b.accept()
	require.NoError(t, asMirror(mirror).RedefineDatabases(t.Context(), []string{"books", "music"}))
	b.check()
	require.Equal(t, map[string]replicator.MirroredState{"books": "waiting", "films": "up_to_date", "music": "waiting"}, b.states(mirror))
	b.upkeep()
	n, err := asMirror(mirror).StartDatabases(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 7, *b.accept().Job().Args.Replication.WorkerBatchSize)
}

func TestRefusedPauses(t *testing.T) {
	for name, read := range map[string]func() error{
		"not a boolean": func() error { return parseDocument(`"paused": 1`) },
		"posted": func() error {
			_, err := replicator.ParseRequest(definitionText(`"paused": false`), replicator.ParseOptions{})
			return err
		},
	} {
		var refused *replicator.ParseError
		require.ErrorAs(t, read(), &refused, name)
		assert.Equal(t, "paused", refused.Field, name)
		assert.Contains(t, refused.Reason, "`paused`", name)
	}
}

func parseDocument(members string) error {
	_, err := replicator.ParseText("d", definitionText(members), replicator.ParseOptions{})
	return err
}
