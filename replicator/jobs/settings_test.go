package jobs_test

import (
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// A changed setting applies from its next use.
func TestSettingsThatChange(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var current atomic.Pointer[jobs.Settings]
		current.Store(&jobs.Settings{MaxHistory: 10, TransientMaxAge: time.Hour})
		b := setup(t, jobs.Options{
			Settings:   func() jobs.Settings { return *current.Load() },
			MaxHistory: 1, UpdateDocs: true, // ignored
		})
		b.create(repdb)
		b.put(repdb, "d", "", "")
		posted := b.replicate(`"doc_ids": ["1"]`)
		crash := func() {
			run := b.accept()
			require.NoError(t, run.Crash(t.Context(), time.Now().Add(-time.Second), 1, replicator.TextFault("error", "no")))
		}
		id := b.jobID(repdb, "d")
		crash()
		require.NotContains(t, b.document(repdb, "d"), "_replication_state")
		require.Len(t, b.get(id).State.History, 3)

		current.Store(&jobs.Settings{MaxHistory: 2, TransientMaxAge: time.Minute, UpdateDocs: true})
		require.NoError(t, b.accept().Complete(t.Context(), nil)) // the transient job
		crash()
		require.Equal(t, "error", b.document(repdb, "d")["_replication_state"])
		require.Equal(t, []string{"crashed", "started"}, eventTypes(b.get(id)))
		time.Sleep(time.Minute)
		b.upkeep()
		b.gone(posted.ID)
	})
}

// A transient job is kept for the requests that wait for it, even if the setting is 0.
func TestTransientJobsAreKeptForTheirRequests(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t, jobs.Options{Settings: func() jobs.Settings { return jobs.Settings{MaxHistory: 10} }})
		posted := b.replicate("")
		require.NoError(t, b.accept().Complete(t.Context(), nil))
		ended, err := b.store.Requests.Await(t.Context(), posted.ID, posted.Args.Life)
		require.NoError(t, err)
		require.Equal(t, replicator.StateCompleted, ended.Condition())
		time.Sleep(jobs.LeastMaxAge - 2*time.Second) // ends are in whole seconds
		b.upkeep()
		require.Equal(t, replicator.StateCompleted, b.get(posted.ID).Condition())
		time.Sleep(3 * time.Second)
		b.upkeep()
		b.gone(posted.ID)
	})
}

// The options are read for each document.
func TestHooksWhoseOptionsChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(repdb)
	var allowed atomic.Pointer[replicator.ParseOptions]
	allowed.Store(new(replicator.ParseOptions))
	docs := docstore.Open(b.db, docsPrefix, docstore.Options{
		Hooks: b.store.Documents.Hooks(func() replicator.ParseOptions { return *allowed.Load() }),
	})
	defer docs.Close()
	db, err := docs.Database(t.Context(), repdb)
	require.NoError(t, err)
	_, err = db.Put(t.Context(), docstore.Edit{ID: "one", Body: docjson.Must(definitionText(""))})
	require.NoError(t, err)
	allowed.Store(&replicator.ParseOptions{EndpointProtocols: []string{"https"}})
	_, err = db.Put(t.Context(), docstore.Edit{ID: "two", Body: docjson.Must(definitionText(""))})
	var refused *replicator.ParseError
	require.ErrorAs(t, err, &refused)
}

func TestCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(repdb)
	for _, id := range []string{"a", "b", "c"} {
		b.put(repdb, id, "", `"doc_ids": ["`+id+`"]`)
	}
	b.replicate("")
	b.replicate(`"doc_ids": ["1"]`)
	require.NoError(t, b.accept().Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("error", "no")))
	require.NoError(t, b.accept().Complete(t.Context(), nil))
	require.NoError(t, b.accept().Fail(t.Context(), replicator.TextFault("error", "no")))
	b.accept()
	counts, err := b.store.Lists.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[replicator.ShownState]int64{
		replicator.ShownPending: 1, replicator.ShownRunning: 1, replicator.ShownCrashing: 1,
		replicator.ShownCompleted: 1, replicator.ShownFailed: 1,
	}, jobsIn(counts))
	require.EqualValues(t, 1, counts.Databases)
	require.EqualValues(t, 1, counts.Users)
}

// jobsIn returns the states that have jobs, and how many.
func jobsIn(counts jobs.Counts) map[replicator.ShownState]int64 {
	maps.DeleteFunc(counts.Jobs, func(_ replicator.ShownState, n int64) bool { return n == 0 })
	return counts.Jobs
}
