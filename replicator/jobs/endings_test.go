package jobs_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// endings has the ways to end the job of a run, and to add one with the same replication id. The job is the document
// "old" of x/_replicator.
var endings = map[string]func(b *bundle){
	"removed, and another document": func(b *bundle) {
		b.remove("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string))
		b.put(repdb, "new", "", "")
	},
	"removed, and written again": func(b *bundle) {
		rev := b.remove("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string))
		b.put("x/_replicator", "old", rev, "")
	},
	"removed, and posted": func(b *bundle) {
		b.remove("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string))
		b.replicate("")
	},
	"another definition": func(b *bundle) {
		b.put("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string), `"doc_ids": ["x"]`)
		b.put(repdb, "new", "", "")
	},
	"deleted database": func(b *bundle) {
		require.NoError(b, b.database("x/_replicator").Delete(b.Context()))
		b.put(repdb, "new", "", "")
	},
	"deleted database, and upkeep": func(b *bundle) {
		require.NoError(b, b.database("x/_replicator").Delete(b.Context()))
		b.upkeep()
		b.put(repdb, "new", "", "")
	},
}

// successor is the next run with a replication id, in a test that watches it.
type successor struct {
	*jobs.Run

	mu  sync.Mutex
	at  time.Time // when it could begin; zero before
	err error
}

func (s *successor) began() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *successor) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// succeed accepts the next job, and reserves a replication id for it.
func (b *bundle) succeed(ctx context.Context, name replicator.ID) *successor {
	b.Helper()
	s := &successor{Run: b.accept()}
	go func() {
		err := s.Identify(ctx, name)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err = err; err == nil {
			s.at = time.Now()
		}
	}()
	synctest.Wait()
	return s
}

// predecessor accepts the job of a document "old" in x/_replicator, whose run has a replication id.
func (b *bundle) predecessor() (run *jobs.Run, name replicator.ID) {
	b.Helper()
	b.create(repdb)
	b.create("x/_replicator")
	b.put("x/_replicator", "old", "", "")
	run = b.accept()
	name = parsedID(run.Job().Args.ReplicationID)
	require.NoError(b, run.Identify(b.Context(), name))
	return run, name
}

// A run begins when the run that had its replication id before has ended, and that run may write its last checkpoint.
func TestRunBeginsAfterTheEndOfTheOneBefore(t *testing.T) {
	for what, end := range endings {
		t.Run(what, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				b := setup(t)
				old, name := b.predecessor()
				var lost error
				go func() { lost = old.Lost(t.Context()) }()
				synctest.Wait()
				b.db.on.Store(true)
				end(b)
				time.Sleep(time.Second) // the store repeats commits
				synctest.Wait()
				if what != "deleted database" { // its run hears of that when another one wants the id
					require.ErrorIs(t, lost, jobs.ErrEnding, "it hears of it at once")
				}
				next := b.succeed(t.Context(), name)
				if what == "another definition" {
					require.Equal(t, "new", *next.Job().Args.DocID)
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				require.Zero(t, next.began())
				require.NoError(t, old.Check(), "it may write its last checkpoint")
				require.NoError(t, old.Context().Err())
				require.ErrorIs(t, old.Update(t.Context(), nothing), jobs.ErrEnding)
				require.True(t, old.Ending())
				require.NoError(t, old.ListRefused(t.Context(), []replicator.Failure{{ID: "x"}}, 1))
				released := time.Now()
				require.NoError(t, old.Release(t.Context()))
				require.Error(t, old.Context().Err())
				time.Sleep(time.Second)
				synctest.Wait()
				require.NoError(t, next.failed())
				require.WithinRange(t, next.began(), released, time.Now(), "it begins at once")
				require.Empty(t, b.rows("ending"))
				require.NoError(t, next.Complete(t.Context(), nil))
			})
		})
	}
}

// On each engine: a run hears at once that its job was cancelled, and the next run that it has ended.
func TestRunAfterACancelledOne(t *testing.T) {
	onEngines(t, func(b *bundle) {
		job := b.replicate("")
		name := parsedID(job.ReplicationID())
		old := b.accept()
		require.NoError(b, old.Identify(b.Context(), name))
		lost, began := make(chan error, 1), make(chan error, 1)
		go func() { lost <- old.Lost(b.Context()) }()
		b.cancel(job.ID)
		require.ErrorIs(b, <-lost, jobs.ErrEnding)
		require.NoError(b, old.Check())
		b.replicate("")
		next := b.accept()
		go func() { began <- next.Identify(b.Context(), name) }()
		require.NoError(b, old.ListRefused(b.Context(), []replicator.Failure{{ID: "x"}}, 1))
		require.Len(b, b.rows("ending"), 1, "the next run has not begun")
		require.NoError(b, old.Release(b.Context()))
		require.NoError(b, <-began)
		require.Empty(b, b.rows("ending"))
		require.NoError(b, next.Complete(b.Context(), nil))
	})
}

// A run that waits keeps its own job alive, for as long as the one before takes.
func TestWaitingRunKeepsItsJob(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		old, name := b.predecessor()
		endings["removed, and posted"](b)
		next := b.succeed(t.Context(), name)
		stop := b.monitor(func(ids []string) { t.Errorf("queued again: %q", ids) })
		defer stop()
		// The old run hears of it late.
		time.Sleep(fdbjobs.DefaultTimeout / 3)
		synctest.Wait()
		require.ErrorIs(t, old.Update(t.Context(), nothing), jobs.ErrEnding)
		time.Sleep(fdbjobs.DefaultTimeout/4*3 - time.Second)
		synctest.Wait()
		require.NoError(t, old.Check())
		require.Zero(t, next.began())
		require.NoError(t, next.Check())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, old.Check(), fdbjobs.ErrHalt, "it has taken too long")
		require.ErrorIs(t, context.Cause(old.Context()), fdbjobs.ErrHalt)
		require.False(t, old.Ending())
		require.Zero(t, next.began())
		require.NoError(t, old.Release(t.Context()))
		synctest.Wait()
		require.NoError(t, next.failed())
		require.NotZero(t, next.began())
	})
}

