//go:build !race

// These simulations take days of a cluster's time, and ten times as long under the race detector,
// which has the shorter ones.

package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// Databases have equal parts, however many jobs they have, in each hour; and all their jobs have
// turns.
func TestEqualParts(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		hours := 24
		if testing.Short() {
			hours = 3
		}
		w.beat = 20 * time.Second
		w.add("a/_replicator", 10, true)
		w.add("b/_replicator", 100, true)
		w.add("c/_replicator", 5_000, true)
		w.start("n1", "n2", "n3")
		w.pass(time.Duration(hours)*time.Hour + 2*time.Minute)
		third := map[string]float64{"a/_replicator": 1. / 3, "b/_replicator": 1. / 3, "c/_replicator": 1. / 3}
		for hour := range hours {
			w.has(hour*60, hour*60+60, third)
		}
		t.Log("longest waits:", w.waits("a/_replicator"), w.waits("b/_replicator"), w.waits("c/_replicator"))
		w.waitsFor("a/_replicator", 10/4.+1, time.Minute)
		w.waitsFor("b/_replicator", 100/4.+1, time.Minute)
		if hours == 24 {
			// In a thousand rotations a part that is a thousandth off is one of them: it is that of the time of the wait.
			part := 1.
			length := int(w.waits("c/_replicator").Minutes())
			for from := range hours*60 - length {
				part = min(part, w.parts(from, from+length)["c/_replicator"])
			}
			assert.InDelta(t, 1./3, part, 0.001)
			w.waitsFor("c/_replicator", 5_000/(12*part)+1, time.Minute)
		}
	})
}

// Parts are in proportion to shares, also where they are not whole slots.
func TestUnequalShares(t *testing.T) {
	sets := append([]string{
		"replicator.shares/half/_replicator=50", "replicator.shares/two/_replicator=200",
	}, slots12...)
	inWorld(t, sets, func(w *world) {
		for _, name := range []string{"half", "one", "two"} {
			w.add(name+"/_replicator", 300, true)
		}
		w.start("n1", "n2", "n3")
		w.pass(6*time.Hour + time.Minute)
		got := w.parts(1, 6*60)
		assert.InEpsilon(t, 1./7, got["half/_replicator"], 0.1)
		assert.InEpsilon(t, 2./7, got["one/_replicator"], 0.1)
		assert.InEpsilon(t, 4./7, got["two/_replicator"], 0.1)
		t.Log(got)

		shares, err := w.jobs.Shares(context.Background())
		require.NoError(t, err)
		for _, s := range shares {
			assert.InDelta(t, s.Entitled, s.Ran, points, s.Database)
			assert.EqualValues(t, 300, s.Running+s.Pending, s.Database)
		}
		require.Len(t, shares, 3)

		// Nothing is left of a database that was deleted.
		db, err := w.docs.Database(context.Background(), "two/_replicator")
		require.NoError(t, err)
		require.NoError(t, db.Delete(context.Background()))
		w.pass(time.Minute)
		weights, err := kv.TransactValue(context.Background(), w.db, func(tx kv.Transaction) (map[string]float64, error) {
			return w.jobs.Jobs().Weights(tx)
		})
		require.NoError(t, err)
		assert.Len(t, weights, 1)
		shares, err = w.jobs.Shares(context.Background())
		require.NoError(t, err)
		assert.Len(t, shares, 2)
		from := w.at()
		w.pass(31 * time.Minute)
		w.has(from, from+30, map[string]float64{"half/_replicator": 1. / 3, "one/_replicator": 2. / 3})
	})
}

// What a database cannot use the others get, by weight.
func TestMaxMin(t *testing.T) {
	sets := append([]string{"replicator.shares/two/_replicator=200"}, slots12...)
	inWorld(t, sets, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("one/_replicator", 1_000, true)
		w.pass(time.Hour + time.Minute)
		w.has(1, 60, map[string]float64{"one/_replicator": 1})

		w.add("small/_replicator", 1, true)
		w.add("two/_replicator", 1_000, true)
		from := w.at() + 2
		w.pass(2*time.Hour + 2*time.Minute)
		w.has(from, from+118, map[string]float64{
			"small/_replicator": 1. / 12, "one/_replicator": 11. / 36, "two/_replicator": 22. / 36,
		})
		w.waitsFor("small/_replicator", 2, time.Minute)
	})
}

// slots300 are those of three nodes, too.
var slots300 = []string{"replicator/max_jobs=100"}

