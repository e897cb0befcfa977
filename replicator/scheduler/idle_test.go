package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/worker"
)

// idleness is how the continuous runs of an owner are idle. The mutex of the world guards it.
type idleness struct {
	after time.Duration // how long they are busy at first
	look  time.Duration // how long they take to look whether they can park
	// stays makes the look find a change after which a run is busy that long. 0: it finds none.
	stays time.Duration
	deaf  bool          // they do not answer when they are asked to park
	asked int           // how often
	busy  chan struct{} // if closed, they are busy
}

const idleServer = "http://a.example/"

// idle simulates a run that is idle.
func (w *world) idle(
	ctx context.Context, is *idleness, job worker.Job, reporter worker.Reporter, tick <-chan time.Time,
) (worker.Result, error) {
	asked := make(chan struct{}, 1)
	defer job.Park.Listen(func() {
		select {
		case asked <- struct{}{}:
		default:
		}
	})()
	next := time.After(is.after)
	idle, looking := false, false
	become := func(now bool) {
		if idle != now {
			job.Idle(now)
		}
		idle = now
	}
	busy := is.busy
	for {
		select {
		case <-ctx.Done():
			return worker.Result{}, context.Cause(ctx)
		case <-job.Stop.Done():
			return worker.Result{}, worker.ErrStopped
		case <-tick:
			if err := reporter.Report(ctx, worker.Progress{}); err != nil {
				return worker.Result{}, err
			}
		case <-busy:
			become(false)
			busy, next = nil, nil
		case <-asked:
			w.mu.Lock()
			is.asked++
			w.mu.Unlock()
			if idle && !is.deaf {
				looking, next = true, time.After(is.look)
			}
		case <-next:
			next = nil
			switch {
			case !looking:
				become(true)
				continue
			case is.stays > 0:
				become(false)
				looking, next = false, time.After(is.stays)
				continue
			}
			at := replicator.Parked{Server: idleServer, Database: job.Replication.Target.URL, UpdateSeq: `"1"`}
			if err := job.Parking(ctx, at); err != nil {
				return worker.Result{}, err
			}
			return worker.Result{Parked: true}, nil
		}
	}
}

// wake wakes jobs of a database by their numbers.
func (w *world) wake(database string, numbers ...int) {
	w.Helper()
	var names []string
	for _, n := range numbers {
		names = append(names, targetOf(database, fmt.Sprintf("%06d", n)))
	}
	woken, err := w.jobs.Watches.Wake(context.Background(), idleServer, names)
	require.NoError(w, err)
	require.Equal(w, len(numbers), woken)
}

func (w *world) isRunning(database string, number int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[targetOf(database, fmt.Sprintf("%06d", number))].running != ""
}

// asked is how often runs were asked to park.
func (w *world) asked(is *idleness) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return is.asked
}

// Idle jobs make room for due ones at once, and one whose source has changed runs at once.
func TestIdleJobsMakeRoom(t *testing.T) {
	inWorld(t, []string{"replicator/max_jobs=2", "replicator/interval_sec=3600"}, func(w *world) {
		w.start("n")
		is := &idleness{after: time.Second, look: 200 * time.Millisecond}
		w.add("a/_replicator", 0, true).idles = is
		w.add("a/_replicator", 10, true)
		most, server := 0, w.nodes["n"].server
		for range 100 {
			w.pass(100 * time.Millisecond)
			most = max(most, w.running("a/_replicator"))
			require.LessOrEqual(t, server.Running(), 2, "slots in use")
			require.LessOrEqual(t, server.Idle(), server.Running())
		}
		assert.Equal(t, 10, w.starts(), "each had its turn, without waiting for the others'")
		assert.Greater(t, most, 2, "others begin while idle ones park")
		assert.LessOrEqual(t, most, 2+2)
		assert.Equal(t, 2, w.running("a/_replicator"), "the last ones stay connected")
		assert.Equal(t, 2, server.Running())
		assert.Equal(t, 2, server.Idle())
		assert.EqualValues(t, 8, server.Counts().Parks)
		assert.Zero(t, server.Counts().Stops)
		assert.Equal(t, 8, w.asked(is))

		parked := -1
		for n := range 10 {
			if !w.isRunning("a/_replicator", n) {
				parked = n
			}
		}
		w.wake("a/_replicator", parked)
		w.pass(100 * time.Millisecond)
		assert.True(t, w.isRunning("a/_replicator", parked))
		w.pass(time.Second)
		assert.Equal(t, 11, w.starts())
		assert.EqualValues(t, 1, server.Counts().Wakes)
		assert.EqualValues(t, 9, server.Counts().Parks)
	})
}

