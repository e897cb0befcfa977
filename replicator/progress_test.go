package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// What runs have read and thrown away is no progress.
func TestWithoutProgress(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time {
		return time.Date(2026, 5, 4, 12, 0, second, 0, time.UTC)
	}
	copying := &replicator.Activity{Doing: replicator.DoingCopying, Since: at(20), LastMoved: at(50)}
	for name, test := range map[string]struct {
		state replicator.JobState
		want  time.Time
	}{
		"copies":                    {replicator.JobState{State: replicator.StateRunning, Activity: copying}, at(50)},
		"copies what was read":      {replicator.JobState{State: replicator.StateRunning, Activity: copying, FruitlessSince: at(3)}, at(3)},
		"waits for changes":         {replicator.JobState{State: replicator.StateRunning, Activity: &replicator.Activity{Doing: replicator.DoingWaiting}, FruitlessSince: at(3)}, time.Time{}},
		"does not run":              {replicator.JobState{State: replicator.StatePending, Activity: copying, FruitlessSince: at(3)}, time.Time{}},
		"has not said what it does": {replicator.JobState{State: replicator.StateRunning, FruitlessSince: at(3)}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.state.WithoutProgress())
		})
	}
}
