package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestReplicateAddsAJobAndFindsItByBothIDs(t *testing.T) {
	onEngines(t, func(b *bundle) {
		job := b.replicate(`"continuous": true`)
		require.Equal(b, fdbjobs.Pending, job.Status)
		require.Equal(b, replicator.StatePending, job.Condition())
		require.True(b, job.Transient())
		want, err := b.definition(`"continuous": true`).ID(b.store.ServerUUID, "")
		require.NoError(b, err)
		require.Equal(b, want.String(), job.ReplicationID())
		for _, name := range []string{job.ID, job.ReplicationID()} {
			found := b.get(name)
			require.Equal(b, job.ID, found.ID)
			require.Equal(b, "secret", found.Args.Replication.Source.Password)
			require.Equal(b, []string{replicator.EventAdded}, eventTypes(found))
		}
	})
}

func TestReplicateJoinsAnEqualJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.replicate(`"doc_ids": ["a", "b"]`)
	second := b.replicate(`"doc_ids": ["b", "a", "a"]`)
	require.Equal(t, first.ID, second.ID)
	run := b.accept()
	third := b.replicate(`"doc_ids": ["a", "b"]`)
	require.Equal(t, fdbjobs.Running, third.Status, "it is joined while it runs")
	require.Equal(t, 1, b.total())
	require.NoError(t, run.Update(t.Context(), func(*replicator.JobState) {}), "it goes on")
	require.NotEqual(t, first.ID, b.replicate(`"doc_ids": ["a"]`).ID)
	require.Equal(t, 2, b.total())
}

func TestReplicateWithAnotherPasswordReplacesTheDefinition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	password := func(password string) *replicator.Replication {
		r := b.definition(`"filter": "f/t"`)
		r.Source.Password = password
		return r
	}
	replicate := func(text string) *jobs.Job {
		job, err := b.store.Requests.Replicate(t.Context(), password(text), nil)
		require.NoError(t, err)
		require.Equal(t, 1, b.total())
		return job
	}
	first := replicate("one")
	require.Empty(t, first.ReplicationID(), "it depends on the filter's text")
	require.Equal(t, first.ID, replicate("two").ID)

	run := b.accept()
	require.Equal(t, "two", run.Job().Args.Replication.Source.Password)
	require.NoError(t, run.Identify(t.Context(), id('a')))
	replaced := replicate("three")
	require.Equal(t, fdbjobs.Running, replaced.Status)
	require.Equal(t, id('a').String(), replaced.ReplicationID(), "it is returned as it is")
	require.Equal(t, "three", replaced.Args.Replication.Source.Password)

	require.ErrorIs(t, run.Update(t.Context(), func(*replicator.JobState) {}), jobs.ErrEnding)
	require.NoError(t, run.Context().Err(), "it may write its last checkpoint")
	require.NoError(t, run.Check())
	require.NoError(t, run.Release(t.Context()))
	require.Error(t, run.Context().Err())
	next := b.accept()
	require.Equal(t, "three", next.Job().Args.Replication.Source.Password)
	require.Equal(t, id('a').String(), next.Job().ReplicationID(), "its state is kept")
}

func TestReplicateAfterTheEndAddsTheJobAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.replicate(`"filter": "f/t"`)
	run := b.accept()
	require.NoError(t, run.Identify(t.Context(), id('a')))
	require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead = 7 }))
	require.Equal(t, first.ID, b.get(id('a').String()).ID, "a job that has ended is still found")
	require.Zero(t, b.total())

	again := b.replicate(`"filter": "f/t"`)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, 1, b.total())
	found := b.get(again.ID)
	require.Equal(t, fdbjobs.Pending, found.Status)
	require.Zero(t, found.State.Stats)
	require.Equal(t, []string{replicator.EventAdded}, eventTypes(found))
	b.gone(id('a').String())
}