// A database that comes with many new jobs has its half within ten minutes, and no more.
func TestManyNewJobs(t *testing.T) {
	inWorld(t, slots300, func(w *world) {
		w.beat = 20 * time.Second
		w.start("n1", "n2", "n3")
		w.add("old/_replicator", 2_000, true)
		w.pass(20 * time.Minute)
		many := 20_000
		if testing.Short() {
			many = 2_000
		}
		w.add("new/_replicator", many, true)
		from := w.at()
		w.pass(41 * time.Minute)
		for minute := from; minute < from+40; minute += 10 {
			w.has(minute, minute+10, map[string]float64{"old/_replicator": 0.5, "new/_replicator": 0.5})
		}
		w.waitsFor("old/_replicator", 2_000/(300*(0.5-points))+1, time.Minute)
	})
}

// A database that had nothing to do for a while neither owes nor is owed anything, whether its documents
// were deleted or the whole database was.
func TestIdleDatabase(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		for _, name := range []string{"busy", "idle", "gone"} {
			w.add(name+"/_replicator", 200, true)
		}
		w.pass(31 * time.Minute)
		w.remove("idle/_replicator")
		db, err := w.docs.Database(context.Background(), "gone/_replicator")
		require.NoError(t, err)
		require.NoError(t, db.Delete(context.Background()))
		from := w.at() + 2
		w.pass(3 * time.Hour)
		w.has(from, from+175, map[string]float64{"busy/_replicator": 1})

		for _, name := range []string{"idle", "gone"} {
			w.add(name+"/_replicator", 200, true)
		}
		from = w.at() + 1
		w.pass(62 * time.Minute)
		third := map[string]float64{"busy/_replicator": 1. / 3, "idle/_replicator": 1. / 3, "gone/_replicator": 1. / 3}
		for minute := from; minute < from+60; minute += 10 {
			w.has(minute, minute+10, third)
		}
	})
}

// What crashes is charged for its time, and changes nothing for others.
func TestCrashingNeighbours(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("bad/_replicator", 0, true).crashes = true
		w.add("bad/_replicator", 500, true)
		w.add("a/_replicator", 100, true)
		w.add("b/_replicator", 100, true)
		w.pass(3*time.Hour + 2*time.Minute)
		got := w.parts(20, 180)
		assert.InDelta(t, got["a/_replicator"], got["b/_replicator"], points)
		assert.Less(t, got["bad/_replicator"], 1./3)
		w.waitsFor("a/_replicator", 100/4.+1, time.Minute)
		w.waitsFor("b/_replicator", 100/4.+1, time.Minute)
	})
}

// One-shot replications are charged to their database, and are not stopped: others wait for them
// at most.
func TestOneShotNeighbours(t *testing.T) {
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("a/_replicator", 100, true)
		w.add("shots/_replicator", 0, false).lasts = 150 * time.Second
		w.add("shots/_replicator", 400, false)
		w.pass(2*time.Hour + 4*time.Minute)
		w.has(10, 120, map[string]float64{"a/_replicator": 0.5, "shots/_replicator": 0.5})
		w.waitsFor("a/_replicator", 100/6.+1+2.5, time.Minute)
	})
}

// All of many documents are picked up by a fresh cluster, and each has run once as soon as
// max_churn allows: those that have a slot at once, and then max_churn of each node's in each
// interval. SETTEE_MANY_DOCUMENTS says how many, by default 6,000 for fewer slots.
func TestManyDocuments(t *testing.T) {
	const nodes = 3
	documents, slots, churn := 6_000, 100, 20
	if many := os.Getenv("SETTEE_MANY_DOCUMENTS"); many != "" {
		var err error
		documents, err = strconv.Atoi(many)
		require.NoError(t, err)
		slots, churn = 500, 100
	}
	inWorld(t, []string{fmt.Sprint("replicator/max_jobs=", slots), fmt.Sprint("replicator/max_churn=", churn)}, func(w *world) {
		require.NoError(t, w.jobs.SetTimeout(context.Background(), 20*time.Minute))
		w.beat = 5 * time.Minute
		w.add("a/_replicator", documents, true)
		w.start("n1", "n2", "n3")
		began := time.Now()
		// The first ones have to run for a minute before others can follow.
		intervals := (documents-nodes*slots+nodes*churn-1)/(nodes*churn) + 4
		w.pass(time.Duration(intervals+1) * 15 * time.Second)
		never := 0
		for _, job := range w.runs {
			if job.running == "" && job.since.Before(began.Add(time.Second)) {
				never++
			}
		}
		assert.Zero(t, never, "documents of %d whose replication has not run in %d intervals", documents, intervals)
		t.Logf("%d replications have run in %d intervals", documents, intervals)
	})
}
