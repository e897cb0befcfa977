package jobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/sealed/sealedtest"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// mirrorOne makes a mirror with one database. It returns its run, and the run of the database's job.
func (b *bundle) mirrorOne(database string) (mirror, child *jobs.Run) {
	b.Helper()
	b.create("_replicator")
	_, err := b.write("_replicator", "m", "", []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}}`))
	require.NoError(b, err)
	mirror = b.accept()
	require.NoError(b, asMirror(mirror).AddDatabases(b.Context(), []string{database}, 0))
	_, err = asMirror(mirror).StartDatabases(b.Context(), 1)
	require.NoError(b, err)
	return mirror, b.accept()
}

// states returns the states of a mirror's databases.
func (b *bundle) states(mirror *jobs.Run) map[string]replicator.MirroredState {
	b.Helper()
	list, err := asMirror(mirror).Databases(b.Context(), "", 100)
	require.NoError(b, err)
	found := map[string]replicator.MirroredState{}
	for _, d := range list {
		found[d.Database] = d.State
	}
	return found
}

// A database whose job cannot be opened or parsed fails.
func TestMirroredThatCannotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	has, hasNot := b.withKeys(sealedtest.Keys(t, "a")), b.withKeys(sealedtest.Keys(t, "b"))
	mirror, run := has.mirrorOne("films")
	require.NoError(t, run.Stop(t.Context(), "", "", nil))
	_, err := hasNot.store.Runs.Accept(t.Context(), 1, nil)
	require.ErrorIs(t, err, fdbjobs.ErrSealed)
	require.Equal(t, replicator.MirroredFailing, b.states(mirror)["films"])
	summary, err := asMirror(mirror).Summary(t.Context())
	require.NoError(t, err)
	require.Len(t, summary.Failures, 1)
	require.Contains(t, summary.Failures[0].Reason, "key")

	id := run.Job().ID
	require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
		raw, err := has.store.Jobs.Read(tx, id).Await()
		if err != nil {
			return err
		}
		return has.store.Jobs.Add(tx, fdbjobs.Spec{ID: id, Owner: raw.Owner, Label: raw.Label, Listed: raw.Listed, Args: []byte(`{}`)})
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := has.store.Runs.Accept(ctx, 1, nil)
		ended <- err
	}()
	require.Eventually(t, func() bool { return b.states(mirror)["films"] == replicator.MirroredFailed }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	summary, err = asMirror(mirror).Summary(t.Context())
	require.NoError(t, err)
	require.Len(t, summary.Failures, 1)
	require.False(t, summary.Failures[0].Since.IsZero())
}

// A database that waits for its turn has a pending job that is counted apart, and starts when it is asked to. One that is gone has
// a completed job.
func TestDatabasesWithoutRuns(t *testing.T) {
	onEngines(t, testDatabasesWithoutRuns)
}

func testDatabasesWithoutRuns(b *bundle) {
	mirror, _ := b.mirrorOne("films")
	require.NoError(b, asMirror(mirror).AddDatabases(b.Context(), []string{"books", "music"}, 1))
	require.NoError(b, asMirror(mirror).EndDatabases(b.Context(), []string{"music"}, time.Now().Add(time.Hour)))
	n, err := asMirror(mirror).StartDatabases(b.Context(), 1)
	require.NoError(b, err)
	require.Zero(b, n, "one makes its first run")
	require.Equal(b, map[string]replicator.MirroredState{"books": "waiting", "films": "starting", "music": "gone"}, b.states(mirror))

	shown := func(database string) replicator.Condition {
		b.Helper()
		return replicator.Explain(b.get(replicator.ChildJobID(mirror.Job().ID, database)).Facts(time.Now(), nil))
	}
	require.Equal(b, replicator.ReasonTurn, shown("books").Reason)
	require.Equal(b, replicator.ReasonGone, shown("music").Reason)
	listed := func(states ...replicator.ShownState) (names []string) {
		b.Helper()
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{Mirror: mirror.Job().ID, States: jobs.States{Shown: states}}, jobs.ListOptions{Limit: 10})
		require.NoError(b, err)
		for _, job := range list.Jobs {
			names = append(names, job.Args.MirroredDatabase)
		}
		return names
	}
	require.Equal(b, []string{"books", "films"}, listed())
	require.Equal(b, []string{"music"}, listed(replicator.ShownCompleted))
	counts, err := b.store.Lists.Counts(b.Context())
	require.NoError(b, err)
	require.EqualValues(b, 2, counts.Jobs[replicator.ShownRunning])
	require.Zero(b, counts.Jobs[replicator.ShownPending]+counts.Jobs[replicator.ShownCompleted])
	require.Equal(b, []int64{1, 1}, []int64{counts.Turn, counts.Gone})
	require.Equal(b, map[replicator.ShownState]int64{replicator.ShownRunning: 1}, counts.Mirrored)
	own, err := b.store.Lists.List(b.Context(), jobs.Filter{Unmirrored: true}, jobs.ListOptions{Limit: 10})
	require.NoError(b, err)
	require.EqualValues(b, 1, own.Total)
	require.Equal(b, mirror.Job().ID, own.Jobs[0].ID)
	shares, err := b.store.Shares.List(b.Context())
	require.NoError(b, err)
	require.Zero(b, shares[0].Jobs[replicator.ShownPending])
	require.Zero(b, counts.Due)
	require.Zero(b, b.wake("books"))

	job, err := b.store.Requests.RunNow(b.Context(), replicator.ChildJobID(mirror.Job().ID, "books"))
	require.NoError(b, err)
	require.Equal(b, "books", job.Args.MirroredDatabase)
	require.Equal(b, replicator.MirroredStarting, b.states(mirror)["books"])
	require.Equal(b, "books", b.accept().Job().Args.MirroredDatabase)
	_, err = b.store.Requests.RunNow(b.Context(), replicator.ChildJobID(mirror.Job().ID, "music"))
	require.ErrorIs(b, err, jobs.ErrEnded)
	require.NoError(b, asMirror(mirror).AddDatabases(b.Context(), []string{"music"}, 0))
	require.Equal(b, replicator.MirroredWaiting, b.states(mirror)["music"])
}

// A new definition of a mirror that makes the same jobs leaves them alone. With another one they begin anew, and keep how far they
// were: each has been copied once, and is behind.
func TestChangedMirror(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, child := b.mirrorOne("films")
	require.NoError(t, child.Update(t.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingWaiting} }))
	require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{"books"}, 0))
	change := func(members string) {
		t.Helper()
		rev := b.document("_replicator", "m")["_rev"].(string)
		_, err := b.write("_replicator", "m", rev, []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, `+members+`}`))
		require.NoError(t, err)
		require.NoError(t, mirror.Release(t.Context()))
		mirror = b.accept()
		require.True(t, mirror.Job().IsMirror())
		list, err := asMirror(mirror).Databases(t.Context(), "", 10)
		require.NoError(t, err)
		var old []string
		for _, d := range list {
			if !d.Current {
				old = append(old, d.Database)
			}
		}
		require.NoError(t, asMirror(mirror).RedefineDatabases(t.Context(), old))
	}
	change(`"mirror": {"include": ["f*", "b*"]}`)
	change(`"mirror": {"exclude": ["x*"]}`)
	require.NoError(t, child.Update(t.Context(), func(*replicator.JobState) {}), "it goes on")
	require.Equal(t, map[string]replicator.MirroredState{"books": "waiting", "films": "up_to_date"}, b.states(mirror))

	change(`"mirror": {"exclude": ["x*"]}, "worker_batch_size": 7`)
	require.ErrorIs(t, child.Update(t.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)
	is := map[string]replicator.MirroredState{"books": "waiting", "films": "copying"}
	require.Equal(t, is, b.states(mirror), "it may lack changes since")
	require.NoError(t, child.Release(t.Context()))
	require.Equal(t, is, b.states(mirror))
	child = b.accept()
	require.Equal(t, 7, *child.Job().Args.Replication.WorkerBatchSize)
	require.Equal(t, is, b.states(mirror), "it does not make a first run")
	n, err := asMirror(mirror).StartDatabases(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 7, *b.accept().Job().Args.Replication.WorkerBatchSize)
}

