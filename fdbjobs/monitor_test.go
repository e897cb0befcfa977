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

// TestMonitor: a job whose processor died is queued again within the timeout and a sixth of it, by one of several
// monitors.
func TestMonitor(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const timeout = fdbjobs.DefaultTimeout
		b := newBundle(t, db)
		var told []<-chan []string
		for range 5 {
			requeued, _ := newBundle(t, db).monitor(t)
			told = append(told, requeued)
			after(1700 * time.Millisecond)
		}
		after(2 * timeout)
		for i := range 20 {
			id := fmt.Sprint(i)
			b.add(t, fdbjobs.Spec{ID: id, State: text(`{"s":1}`)})
			h := b.accept(t)
			after(timeout/6 + time.Duration(i)*time.Second)
			began := time.Now()
			require.NoError(t, h.Update(t.Context(), nil, nil))
			held := b.acceptBy(t, fdbjobs.AcceptOptions{})
			assert.Equal(t, id, held[0].Job().ID)
			assert.JSONEq(t, `{"s":1}`, string(held[0].Job().State))
			assert.GreaterOrEqual(t, time.Since(began), timeout)
			assert.LessOrEqual(t, time.Since(began), timeout+timeout/6)
			require.NoError(t, held[0].Finish(t.Context(), nil, nil))
			synctest.Wait() // the monitor that queued it may not have reported it yet
			times := 0
			for _, c := range told {
				for len(c) > 0 {
					assert.Equal(t, []string{id}, <-c)
					times++
				}
			}
			assert.Equal(t, 1, times)
		}
	})
}

// TestOneMonitorLooks: of several monitors one reads the running jobs. When it ends, another one takes over.
func TestOneMonitorLooks(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const timeout, running = fdbjobs.DefaultTimeout, 20
		store := enginetest.Control(db)
		b := newBundle(t, store)
		_, stop := b.monitor(t)
		after(time.Second)
		for range 4 {
			newBundle(t, store).monitor(t)
			after(time.Second)
		}
		after(timeout) // from then on they can replace the first one
		for i := range running {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i)})
		}
		held := b.take(t, running)
		looks := func(span time.Duration) int {
			before := store.Rows.Load()
			after(span)
			return int(store.Rows.Load()-before) / running
		}
		assert.Equal(t, 3, looks(timeout/2))
		stop()
		assert.LessOrEqual(t, looks(timeout/3), 1)
		began := time.Now()
		for _, h := range held {
			require.NoError(t, h.Update(t.Context(), nil, nil))
		}
		assert.Equal(t, 3, looks(timeout/2))
		requeued := b.acceptBy(t, fdbjobs.AcceptOptions{})
		assert.LessOrEqual(t, time.Since(began), timeout+timeout/6)
		for _, h := range requeued {
			h.StopTimer()
		}
	})
}

// TestYoungMonitor: a monitor that has just started leaves the lead to one that has run for a timeout, also if it finds first that
// the monitor that looked has ended. It would find overdue jobs much later.
func TestYoungMonitor(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const timeout = fdbjobs.DefaultTimeout
		b := newBundle(t, db)
		_, stop := b.monitor(t)
		after(9 * time.Second)
		requeued, _ := newBundle(t, db).monitor(t)
		after(timeout)
		b.add(t, fdbjobs.Spec{ID: "j"})
		b.accept(t).StopTimer()
		began := time.Now()
		after(timeout - 6*time.Second)
		stop()
		after(time.Second)
		newBundle(t, db).monitor(t)
		select {
		case ids := <-requeued:
			assert.Equal(t, []string{"j"}, ids)
		case <-time.After(2 * timeout):
		}
		assert.LessOrEqual(t, time.Since(began), timeout+timeout/2)
	})
}

// TestRequeueAll: a process that has a store of its own queues at once what an earlier process held.
func TestRequeueAll(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		const jobs = 120
		before := newBundle(t, db)
		for i := range jobs {
			before.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 7), State: text(`{"s":1}`)})
		}
		var held []*fdbjobs.Held
		for len(held) < jobs {
			held = append(held, before.take(t, jobs-len(held))...)
		}
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
		before.layer.Close()

		b := newBundle(t, enginetest.UnknownOnce(db))
		_, err := b.jobs.RequeueAll(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, jobs-1, b.count(t, fdbjobs.Pending))
		assert.Zero(t, b.count(t, fdbjobs.Running))
		b.check(t)
		again := b.accept(t)
		assert.JSONEq(t, `{"s":1}`, string(again.Job().State))
		require.NoError(t, again.Finish(t.Context(), nil, nil))
		b.halted(t, held[1])
		n, err := b.jobs.RequeueAll(t.Context())
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// TestMonitorMany: there are more overdue jobs than one transaction takes.
func TestMonitorMany(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		for i := range 120 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 5)})
		}
		for b.count(t, fdbjobs.Pending) > 0 {
			b.take(t, 50)
		}
		requeued, _ := b.monitor(t)
		ids := <-requeued
		assert.Len(t, ids, 120)
		assert.EqualValues(t, 120, b.count(t, fdbjobs.Pending))
	})
}

