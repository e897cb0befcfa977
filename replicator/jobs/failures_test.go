package jobs_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/jobs"
)

// The latest thousand failures are listed, and removed with the job.
func TestFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate("")
	run := b.accept()
	list := func() jobs.Failures {
		t.Helper()
		failures, err := b.store.Lists.Failures(t.Context(), job.ReplicationID())
		require.NoError(t, err)
		return failures
	}
	refuse := func(from, to int, unlisted int64) {
		t.Helper()
		var refused []replicator.Failure
		for n := from; n < to; n++ {
			refused = append(refused, replicator.Failure{
				ID: fmt.Sprint("doc ", n), Rev: "1-a", Status: 403, Code: "forbidden", Reason: "no", Time: time.Unix(int64(n), 0),
			})
		}
		require.NoError(t, run.ListRefused(t.Context(), refused, int64(len(refused))+unlisted))
	}
	named := func(failures jobs.Failures, n int) string {
		var f replicator.Failure
		require.NoError(t, json.Unmarshal(failures.Latest[n], &f))
		return f.ID
	}
	empty := list()
	assert.Zero(t, empty.Total)
	assert.Empty(t, empty.Latest)

	refuse(0, 3, 0)
	few := list()
	assert.EqualValues(t, 3, few.Total)
	require.Len(t, few.Latest, 3)
	assert.JSONEq(t, `{"id":"doc 2","rev":"1-a","status":403,"error":"forbidden","reason":"no","timestamp":"1970-01-01T00:00:02Z"}`,
		string(few.Latest[0]))
	assert.Equal(t, "doc 0", named(few, 2))

	refuse(3, 1_003, 0)
	refuse(1_003, 1_250, 0)
	many := list()
	assert.EqualValues(t, 1_250, many.Total)
	require.Len(t, many.Latest, replicator.MaxFailures)
	for n := range many.Latest {
		require.Equal(t, fmt.Sprint("doc ", 1_249-n), named(many, n))
	}

	// Unlisted failures count and leave no gap in the list.
	refuse(10_000, 10_000+replicator.MaxFailures, 8_750)
	refuse(20_000, 20_001, 0)
	all := list()
	assert.EqualValues(t, 11_001, all.Total)
	require.Len(t, all.Latest, replicator.MaxFailures)
	assert.Equal(t, "doc 20000", named(all, 0))
	for n := 1; n < replicator.MaxFailures; n++ {
		require.Equal(t, fmt.Sprint("doc ", 10_000+replicator.MaxFailures-n), named(all, n))
	}

	b.cancel(job.ReplicationID())
	_, err := b.store.Lists.Failures(t.Context(), job.ReplicationID())
	require.ErrorIs(t, err, jobs.ErrNotFound)
	require.ErrorIs(t, run.ListRefused(t.Context(), []replicator.Failure{{ID: "late"}}, 1), fdbjobs.ErrHalt)
	again := b.replicate("")
	failures, err := b.store.Lists.Failures(t.Context(), again.ID)
	require.NoError(t, err)
	assert.Zero(t, failures.Total)
}

// A document with a new definition has no failures, also if the job was running.
func TestFailuresOfAnotherDefinition(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		rev := b.put(repdb, "d", "", "")
		total := func() int64 {
			failures, err := b.store.Lists.Failures(b.Context(), b.jobID(repdb, "d"))
			require.NoError(b, err)
			return failures.Total
		}
		run := b.accept()
		require.NoError(b, run.ListRefused(b.Context(), []replicator.Failure{{ID: "x"}}, 1))
		require.EqualValues(b, 1, total())
		b.put(repdb, "d", rev, `"doc_ids": ["y"]`)
		require.ErrorIs(b, run.Complete(b.Context(), nil), fdbjobs.ErrHalt)
		run = b.accept()
		require.Zero(b, total())
		require.NoError(b, run.ListRefused(b.Context(), []replicator.Failure{{ID: "y"}}, 1))
		require.NoError(b, run.Stop(b.Context(), "", "", nil))
		b.accept()
		require.EqualValues(b, 1, total())
	})
}
