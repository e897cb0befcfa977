package shares_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/shares"
)

// pendingStates are the states of pending jobs by tag.
var pendingStates = map[string]replicator.ShownState{
	"": replicator.ShownPending, "again": replicator.ShownPending, "crashing": replicator.ShownCrashing, "waiting": replicator.ShownScheduled,
}

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
			assert.InDeltaMapValues(t, c.want, shares.Entitlements(c.owners, pendingStates), 1e-9)
		})
	}
}

// TestWeights: the weights of many databases are set, and fall back when they are no longer configured.
func TestWeights(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{})
		defer layer.Close()
		docs := docstore.Open(db, []byte("docs/"), docstore.Options{})
		defer docs.Close()
		owners := shares.Open(db, layer.Queue("queue"), docs, pendingStates)
		const databases = 120
		weights := map[string]float64{"no replicator database": 2, "missing/_replicator": 2}
		for i := range databases {
			name := fmt.Sprintf("d%03d/_replicator", i)
			database, err := docs.Create(t.Context(), name)
			require.NoError(t, err)
			owner := shares.OwnerOf(name, database.Instance(), "")
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				return layer.Queue("queue").Add(tx, fdbjobs.Spec{ID: name, Owner: owner})
			}))
			weights[name] = float64(i%3 + 1)
		}
		rollUp := func(weights map[string]float64) {
			time.Sleep(time.Hour)
			require.NoError(t, owners.RollUp(t.Context(), time.Minute, 0.5, weights))
		}
		list := func() (found map[string]float64) {
			all, err := owners.List(t.Context())
			require.NoError(t, err)
			found = map[string]float64{}
			for _, share := range all {
				found[share.Database] = share.Weight
			}
			return found
		}
		rollUp(weights)
		found := list()
		require.Len(t, found, databases)
		for name, weight := range found {
			require.Equal(t, weights[name], weight, name)
		}
		rollUp(nil)
		for name, weight := range list() {
			require.InDelta(t, fdbjobs.DefaultWeight, weight, 0, name)
		}
		require.NoError(t, check.Sound(t.Context(), db, func(ctx context.Context, c *check.Checker) error {
			return c.Walk(ctx, rows.Range(tuple.NewSubspace("replicator")), func(p *check.Page, row kv.KeyValue) (func() error, error) {
				return nil, owners.CheckRow(p, row)
			})
		}))
	})
}