// TestMonitorAddedAgain: a job that was added again for a later time while its processor was dead waits for that time, with the tag
// that it was added with.
func TestMonitorAddedAgain(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		b.accept(t)
		later := time.Now().Add(time.Hour)
		b.add(t, fdbjobs.Spec{ID: "j", Scheduled: later, Tag: "later", Args: text(`{"n":2}`)})
		assert.Empty(t, b.get(t, "j").Tag, "it runs")
		requeued, _ := b.monitor(t)
		assert.Equal(t, []string{"j"}, <-requeued)
		assert.Equal(t, later.Unix(), b.get(t, "j").Scheduled.Unix())
		assert.Equal(t, "later", b.get(t, "j").Tag)
		held := b.acceptBy(t, fdbjobs.AcceptOptions{})
		assert.Empty(t, held[0].Job().Tag)
		assert.Equal(t, later, time.Now())
		assert.JSONEq(t, `{"n":2}`, string(held[0].Job().Args))
	})
}

// TestTimeoutsDiffer: a job is queued again a timeout of its holder after the last renewal, whatever the timeout of the
// monitor is. A holder that is as late as it may be keeps its job.
func TestTimeoutsDiffer(t *testing.T) {
	for _, timeouts := range [][2]time.Duration{
		{10 * time.Second, 10 * time.Second}, {10 * time.Minute, 10 * time.Second}, {10 * time.Second, 10 * time.Minute}, {time.Second, 2 * time.Second},
	} {
		t.Run(fmt.Sprint(timeouts), func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				holders, monitors := timeouts[0], timeouts[1]
				b := newBundleWith(t, db, fdbjobs.Options{Timeout: holders})
				requeued, _ := newBundleWith(t, db, fdbjobs.Options{Timeout: monitors}).monitor(t)
				b.add(t, fdbjobs.Spec{ID: "j"})
				h := b.accept(t)
				for range 50 {
					after(h.Heartbeat() * 2)
					require.NoError(t, h.Update(t.Context(), nil, nil))
				}
				assert.Empty(t, requeued)
				began := time.Now()
				assert.Equal(t, []string{"j"}, <-requeued)
				assert.GreaterOrEqual(t, time.Since(began), holders)
				assert.LessOrEqual(t, time.Since(began), holders+monitors/3+time.Microsecond)
			})
		})
	}
}

// TestMonitorGoesOn: an error of the store is reported, and does not end the monitor.
func TestMonitorGoesOn(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		broken, failure := enginetest.Control(db), errors.New("no disk")
		b := newBundle(t, broken)
		b.add(t, fdbjobs.Spec{ID: "j"})
		b.accept(t)
		broken.Fail(failure)
		ctx, cancel := context.WithCancel(t.Context())
		failed, ended := make(chan error, 100), make(chan error)
		requeued := make(chan []string, 1)
		go func() {
			ended <- b.jobs.RunMonitor(ctx, func(ids []string, _ time.Duration, err error) {
				if len(ids) > 0 {
					requeued <- ids
				}
				if err != nil {
					failed <- err
				}
			})
		}()
		require.ErrorIs(t, <-failed, failure)
		require.ErrorIs(t, <-failed, failure)
		broken.Fail(nil)
		<-requeued
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// TestTimeoutLoweredBeforeMonitor: a monitor that starts with a shorter timeout leaves jobs alone whose holders use a longer
// one.
func TestTimeoutLoweredBeforeMonitor(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		longer, b := newBundle(t, db), newBundleWith(t, db, fdbjobs.Options{Timeout: 6 * time.Second})
		b.add(t, fdbjobs.Spec{ID: "early"})
		began := time.Now()
		early := longer.accept(t)
		b.add(t, fdbjobs.Spec{ID: "late"})
		late := b.accept(t)
		requeued, _ := b.monitor(t)
		assert.Equal(t, []string{"late"}, <-requeued)
		require.ErrorIs(t, context.Cause(late.Context()), fdbjobs.ErrHalt)
		require.NoError(t, early.Context().Err())
		assert.Equal(t, []string{"early"}, <-requeued)
		require.ErrorIs(t, context.Cause(early.Context()), fdbjobs.ErrHalt)
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)
		assert.LessOrEqual(t, time.Since(began), time.Minute+2*time.Second)
	})
}
