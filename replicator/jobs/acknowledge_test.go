package jobs_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/sealed"
	"settee/pkg/sealed/sealedtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// told returns what people are told of a job: as lists and as a page of it have it, which is the same.
func (b *bundle) told(id string) replicator.Condition {
	b.Helper()
	job, err := b.store.Lists.Get(b.Context(), id)
	require.NoError(b, err)
	c := replicator.Explain(job.Facts(time.Now(), nil))
	list, err := b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: replicator.ShownStates}}, jobs.ListOptions{Limit: 100})
	require.NoError(b, err)
	for _, listed := range list.Jobs {
		if listed.ID == job.ID {
			require.Equal(b, c, replicator.Explain(listed.Facts(time.Now(), nil)))
		}
	}
	return c
}

// needs reports whether a job needs a person: as it is told, in the problems and in the metrics, which agree.
func (b *bundle) needs(id string) bool {
	b.Helper()
	c := b.told(id)
	require.Equal(b, c.Attention, len(b.problems()) > 0)
	require.Equal(b, c.Attention, c.Acknowledged == nil)
	waits, err := b.store.Lists.Waits(b.Context(), time.Now())
	require.NoError(b, err)
	if c.State != replicator.ShownFailed && c.State != replicator.ShownCompleted {
		require.Equal(b, c.Attention, waits.LongCrashing+waits.StuckJobs > 0)
	}
	b.check()
	return c.Attention
}

func (b *bundle) acknowledge(id string, until time.Time) {
	b.Helper()
	ack := replicator.Acknowledgement{At: time.Now(), Until: until, By: "ann", Note: "a.example moves"}
	require.NoError(b, b.store.Requests.Acknowledge(b.Context(), id, &ack))
}

// An acknowledged job needs nobody, in whatever state it is, and is otherwise what it was. That ends with each of these.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	refused := replicator.FaultConnectRefused
	crash := func(t *testing.T, run *jobs.Run, code replicator.FaultCode) {
		t.Helper()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Minute), run.Job().State.ErrorCount+1, sourceFault(code, "no")))
	}
	for name, ends := range map[string]func(t *testing.T, b *bundle, run *jobs.Run){
		"taken back": func(t *testing.T, b *bundle, run *jobs.Run) {
			require.NoError(t, b.store.Requests.Acknowledge(t.Context(), run.Job().ID, nil))
			require.NoError(t, b.store.Requests.Acknowledge(t.Context(), run.Job().ID, nil))
		},
		"another fault": func(t *testing.T, _ *bundle, run *jobs.Run) { crash(t, run, replicator.FaultUnauthorized) },
		"another kind": func(t *testing.T, _ *bundle, run *jobs.Run) {
			require.NoError(t, run.Fail(t.Context(), sourceFault(refused, "no")))
		},
		"progress": func(t *testing.T, b *bundle, run *jobs.Run) {
			require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.ErrorCount = 0 }))
			c := b.told(run.Job().ID)
			require.False(t, c.Attention)
			require.Empty(t, c.Marks)
			<-time.After(time.Second)
			crash(t, run, refused)
		},
		"a new definition": func(t *testing.T, b *bundle, run *jobs.Run) {
			b.put(repdb, "d", b.document(repdb, "d")["_rev"].(string), `"doc_ids": ["other"]`)
			require.Nil(t, b.get(run.Job().ID).Args.Acknowledged)
			require.ErrorIs(t, run.Update(t.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)
			crash(t, b.accept(), refused)
		},
		"its time": func(t *testing.T, b *bundle, run *jobs.Run) {
			crash(t, run, refused)
			<-time.After(30 * time.Minute)
			b.upkeep()
			require.False(t, b.needs(run.Job().ID))
			<-time.After(31 * time.Minute)
			require.True(t, b.told(run.Job().ID).Attention)
			b.upkeep()
			require.Nil(t, b.get(run.Job().ID).Args.Acknowledged)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.create(repdb)
				run := b.doc(repdb, "d")
				id := run.Job().ID
				ack := replicator.Acknowledgement{At: time.Now()}
				require.ErrorIs(t, b.store.Requests.Acknowledge(t.Context(), id, &ack), jobs.ErrNoAttention)
				require.ErrorIs(t, b.store.Requests.Acknowledge(t.Context(), "nosuch", &ack), jobs.ErrNotFound)
				crash(t, run, refused)
				before := b.told(id)
				require.True(t, b.needs(id))

				b.acknowledge(id, time.Now().Add(time.Hour))
				require.False(t, b.needs(id))
				after := b.told(id)
				require.Equal(t, "a.example moves", after.Acknowledged.Note)
				require.Equal(t, replicator.Mark{Type: replicator.MarkAcknowledged, Since: after.Acknowledged.At}, after.Marks[1])
				after.Attention, after.Acknowledged, after.Marks = true, nil, after.Marks[:1]
				require.Equal(t, before, after)
				list, err := b.store.Lists.List(t.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 1, Order: jobs.ByCrash})
				require.NoError(t, err)
				require.Len(t, list.Jobs, 1)

				<-time.After(time.Minute)
				run = b.accept()
				require.False(t, b.needs(id))
				require.NoError(t, run.Update(t.Context(), func(*replicator.JobState) {}))
				crash(t, run, refused)
				require.False(t, b.needs(id), "the same fault again")
				b.put(repdb, "d", b.document(repdb, "d")["_rev"].(string), `"doc_ids": ["d"], "paused": true`)
				b.put(repdb, "d", b.document(repdb, "d")["_rev"].(string), `"doc_ids": ["d"]`)
				require.False(t, b.needs(id), "pauses do not end it")

				<-time.After(time.Minute)
				ends(t, b, b.accept())
				require.True(t, b.needs(id))
			})
		})
	}
}

