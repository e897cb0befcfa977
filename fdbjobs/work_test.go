package fdbjobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestWork: a job is kept alive while its function runs, and then finished, or queued again after an error.
func TestWork(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		requeued, _ := b.monitor(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		failed, started := 0, make(chan string, 10)
		go func() {
			ended <- b.jobs.Work(ctx, 2, func(ctx context.Context, h *fdbjobs.Held) error {
				started <- h.Job().ID
				switch h.Job().ID {
				case "long":
					<-time.After(5 * fdbjobs.DefaultTimeout)
				case "fails":
					if failed++; failed == 1 {
						return assert.AnError
					}
				case "finishes":
					return h.Finish(ctx, text(`{"done":true}`), nil)
				case "removed", "stopped":
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
		}()
		wait := func(id string) string {
			job, err := b.jobs.Wait(t.Context(), id, nil)
			require.NoError(t, err)
			return string(job.State)
		}
		b.add(t, fdbjobs.Spec{ID: "long"})
		require.Equal(t, "long", <-started)
		b.add(t, fdbjobs.Spec{ID: "finishes"}, fdbjobs.Spec{ID: "fails"})
		assert.JSONEq(t, `{"done":true}`, wait("finishes"))
		began := time.Now()
		wait("fails")
		assert.Equal(t, 2, failed)
		assert.InDelta(t, time.Minute, time.Since(began), float64(2*time.Second))
		wait("long")
		assert.Empty(t, requeued)

		b.add(t, fdbjobs.Spec{ID: "removed"})
		for <-started != "removed" {
		}
		require.True(t, b.remove(t, "removed"))
		b.add(t, fdbjobs.Spec{ID: "stopped"})
		require.Equal(t, "stopped", <-started)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		job := b.get(t, "stopped")
		assert.Equal(t, fdbjobs.Pending, job.Status)
		assert.False(t, job.Scheduled.After(time.Now()))
	})
}

// failing is a store that fails.
type failing struct{ kv.Database }

func (failing) Transact(context.Context, func(tx kv.Transaction) error) error { return assert.AnError }

// TestWorkEnds: Work returns when the layer is closed, or the store fails.
func TestWorkEnds(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		work := func(b *bundle) error {
			return b.jobs.Work(t.Context(), 3, func(context.Context, *fdbjobs.Held) error { return nil })
		}
		b := newBundle(t, db)
		ended := make(chan error, 1)
		go func() { ended <- work(b) }()
		after(time.Second)
		b.layer.Close()
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
		broken := &bundle{db: db, layer: fdbjobs.Open(failing{db}, prefix, fdbjobs.Options{})}
		broken.jobs = broken.layer.Queue("work")
		defer broken.layer.Close()
		require.ErrorIs(t, work(broken), assert.AnError)
	})
}
