package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A cordoned node keeps its jobs and takes none, also not in exchange. A drained one gives back its jobs, which other nodes run.
func TestCordon(t *testing.T) {
	inWorld(t, []string{"replicator/max_jobs=10", "replicator/interval_sec=10", "replicator/min_run_time_sec=5"}, func(w *world) {
		w.start("n1", "n2")
		w.add("a/_replicator", 16, true)
		w.pass(time.Minute)
		assert.Equal(t, 16, w.running("a/_replicator"))
		n1 := w.nodes["n1"].server
		n1.Cordon(true, false)
		w.pass(time.Second) // a claim may be under way
		before, starts := n1.Running(), n1.Counts().Starts
		w.add("b/_replicator", 30, true) // it has less than its share
		w.pass(2 * time.Minute)
		assert.Equal(t, before, n1.Running())
		assert.Equal(t, starts, n1.Counts().Starts)
		assert.Equal(t, 10, w.nodes["n2"].server.Running())

		n1.Cordon(true, true)
		w.pass(time.Minute)
		assert.Zero(t, n1.Running())
		assert.Equal(t, starts, n1.Counts().Starts)
		assert.Equal(t, 10, w.nodes["n2"].server.Running())
		assert.Zero(t, n1.Counts().Crashes)

		n1.Cordon(false, false)
		w.pass(time.Minute)
		assert.Equal(t, 10, n1.Running())
	})
}
