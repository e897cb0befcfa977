package jobserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How long a job may be put back, and the reason when that was too short.
func TestLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := newDrain()
		ended := func(ctx context.Context, after time.Duration, why string) {
			t.Helper()
			<-ctx.Done()
			assert.Equal(t, after, time.Since(began))
			require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
			assert.ErrorContains(t, context.Cause(ctx), why)
		}
		ctx, cancel := d.last(t.Context(), 20*time.Second)
		defer cancel()
		ended(ctx, 20*time.Second, "for 20s")

		before, cancelBefore := d.last(t.Context(), 20*time.Second)
		defer cancelBefore()
		short, cancelShort := d.last(t.Context(), time.Second)
		defer cancelShort()
		over, end := context.WithCancel(t.Context())
		end()
		go func() { assert.ErrorIs(t, d.Shutdown(over), context.Canceled) }()
		<-d.hurry.Done()
		ended(short, 21*time.Second, "for 1s")
		ended(before, 22*time.Second, "within 2s after the node's time to shut down")
		after, cancelAfter := d.last(t.Context(), 20*time.Second)
		defer cancelAfter()
		ended(after, 24*time.Second, "within 2s after")
		close(d.ended)

		whole, cancelWhole := context.WithCancel(t.Context())
		cancelWhole()
		ctx, cancel = d.last(whole, time.Hour)
		defer cancel()
		require.Equal(t, context.Canceled, context.Cause(ctx), "what the caller's context ended with")
	})
}
