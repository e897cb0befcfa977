package jobserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator/internal/jobserver"
)

// How long a job may be put back, and the reason when that was too short.
func TestLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		stages := jobserver.NewStages()
		ended := func(ctx context.Context, after time.Duration, why string) {
			t.Helper()
			<-ctx.Done()
			assert.Equal(t, after, time.Since(began))
			require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
			assert.ErrorContains(t, context.Cause(ctx), why)
		}
		ctx, cancel := stages.Last(t.Context(), 20*time.Second)
		defer cancel()
		ended(ctx, 20*time.Second, "for 20s")

		before, cancelBefore := stages.Last(t.Context(), 20*time.Second)
		defer cancelBefore()
		short, cancelShort := stages.Last(t.Context(), time.Second)
		defer cancelShort()
		over, end := context.WithCancel(t.Context())
		end()
		go func() { assert.ErrorIs(t, stages.Shutdown(over), context.Canceled) }()
		<-stages.Hurry.Done()
		ended(short, 21*time.Second, "for 1s")
		ended(before, 22*time.Second, "within 2s after the node's time to shut down")
		after, cancelAfter := stages.Last(t.Context(), 20*time.Second)
		defer cancelAfter()
		ended(after, 24*time.Second, "within 2s after")
		stages.Ended()

		whole, cancelWhole := context.WithCancel(t.Context())
		cancelWhole()
		ctx, cancel = stages.Last(whole, time.Hour)
		defer cancel()
		require.Equal(t, context.Canceled, context.Cause(ctx), "what the caller's context ended with")
	})
}
