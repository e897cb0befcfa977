//go:build !race

// These simulations cover days of a cluster's time. The race detector is ten times slower and runs the shorter ones.

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

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/replicator"
)

// Databases have equal parts in each hour, with any number of jobs, and all their jobs have turns.
func TestEqualParts(t *testing.T) {
	testkit.SkipShort(t)
	inWorld(t, slots12, func(w *world) {
		const hours = 2
		w.add("a/_replicator", 5, true)
		w.add("b/_replicator", 40, true)
		w.add("c/_replicator", 320, true)
		w.start("n1", "n2", "n3")
		w.pass(time.Duration(hours)*time.Hour + 2*time.Minute)
		third := map[string]float64{"a/_replicator": 1. / 3, "b/_replicator": 1. / 3, "c/_replicator": 1. / 3}
		for hour := range hours {
			w.has(hour*60, hour*60+60, third)
		}
		t.Log("longest waits:", w.waits("a/_replicator"), w.waits("b/_replicator"), w.waits("c/_replicator"))
		w.waitsFor("a/_replicator", 5/4.+1, time.Minute)
		w.waitsFor("b/_replicator", 40/4.+1, time.Minute)
		// A small deviation adds up to some rotations over hundreds of them, which explains the wait.
		part := 1.
		length := int(w.waits("c/_replicator").Minutes())
		for from := range hours*60 - length {
			part = min(part, w.parts(from, from+length)["c/_replicator"])
		}
		assert.InDelta(t, 1./3, part, points)
		w.waitsFor("c/_replicator", 320/(12*part)+1, time.Minute)
	})
}

// Parts are proportional to shares, even if they are not whole slots.
func TestUnequalShares(t *testing.T) {
	testkit.SkipShort(t)
	sets := []string{
		"replicator.shares/half/_replicator=50", "replicator.shares/two/_replicator=200",
		"replicator/max_jobs=8", // 24 on three nodes: shares of 3.4, 6.9 and 13.7 slots
	}
	inWorld(t, sets, func(w *world) {
		for _, name := range []string{"half", "one", "two"} {
			w.add(name+"/_replicator", 100, true)
		}
		w.start("n1", "n2", "n3")
		w.pass(91 * time.Minute)
		got := w.parts(1, 90)
		assert.InEpsilon(t, 1./7, got["half/_replicator"], 0.1)
		assert.InEpsilon(t, 2./7, got["one/_replicator"], 0.1)
		assert.InEpsilon(t, 4./7, got["two/_replicator"], 0.1)
		t.Log(got)

		shares, err := w.jobs.Shares.List(context.Background())
		require.NoError(t, err)
		for _, s := range shares {
			assert.InDelta(t, s.Entitled, s.Ran, points, s.Database)
			assert.EqualValues(t, 100, s.Jobs[replicator.ShownRunning]+s.Jobs[replicator.ShownPending], s.Database)
		}
		require.Len(t, shares, 3)

		// Nothing remains of a deleted database.
		db, err := w.docs.Database(context.Background(), "two/_replicator")
		require.NoError(t, err)
		require.NoError(t, db.Delete(context.Background()))
		w.pass(time.Minute)
		weights, err := kv.TransactValue(context.Background(), w.db, func(tx kv.Transaction) (map[string]float64, error) {
			return w.jobs.Jobs.Weights(tx)
		})
		require.NoError(t, err)
		assert.Len(t, weights, 1)
		shares, err = w.jobs.Shares.List(context.Background())
		require.NoError(t, err)
		assert.Len(t, shares, 2)
		from := w.at()
		w.pass(31 * time.Minute)
		w.has(from, from+30, map[string]float64{"half/_replicator": 1. / 3, "one/_replicator": 2. / 3})
	})
}

// Other databases get what a database cannot use, by weight.
func TestMaxMin(t *testing.T) {
	testkit.SkipShort(t)
	sets := append([]string{"replicator.shares/two/_replicator=200"}, slots12...)
	inWorld(t, sets, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("one/_replicator", 100, true)
		w.pass(31 * time.Minute)
		w.has(1, 30, map[string]float64{"one/_replicator": 1})

		w.add("small/_replicator", 1, true)
		w.add("two/_replicator", 100, true)
		from := w.at() + 2
		w.pass(62 * time.Minute)
		w.has(from, from+58, map[string]float64{
			"small/_replicator": 1. / 12, "one/_replicator": 11. / 36, "two/_replicator": 22. / 36,
		})
		w.waitsFor("small/_replicator", 2, time.Minute)
	})
}

