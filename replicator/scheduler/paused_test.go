package scheduler_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The jobs of a database with 0 shares stop at once, wait, and go on at once when it has shares again.
func TestPausedDatabases(t *testing.T) {
	inWorld(t, []string{"replicator/interval_sec=3600"}, func(w *world) {
		w.start("n1", "n2")
		w.add("a/_replicator", 10, true)
		w.add("a/_replicator", 0, true).lasts = time.Hour
		w.add("b/_replicator", 10, true)
		w.pass(time.Second)
		assert.Equal(t, 10, w.running("a/_replicator"))

		w.settings.set("replicator/interval_sec=3600", "replicator.shares/a/_replicator=0", "replicator.shares/new/_replicator=0")
		w.pass(5 * time.Second)
		assert.Equal(t, 0, w.running("a/_replicator"))
		assert.Equal(t, 10, w.running("b/_replicator"))
		w.add("a/_replicator", 5, false)
		w.add("new/_replicator", 5, true) // a database that did not exist
		w.pass(5 * time.Second)
		starts := w.starts()
		w.pass(time.Minute)
		assert.Equal(t, 0, w.running("a/_replicator"))
		assert.Equal(t, 0, w.running("new/_replicator"))
		assert.Equal(t, starts, w.starts(), "claimers wait")
		shares, err := w.jobs.Shares.List(context.Background())
		require.NoError(t, err)
		require.Len(t, shares, 3)
		for _, s := range shares {
			assert.Equal(t, s.Database == "b/_replicator", s.Weight == 1, s.Database)
			assert.Equal(t, s.Database != "b/_replicator", s.Weight == 0, s.Database)
		}

		w.settings.set("replicator/interval_sec=3600", "replicator.shares/a/_replicator=1", "replicator.shares/new/_replicator=0")
		w.pass(5 * time.Second)
		assert.GreaterOrEqual(t, w.running("a/_replicator"), 10)
		assert.Equal(t, 0, w.running("new/_replicator"))
		w.settings.set("replicator/interval_sec=3600")
		w.pass(5 * time.Second)
		assert.Equal(t, 5, w.running("new/_replicator"))
	})
}
