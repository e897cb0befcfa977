package jobs_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/sealed"
	"settee/pkg/sealed/sealedtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// withKeys returns another process with these keys.
func (b *bundle) withKeys(keys *sealed.Keys) *bundle {
	b.Helper()
	other := &bundle{TB: b.TB, db: b.db, layer: fdbjobs.Open(b.db, []byte("jobs"), fdbjobs.Options{Sealer: keys, Derive: jobs.Derivations()})}
	b.Cleanup(other.layer.Close)
	var err error
	other.store, err = jobs.Open(b.Context(), b.db, other.layer, jobs.Options{UUID: serverUUID, Documents: docsPrefix, Sealer: keys})
	require.NoError(b, err)
	other.docs = docstore.Open(b.db, docsPrefix, docstore.Options{
		Hooks: other.store.Documents.Hooks(nil), Sealer: keys, Sealed: replicator.IsReplicatorDatabase,
	})
	b.Cleanup(other.docs.Close)
	return other
}

// holds reports whether a key or value of the store contains a text.
func (b *bundle) holds(text string) bool {
	b.Helper()
	pairs, err := kv.TransactValue(b.Context(), b.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.Snapshot().GetRange(kv.KeyRange{End: []byte{0xff}}, kv.RangeOptions{}).Slice()
	})
	require.NoError(b, err)
	for _, pair := range pairs {
		if bytes.Contains(pair.Key, []byte(text)) || bytes.Contains(pair.Value, []byte(text)) {
			return true
		}
	}
	return false
}

const secretMembers = `"query_params": {"token": "relax-1"},
	"source": {"url": "http://adm:relax-2@a.example/db", "headers": {"X-Token": "relax-3"}},
	"target": {"url": "http://b.example/db", "auth": {"basic": {"username": "adm", "password": "relax-4"}}},
	"source_proxy": "http://u:relax-5@p.example"`

// Jobs and documents work as without keys, and the store contains none of their secrets.
func TestSealedJobs(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b = b.withKeys(sealedtest.Keys(b, "a"))
		b.create("_replicator")
		b.create("x/_replicator")
		rev := b.put("_replicator", "doc", "", secretMembers)
		b.put("x/_replicator", "doc", "", secretMembers+`, "continuous": true`)
		transient := b.replicate(secretMembers + `, "winning_revs_only": true`)
		require.False(b, b.holds("relax"))

		job := b.get(transient.ID)
		require.Equal(b, "relax-2", job.Args.Replication.Source.Password)
		require.Equal(b, "relax-3", job.Args.Replication.Source.Headers[0].Value)
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10})
		require.NoError(b, err)
		require.Len(b, list.Jobs, 3)
		for _, job := range list.Jobs {
			require.Equal(b, "http://a.example/db/", job.Args.Replication.Source.URL)
		}
		for range 3 {
			run := b.accept()
			require.Equal(b, "relax-4", run.Job().Args.Replication.Target.Password)
			require.NoError(b, run.Complete(b.Context(), nil))
		}
		ended := b.document("_replicator", "doc")
		require.Equal(b, "completed", ended["_replication_state"])
		require.Equal(b, "http://u:relax-5@p.example", ended["source_proxy"])
		require.NotEqual(b, rev, ended["_rev"])
		require.False(b, b.holds("relax"))
		again := b.replicate(secretMembers + `, "winning_revs_only": true`)
		require.Equal(b, transient.ID, again.ID)
		b.cancel(again.ID)
		require.False(b, b.holds("relax"))

		// A process without keys sees the same.
		plain := b.withKeys(nil)
		plain.put("_replicator", "plain", "", secretMembers+`, "doc_ids": ["x"]`)
		require.True(b, b.holds("relax-4"))
	})
}