func TestReplicateFailsWhileAnotherJobHoldsTheReplicationID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := "alice"
	r := b.definition("")
	theirs, err := b.store.Requests.Replicate(t.Context(), r, &alice)
	require.NoError(t, err)
	require.NoError(t, b.opened().Stop(t.Context(), "", "", nil))

	_, err = b.store.Requests.Replicate(t.Context(), r, nil)
	var collision *jobs.Collision
	require.ErrorAs(t, err, &collision)
	require.Equal(t, &jobs.Collision{ReplicationID: theirs.ReplicationID(), JobID: theirs.ID, Transient: true, User: &alice}, collision)
	require.Contains(t, err.Error(), theirs.ReplicationID())
	require.NotContains(t, err.Error(), theirs.ID)
	require.NotContains(t, err.Error(), "alice")
	b.gone(r.JobID(""))
	require.Equal(t, 1, b.total())

	// Running and crashing jobs keep their id, an ended job loses it.
	run := b.accept()
	_, err = b.store.Requests.Replicate(t.Context(), r, nil)
	require.ErrorAs(t, err, &collision)
	require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "boom")))
	_, err = b.store.Requests.Replicate(t.Context(), r, nil)
	require.ErrorAs(t, err, &collision)
	_, err = b.store.Requests.Replicate(t.Context(), r, &alice)
	require.NoError(t, err, "its own job is joined")
	b.cancel(theirs.ID)
	ours, err := b.store.Requests.Replicate(t.Context(), r, nil)
	require.NoError(t, err)
	require.Equal(t, ours.ID, b.get(ours.ReplicationID()).ID)

	run = b.accept()
	require.NoError(t, run.Fail(t.Context(), replicator.TextFault("db_not_found", "could not open")))
	theirs, err = b.store.Requests.Replicate(t.Context(), r, &alice)
	require.NoError(t, err)
	require.Equal(t, theirs.ID, b.get(theirs.ReplicationID()).ID)
}

func TestIdentifyReportsTheDocumentThatHoldsTheID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("_replicator")
	b.put("_replicator", "doc", "", "")
	jobID := b.jobID("_replicator", "doc")
	run := b.accept()
	require.False(t, run.Job().Transient())
	want, err := b.definition("").ID(b.store.ServerUUID, "")
	require.NoError(t, err)
	require.NoError(t, run.Identify(t.Context(), want))

	_, err = b.store.Requests.Replicate(t.Context(), b.definition(""), nil)
	var collision *jobs.Collision
	require.ErrorAs(t, err, &collision)
	require.Equal(t, &jobs.Collision{ReplicationID: want.String(), JobID: jobID, Database: "_replicator", DocID: "doc"}, collision)
	require.NotContains(t, err.Error(), "doc")

	for _, name := range []string{jobID, want.String()} {
		_, err = b.store.Requests.Cancel(t.Context(), name, nil)
		require.ErrorIs(t, err, jobs.ErrNotFound, "a document's job ends with the document")
	}
	require.NoError(t, run.Update(t.Context(), func(*replicator.JobState) {}))
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(*jobs.Job) string{
		"by job id":         func(j *jobs.Job) string { return j.ID },
		"by replication id": (*jobs.Job).ReplicationID,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			job := b.replicate("")
			cancelled, err := b.store.Requests.Cancel(t.Context(), by(job), nil)
			require.NoError(t, err)
			require.Equal(t, job.ID, cancelled.ID)
			b.gone(job.ID)
			b.gone(job.ReplicationID())
			_, err = b.store.Requests.Cancel(t.Context(), by(job), nil)
			require.ErrorIs(t, err, jobs.ErrNotFound)

			job = b.replicate("")
			run := b.accept()
			cancelled, err = b.store.Requests.Cancel(t.Context(), by(job), nil)
			require.NoError(t, err)
			require.Equal(t, fdbjobs.Running, cancelled.Status)
			require.ErrorIs(t, run.Update(t.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)
			require.Zero(t, b.total())

			job = b.replicate("")
			require.NoError(t, b.accept().Complete(t.Context(), nil))
			_, err = b.store.Requests.Cancel(t.Context(), by(job), nil)
			require.ErrorIs(t, err, jobs.ErrNotFound, "it has ended")
			require.Equal(t, replicator.StateCompleted, b.get(by(job)).Condition())
		})
	}
}

func TestIDsThatAreTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.replicate("")
	for _, name := range []string{"", "nope", "a\x00b", "\xff", strings.Repeat("x", 2_000), strings.Repeat("x", 2_001), strings.Repeat("\x00", 100_000)} {
		b.gone(name)
		_, err := b.store.Requests.Cancel(t.Context(), name, nil)
		require.ErrorIs(t, err, jobs.ErrNotFound, "%.20q", name)
	}
}

func TestAwait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		_, err := b.store.Requests.Await(t.Context(), "nope", "")
		require.ErrorIs(t, err, jobs.ErrNotFound)

		type outcome struct {
			job *jobs.Job
			err error
		}
		await := func(ctx context.Context, id string) <-chan outcome {
			out := make(chan outcome, 1)
			go func() {
				job, err := b.store.Requests.Await(ctx, id, "")
				out <- outcome{job, err}
			}()
			synctest.Wait()
			return out
		}

		job := b.replicate("")
		waiting := await(t.Context(), job.ID)
		ctx, giveUp := context.WithCancel(t.Context())
		impatient := await(ctx, job.ID)
		giveUp()
		require.ErrorIs(t, (<-impatient).err, context.Canceled)

		// The job crashes, is scheduled for later, and completes an hour later.
		run := b.accept()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "too many requests")))
		synctest.Wait()
		require.Empty(t, waiting)
		began := time.Now()
		run = b.accept()
		require.GreaterOrEqual(t, time.Since(began), time.Hour-time.Second)
		require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) { s.Result = json.RawMessage(`{"ok":true,"no_changes":true}`) }))
		ended := <-waiting
		require.NoError(t, ended.err)
		require.Equal(t, replicator.StateCompleted, ended.job.Condition())
		require.JSONEq(t, `{"ok":true,"no_changes":true}`, string(ended.job.State.Result))
		at, err := b.store.Requests.Await(t.Context(), job.ID, job.Args.Life)
		require.NoError(t, err, "it has ended already")
		require.Equal(t, ended.job.State.Result, at.State.Result)

		job = b.replicate(`"create_target": true`)
		waiting = await(t.Context(), job.ID)
		b.cancel(job.ID)
		require.ErrorIs(t, (<-waiting).err, jobs.ErrNotFound)
	})
}