// A database with many new jobs has its half within ten minutes, and not more.
func TestManyNewJobs(t *testing.T) {
	testkit.SkipShort(t)
	inWorld(t, []string{"replicator/max_jobs=10"}, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("old/_replicator", 200, true)
		w.pass(20 * time.Minute)
		w.add("new/_replicator", 600, true)
		from := w.at()
		w.pass(41 * time.Minute)
		for minute := from; minute < from+40; minute += 10 {
			w.has(minute, minute+10, map[string]float64{"old/_replicator": 0.5, "new/_replicator": 0.5})
		}
		w.waitsFor("old/_replicator", 200/(30*(0.5-points))+1, time.Minute)
	})
}

// After idle time, a database neither owes nor is owed running time, whether its documents or the whole database were
// deleted.
func TestIdleDatabase(t *testing.T) {
	testkit.SkipShort(t)
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		for _, name := range []string{"busy", "idle", "gone"} {
			w.add(name+"/_replicator", 60, true)
		}
		w.pass(31 * time.Minute)
		w.remove("idle/_replicator")
		db, err := w.docs.Database(context.Background(), "gone/_replicator")
		require.NoError(t, err)
		require.NoError(t, db.Delete(context.Background()))
		from := w.at() + 2
		w.pass(time.Hour)
		w.has(from, from+55, map[string]float64{"busy/_replicator": 1})

		for _, name := range []string{"idle", "gone"} {
			w.add(name+"/_replicator", 60, true)
		}
		from = w.at() + 1
		w.pass(32 * time.Minute)
		third := map[string]float64{"busy/_replicator": 1. / 3, "idle/_replicator": 1. / 3, "gone/_replicator": 1. / 3}
		for minute := from; minute < from+30; minute += 10 {
			w.has(minute, minute+10, third)
		}
	})
}

// Jobs that crash are charged for their time, and do not affect others.
func TestCrashingNeighbours(t *testing.T) {
	testkit.SkipShort(t)
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("bad/_replicator", 0, true).crashes = true
		w.add("bad/_replicator", 150, true)
		w.add("a/_replicator", 50, true)
		w.add("b/_replicator", 50, true)
		w.pass(62 * time.Minute)
		got := w.parts(20, 60)
		assert.InDelta(t, got["a/_replicator"], got["b/_replicator"], points)
		assert.Less(t, got["bad/_replicator"], 1./3)
		w.waitsFor("a/_replicator", 50/4.+1, time.Minute)
		w.waitsFor("b/_replicator", 50/4.+1, time.Minute)
	})
}

// One-shot replications are charged to their database and are not stopped. Others wait for them at most.
func TestOneShotNeighbours(t *testing.T) {
	testkit.SkipShort(t)
	inWorld(t, slots12, func(w *world) {
		w.start("n1", "n2", "n3")
		w.add("a/_replicator", 50, true)
		w.add("shots/_replicator", 0, false).lasts = 150 * time.Second
		w.add("shots/_replicator", 200, false)
		w.pass(64 * time.Minute)
		w.has(10, 60, map[string]float64{"a/_replicator": 0.5, "shots/_replicator": 0.5})
		w.waitsFor("a/_replicator", 50/6.+1+2.5, time.Minute)
	})
}

// A fresh cluster picks up all of many documents, and each runs once as soon as max_churn allows: first those that get
// a slot at once, then max_churn per node and interval. SETTEE_MANY_DOCUMENTS sets the number, by default 1,200 with
// fewer slots.
func TestManyDocuments(t *testing.T) {
	const nodes = 3
	documents, slots, churn := 1_200, 20, 4
	if many := os.Getenv("SETTEE_MANY_DOCUMENTS"); many != "" {
		var err error
		documents, err = strconv.Atoi(many)
		require.NoError(t, err)
		slots, churn = 500, 100
	}
	inWorld(t, []string{fmt.Sprint("replicator/max_jobs=", slots), fmt.Sprint("replicator/max_churn=", churn)}, func(w *world) {
		w.timeout, w.beat = 20*time.Minute, 5*time.Minute
		w.add("a/_replicator", documents, true)
		w.start("n1", "n2", "n3")
		began := time.Now()
		// The first ones run for a minute before others follow.
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
