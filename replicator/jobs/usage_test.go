package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/replicator/jobs"
)

// What an owner cannot use is divided among the others by weight, and no owner gets more than it
// has jobs.
func TestEntitlements(t *testing.T) {
	crashing := map[string]int64{"crashing": 500}
	for name, c := range map[string]struct {
		owners []fdbjobs.Owner
		want   map[string]float64
	}{
		"no owners":  {nil, map[string]float64{}},
		"alone":      {[]fdbjobs.Owner{{Name: "a", Weight: 3, Running: 12, Pending: 40}}, map[string]float64{"a": 12}},
		"idle nodes": {[]fdbjobs.Owner{{Name: "a", Weight: 1, Running: 2}, {Name: "b", Weight: 9, Running: 1}}, map[string]float64{"a": 2, "b": 1}},
		"by weight": {
			[]fdbjobs.Owner{{Name: "a", Weight: 1, Running: 12, Pending: 90}, {Name: "b", Weight: 2, Pending: 90}},
			map[string]float64{"a": 4, "b": 8},
		},
		"max-min": {
			[]fdbjobs.Owner{
				{Name: "a", Weight: 1, Running: 5, Pending: 90}, {Name: "b", Weight: 2, Running: 6, Pending: 90},
				{Name: "c", Weight: 5, Running: 1, Pending: 500, Tagged: crashing},
			},
			map[string]float64{"a": 11. / 3, "b": 22. / 3, "c": 1},
		},
		"crashing, and due again": {
			[]fdbjobs.Owner{
				{Name: "a", Weight: 1, Running: 10, Pending: 90},
				{Name: "b", Weight: 1, Pending: 500, Tagged: map[string]int64{"crashing": 490, "again": 6, "waiting": 2}},
			},
			map[string]float64{"a": 5, "b": 5},
		},
		"paused": {
			[]fdbjobs.Owner{{Name: "a", Weight: 0, Running: 2, Pending: 90}, {Name: "b", Weight: 2, Running: 4, Pending: 90}},
			map[string]float64{"b": 6},
		},
		"all paused": {[]fdbjobs.Owner{{Name: "a", Weight: 0, Running: 2, Pending: 90}}, map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.InDeltaMapValues(t, c.want, jobs.Entitlements(c.owners), 1e-9)
		})
	}
}

// Charging begins when a job is accepted, not when a node began to wait for one.
func TestWaitingIsNotCharged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		taken := make(chan *jobs.Run)
		go func() {
			runs, err := b.store.Runs.Accept(b.Context(), 1, nil)
			assert.NoError(t, err)
			taken <- runs[0]
		}()
		time.Sleep(3 * time.Hour) // of the bubble's clock
		b.put(repdb, "a", "", `"continuous": true`)
		run := <-taken
		time.Sleep(2 * time.Second)
		require.NoError(t, run.Start(b.Context(), "node", "pid"))
		shares, err := b.store.Shares.List(b.Context())
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, shares[0].Usage)
	})
}

// TestWeights: the weights of many databases are set, and fall back when they are no longer configured.
func TestWeights(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		const databases = 120
		weights := map[string]float64{"no replicator database": 2, "missing/_replicator": 2}
		for i := range databases {
			name := fmt.Sprintf("d%03d/_replicator", i)
			b.create(name)
			b.put(name, "doc", "", fmt.Sprintf(`"doc_ids": ["%d"]`, i))
			weights[name] = float64(i%3 + 1)
		}
		rollUp := func(weights map[string]float64) {
			time.Sleep(time.Hour)
			require.NoError(t, b.store.Shares.RollUp(t.Context(), jobs.Decay{Interval: time.Minute, Coeff: 0.5}, weights))
		}
		shares := func() (found map[string]float64) {
			all, err := b.store.Shares.List(t.Context())
			require.NoError(t, err)
			found = map[string]float64{}
			for _, share := range all {
				found[share.Database] = share.Weight
			}
			return found
		}
		rollUp(weights)
		found := shares()
		require.Len(t, found, databases)
		for name, weight := range found {
			require.Equal(t, weights[name], weight, name)
		}
		rollUp(nil)
		for name, weight := range shares() {
			require.InDelta(t, fdbjobs.DefaultWeight, weight, 0, name)
		}
	})
}
