package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/internal/testkit"
)

// slots12 are the slots of these tests, on three nodes.
var slots12 = []string{"replicator/max_jobs=4"}

// points is the allowed deviation of a part.
const points = 0.05

// has checks the parts of databases between two minutes.
func (w *world) has(from, to int, parts map[string]float64) {
	w.Helper()
	got := w.parts(from, to)
	for name, part := range parts {
		assert.InDelta(w, part, got[name], points, "%s, minutes %d to %d: %v", name, from, to, got)
	}
}

// waitsFor checks that no job of a database has waited longer than this number of rotations and the time to the next
// tick.
func (w *world) waitsFor(database string, rotations float64, rotation time.Duration) {
	w.Helper()
	const tick = 15 * time.Second
	assert.LessOrEqual(w, w.waits(database), time.Duration(rotations*float64(rotation))+tick, database)
}

// Nodes join, leave and die. The parts stay the same, and no job runs on two nodes.
func TestPartsWhileNodesComeAndGo(t *testing.T) {
	testkit.SkipShort(t)
	inWorld(t, slots12, func(w *world) {
		w.add("a/_replicator", 10, true)
		w.add("b/_replicator", 60, true)
		w.add("c/_replicator", 200, true)
		w.start("n1", "n2", "n3")
		for n := 4; n < 10; n++ {
			w.pass(11 * time.Minute)
			switch n % 3 {
			case 0:
				w.stop(fmt.Sprint("n", n-3))
			case 1:
				w.kill(fmt.Sprint("n", n-3))
			}
			w.start(fmt.Sprint("n", n))
			if n%3 == 2 {
				w.stop(fmt.Sprint("n", n-3))
			}
		}
		w.pass(11 * time.Minute)
		third := map[string]float64{"a/_replicator": 1. / 3, "b/_replicator": 1. / 3, "c/_replicator": 1. / 3}
		for from := 0; from+20 <= w.at(); from += 20 {
			w.has(from, from+20, third)
		}
	})
}
