package scheduler_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/scheduler"
	"settee/replicator/worker"
)

// settings are settings of nodes that tests change.
type settings struct {
	t       *testing.T
	current atomic.Pointer[config.Config]
	changed atomic.Pointer[chan struct{}]
	between atomic.Pointer[func()] // called once, before Changed returns
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

func (s *settings) Changed() <-chan struct{} {
	if between := s.between.Swap(nil); between != nil {
		(*between)()
	}
	return *s.changed.Load()
}

// running returns the number of running jobs of a database.
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

// starts returns the number of runs so far.
func (w *world) starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// With a free slot, a due job starts at once, whatever the interval is.
func TestFreeSlots(t *testing.T) {
	inWorld(t, []string{"replicator/interval_sec=3600"}, func(w *world) {
		w.start("n1")
		w.pass(time.Second)
		w.add("a/_replicator", 400, true)
		w.pass(time.Second)
		assert.Equal(t, 400, w.running("a/_replicator"))
	})
}

// When max_jobs falls, continuous jobs stop within an interval, and one-shot jobs only if there are not enough
// continuous ones. When it rises, jobs start at once.
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

// Changes of shares and of the interval take effect within an interval.
func TestSharesChange(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("a/_replicator", 50, true)
		w.add("b/_replicator", 50, true)
		w.pass(15 * time.Minute)
		w.settings.set(append([]string{"replicator.shares/b/_replicator=300", "replicator/interval_sec=5"}, slots12...)...)
		from := w.at() + 2
		w.pass(32 * time.Minute)
		w.has(from, from+30, map[string]float64{"a/_replicator": 0.25, "b/_replicator": 0.75})
	})
}

// A change while a node takes in the one before takes effect, too.
func TestChangesInQuickSuccession(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.start("n1")
		w.add("a/_replicator", 5, true)
		w.pass(time.Second)
		assert.Equal(t, 5, w.running("a/_replicator"))
		w.settings.between.Store(new(func() { w.settings.set("replicator.shares/a/_replicator=0") }))
		w.settings.set("replicator/max_churn=10")
		w.pass(time.Second)
		assert.Zero(t, w.running("a/_replicator"))
	})
}

// Only max_churn jobs have turns.
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
		// At most half of them wait: five intervals, and the minute that one must run.
		w.waitsFor("a/_replicator", 100/50.+1, max(time.Minute, 5*15*time.Second))
	})
}

// The configuration and a run have the same defaults.
func TestWorkerDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, worker.DefaultConfig(), scheduler.WorkerConfig(new(config.Config)))
}

// A setting counts as the limit of a run where it is larger, and the warning about it says the limit.
func TestLimitsOfSettings(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Load(config.Options{Flags: []string{
		"replicator/worker_processes=1000000", "replicator/worker_batch_size=1000000", "replicator/http_connections=1000000",
		"replicator/retries_per_request=1000000",
	}})
	require.NoError(t, err)
	require.Equal(t, replicator.MaxWorkerProcesses, config.WorkerProcesses.Get(cfg))
	require.Equal(t, replicator.MaxWorkerBatchSize, config.WorkerBatchSize.Get(cfg))
	require.Equal(t, replicator.MaxHTTPConnections, config.HTTPConnections.Get(cfg))
	require.Equal(t, replicator.MaxRetries, config.RetriesPerRequest.Get(cfg))
}
