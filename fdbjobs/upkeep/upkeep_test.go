package upkeep_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// open opens the job layer of a process. It is closed at the end of the test, and the store is checked.
func open(t *testing.T, db kv.Database) *fdbjobs.Layer {
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	t.Cleanup(func() {
		layer.Close()
		require.NoError(t, check.Sound(context.Background(), db, layer.Check))
	})
	return layer
}

// TestRun: tasks run repeatedly on some process, continue elsewhere after its death, and are retried after an error.
func TestRun(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		layer := open(t, db)
		jobs := layer.Queue("work")
		after := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		add := func(queue *fdbjobs.Queue, id string) {
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error { return queue.Add(tx, fdbjobs.Spec{ID: id}) }))
		}
		get := func(queue *fdbjobs.Queue, id string) (*fdbjobs.Job, error) {
			return kv.TransactValue(t.Context(), db, func(tx kv.Transaction) (*fdbjobs.Job, error) { return queue.Get(tx, id) })
		}
		var runs atomic.Int64
		failures := make(chan error, 100)
		long := make(chan *fdbjobs.Held, 10)
		tasks := []upkeep.Task{
			{Name: "expired", Every: time.Minute, Run: func(ctx context.Context, _ *fdbjobs.Held) error {
				return db.Transact(ctx, func(tx kv.Transaction) error {
					_, err := jobs.RemoveExpired(tx, 100)
					return err
				})
			}},
			{Name: "fails", Every: time.Hour, Run: func(context.Context, *fdbjobs.Held) error { runs.Add(1); return assert.AnError }},
			{Name: "long", Every: time.Hour, Run: func(ctx context.Context, h *fdbjobs.Held) error {
				long <- h
				if string(h.Job().State) == `{"at":1}` {
					return nil
				}
				if err := h.Update(ctx, json.RawMessage(`{"at":1}`), nil); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}},
		}
		run := func(ctx context.Context, layer *fdbjobs.Layer) <-chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- upkeep.Run(ctx, db, layer, tasks, func(task string, err error) {
					assert.Equal(t, "fails", task)
					failures <- err
				})
			}()
			return ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := run(ctx, layer)
		h := <-long
		after(30 * time.Minute)
		require.NoError(t, h.Context().Err(), "it is kept")
		// The process stops: the task is resubmitted, and continues elsewhere where it was.
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		other := open(t, db)
		ctx, cancel = context.WithCancel(t.Context())
		second := run(ctx, other)
		assert.JSONEq(t, `{"at":1}`, string((<-long).Job().State))

		add(jobs, "old")
		held, err := jobs.Accept(t.Context(), fdbjobs.AcceptOptions{})
		require.NoError(t, err)
		held[0].Expires = time.Now().Add(time.Minute)
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
		after(3 * time.Minute)
		_, err = get(jobs, "old")
		require.ErrorIs(t, err, fdbjobs.ErrNotFound)
		n := runs.Load()
		assert.NotZero(t, n)
		require.ErrorIs(t, <-failures, assert.AnError)
		after(3 * time.Minute)
		assert.Greater(t, runs.Load(), n, "it is tried again in a minute")
		cancel()
		require.ErrorIs(t, <-second, context.Canceled)

		// A job of a task that is not known here stays.
		queue := other.Queue(upkeep.Queue)
		add(queue, "unknown")
		ctx, cancel = context.WithCancel(t.Context())
		third := run(ctx, other)
		after(3 * time.Minute)
		cancel()
		require.ErrorIs(t, <-third, context.Canceled)
		job, err := get(queue, "unknown")
		require.NoError(t, err)
		assert.Equal(t, fdbjobs.Pending, job.Status)
	})
}

// TestUnfinished: a task that ends early lets the others run, and goes on.
func TestUnfinished(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		layer := open(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		turns, others := 0, 0
		finished, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- upkeep.Run(ctx, db, layer, []upkeep.Task{
				{Name: "long", Every: time.Hour, Run: func(context.Context, *fdbjobs.Held) error {
					time.Sleep(time.Minute)
					if turns++; turns < 60 {
						return upkeep.ErrUnfinished
					}
					close(finished)
					return nil
				}},
				{Name: "other", Every: time.Minute, Run: func(context.Context, *fdbjobs.Held) error { others++; return nil }},
			}, func(task string, err error) { t.Errorf("%s: %v", task, err) })
		}()
		<-finished
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.NotZero(t, others)
	})
}
