package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/jobs"
)

// A comparison is made once for all who ask meanwhile, whatever the state of the job, and its result goes with the job.
func TestVerifications(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.on.Store(true) // the results of commits are lost
	id := b.replicate("").ID
	known := func() jobs.Verification {
		t.Helper()
		records, err := b.store.Lists.Records(t.Context(), b.get(id))
		require.NoError(t, err)
		return records.Verification
	}
	ask := func() {
		t.Helper()
		_, err := b.store.Requests.VerifyNow(t.Context(), id)
		require.NoError(t, err)
	}
	require.Zero(t, known())
	ctx, cancel := context.WithCancel(t.Context())
	compared, goOn := make(chan *jobs.Job), make(chan *replicator.JobVerified)
	done := make(chan error, 1)
	go func() {
		verifications := b.store.Verifications
		done <- verifications.Queue.Work(ctx, 1, func(ctx context.Context, h *fdbjobs.Held) error {
			job, err := b.store.Lists.Get(ctx, h.Job().ID)
			if err != nil {
				t.Error(err)
				return err
			}
			compared <- job
			select {
			case v := <-goOn:
				if err := verifications.Record(ctx, h, job, v); !assert.ErrorIs(t, err, fdbjobs.ErrHalt) {
					return err
				}
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	ended := func(found *replicator.JobVerified) {
		t.Helper()
		goOn <- found
		require.Eventually(t, func() bool { return known().Since.IsZero() }, time.Minute, time.Millisecond)
	}
	ask()
	assert.Equal(t, id, (<-compared).ID)
	assert.WithinDuration(t, time.Now(), known().Since, time.Minute)
	ask() // it joins
	ended(&replicator.JobVerified{Node: "n", Revisions: 3, Missing: 1})
	assert.EqualValues(t, 1, known().Verified.Missing)

	require.NoError(t, b.accept().Complete(t.Context(), nil))
	ask()
	assert.Equal(t, replicator.StateCompleted, (<-compared).State.State)
	assert.EqualValues(t, 1, known().Verified.Missing, "the result before")
	ended(&replicator.JobVerified{Node: "n", Revisions: 3})
	assert.Zero(t, known().Verified.Missing)
	assert.Empty(t, known().Verified.Error)

	id = b.replicate(`"doc_ids":["a"]`).ID
	ask()
	<-compared
	b.cancel(id)
	goOn <- new(replicator.JobVerified)
	id = b.replicate(`"doc_ids":["b"]`).ID
	ask()
	<-compared
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.NotZero(t, known().Since, "another node begins anew")
	b.db.on.Store(false)
	b.check()
}
