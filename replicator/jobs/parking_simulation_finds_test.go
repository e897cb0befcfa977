//go:build !race

// This test is about the simulation, which runs under the race detector, too.

package jobs_test

import (
	"testing"
	"testing/synctest"

	"settee/internal/testkit"
	"settee/pkg/kv"
)

// TestParkingSimulationFindsLostWakes leaves out the check of [jobs.Run.Park] whether the row was woken. The simulation
// must find that.
func TestParkingSimulationFindsLostWakes(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	for seed := range uint64(50) { // the first ones find it nearly always
		found := false
		synctest.Test(t, func(t *testing.T) {
			w := newParkWorld(t, seed, func(db kv.Database) kv.Database { return sleepy{db} })
			found = len(w.run()) > 0
		})
		if found {
			return
		}
	}
	t.Error("no seed finds that a change is lost")
}