// A run goes on while its job is acknowledged, and what it writes later leaves the acknowledgement. So does the end of the job.
func TestAcknowledgeDuringARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, jobs.Options{StuckAfter: time.Minute})
		b.create(repdb)
		run := b.doc(repdb, "d")
		report := func() {
			t.Helper()
			require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
				s.Activity = &replicator.Activity{Doing: replicator.DoingCopying}
			}))
		}
		report()
		<-time.After(time.Minute)
		report()
		require.True(t, b.needs(run.Job().ID))
		b.acknowledge(run.Job().ID, time.Time{})
		require.False(t, b.needs(run.Job().ID))
		<-time.After(time.Minute)
		report()
		require.False(t, b.needs(run.Job().ID))
		require.NoError(t, run.ListRefused(t.Context(), []replicator.Failure{{ID: "x"}}, 1))
		require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) { s.Stats.DocWriteFailures = 1 }))
		require.True(t, b.needs(run.Job().ID), "another kind")
		b.acknowledge(run.Job().ID, time.Time{})
		require.False(t, b.needs(run.Job().ID), "it has ended")
		b.remove(repdb, "d", b.document(repdb, "d")["_rev"].(string))
		b.check()
	})
}

// All jobs of a problem are acknowledged, also those that come while that goes on, without those of paused databases. An acknowledgement of
// a job whose definition cannot be opened is in lists alone.
func TestAcknowledgeProblem(t *testing.T) {
	onEngines(t, func(b *bundle) {
		plain := *b
		b = b.withKeys(sealedtest.Keys(b, "a"))
		b.create(repdb)
		b.create("a/_replicator")
		const many = 120
		for i := range many {
			database := repdb
			if i%10 == 0 {
				database = "a/_replicator"
			}
			require.NoError(b, b.doc(database, fmt.Sprintf("d%03d", i)).Crash(b.Context(), time.Now().Add(time.Hour), 1,
				sourceFault(replicator.FaultConnectRefused, "no")))
		}
		require.NoError(b, b.store.Shares.SetWeights(b.Context(), map[string]float64{"a/_replicator": 0}))
		found, err := b.store.Lists.Problems(b.Context())
		require.NoError(b, err)
		require.Len(b, found, 1)
		before := b.get(b.jobID(repdb, "d001"))
		n, err := plain.withKeys(new(sealed.Keys)).store.Requests.AcknowledgeProblem(b.Context(), &found[0], replicator.Acknowledgement{At: time.Now()})
		require.NoError(b, err)
		require.Equal(b, many-many/10, n)
		require.Empty(b, b.problems())
		require.Equal(b, before, b.get(before.ID), "this node had no key")
		b.acknowledge(before.ID, time.Time{})
		after := b.get(before.ID)
		require.Equal(b, before.Args.Replication, after.Args.Replication)
		require.NotNil(b, after.Args.Acknowledged)
		listed, err := kv.TransactValue(b.Context(), b.db, func(tx kv.Transaction) (*fdbjobs.Job, error) {
			return b.store.Jobs.Read(tx, after.ID).Await()
		})
		require.NoError(b, err)
		summary, err := jobs.Listed(after)
		require.NoError(b, err)
		require.JSONEq(b, string(summary), string(listed.Listed))

		require.NoError(b, b.store.Shares.SetWeights(b.Context(), map[string]float64{"a/_replicator": 1}))
		require.Len(b, b.problems(), 1)
	})
}

// A mirror needs a person for its databases as long as one of those that fail is not acknowledged.
func TestAcknowledgeADatabaseOfAMirror(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, run := b.mirrorOne("films")
	require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, sourceFault(replicator.FaultConnectRefused, "no")))
	id := mirror.Job().ID
	require.True(t, b.told(id).Attention)
	require.ErrorIs(t, b.store.Requests.Acknowledge(t.Context(), id, new(replicator.Acknowledgement)), jobs.ErrNoAttention)
	b.acknowledge(run.Job().ID, time.Time{})
	c := b.told(id)
	require.False(t, c.Attention)
	require.EqualValues(t, 1, c.Marks[len(c.Marks)-1].Count, "it fails as before")
	summary, err := asMirror(mirror).Summary(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, summary.Acknowledged)
	require.EqualValues(t, 1, summary.Known)
	b.check()
	require.NoError(t, b.store.Requests.Acknowledge(t.Context(), run.Job().ID, nil))
	require.True(t, b.told(id).Attention)
	b.check()
}
