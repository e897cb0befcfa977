package jobs_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestJobLifeCycle(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		job := b.replicate("")
		time.Sleep(time.Second) // of the bubble's clock
		began := time.Now().UTC()
		run := b.accept()
		stored := b.get(job.ID)
		require.Equal(t, replicator.StateRunning, stored.Condition())
		require.Equal(t, "node1", stored.State.Node)
		require.Equal(t, "pid1", stored.State.PID)
		require.Equal(t, began, stored.State.StartTime)

		require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead = 5 }))
		require.NoError(t, run.Stop(t.Context(), "", "", func(s *replicator.JobState) { s.Stats.DocsRead++ }))
		stored = b.get(job.ID)
		require.Equal(t, replicator.StatePending, stored.Condition())
		require.EqualValues(t, 6, stored.State.Stats.DocsRead)
		require.ErrorIs(t, run.Update(t.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)

		run = b.accept()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Minute), 3, replicator.TextFault("db_not_found", "could not open http://u:pw@h/")))
		stored = b.get(job.ID)
		require.Equal(t, replicator.StateCrashing, stored.Condition())
		require.Equal(t, 3, stored.State.ErrorCount)
		require.Equal(t, "db_not_found: could not open http://u:*****@h/", stored.State.Error)
		require.Equal(t, stored.State.Error, stored.State.History[0].Reason)

		run = b.accept()
		require.EqualValues(t, 6, run.Job().State.Stats.DocsRead)
		require.NoError(t, run.Restart(t.Context(), "the filter changed"))
		stored = b.get(job.ID)
		require.Zero(t, stored.State.Stats)
		require.Equal(t, "the filter changed", stored.State.History[0].Reason)
		require.Empty(t, stored.State.Error)

		run = b.accept()
		require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) { s.Result = json.RawMessage(`{"ok":true}`) }))
		stored = b.get(job.ID)
		require.Equal(t, replicator.StateCompleted, stored.Condition())
		require.Zero(t, stored.State.ErrorCount)
		require.Equal(t, []string{
			"stopped", "started", "pending", "started", "crashed", "started", "stopped", "started", "added",
		}, eventTypes(stored))
	})
}

// A node that does not learn that its update was committed does not take the update back.
func TestUpdateOfUnknownResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate("")
	run, err := accept(t.Context(), b.store)
	require.NoError(t, err)
	unknown := func(update func() error) {
		b.db.mute.Store(true)
		require.ErrorIs(t, update(), kv.ErrCommitUnknown)
		b.db.mute.Store(false)
	}
	unknown(func() error { return run.Start(t.Context(), "node2", "pid2") })
	require.Equal(t, "pid2", run.Job().State.PID)
	unknown(func() error {
		return run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsWritten = 7 })
	})
	require.NoError(t, run.Stop(t.Context(), "", "", nil))
	stored := b.get(job.ID)
	require.Equal(t, replicator.StatePending, stored.Condition())
	require.EqualValues(t, 7, stored.State.Stats.DocsWritten)
	require.Equal(t, "node2", stored.State.Node)
	require.Equal(t, []string{"stopped", "started", "added"}, eventTypes(stored))

	// An end that was not committed does not count.
	run = b.accept()
	b.db.broken.Store(true)
	require.ErrorIs(t, run.Complete(t.Context(), nil), errBroken)
	b.db.broken.Store(false)
	require.NoError(t, run.Stop(t.Context(), "", "", nil))
	require.EqualValues(t, 7, b.get(job.ID).State.Stats.DocsWritten)
}