// Without due jobs, runs park after idle_timeout_sec, or stay if that is 0. They park a few at a time.
func TestIdleTimeout(t *testing.T) {
	inWorld(t, []string{"replicator/max_jobs=50", "replicator/idle_timeout_sec=0"}, func(w *world) {
		w.start("n")
		is := &idleness{after: time.Second, look: 200 * time.Millisecond}
		w.add("a/_replicator", 0, true).idles = is
		w.add("a/_replicator", 30, true)
		w.pass(time.Hour)
		assert.Equal(t, 30, w.running("a/_replicator"))
		assert.Zero(t, w.asked(is))

		w.settings.set("replicator/max_jobs=50", "replicator/idle_timeout_sec=600")
		w.pass(100 * time.Millisecond)
		assert.Equal(t, 5, w.asked(is))
		w.pass(2 * time.Second)
		assert.Zero(t, w.running("a/_replicator"))

		w.wake("a/_replicator", 3, 4, 5)
		w.pass(time.Second)
		assert.Equal(t, 3, w.running("a/_replicator"))
		w.pass(590 * time.Second)
		assert.Equal(t, 3, w.running("a/_replicator"))
		w.pass(12 * time.Second)
		assert.Zero(t, w.running("a/_replicator"))
		assert.Equal(t, 33, w.starts())
	})
}

// When idle jobs become busy whose slots are in use, others stop soon.
func TestIdleJobsThatBecomeBusy(t *testing.T) {
	inWorld(t, []string{"replicator/max_jobs=20", "replicator/max_acceptors=5", "replicator/interval_sec=3600"}, func(w *world) {
		w.start("n")
		is := &idleness{after: time.Second, deaf: true, busy: make(chan struct{})}
		w.add("a/_replicator", 0, true).idles = is
		w.add("a/_replicator", 20, true)
		w.pass(2 * time.Second)
		w.add("b/_replicator", 20, true)
		w.pass(time.Second)
		assert.Equal(t, 20, w.running("a/_replicator"))
		assert.Equal(t, 5, w.running("b/_replicator"), "so many more are held while others park")
		w.pass(10 * time.Second)
		assert.Equal(t, 5, w.running("b/_replicator"))

		close(is.busy)
		w.pass(2 * time.Second)
		assert.Equal(t, 20, w.running("a/_replicator")+w.running("b/_replicator"))
		assert.Equal(t, 20, w.nodes["n"].server.Running())
	})
}

// Runs that do not answer when they are asked to park have their turns like busy ones.
func TestIdleJobsThatDoNotPark(t *testing.T) {
	for name, test := range map[string]struct {
		is  *idleness
		one time.Duration // the longest time that a turn takes
	}{
		"deaf":       {&idleness{after: time.Second, deaf: true}, 3 * time.Minute},
		"never idle": {&idleness{after: time.Second, look: 200 * time.Millisecond, stays: 100 * time.Millisecond}, time.Minute},
	} {
		is := test.is
		t.Run(name, func(t *testing.T) {
			inWorld(t, []string{"replicator/max_jobs=10"}, func(w *world) {
				w.start("n")
				w.add("a/_replicator", 0, true).idles = is
				w.add("a/_replicator", 40, true)
				w.pass(10 * test.one) // two rounds of waiting for four others
				w.waitsFor("a/_replicator", 40/10.+1, test.one)
				assert.LessOrEqual(t, w.running("a/_replicator"), 10+2)
				assert.Less(t, w.starts(), int(10*test.one/time.Second)*2+40, "at most one stops each second for each acceptor")
				t.Logf("%d runs were asked %d times, the longest wait is %v", w.starts(), w.asked(is), w.waits("a/_replicator"))
			})
		})
	}
}

// The jobs of an owner that are idle or parked leave the running time to others.
func TestIdleNeighbours(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("idle/_replicator", 0, true).idles = &idleness{after: time.Second, look: 200 * time.Millisecond}
		w.add("idle/_replicator", 200, true)
		w.add("busy/_replicator", 12, true)
		w.pass(3 * time.Minute)
		// While idle jobs wait for their first run, each database is entitled to half of the slots.
		w.waitsFor("busy/_replicator", 12/6., time.Minute)
		assert.Equal(t, 12, w.running("busy/_replicator"))
		runs := w.starts()
		w.pass(8 * time.Minute)
		w.has(3, 11, map[string]float64{"busy/_replicator": 1})
		assert.Equal(t, runs, w.starts(), "no busy job makes room, and no parked job runs")
	})
}
