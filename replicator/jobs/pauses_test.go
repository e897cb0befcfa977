package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/shares"
)

// The jobs of a paused database say so, and since when. Its share keeps what it was before.
func TestPauses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		b.create("a/_replicator")
		b.create("empty/_replicator")
		b.put(repdb, "one", "", `"doc_ids": ["1"]`)
		b.put("a/_replicator", "crashes", "", `"doc_ids": ["2"]`)
		b.put("a/_replicator", "ends", "", `"doc_ids": ["3"]`)
		for range 3 {
			run := b.accept()
			if *run.Job().Args.DocID == "ends" {
				require.NoError(t, run.Complete(t.Context(), nil))
				continue
			}
			require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "no")))
		}
		set := func(weights map[string]float64) {
			t.Helper()
			require.NoError(t, b.store.Shares.SetWeights(t.Context(), weights))
			b.check()
		}
		set(map[string]float64{"a/_replicator": 3})
		paused := map[string]float64{"a/_replicator": 0, "empty/_replicator": 0}
		at := time.Now()
		set(paused)
		time.Sleep(time.Minute)
		set(paused) // as each node does, again and again
		for database, ids := range map[string][]string{repdb: {"one"}, "a/_replicator": {"crashes", "ends"}} {
			for _, id := range ids {
				is := id == "crashes"
				job, err := b.store.Lists.Document(t.Context(), database, id)
				require.NoError(t, err)
				var pause *replicator.Pause
				if is {
					pause = &replicator.Pause{Since: time.Unix(at.Unix(), 0)}
				}
				require.Equal(t, pause, job.Paused, id)
				job = b.get(job.ID)
				require.Equal(t, pause, job.Paused, id)
			}
		}
		for _, opts := range []jobs.ListOptions{{Limit: 10}, {Limit: 10, Order: jobs.ByCrash}} {
			list, err := b.store.Lists.List(t.Context(), jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{"crashing", "paused"}}}, opts)
			require.NoError(t, err)
			require.Len(t, list.Jobs, 2)
			for _, job := range list.Jobs {
				require.Equal(t, *job.Args.DocID == "crashes", job.Paused != nil)
				require.True(t, job.Paused == nil || !job.Paused.Since.IsZero())
			}
		}
		share := func(database string) *shares.Share {
			t.Helper()
			all, err := b.store.Shares.List(t.Context())
			require.NoError(t, err)
			for _, s := range all {
				if s.Database == database {
					return &s
				}
			}
			return nil
		}
		require.Equal(t, []any{0., 3., at.Unix()}, []any{share("a/_replicator").Weight, share("a/_replicator").Before, share("a/_replicator").PausedSince.Unix()})
		require.Equal(t, []any{0., 1., at.Unix()}, []any{share("empty/_replicator").Weight, share("empty/_replicator").Before, share("empty/_replicator").PausedSince.Unix()})
		require.Equal(t, 1., share(repdb).Weight)

		require.NoError(t, b.database("empty/_replicator").Delete(t.Context()))
		set(map[string]float64{"a/_replicator": 3})
		require.Empty(t, b.rows("paused"))
		require.Equal(t, []any{3., 0., true}, []any{share("a/_replicator").Weight, share("a/_replicator").Before, share("a/_replicator").PausedSince.IsZero()})
		require.Nil(t, b.get(b.jobID("a/_replicator", "crashes")).Paused)
	})
}