// The state of a job that waits for changes is written once a minute, and the job is kept alive meanwhile.
func TestUnchangedState(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		id := b.replicate("").ID
		run := b.accept()
		progress := func(s *replicator.JobState) {
			s.ChangesPending, s.SourceSeq = new(int64(0)), json.RawMessage(`"5-x"`)
		}
		written := func() time.Time { return b.get(id).State.LastUpdated }
		require.NoError(t, run.Update(t.Context(), progress))
		first := written()
		for range 2 {
			time.Sleep(run.Heartbeat())
			require.NoError(t, run.Update(t.Context(), progress))
			require.Equal(t, first, written())
		}
		time.Sleep(run.Heartbeat())
		require.NoError(t, run.Update(t.Context(), progress))
		require.Equal(t, first.Add(time.Minute), written())
		require.NoError(t, run.Check())

		time.Sleep(time.Second)
		require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead++ }))
		require.Equal(t, first.Add(61*time.Second), written())
		require.EqualValues(t, 1, b.get(id).State.Stats.DocsRead)

		// The store may lack a state whose commit had an unknown result.
		b.db.mute.Store(true)
		require.ErrorIs(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead++ }), kv.ErrCommitUnknown)
		b.db.mute.Store(false)
		time.Sleep(time.Second)
		require.NoError(t, run.Update(t.Context(), progress))
		require.Equal(t, first.Add(62*time.Second), written())
	})
}

// A job that crashed, and that was accepted by a node that died before its run began, is pending
// in its own state, in listings and in counts.
func TestAcceptedAfterACrashButNotStarted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		b.put(repdb, "a", "", `"continuous": true`)
		require.NoError(t, b.accept().Crash(b.Context(), time.Now(), 3, replicator.TextFault("error", "why")))
		b.accept()
		requeued := make(chan []string)
		stop := b.monitor(func(ids []string) { requeued <- ids })
		<-requeued
		stop()
		state := b.get(b.jobID(repdb, "a")).Condition()
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{Documents: true, Database: repdb, States: jobs.States{Shown: []replicator.ShownState{replicator.ShownState(state)}}}, jobs.ListOptions{Limit: 10})
		require.NoError(t, err)
		require.Len(t, list.Jobs, 1)
		require.Equal(t, state, list.Jobs[0].Condition())
	})
}

func TestFail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate("")
	require.NoError(t, b.accept().Fail(t.Context(), replicator.TextFault("replication_auth_error", "who are you")))
	stored := b.get(job.ID)
	require.Equal(t, replicator.StateFailed, stored.Condition())
	code, reason := stored.State.ErrorBody()
	require.Equal(t, "replication_auth_error", code)
	require.Equal(t, "who are you", reason)
	require.Equal(t, 1, stored.State.ErrorCount)
}

func TestHistoryKeepsTheLatestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, jobs.Options{MaxHistory: 3})
	job := b.replicate("")
	for range 5 {
		require.NoError(t, b.accept().Stop(t.Context(), "", "", nil))
	}
	require.Equal(t, []string{"stopped", "started", "stopped"}, eventTypes(b.get(job.ID)))
}

func TestCondition(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status  fdbjobs.Status
		written replicator.State
		want    replicator.State
	}{
		{fdbjobs.Pending, replicator.StatePending, replicator.StatePending},
		{fdbjobs.Pending, replicator.StateRunning, replicator.StatePending}, // its node has died
		{fdbjobs.Pending, replicator.StateCrashing, replicator.StateCrashing},
		{fdbjobs.Running, replicator.StatePending, replicator.StateRunning}, // just accepted
		{fdbjobs.Running, replicator.StateCrashing, replicator.StateRunning},
		{fdbjobs.Finished, replicator.StateCompleted, replicator.StateCompleted},
		{fdbjobs.Finished, replicator.StateFailed, replicator.StateFailed},
	} {
		job := jobs.Job{Status: test.status, State: &replicator.JobState{State: test.written}}
		require.Equal(t, test.want, job.Condition(), "%s %s", test.status, test.written)
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate(`"filter": "f/t"`)
	other := b.replicate(`"filter": "f/u"`)
	runs := map[string]*jobs.Run{}
	for range 2 {
		run := b.accept()
		runs[run.Job().ID] = run
	}
	run := runs[job.ID]

	require.NoError(t, run.Identify(t.Context(), id('a')))
	require.Equal(t, job.ID, b.get(id('a').String()).ID)
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
		s.Stats.DocsRead, s.SourceSeq = 9, json.RawMessage(`"9-x"`)
	}))
	require.NoError(t, run.Identify(t.Context(), id('a')))
	require.EqualValues(t, 9, b.get(job.ID).State.Stats.DocsRead, "the same id keeps the statistics")

	require.NoError(t, run.Identify(t.Context(), id('b')))
	stored := b.get(job.ID)
	require.Zero(t, stored.State.Stats)
	require.Nil(t, stored.State.SourceSeq)
	require.Equal(t, job.ID, b.get(id('b').String()).ID)
	b.gone(id('a').String())

	var collision *jobs.Collision
	require.ErrorAs(t, runs[other.ID].Identify(t.Context(), id('b')), &collision)
	require.Equal(t, job.ID, collision.JobID)
	require.Empty(t, runs[other.ID].Job().ReplicationID(), "what was not stored is not kept")
	require.NoError(t, runs[other.ID].Identify(t.Context(), id('a')), "the id that was given up is free")
}

