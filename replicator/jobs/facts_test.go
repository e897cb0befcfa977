package jobs_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// checkConditions checks that lists find the first hundred jobs by the state that people are told they are in, and count them
// so.
func (b *bundle) checkConditions() {
	b.Helper()
	counts, err := b.store.Lists.Counts(context.Background())
	require.NoError(b, err)
	for _, state := range replicator.ShownStates {
		list, err := b.store.Lists.List(context.Background(), jobs.Filter{States: []replicator.ShownState{state}}, jobs.ListOptions{Limit: 100})
		require.NoError(b, err)
		for _, job := range list.Jobs {
			c := replicator.Explain(job.Facts(time.Now(), nil))
			require.Equal(b, state, c.State, "%+v", c)
			require.NotEmpty(b, c.Message)
		}
		require.LessOrEqual(b, list.Total, counts.Jobs[state], "jobs of deleted databases count until they are removed")
	}
}