// A run of a process that died delays the next one for the timeout, as it would delay its own job.
func TestRunBeginsAfterADeadOne(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		_, name := b.predecessor()
		endings["removed, and posted"](b)
		next := b.succeed(t.Context(), name)
		time.Sleep(fdbjobs.DefaultTimeout - time.Second)
		synctest.Wait()
		require.Zero(t, next.began())
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, next.failed())
		require.NotZero(t, next.began())
		require.Empty(t, b.rows("ending"))
	})
}

// What a process leaves behind does not stay, and delays nothing when it is old.
func TestRowsOfDeadRuns(t *testing.T) {
	dead := func(t *testing.T) (*bundle, replicator.ID) {
		b := setup(t)
		_, name := b.predecessor()
		endings["removed, and posted"](b)
		require.Len(t, b.rows("ending"), 1)
		return b, name
	}
	t.Run("upkeep", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			b, _ := dead(t)
			time.Sleep(2 * fdbjobs.DefaultTimeout)
			b.upkeep()
			require.Len(t, b.rows("ending"), 1, "clocks may differ by a minute")
			time.Sleep(time.Second)
			b.upkeep()
			require.Empty(t, b.rows("ending"))
		})
	})
	t.Run("late run", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			b, name := dead(t)
			time.Sleep(time.Hour)
			now := time.Now()
			next := b.succeed(t.Context(), name)
			require.NoError(t, next.failed())
			require.Equal(t, now, next.began())
		})
	})
	t.Run("restart of the only process", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			b, name := dead(t)
			_, err := b.store.Upkeep.RequeueAll(t.Context())
			require.NoError(t, err)
			now := time.Now()
			next := b.succeed(t.Context(), name)
			require.NoError(t, next.failed())
			require.Equal(t, now, next.began())
		})
	})
}