// A header's name can be spelled in several ways, and replication ids cover the spelling.
func TestReplacedDefinitionWithAnotherReplicationID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replicate := func(header string) *jobs.Job {
		r := b.definition("")
		r.Source.Headers = []replicator.Header{{Name: header, Value: "1"}}
		r.Source.Password += header
		job, err := b.store.Requests.Replicate(t.Context(), r, nil)
		require.NoError(t, err)
		return job
	}
	first := replicate("X-Key")
	run := b.accept()
	second := replicate("x-key")
	require.Equal(t, first.ID, second.ID)
	require.NotEqual(t, first.Args.ReplicationID, second.Args.ReplicationID)
	for _, name := range []string{first.Args.ReplicationID, second.Args.ReplicationID} {
		require.Equal(t, first.ID, b.get(name).ID)
	}
	require.Equal(t, first.ID, b.reservations()[second.Args.ReplicationID], "the new id is the job's before its next run")

	require.ErrorIs(t, run.Update(t.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)
	run = b.accept()
	name := parsedID(second.Args.ReplicationID)
	require.NoError(t, run.Identify(t.Context(), name))
	b.gone(first.Args.ReplicationID)
	b.cancel(second.Args.ReplicationID)
	_, err := b.store.Requests.Replicate(t.Context(), second.Args.Replication, new("alice"))
	require.NoError(t, err)
}

func TestLargeStatesAreTruncated(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	b := setup(t, jobs.Options{MaxHistory: 100})
	job := b.replicate("")
	sequence := func(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("s", size) + `"`) }
	for range 99 {
		// A control character takes six bytes.
		require.NoError(t, b.accept().Crash(t.Context(), time.Now().Add(-time.Second), 1, replicator.TextFault("", strings.Repeat("\x01", 900))))
	}
	stored := b.get(job.ID)
	require.Greater(t, len(stored.State.History), 5)
	require.Less(t, len(stored.State.History), 40, "a crash and a start each")
	require.Equal(t, replicator.EventCrashed, stored.State.History[0].Type)

	run := b.accept()
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.SourceSeq, s.ThroughSeq = sequence(80_000), sequence(5) }))
	require.NotNil(t, b.get(job.ID).State.SourceSeq)
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.SourceSeq = sequence(100_000) }))
	stored = b.get(job.ID)
	require.Nil(t, stored.State.SourceSeq)
	require.Nil(t, run.Job().State.SourceSeq, "the run goes on with what was stored")
	require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) {
		s.Result = json.RawMessage(`{"ok":true,"history":[` + string(sequence(100_000)) + `]}`)
	}))
	require.JSONEq(t, `{"ok":true}`, string(b.get(job.ID).State.Result))
}

func TestMalformedJobFailsAndIsSkipped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for jobID, args := range map[string]string{"a": `{"replication": 5}`, "b": `{}`} {
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			return b.store.Jobs.Add(tx, fdbjobs.Spec{ID: jobID, Owner: "user:", Args: json.RawMessage(args)})
		}))
	}
	good := b.replicate("")
	require.Equal(t, good.ID, b.accept().Job().ID)
	run := make(chan *jobs.Run, 1)
	go func() {
		r, _ := accept(t.Context(), b.store)
		run <- r
	}()
	for _, jobID := range []string{"a", "b"} {
		raw, err := b.store.Jobs.Wait(t.Context(), jobID, nil)
		require.NoError(t, err)
		var state replicator.JobState
		require.NoError(t, json.Unmarshal(raw.State, &state))
		require.Equal(t, replicator.StateFailed, state.State)
		require.Contains(t, state.Error, "reading the args")
	}
	last := b.replicate(`"continuous": true`)
	require.Equal(t, last.ID, (<-run).Job().ID)
}