// The lag of a mirror includes the wait of its databases for their turn. The lag of their jobs does not: nothing is late.
func TestLagOfFirstRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t, jobs.Options{StuckAfter: time.Second})
		mirror, first := b.mirrorOne("films")
		require.NoError(t, first.Complete(t.Context(), nil))
		require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{"books"}, 1))
		require.NoError(t, mirror.Stop(t.Context(), "", "", nil))
		time.Sleep(2 * time.Hour)
		mirror = b.accept()
		_, err := asMirror(mirror).StartDatabases(t.Context(), 1)
		require.NoError(t, err)
		child := b.accept()
		began := time.Now()
		time.Sleep(2 * time.Second)
		require.NoError(t, child.Update(t.Context(), func(s *replicator.JobState) {
			s.Activity = &replicator.Activity{Doing: replicator.DoingCopying}
		}))
		require.True(t, child.Job().State.BehindSince.Equal(began.UTC().Truncate(time.Second)))
		summary, err := asMirror(mirror).Summary(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(summary.Behind), 2*time.Hour)
	})
}

// What the looks of a mirror have found of its lag is kept for a day in one row, which goes with the mirror's definition.
func TestMirrorLagIsKept(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		mirror, child := b.mirrorOne("films")
		require.NoError(t, child.Complete(t.Context(), nil))
		require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{"books"}, 0))
		later := func() {
			t.Helper()
			require.NoError(t, mirror.Stop(t.Context(), "", "", nil))
			time.Sleep(time.Until(time.Now().Truncate(replicator.LagSlot).Add(replicator.LagSlot)))
			mirror = b.accept()
		}
		later()
		b.db.on.Store(true)
		require.NoError(t, asMirror(mirror).RecordLag(t.Context()))
		b.db.on.Store(false)
		lags := func() []int64 {
			t.Helper()
			records, err := b.store.Lists.Records(t.Context(), b.get(mirror.Job().ID))
			require.NoError(t, err)
			return records.Lags.Lags
		}
		require.Len(t, lags(), 1)
		require.GreaterOrEqual(t, lags()[0], int64(1), "a database has not been copied yet")
		later()
		require.NoError(t, asMirror(mirror).EndDatabases(t.Context(), []string{"books"}, time.Time{}))
		require.NoError(t, asMirror(mirror).RecordLag(t.Context()))
		require.Len(t, lags(), 2)
		require.Zero(t, lags()[1])
		require.Len(t, b.lagRows(), 1)
		b.remove("_replicator", "m", b.document("_replicator", "m")["_rev"].(string))
		require.NoError(t, mirror.Release(t.Context()))
		b.upkeep()
		require.Empty(t, b.lagRows())
	})
}