// Await returns the end of the life that it waits for, even if the job was added again before
// Await reads that end.
func TestAwaitEndOfItsLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	life := func(members string) *jobs.Job {
		job := b.replicate(members)
		require.NotEmpty(t, job.Args.Life)
		return job
	}
	run := func(reads int64) {
		require.NoError(t, b.accept().Complete(t.Context(), func(s *replicator.JobState) {
			s.Stats.DocsRead, s.Result = reads, fmt.Appendf(nil, `{"ok":true,"run":%d}`, reads)
		}))
	}
	awaited := func(job *jobs.Job, want string) {
		t.Helper()
		ended, err := b.store.Requests.Await(t.Context(), job.ID, job.Args.Life)
		require.NoError(t, err)
		require.Equal(t, replicator.StateCompleted, ended.Condition())
		require.JSONEq(t, want, string(ended.State.Result))
	}
	first := life("")
	require.Equal(t, first.Args.Life, life("").Args.Life, "joined")
	require.Equal(t, first.Args.Life, life(`"worker_processes": 2`).Args.Life, "continues with other options")
	running := b.accept()
	require.Equal(t, first.Args.Life, life(`"worker_processes": 3`).Args.Life)
	require.ErrorIs(t, running.Complete(t.Context(), nil), fdbjobs.ErrHalt)
	run(1)
	awaited(first, `{"ok":true,"run":1}`)

	second := life("")
	require.NotEqual(t, first.Args.Life, second.Args.Life)
	awaited(first, `{"ok":true,"run":1}`)
	next := b.accept()
	awaited(first, `{"ok":true,"run":1}`)
	require.NoError(t, next.Fail(t.Context(), replicator.TextFault("db_not_found", "gone")))
	awaited(first, `{"ok":true,"run":1}`)
	ended, err := b.store.Requests.Await(t.Context(), second.ID, second.Args.Life)
	require.NoError(t, err)
	require.Equal(t, replicator.StateFailed, ended.Condition())

	third := life("")
	ended, err = b.store.Requests.Await(t.Context(), second.ID, second.Args.Life)
	require.NoError(t, err)
	code, reason := ended.State.ErrorBody()
	require.Equal(t, "db_not_found: gone", code+": "+reason)
	_, err = b.store.Requests.Await(t.Context(), first.ID, first.Args.Life)
	require.ErrorIs(t, err, jobs.ErrForgotten, "only the latest end is kept")

	b.cancel(third.ID)
	fourth := life("")
	_, err = b.store.Requests.Await(t.Context(), third.ID, third.Args.Life)
	require.ErrorIs(t, err, jobs.ErrNotFound, "it was cancelled")
	run(4)
	awaited(fourth, `{"ok":true,"run":4}`)
	require.Zero(t, b.ends())
	life("")
	require.Equal(t, 1, b.ends())
	b.cancel(third.ID)
	require.Zero(t, b.ends(), "nothing is left of a removed job")
}

// The same holds between two wake-ups of a waiter, however late it reads the job.
func TestAwaitBetweenWakeUps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			db := enginetest.Memory(t)
			b := setupOn(t, db)
			// Watches fire late or never.
			deaf := fdbjobs.Open(faultkv.Wrap(db, faultkv.Options{Seed: seed, Rates: faultkv.Rates{
				faultkv.LostWatch: 0.3, faultkv.LateWatch: 0.7, faultkv.UnknownCommitted: 0.2,
			}}), []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})
			defer deaf.Close()
			store, err := jobs.Open(t.Context(), b.db, deaf, jobs.Options{UUID: serverUUID, Documents: docsPrefix})
			require.NoError(t, err)

			results := make(chan string)
			wait := func(job *jobs.Job) {
				ended, err := store.Requests.Await(t.Context(), job.ID, job.Args.Life)
				if err != nil {
					results <- err.Error()
					return
				}
				results <- string(ended.State.Result)
			}
			first := b.replicate("")
			go wait(first)
			go wait(b.replicate("")) // joins
			synctest.Wait()
			end := func(text string) {
				require.NoError(t, b.accept().Complete(t.Context(), func(s *replicator.JobState) { s.Result = json.RawMessage(text) }))
			}
			end(`{"run":1}`)
			second := b.replicate("")
			began := time.Now()
			for range 2 {
				require.Equal(t, `{"run":1}`, <-results)
			}
			require.LessOrEqual(t, time.Since(began), time.Minute, "it does not wait for another run")
			go wait(second)
			synctest.Wait()
			end(`{"run":2}`)
			require.Equal(t, `{"run":2}`, <-results)
		})
	}
}

func TestTooLargeDefinitionIsRefusedAndNothingStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// JSON escapes make it larger than in the request.
	r := b.definition(`"doc_ids": ["` + strings.Repeat("<", fdbjobs.MaxArgsSize/6) + `"]`)
	_, err := b.store.Requests.Replicate(t.Context(), r, nil)
	require.ErrorIs(t, err, fdbjobs.ErrTooLarge)
	require.Zero(t, b.total())
	want, err := r.ID(b.store.ServerUUID, "")
	require.NoError(t, err)
	b.gone(want.String())

	large := b.replicate(`"doc_ids": ["` + strings.Repeat("x", fdbjobs.MaxArgsSize-1_000) + `"]`)
	assert.True(t, b.get(large.ID).Args.Replication.Equal(large.Args.Replication))
}