// Every call recognises its own commit when the result of that was unknown.
func TestCommitsOfUnknownResult(t *testing.T) {
	t.Parallel()
	// held accepts a job and returns its run.
	held := func(t *testing.T) (*bundle, *jobs.Run) {
		b := setup(t)
		b.replicate(`"filter": "f/t"`)
		return b, b.accept()
	}
	// repeat makes a call whose commits are each reported unknown once.
	repeat := func(b *bundle, call func() error) {
		b.db.on.Store(true)
		defer b.db.on.Store(false)
		before := b.db.Hits(faultkv.UnknownCommitted)
		require.NoError(b, call())
		require.Greater(b, b.db.Hits(faultkv.UnknownCommitted), before, "something was repeated")
	}
	counts := func(b *bundle) (pending, running, finished int64) {
		require.NoError(b, b.db.Transact(b.Context(), func(tx kv.Transaction) (err error) {
			for status, n := range map[fdbjobs.Status]*int64{
				fdbjobs.Pending: &pending, fdbjobs.Running: &running, fdbjobs.Finished: &finished,
			} {
				if *n, err = jobs.CountIn(tx, b.store.Jobs, jobs.Everywhere(status)); err != nil {
					return err
				}
			}
			return nil
		}))
		return pending, running, finished
	}
	requireCounts := func(b *bundle, pending, running, finished int64) {
		b.Helper()
		p, r, f := counts(b)
		require.Equal(b, [3]int64{pending, running, finished}, [3]int64{p, r, f})
	}
	nothing := func(*replicator.JobState) {}

	t.Run("Replicate", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var job *jobs.Job
		repeat(b, func() (err error) {
			job, err = b.store.Requests.Replicate(t.Context(), b.definition(""), nil)
			return err
		})
		requireCounts(b, 1, 0, 0)
		require.Equal(t, job.ID, b.get(job.ReplicationID()).ID)
		require.Equal(t, []string{"added"}, eventTypes(b.get(job.ID)))
	})
	t.Run("Replicate that replaces", func(t *testing.T) {
		t.Parallel()
		b, run := held(t)
		repeat(b, func() error {
			_, err := b.store.Requests.Replicate(t.Context(), b.definition(`"filter": "f/t", "worker_processes": 2`), nil)
			return err
		})
		requireCounts(b, 0, 1, 0)
		require.ErrorIs(t, run.Update(t.Context(), nothing), fdbjobs.ErrHalt)
		run = b.accept()
		require.NoError(t, run.Update(t.Context(), nothing), "it was replaced once")
		require.Equal(t, 2, *run.Job().Args.Replication.WorkerProcesses)
	})
	t.Run("Replicate that begins anew", func(t *testing.T) {
		t.Parallel()
		b, run := held(t)
		require.NoError(t, run.Complete(t.Context(), nil))
		first := run.Job().Args.Life
		repeat(b, func() error {
			again, err := b.store.Requests.Replicate(t.Context(), b.definition(`"filter": "f/t"`), nil)
			if err == nil {
				require.NotEqual(t, first, again.Args.Life)
			}
			return err
		})
		requireCounts(b, 1, 0, 0)
		_, err := b.store.Requests.Await(t.Context(), run.Job().ID, first)
		require.NoError(t, err)
	})
	t.Run("Cancel", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		job := b.replicate("")
		repeat(b, func() error {
			cancelled, err := b.store.Requests.Cancel(t.Context(), job.ReplicationID(), nil)
			if err == nil {
				require.Equal(t, job.ID, cancelled.ID)
			}
			return err
		})
		requireCounts(b, 0, 0, 0)
		b.gone(job.ReplicationID())
	})
	t.Run("Accept and Start", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.replicate("")
		b.replicate(`"continuous": true`)
		var run *jobs.Run
		repeat(b, func() (err error) {
			if run, err = accept(t.Context(), b.store); err != nil {
				return err
			}
			return run.Start(t.Context(), "node1", "pid1")
		})
		requireCounts(b, 1, 1, 0)
		require.Equal(t, []string{"started", "added"}, eventTypes(b.get(run.Job().ID)))
	})

	runMethods := []struct {
		name                       string
		call                       func(*testing.T, *jobs.Run) error
		pending, running, finished int64
		events                     []string
	}{
		{"Update", func(t *testing.T, r *jobs.Run) error {
			return r.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead++ })
		}, 0, 1, 0, []string{"started", "added"}},
		{"Identify", func(t *testing.T, r *jobs.Run) error { return r.Identify(t.Context(), id('b')) }, 0, 1, 0, []string{"started", "added"}},
		{"Complete", func(t *testing.T, r *jobs.Run) error { return r.Complete(t.Context(), nothing) }, 0, 0, 1, []string{"stopped", "started", "added"}},
		{"Fail", func(t *testing.T, r *jobs.Run) error { return r.Fail(t.Context(), replicator.TextFault("c", "r")) }, 0, 0, 1, []string{"crashed", "started", "added"}},
		{"Crash", func(t *testing.T, r *jobs.Run) error {
			return r.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("c", "r"))
		}, 1, 0, 0, []string{"crashed", "started", "added"}},
		{"Stop", func(t *testing.T, r *jobs.Run) error { return r.Stop(t.Context(), "", "", nothing) }, 1, 0, 0, []string{"stopped", "started", "added"}},
		{"Restart", func(t *testing.T, r *jobs.Run) error { return r.Restart(t.Context(), "why") }, 1, 0, 0, []string{"pending", "started", "added"}},
	}
	for _, method := range runMethods {
		t.Run(method.name, func(t *testing.T) {
			t.Parallel()
			b, run := held(t)
			require.NoError(t, run.Identify(t.Context(), id('a')))
			repeat(b, func() error { return method.call(t, run) })
			requireCounts(b, method.pending, method.running, method.finished)
			stored := b.get(run.Job().ID)
			require.Equal(t, method.events, eventTypes(stored))
			require.Equal(t, stored.State.Stats, run.Job().State.Stats)
			require.Equal(t, run.Job().ID, b.get(stored.ReplicationID()).ID)
		})
	}
	t.Run("a whole life", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.on.Store(true)
		job := b.replicate("")
		require.NoError(t, b.accept().Stop(t.Context(), "", "", nil))
		require.NoError(t, b.accept().Crash(t.Context(), time.Now(), 1, replicator.TextFault("", "boom")))
		require.NoError(t, b.accept().Complete(t.Context(), nil))
		ended, err := b.store.Requests.Await(t.Context(), job.ID, job.Args.Life)
		require.NoError(t, err)
		require.Equal(t, []string{"stopped", "started", "crashed", "started", "stopped", "started", "added"}, eventTypes(ended))
		requireCounts(b, 0, 0, 1)
	})
}

func TestLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*bundle, *jobs.Run){
		"cancelled": func(b *bundle, run *jobs.Run) {
			b.cancel(run.Job().ID)
		},
		"cancelled, added and accepted again": func(b *bundle, run *jobs.Run) {
			b.cancel(run.Job().ID)
			b.replicate("")
			b.accept()
		},
		"replaced": func(b *bundle, _ *jobs.Run) { b.replicate(`"worker_processes": 3`) },
		"taken away": func(b *bundle, _ *jobs.Run) {
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			taken := make(chan []string, 1)
			ended := make(chan error, 1)
			go func() {
				ended <- b.store.Jobs.RunMonitor(ctx, func(ids []string, _ time.Duration, _ error) {
					if len(ids) > 0 {
						taken <- ids
					}
				})
			}()
			<-taken
			stop()
			require.ErrorIs(b, <-ended, context.Canceled)
		},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			b := setupWith(t, enginetest.Memory(t), fdbjobs.Options{Timeout: 30 * time.Second}, jobs.Options{})
			b.replicate("")
			run := b.accept()
			require.Equal(t, 10*time.Second, run.Heartbeat())
			ctx, giveUp := context.WithCancel(t.Context())
			impatient, lost := make(chan error, 1), make(chan error, 1)
			go func() { impatient <- run.Lost(ctx) }()
			go func() { lost <- run.Lost(t.Context()) }()
			synctest.Wait()
			giveUp()
			require.ErrorIs(t, <-impatient, context.Canceled)
			require.NoError(t, run.Update(t.Context(), func(*replicator.JobState) {}))
			synctest.Wait()
			require.Empty(t, lost)
			lose(b, run)
			require.ErrorIs(t, <-lost, fdbjobs.ErrHalt)
			require.ErrorIs(t, run.Stop(t.Context(), "", "", nil), fdbjobs.ErrHalt)
		})
	}
}