// lagRows returns the keys of what is stored of lags.
func (b *bundle) lagRows() (keys []tuple.Tuple) {
	b.Helper()
	b.each("records", func(key tuple.Tuple, _ []byte) {
		if key[1] == "lags" {
			keys = append(keys, key)
		}
	})
	return keys
}

// A run that starts has not seen yet that the target has everything.
func TestMirroredRunStarts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, child := b.mirrorOne("films")
	waits := func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingWaiting} }
	require.NoError(t, child.Update(t.Context(), waits))
	require.NoError(t, child.Stop(t.Context(), "", "", nil))
	require.Equal(t, replicator.MirroredCurrent, b.states(mirror)["films"])
	child = b.accept()
	require.Equal(t, replicator.MirroredCopying, b.states(mirror)["films"])
	require.NoError(t, child.Update(t.Context(), waits))
	require.Equal(t, replicator.MirroredCurrent, b.states(mirror)["films"])
}

// A summary costs the same reads, whatever the number of databases.
func TestMirrorSummaryReads(t *testing.T) {
	t.Parallel()
	db := enginetest.Control(enginetest.Memory(t))
	b := setupOn(t, db)
	mirror, child := b.mirrorOne("films")
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("db%03d", i))
	}
	require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), names, 1))
	require.NoError(t, child.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("error", "boom")))
	for range 6 {
		_, err := asMirror(mirror).StartDatabases(t.Context(), 1)
		require.NoError(t, err)
		run := b.accept()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("error", "boom")))
	}
	ranges, gets, rows := db.Ranges.Load(), db.Gets.Load(), db.Rows.Load()
	summary, err := asMirror(mirror).Summary(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 301, summary.Known)
	require.EqualValues(t, 7, summary.States[replicator.MirroredFailing])
	require.Len(t, summary.Failures, 5)
	require.Equal(t, "boom", summary.Failures[0].Reason)
	require.LessOrEqual(t, db.Ranges.Load()-ranges, int64(3), "the tallies, the first that is behind, and those that fail")
	require.LessOrEqual(t, db.Gets.Load()-gets, int64(15), "the jobs of five failures")
	require.LessOrEqual(t, db.Rows.Load()-rows, int64(20))
}

// After a write whose result the run does not know, the entry may follow from that write or from the one before.
func TestMirroredAfterUnknownResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, run := b.mirrorOne("films")
	does := func(doing replicator.Doing) func(*replicator.JobState) {
		return func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: doing} }
	}
	is := func(state replicator.MirroredState) {
		t.Helper()
		list, err := asMirror(mirror).Databases(t.Context(), "", 1)
		require.NoError(t, err)
		require.Equal(t, state, list[0].State)
	}
	require.NoError(t, run.Update(t.Context(), does(replicator.DoingWaiting)))
	is(replicator.MirroredCurrent)
	b.db.mute.Store(true)
	require.ErrorIs(t, run.Update(t.Context(), does(replicator.DoingCopying)), kv.ErrCommitUnknown)
	b.db.mute.Store(false)
	is(replicator.MirroredCopying)
	require.NoError(t, run.Update(t.Context(), does(replicator.DoingWaiting)))
	is(replicator.MirroredCurrent)
}
