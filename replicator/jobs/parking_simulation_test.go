package jobs_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/kv"
)

// TestParkingSimulation runs jobs that park while their sources change, on nodes that die at each step, with feeds that
// are late and repeat rows, on a store with all faults. In the end each change is copied, although no parked job has run
// by itself. Only feeds that leave out changes need comparisons. Targets that are emptied are filled again, which only looks at
// them find.
func TestParkingSimulation(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	ran := seeds.Each(t, 0, 4, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := newParkWorld(t, seed, func(db kv.Database) kv.Database { return db })
			for _, missing := range w.run() {
				t.Error(missing)
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range w.counts {
				seen[what] += n
			}
		})
	})
	t.Log(seen)
	if ran < 120 {
		return
	}
	for _, what := range []string{
		"parked", "did not park", "woken before it parked", "woken by the feed", "woken by a question", "woken by a comparison", "woken by a look at its target",
		"run now", "cancelled", "halted", "unwatched", "died before start", "died copying", "died before parking", "died after parking",
		"died after the last look", "died after it parked", "died before a wake", "died after a wake", "died asking", "died after an answer", "died looking at targets",
	} {
		assert.NotZero(t, seen[what], what)
	}
}
