package fdbjobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

func TestWait(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		_, err := b.jobs.Wait(t.Context(), "j", nil)
		require.ErrorIs(t, err, fdbjobs.ErrNotFound)

		b.add(t, fdbjobs.Spec{ID: "j"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.jobs.Wait(ctx, "j", nil)
		require.ErrorIs(t, err, context.Canceled)

		h := b.accept(t)
		require.NoError(t, h.Finish(t.Context(), text(`{"s":1}`), nil))
		for range 3 {
			job, err := b.jobs.Wait(t.Context(), "j", nil)
			require.NoError(t, err)
			assert.Equal(t, fdbjobs.Finished, job.Status)
			assert.JSONEq(t, `{"s":1}`, string(job.State))
		}
	})
}

// TestWaiters: each waiter returns at once and once. A heartbeat that renews a hold makes each waiter of the job read its
// row once, and other heartbeats cause no reads.
func TestWaiters(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const jobs, each = 20, 30
		store := enginetest.Control(db)
		b, elsewhere := newBundle(t, store), newBundle(t, db)
		for i := range jobs {
			elsewhere.add(t, fdbjobs.Spec{ID: fmt.Sprint(i)})
		}
		held := elsewhere.take(t, jobs)
		told := make(chan string, jobs*each)
		for i := range jobs {
			for range each {
				go func() {
					job, err := b.jobs.Wait(t.Context(), fmt.Sprint(i), nil)
					if errors.Is(err, fdbjobs.ErrNotFound) {
						told <- "removed"
					} else if assert.NoError(t, err) {
						told <- job.ID
					}
				}()
			}
		}
		after(time.Second)
		runs := store.Runs.Load()
		heartbeat := func() (reads int64) {
			for _, h := range held {
				require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), nil))
			}
			after(time.Second)
			reads, runs = store.Runs.Load()-runs, store.Runs.Load()
			return reads
		}
		assert.Zero(t, heartbeat())
		after(fdbjobs.DefaultTimeout / 6)
		assert.Zero(t, heartbeat(), "a renewal wakes nobody")
		assert.Zero(t, heartbeat())
		began := time.Now()
		for i, h := range held {
			want := h.Job().ID
			if i%2 == 0 {
				require.NoError(t, h.Finish(t.Context(), nil, nil))
			} else {
				elsewhere.remove(t, want)
				want = "removed"
			}
			for range each {
				assert.Equal(t, want, <-told)
			}
		}
		assert.Zero(t, time.Since(began))
		after(time.Hour)
		assert.Empty(t, told)
		// Nothing is read without waiters.
		runs = store.Runs.Load()
		after(time.Hour)
		assert.Equal(t, runs, store.Runs.Load())
	})
}

// TestWaitersComeAndGo: a waiter that gives up does not disturb the others, and one that comes after the last has gone
// is served.
func TestWaitersComeAndGo(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			for range 2 {
				go func() { _, err := b.jobs.Wait(ctx, "j", nil); ended <- err }()
			}
			after(time.Millisecond)
			stays := make(chan error)
			go cancel()
			go func() { _, err := b.jobs.Wait(t.Context(), "j", nil); stays <- err }()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.ErrorIs(t, <-ended, context.Canceled)
			began := time.Now()
			require.NoError(t, b.accept(t).Finish(t.Context(), nil, nil))
			require.NoError(t, <-stays)
			require.Zero(t, time.Since(began))
			b.add(t, fdbjobs.Spec{ID: "j"})
		}
	})
}

// TestWaitBeforeReady: a waiter's context ends while the store does not answer.
func TestWaitBeforeReady(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		hung := enginetest.Control(db)
		b := newBundle(t, hung)
		open := hung.HoldBefore()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.jobs.Wait(ctx, "j", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		open()
	})
}

func TestWaitUntil(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		seen, ended := make(chan *fdbjobs.Job), make(chan *fdbjobs.Job)
		go func() {
			job, err := b.jobs.Wait(t.Context(), "j", func(job *fdbjobs.Job) bool {
				seen <- job
				return job.Status == fdbjobs.Finished
			})
			assert.NoError(t, err)
			ended <- job
		}()
		assert.Equal(t, fdbjobs.Pending, (<-seen).Status)
		h := b.accept(t)
		assert.Equal(t, fdbjobs.Running, (<-seen).Status)
		b.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"n":2}`)})
		job := <-seen
		assert.Equal(t, fdbjobs.Running, job.Status)
		assert.JSONEq(t, `{"n":2}`, string(job.Args), "it is told of new args too")
		require.ErrorIs(t, h.Update(t.Context(), nil, nil), fdbjobs.ErrHalt)
		assert.Equal(t, fdbjobs.Pending, (<-seen).Status)
		h = b.accept(t)
		assert.Equal(t, fdbjobs.Running, (<-seen).Status)
		require.NoError(t, h.Finish(t.Context(), nil, nil))
		job = <-seen
		assert.Equal(t, fdbjobs.Finished, job.Status)
		assert.Same(t, job, <-ended)
	})
}

// TestWaitMissesNothing: Wait returns when a job has ended, even if the job was added again before Wait read it.
func TestWaitMissesNothing(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		waiting, b := newBundle(t, store), newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		type result struct {
			job *fdbjobs.Job
			err error
		}
		results := make(chan result, 1)
		go func() {
			job, err := waiting.jobs.Wait(t.Context(), "j", nil)
			results <- result{job, err}
		}()
		synctest.Wait()
		open := store.HoldBefore()
		require.NoError(t, b.accept(t).Finish(t.Context(), nil, nil))
		b.add(t, fdbjobs.Spec{ID: "j"})
		open()
		r := <-results
		require.NoError(t, r.err)
		assert.Equal(t, fdbjobs.Pending, r.job.Status, "it has moved on")
	})
}
