package scheduler_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// settings are what nodes read, and tests change.
type settings struct {
	t       *testing.T
	current atomic.Pointer[config.Config]
	changed atomic.Pointer[chan struct{}]
}

func newSettings(t *testing.T, sets ...string) *settings {
	s := &settings{t: t}
	s.changed.Store(new(make(chan struct{})))
	s.set(sets...)
	return s
}

func (s *settings) set(sets ...string) {
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(s.t, err)
	s.current.Store(cfg)
	close(*s.changed.Swap(new(make(chan struct{}))))
}

func (s *settings) Changed() <-chan struct{} { return *s.changed.Load() }

// running is how many jobs of a database run.
func (w *world) running(database string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, job := range w.runs {
		if job.owner == database && job.running != "" {
			n++
		}
	}
	return n
}

// starts is how many runs have begun.
func (w *world) starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// Where there are free slots a due job starts at once, whatever the interval is.
func TestFreeSlots(t *testing.T) {
	inWorld(t, []string{"replicator/interval_sec=3600"}, func(w *world) {
		w.start("n1")
		w.pass(time.Second)
		w.add("a/_replicator", 400, true)
		w.pass(time.Second)
		assert.Equal(t, 400, w.running("a/_replicator"))
	})
}

// When fewer jobs may run than do, continuous ones stop within an interval, and one-shot ones
// only if there are not enough of those; and when more may, they start at once.
func TestMaxJobsChanges(t *testing.T) {
	inWorld(t, []string{"replicator/max_jobs=20"}, func(w *world) {
		w.start("n1")
		w.add("shots/_replicator", 0, false).lasts = time.Hour
		w.add("shots/_replicator", 8, false)
		w.pass(time.Second)
		w.add("a/_replicator", 12, true)
		w.pass(time.Second)
		assert.Equal(t, 12, w.running("a/_replicator"))

		w.settings.set("replicator/max_jobs=10")
		w.pass(16 * time.Second)
		assert.Equal(t, 2, w.running("a/_replicator"))
		assert.Equal(t, 8, w.running("shots/_replicator"))

		w.settings.set("replicator/max_jobs=5")
		w.pass(16 * time.Second)
		assert.Equal(t, 0, w.running("a/_replicator"))
		assert.Equal(t, 5, w.running("shots/_replicator"))

		w.settings.set("replicator/max_jobs=0")
		w.pass(16 * time.Second)
		assert.Equal(t, 0, w.running("shots/_replicator"))

		w.settings.set("replicator/max_jobs=1000")
		w.pass(time.Second)
		assert.Equal(t, 12, w.running("a/_replicator"))
		assert.Equal(t, 8, w.running("shots/_replicator"))
	})
}

// Shares and the interval may change; what follows does so within an interval.
func TestSharesChange(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("a/_replicator", 50, true)
		w.add("b/_replicator", 50, true)
		w.pass(30 * time.Minute)
		w.settings.set(append([]string{"replicator.shares/b/_replicator=300", "replicator/interval_sec=5"}, slots12...)...)
		from := w.at() + 2
		w.pass(62 * time.Minute)
		w.has(from, from+60, map[string]float64{"a/_replicator": 0.25, "b/_replicator": 0.75})
	})
}

// Only as many jobs have turns as max_churn says.
func TestMaxChurn(t *testing.T) {
	inWorld(t, []string{"replicator/max_jobs=50", "replicator/max_churn=10"}, func(w *world) {
		w.start("n1")
		w.add("a/_replicator", 100, true)
		w.pass(62 * time.Second)
		before := w.starts()
		for range 10 {
			w.pass(15 * time.Second)
			now := w.starts()
			assert.LessOrEqual(t, now-before, 10)
			before = now
		}
		// Half of them wait at most: five intervals' worth, and the minute that one has to run.
		w.waitsFor("a/_replicator", 100/50.+1, max(time.Minute, 5*15*time.Second))
	})
}
