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
	apart := map[replicator.ShownState]int64{ // jobs that lists have in a state, and that are counted apart
		replicator.ShownPending: counts.Turn, replicator.ShownPaused: counts.Turn, replicator.ShownCompleted: counts.Gone,
	}
	for _, state := range replicator.ShownStates {
		list, err := b.store.Lists.List(context.Background(), jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{state}}}, jobs.ListOptions{Limit: 100})
		require.NoError(b, err)
		b.checkCouchStates(state, list)
		for _, job := range list.Jobs {
			c := replicator.Explain(job.Facts(time.Now(), nil))
			require.Equal(b, state, c.State, "%+v", c)
			require.NotEmpty(b, c.Message)
		}
		require.LessOrEqual(b, list.Total, counts.Jobs[state]+apart[state], "jobs of deleted databases count until they are removed")
	}
}

// checkCouchStates checks that lists find the first hundred jobs in a state by CouchDB's states, too.
func (b *bundle) checkCouchStates(shown replicator.ShownState, all jobs.List) {
	b.Helper()
	total := int64(0)
	for _, couch := range []replicator.State{"pending", "running", "crashing", "completed", "failed"} {
		want, got := []string{}, []string{}
		for _, job := range all.Jobs {
			if job.Condition() == couch {
				want = append(want, job.ID)
			}
		}
		states := jobs.States{Shown: []replicator.ShownState{shown}, Couch: []replicator.State{couch}}
		list, err := b.store.Lists.List(context.Background(), jobs.Filter{States: states}, jobs.ListOptions{Limit: 100})
		require.NoError(b, err)
		for _, job := range list.Jobs {
			got = append(got, job.ID)
			require.Equal(b, couch, job.Condition(), job.ID)
		}
		if all.Next == nil {
			require.Equal(b, want, got, "%s, and for CouchDB %s", shown, couch)
		}
		total += list.Total
	}
	require.Equal(b, all.Total, total, shown)
}
