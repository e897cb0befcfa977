package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/fdbjobs"
	"settee/replicator/jobs"
)

// What an owner cannot use the others get, by weight; and nobody gets more than it has jobs.
func TestEntitlements(t *testing.T) {
	crashing := map[fdbjobs.Part]int64{fdbjobs.Pending.In("", "crashing"): 500}
	for name, c := range map[string]struct {
		owners []fdbjobs.Owner
		want   map[string]float64
	}{
		"nobody":     {nil, map[string]float64{}},
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.InDeltaMapValues(t, c.want, jobs.Entitlements(c.owners), 1e-9)
		})
	}
}