// The job of a waiting run is removed, too. It leaves the row of the run that it waits for.
func TestRemovedWhileItWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		old, name := b.predecessor()
		endings["removed, and posted"](b)
		row := b.rows("ending")
		second := b.succeed(t.Context(), name)
		b.cancel(second.Job().ID)
		require.Equal(t, row, b.rows("ending"))
		b.replicate("")
		third := b.succeed(t.Context(), name)
		time.Sleep(second.Heartbeat())
		synctest.Wait()
		require.ErrorIs(t, second.failed(), fdbjobs.ErrHalt)
		require.NotErrorIs(t, second.failed(), jobs.ErrEnding, "it has nothing to write")
		require.Error(t, second.Context().Err())
		require.NoError(t, second.Release(t.Context()))
		require.Equal(t, row, b.rows("ending"))
		require.Zero(t, third.began())
		require.NoError(t, old.Release(t.Context()))
		synctest.Wait()
		require.NoError(t, third.failed())
		require.NotZero(t, third.began())
	})
}

// A run that is asked to stop does not wait any longer.
func TestStoppedWhileItWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		old, name := b.predecessor()
		endings["removed, and posted"](b)
		why := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		next := b.succeed(ctx, name)
		cancel(why)
		synctest.Wait()
		require.ErrorIs(t, next.failed(), why)
		require.NoError(t, next.Stop(t.Context(), "", "", nil))
		require.NoError(t, old.Release(t.Context()))
	})
}

// A run that another node has taken over, or that has no replication id yet, must stop at once.
func TestRunsThatMayNotGoOn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		old, name := b.predecessor()
		time.Sleep(fdbjobs.DefaultTimeout) // it was cut off
		stop := b.monitor(func([]string) {})
		next := b.succeed(t.Context(), name)
		stop()
		require.NoError(t, next.failed())
		require.ErrorIs(t, old.Update(t.Context(), nothing), fdbjobs.ErrHalt)
		require.False(t, old.Ending())
		require.Error(t, old.Context().Err())
		require.NoError(t, old.Release(t.Context()))
		require.NoError(t, next.Update(t.Context(), nothing))
		require.NoError(t, next.Complete(t.Context(), nil))

		b.replicate(`"doc_ids": ["a"]`)
		early := b.accept()
		b.cancel(early.Job().ID)
		err := early.Update(t.Context(), nothing)
		require.ErrorIs(t, err, fdbjobs.ErrHalt)
		require.NotErrorIs(t, err, jobs.ErrEnding)
		require.NoError(t, early.Release(t.Context()))
		require.Empty(t, b.rows("ending"))
	})
}

// What a target refused before the end of a run is listed, if the job is posted again meanwhile.
func TestRefusedAtTheEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		job := b.replicate("")
		name := parsedID(job.ReplicationID())
		old := b.accept()
		require.NoError(t, old.Identify(t.Context(), name))
		b.cancel(job.ID)
		require.NoError(t, old.ListRefused(t.Context(), []replicator.Failure{{ID: "x"}}, 1), "there is no job to list it")
		b.replicate("")
		require.NoError(t, old.ListRefused(t.Context(), []replicator.Failure{{ID: "y"}}, 1))
		failures, err := b.store.Lists.Failures(t.Context(), job.ID)
		require.NoError(t, err)
		require.EqualValues(t, 1, failures.Total)
		require.NoError(t, old.Release(t.Context()))
	})
}

// A document of another database takes over the replication id of a document in a deleted one, which runs on until then.
func TestPostedAfterTheDatabaseWasDeleted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		old, name := b.predecessor()
		require.NoError(t, b.database("x/_replicator").Delete(t.Context()))
		require.Empty(t, b.rows("ending"))
		b.replicate("")
		require.Len(t, b.rows("ending"), 1)
		next := b.succeed(t.Context(), name)
		require.Zero(t, next.began())
		require.ErrorIs(t, old.Update(t.Context(), nothing), jobs.ErrEnding)
		require.NoError(t, old.Release(t.Context()))
		synctest.Wait()
		require.NotZero(t, next.began())
		_, err := b.docs.Database(t.Context(), "x/_replicator")
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
	})
}