// A job that is to run now is due, and counts as before.
func TestRunNow(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		b.put(repdb, "nightly", "", `"schedule": "0 3 1 1 *"`)
		b.put(repdb, "crashing", "", `"doc_ids": ["x"]`)
		waiting := func() (n int64) {
			n, err := kv.TransactValue(b.Context(), b.db, func(tx kv.Transaction) (int64, error) {
				return jobs.CountIn(tx, b.store.Jobs, []fdbjobs.Part{{Status: fdbjobs.Pending, Label: "document", Tag: "waiting"}})
			})
			require.NoError(b, err)
			return n
		}
		require.NoError(b, b.accept().Crash(b.Context(), time.Now().Add(time.Hour), 5, replicator.TextFault("", "no")))
		require.EqualValues(b, 1, waiting())
		for _, doc := range []string{"crashing", "nightly"} {
			job, err := b.store.Requests.RunNow(b.Context(), b.jobID(repdb, doc))
			require.NoError(b, err)
			require.Equal(b, map[string]replicator.State{"crashing": "crashing", "nightly": "pending"}[doc], job.State.State)
			require.Equal(b, job.State, b.get(job.ID).State)
			require.Equal(b, doc == "crashing", waiting() == 1)
			run := b.accept()
			require.Equal(b, doc, *run.Job().Args.DocID)
			if doc == "crashing" {
				require.Equal(b, 5, run.Job().State.ErrorCount)
				require.False(b, run.Job().State.CrashingSince.IsZero())
			}
			_, err = b.store.Requests.RunNow(b.Context(), job.ID)
			require.NoError(b, err)
			require.NoError(b, run.Complete(b.Context(), nil))
		}
		_, err := b.store.Requests.RunNow(b.Context(), b.jobID(repdb, "crashing"))
		require.ErrorIs(b, err, jobs.ErrEnded)
		_, err = b.store.Requests.RunNow(b.Context(), "none")
		require.ErrorIs(b, err, jobs.ErrNotFound)
	})
}

// Charging begins when a job is accepted, not when a node began to wait for one.
func TestWaitingIsNotCharged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		taken := make(chan *jobs.Run)
		go func() {
			runs, err := b.store.Runs.Accept(b.Context(), 1, nil)
			assert.NoError(t, err)
			taken <- runs[0]
		}()
		time.Sleep(3 * time.Hour) // of the bubble's clock
		b.put(repdb, "a", "", `"continuous": true`)
		run := <-taken
		time.Sleep(2 * time.Second)
		require.NoError(t, run.Start(b.Context(), "node", "pid"))
		shares, err := b.store.Shares.List(b.Context())
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, shares[0].Usage)
	})
}

// A read that fails because the context has ended says nothing of the run's database, also if the cause is that another run has lost
// its job: the writes of several runs share a transaction.
func TestHaltedCheck(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.create(repdb)
		b.put(repdb, "a", "", `"continuous": true`)
		run := b.accept()
		require.NoError(b, b.db.Transact(b.Context(), func(tx kv.Transaction) error {
			gone, err := run.CheckGone(haltedReads{tx})
			require.ErrorIs(b, err, fdbjobs.ErrHalt)
			require.False(b, gone)
			return nil
		}))
		require.NoError(b, run.Stop(b.Context(), "", "", nil))
		require.Equal(b, fdbjobs.Pending, b.get(run.Job().ID).Status)
	})
}

// haltedReads are the reads of a transaction whose context has ended.
type haltedReads struct{ kv.ReadTransaction }

func (haltedReads) Get([]byte) kv.Future[[]byte] {
	return kv.Func[[]byte](func() ([]byte, error) { return nil, fdbjobs.ErrHalt })
}
