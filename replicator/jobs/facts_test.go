package jobs_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// checkConditions checks what people are told about the first hundred jobs: CouchDB's state is the one by which lists find the
// job, except that jobs whose runs fail are crashing when they are due, too, and are not when they are paused.
func (b *bundle) checkConditions() {
	b.Helper()
	all := []replicator.State{
		replicator.StatePending, replicator.StateRunning, replicator.StateCrashing, replicator.StateCompleted, replicator.StateFailed,
	}
	list, err := b.store.Lists.List(context.Background(), jobs.Filter{States: all}, jobs.ListOptions{Limit: 100})
	require.NoError(b, err)
	for _, job := range list.Jobs {
		want := job.Condition()
		c := replicator.Explain(job.Facts(time.Now(), nil))
		switch {
		case want != replicator.StatePending && want != replicator.StateCrashing:
		case c.State == replicator.ShownPaused:
			want = replicator.StatePending
		case !job.State.CrashingSince.IsZero():
			want = replicator.StateCrashing
		}
		require.Equal(b, want, c.CouchState(), "%+v", c)
		require.NotEmpty(b, c.Message)
	}
}