// A node without the key of a job leaves the job to other nodes and reports why.
func TestJobWithoutTheKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		has, hasNot := b.withKeys(sealedtest.Keys(t, "a")), b.withKeys(sealedtest.Keys(t, "b"))
		has.create("_replicator")
		has.put("_replicator", "doc", "", secretMembers)
		id := has.jobID("_replicator", "doc")
		other := hasNot.replicate("")
		found, err := hasNot.store.Lists.List(t.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10, Query: id})
		require.NoError(t, err)
		require.Len(t, found.Jobs, 1, "lists have what is not sealed")

		var runs []*jobs.Run
		var failed error
		for len(runs) == 0 {
			found, err := hasNot.store.Runs.Accept(t.Context(), 2, nil)
			runs = append(runs, found...)
			if err != nil {
				failed = err
			}
		}
		require.ErrorIs(t, failed, fdbjobs.ErrSealed)
		require.ErrorContains(t, failed, `sealed with the key "a"`)
		require.Len(t, runs, 1)
		require.Equal(t, other.ID, runs[0].Job().ID)

		job := has.get(id)
		require.Equal(t, replicator.StateCrashing, job.Condition())
		require.Contains(t, job.State.Error, `sealed with the key "a"`)
		require.Equal(t, "crashed", job.State.History[0].Type)
		_, err = hasNot.store.Requests.Await(t.Context(), id, "")
		require.ErrorIs(t, err, fdbjobs.ErrSealed)
		list, err := hasNot.store.Lists.List(t.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10})
		require.NoError(t, err, "lists are without definitions")
		require.Len(t, list.Jobs, 2)

		// The job alone is shown as lists have it, and says why it does not run.
		byID, err := hasNot.store.Lists.Get(t.Context(), id)
		require.NoError(t, err)
		require.True(t, byID.Sealed)
		byDocument, err := hasNot.store.Lists.Document(t.Context(), "_replicator", "doc")
		require.NoError(t, err)
		for _, job := range append(list.Jobs, byID, byDocument) {
			if job.ID == id {
				c := replicator.Explain(job.Facts(time.Now(), nil))
				require.Equal(t, []any{replicator.ShownCrashing, replicator.ReasonSealed}, []any{c.State, c.Reason})
				require.Contains(t, c.Fault.Text, `sealed with the key "a"`)
			}
		}
		_, err = hasNot.store.Lists.Failures(t.Context(), id)
		require.NoError(t, err)

		<-time.After(2 * time.Minute)
		run, err := accept(context.Background(), has.store)
		require.NoError(t, err)
		require.Equal(t, id, run.Job().ID)
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		require.Nil(t, run.Job().State.Fault)
		require.NoError(t, run.Complete(t.Context(), nil))
		require.Equal(t, "completed", has.document("_replicator", "doc")["_replication_state"])
		require.NoError(t, runs[0].Fail(t.Context(), replicator.TextFault("", "x")))
		b.layer.Close()
		has.layer.Close()
		hasNot.layer.Close()
	})
}

// If a key is lost, documents and requests that are sent again replace the jobs that cannot be
// opened.
func TestJobsWhoseKeyIsLostAreReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	had := b.withKeys(sealedtest.Keys(t, "a"))
	had.create(repdb)
	changed := had.put(repdb, "changed", "", secretMembers)
	deleted := had.put(repdb, "deleted", "", `"doc_ids": ["x"]`)
	posted := had.replicate(`"doc_ids": ["y"]`)

	now := b.withKeys(sealedtest.Keys(t, "b"))
	now.put(repdb, "changed", changed, `"doc_ids": ["z"]`)
	now.remove(repdb, "deleted", deleted)
	require.Equal(t, posted.ID, now.replicate(`"doc_ids": ["y"]`).ID)
	list, err := now.store.Lists.List(t.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list.Jobs, 2)
	for _, id := range []string{now.jobID(repdb, "changed"), posted.ID} {
		require.Equal(t, replicator.StatePending, now.get(id).Condition())
		require.NoError(t, now.accept().Complete(t.Context(), nil))
	}
	require.Equal(t, "completed", now.document(repdb, "changed")["_replication_state"])
	for _, open := range []*bundle{b, had, now} {
		open.layer.Close()
	}
}

// A run whose database is gone does not remove a job that its node can no longer open, and says so: the job may have a new definition.
func TestRunWithoutTheNewKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		old, rotated := b.withKeys(sealedtest.Keys(t, "a")), b.withKeys(sealedtest.Keys(t, "b", "a"))
		old.create(repdb)
		old.put(repdb, "doc", "", secretMembers)
		run := old.accept()
		require.NoError(t, run.Start(t.Context(), "node", "pid"))
		_, err := rotated.store.Jobs.Reseal(t.Context(), "b")
		require.NoError(t, err)
		require.NoError(t, rotated.database(repdb).Delete(t.Context()))
		require.ErrorIs(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead = 1 }), fdbjobs.ErrHalt)
		require.ErrorIs(t, run.Stop(t.Context(), "", "", nil), fdbjobs.ErrSealed)
		b.layer.Close()
		old.layer.Close()
		rotated.layer.Close()
	})
}
