package fdbjobs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/memkv"
)

// halted checks that a holder has lost its job, and that its calls leave the job as it is.
func (b *bundle) halted(t *testing.T, h *fdbjobs.Held) {
	t.Helper()
	before, errBefore := b.read(t, h.Job().ID)
	also := func(tx kv.Transaction) error {
		tx.Set([]byte("also"), nil)
		return nil
	}
	for _, call := range []func() error{
		func() error { return h.Update(t.Context(), text(`{"halted":1}`), also) },
		func() error { return h.Finish(t.Context(), text(`{"halted":1}`), also) },
		func() error { return h.Resubmit(t.Context(), time.Now(), text(`{"halted":1}`), also) },
	} {
		require.ErrorIs(t, call(), fdbjobs.ErrHalt)
	}
	require.ErrorIs(t, context.Cause(h.Context()), fdbjobs.ErrHalt)
	now, err := b.read(t, h.Job().ID)
	assert.Equal(t, before, now)
	assert.Equal(t, errBefore, err)
	b.transact(t, func(tx kv.Transaction) error {
		value, err := tx.Get([]byte("also")).Await()
		assert.Nil(t, value)
		return err
	})
	b.check(t)
}

func TestHaltWhenRemoved(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		assert.True(t, b.remove(t, "j"))
		b.halted(t, h)

		b.add(t, fdbjobs.Spec{ID: "j"})
		b.halted(t, h)
		other := b.accept(t)
		b.halted(t, h)
		require.NoError(t, other.Finish(t.Context(), nil, nil), "the other holder is not concerned")
		b.halted(t, h)
	})
}

func TestHaltWhenAddedAgain(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"n":1}`), State: text(`{"s":1}`)})
		h := b.accept(t)
		b.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"n":2}`), State: text(`{"s":2}`)})
		require.NoError(t, h.Context().Err())
		require.ErrorIs(t, h.Update(t.Context(), text(`{"s":3}`), nil), fdbjobs.ErrHalt)
		b.halted(t, h)
		job := b.get(t, "j")
		assert.Equal(t, fdbjobs.Pending, job.Status)
		assert.JSONEq(t, `{"n":2}`, string(job.Args))
		assert.JSONEq(t, `{"s":1}`, string(job.State))
		again := b.accept(t)
		b.halted(t, h)
		require.NoError(t, again.Finish(t.Context(), nil, nil))
	})
}

// TestLost: Lost returns when the job is removed, added again or ended, when the context ends, and when
// the layer is closed, and not because of an update.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(t *testing.T, b *bundle, h *fdbjobs.Held, cancel func())
		want error
	}{
		"removed": {func(t *testing.T, b *bundle, _ *fdbjobs.Held, _ func()) { assert.True(t, b.remove(t, "j")) }, fdbjobs.ErrHalt},
		"added again": {
			func(t *testing.T, b *bundle, _ *fdbjobs.Held, _ func()) { b.add(t, fdbjobs.Spec{ID: "j"}) }, fdbjobs.ErrHalt,
		},
		"finished": {
			func(t *testing.T, _ *bundle, h *fdbjobs.Held, _ func()) {
				require.NoError(t, h.Finish(t.Context(), nil, nil))
			},
			fdbjobs.ErrHalt,
		},
		"the context ends":    {func(_ *testing.T, _ *bundle, _ *fdbjobs.Held, cancel func()) { cancel() }, context.Canceled},
		"the layer is closed": {func(_ *testing.T, b *bundle, _ *fdbjobs.Held, _ func()) { b.layer.Close() }, fdbjobs.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				b := newBundle(t, db)
				b.add(t, fdbjobs.Spec{ID: "j"})
				h := b.accept(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				lost := make(chan error, 1)
				go func() { lost <- h.Lost(ctx) }()
				for range 3 {
					after(20 * time.Second)
					require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), nil))
				}
				after(time.Second)
				require.Empty(t, lost)
				c.lose(t, b, h, cancel)
				after(time.Second)
				require.Len(t, lost, 1)
				require.ErrorIs(t, <-lost, c.want)
			})
		})
	}
}

func TestHaltAfterMonitor(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.monitor(t)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		after(2 * time.Minute)
		assert.Equal(t, fdbjobs.Pending, b.get(t, "j").Status)
		b.halted(t, h)
		require.NoError(t, b.accept(t).Finish(t.Context(), nil, nil))
		b.halted(t, h)
	})
}

// TestContextEnds: a processor that cannot update its job stops three quarters of the timeout after the start of the
// last successful update, which is before the monitor takes the job.
func TestContextEnds(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		slow := enginetest.Control(db)
		cut := newBundle(t, slow)
		requeued, _ := b.monitor(t)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := cut.accept(t)
		after(10 * time.Second) // from then on an update renews the hold

		// An update that begins now and is acknowledged in 10 s.
		began := time.Now()
		open := slow.HoldAfter()
		time.AfterFunc(10*time.Second, open)
		require.NoError(t, h.Update(t.Context(), nil, nil))
		require.Equal(t, 10*time.Second, time.Since(began))

		// From then on the store cannot be reached.
		open = slow.HoldBefore()
		defer open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- h.Update(ctx, nil, nil) }()
		<-h.Context().Done()
		assert.Equal(t, 45*time.Second, time.Since(began))
		require.ErrorIs(t, context.Cause(h.Context()), fdbjobs.ErrHalt)
		assert.Equal(t, []string{"j"}, <-requeued)
		assert.Greater(t, time.Since(began), time.Minute-time.Second)
		cancel()
		require.Error(t, <-ended)
	})
}

// TestUpdatesThatOvertake: of two concurrent updates, the one that began last says how long the job is held, even if it
// returns first.
func TestUpdatesThatOvertake(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		slow := enginetest.Control(db)
		b := newBundle(t, slow)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		after(10 * time.Second) // from then on an update renews the hold
		open := slow.HoldAfter()
		ended := make(chan error)
		go func() { ended <- h.Update(t.Context(), nil, nil) }()
		after(20 * time.Second)
		slow.HoldAfter()() // the first goes on waiting
		began := time.Now()
		require.NoError(t, h.Update(t.Context(), nil, nil))
		after(5 * time.Second)
		open()
		require.NoError(t, <-ended)
		<-h.Context().Done()
		assert.Equal(t, 45*time.Second, time.Since(began))
	})
}

// TestContextEndsWithSlowClaim: the patience with a job counts from the start of the claim.
func TestContextEndsWithSlowClaim(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		slow := enginetest.Control(db)
		b := newBundle(t, slow)
		b.add(t, fdbjobs.Spec{ID: "j"})
		began := time.Now()
		time.AfterFunc(20*time.Second, slow.HoldAfter())
		h := b.accept(t)
		<-h.Context().Done()
		assert.Equal(t, 45*time.Second, time.Since(began))
	})
}

// TestCheckAfterAStop: a process that was stopped calls Check before its timers have fired.
func TestCheckAfterAStop(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		h.StopTimer()
		after(44 * time.Second)
		require.NoError(t, h.Check())
		after(2 * time.Second)
		require.NoError(t, h.Context().Err())
		require.ErrorIs(t, h.Check(), fdbjobs.ErrHalt)
		require.ErrorIs(t, context.Cause(h.Context()), fdbjobs.ErrHalt)
	})
}

// TestCheckAfterASuspension: only the time of day has advanced while a machine was suspended.
func TestCheckAfterASuspension(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		suspended := time.Duration(0)
		b := newBundleWith(t, db, fdbjobs.Options{Now: func() time.Time { return time.Now().Round(0).Add(suspended) }})
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		suspended = 44 * time.Second
		require.NoError(t, h.Check())
		require.NoError(t, h.Update(t.Context(), nil, nil))
		suspended += 44 * time.Second
		require.NoError(t, h.Check())
		suspended += 2 * time.Second
		require.NoError(t, h.Context().Err())
		require.ErrorIs(t, h.Check(), fdbjobs.ErrHalt)
	})
}

func TestHeartbeats(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundleWith(t, db, fdbjobs.Options{Timeout: 30 * time.Second})
		requeued, _ := b.monitor(t)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		for range 1000 {
			after(h.Heartbeat())
			require.NoError(t, h.Update(t.Context(), nil, nil))
		}
		require.NoError(t, h.Context().Err())
		assert.Empty(t, requeued)
		require.NoError(t, h.Finish(t.Context(), nil, nil))
	})
}

// also returns the number in the key "also".
func (b *bundle) also(t *testing.T) (n uint64) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		value, err := tx.Get([]byte("also")).Await()
		if value != nil {
			n = binary.LittleEndian.Uint64(value)
		}
		return err
	})
	return n
}

// TestAlso: also is written if and only if the call succeeds.
func TestAlso(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":0}`)})
		h := b.accept(t)
		refusal := errors.New("refused")
		also := func(err error) func(kv.Transaction) error {
			return func(tx kv.Transaction) error {
				tx.Add([]byte("also"), 1)
				return err
			}
		}
		require.ErrorIs(t, h.Update(t.Context(), text(`{"s":1}`), also(refusal)), refusal)
		require.ErrorIs(t, h.Finish(t.Context(), text(`{"s":1}`), also(refusal)), refusal)
		require.ErrorIs(t, h.Resubmit(t.Context(), time.Now(), text(`{"s":1}`), also(refusal)), refusal)
		assert.Equal(t, fdbjobs.Running, b.get(t, "j").Status)
		assert.JSONEq(t, `{"s":0}`, string(b.get(t, "j").State))
		assert.Zero(t, b.also(t))
		require.NoError(t, h.Context().Err())
		b.check(t)

		require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), also(nil)))
		assert.EqualValues(t, 1, b.also(t))
		require.NoError(t, h.Resubmit(t.Context(), time.Now(), text(`{"s":1}`), also(nil)))
		assert.EqualValues(t, 2, b.also(t))
		h = b.accept(t)
		require.NoError(t, h.Finish(t.Context(), text(`{"s":2}`), func(tx kv.Transaction) error {
			// Such as the next job.
			return errors.Join(also(nil)(tx), b.jobs.Add(tx, fdbjobs.Spec{ID: "k"}))
		}))
		assert.EqualValues(t, 3, b.also(t))
		assert.Equal(t, fdbjobs.Finished, b.get(t, "j").Status)
		assert.Equal(t, fdbjobs.Pending, b.get(t, "k").Status)
	})
}

func TestAcceptWaits(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		began := time.Now()
		held := b.acceptBy(t, fdbjobs.AcceptOptions{Wait: 10 * time.Second})
		assert.Empty(t, held)
		assert.Equal(t, 10*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := b.jobs.Accept(ctx, fdbjobs.AcceptOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)

		// A job of another process is taken when it is added.
		other := newBundle(t, db)
		time.AfterFunc(10*time.Minute, func() { other.add(t, fdbjobs.Spec{ID: "j"}) })
		began = time.Now()
		held = b.acceptBy(t, fdbjobs.AcceptOptions{})
		require.Len(t, held, 1)
		assert.Equal(t, 10*time.Minute, time.Since(began))
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
	})
}

// TestAcceptScheduled: a job is taken when it is due, even if it is added for a time before that for which a claimer
// waits.
func TestAcceptScheduled(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		began := time.Now()
		b.add(t, fdbjobs.Spec{ID: "far", Scheduled: began.Add(time.Hour)})
		type taken struct {
			id string
			at time.Duration
		}
		told := make(chan taken)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				held, err := b.jobs.Accept(ctx, fdbjobs.AcceptOptions{})
				if err != nil {
					return
				}
				told <- taken{held[0].Job().ID, time.Since(began)}
				assert.NoError(t, held[0].Finish(context.WithoutCancel(ctx), nil, nil))
			}
		}()
		after(3 * time.Second)
		b.add(t, fdbjobs.Spec{ID: "near", Scheduled: began.Add(10 * time.Second)})
		next := func(want taken) {
			t.Helper()
			got := <-told
			assert.Equal(t, want.id, got.id)
			assert.GreaterOrEqual(t, got.at, want.at)
			assert.Less(t, got.at, want.at+time.Second)
		}
		next(taken{"near", 10 * time.Second})
		after(25 * time.Minute)
		now := time.Since(began).Truncate(time.Second)
		b.add(t, fdbjobs.Spec{ID: "soon", Scheduled: began.Add(now + 5*time.Second)})
		next(taken{"soon", now + 5*time.Second})
		next(taken{"far", time.Hour})
		cancel()
		<-ended
	})
}

// TestAcceptorsAtOnce: many acceptors share the jobs, each job once.
func TestAcceptorsAtOnce(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const n = 100
		store := enginetest.Control(db)
		b := newBundle(t, store)
		told := make(chan string)
		for range n {
			go func() {
				held, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{Count: 3})
				if assert.NoError(t, err) && assert.Len(t, held, 1) {
					assert.NoError(t, held[0].Finish(t.Context(), nil, nil))
				}
				told <- held[0].Job().ID
			}()
		}
		after(time.Second)
		watches := store.Watches.Load()
		after(time.Hour)
		assert.LessOrEqual(t, store.Watches.Load()-watches, int64(120), "one watch for all, renewed every 30 s")
		seen := map[string]bool{}
		for i := range n {
			b.add(t, fdbjobs.Spec{ID: string(rune('A' + i)), Owner: "o"})
			seen[<-told] = true
		}
		assert.Len(t, seen, n)
	})
}

// TestAcceptorGone: a job that was taken for an acceptor that no longer waits is queued again.
func TestAcceptorGone(t *testing.T) {
	for name, closes := range map[string]bool{"alone": false, "with the layer": true} {
		t.Run(name, func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				slow := enginetest.Control(db)
				b, gone := newBundle(t, db), newBundle(t, slow)
				b.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":1}`)})
				open := slow.HoldAfter()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					_, err := gone.jobs.Accept(ctx, fdbjobs.AcceptOptions{})
					ended <- err
				}()
				after(time.Second)
				assert.Equal(t, fdbjobs.Running, b.get(t, "j").Status, "it was taken, and its claim has not returned")
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				if closes {
					go gone.layer.Close()
				}
				after(time.Second)
				open()
				after(time.Second)
				assert.Equal(t, fdbjobs.Pending, b.get(t, "j").Status)
				assert.JSONEq(t, `{"s":1}`, string(b.accept(t).Job().State))
			})
		})
	}
}

func TestClose(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"}, fdbjobs.Spec{ID: "k", Scheduled: time.Now().Add(time.Hour)})
		h := b.accept(t)
		ended := make(chan error)
		begin := func(wait func() error) { go func() { ended <- wait() }() }
		accept := func() error { _, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{}); return err }
		wait := func() error { _, err := b.jobs.Wait(t.Context(), "k", nil); return err }
		for range 3 {
			begin(accept)
			begin(wait)
		}
		b.layer.Close()
		for range 6 {
			require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
		}
		require.ErrorIs(t, accept(), fdbjobs.ErrClosed)
		require.ErrorIs(t, wait(), fdbjobs.ErrClosed)
		b.layer.Close() // once more
		require.NoError(t, h.Update(t.Context(), nil, nil))
		require.NoError(t, h.Finish(t.Context(), nil, nil))
	})
}

// TestCloseLeavesNoWatch: Close runs during a claim that finds nothing.
func TestCloseLeavesNoWatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		slow := enginetest.Control(enginetest.MemoryWith(t, memkv.Options{MaxWatches: 1}))
		b := newBundle(t, slow)
		open := slow.HoldAfter()
		ended := make(chan error)
		go func() {
			_, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{})
			ended <- err
		}()
		after(time.Second)
		go b.layer.Close()
		after(time.Second)
		open()
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
		b.layer.Close()
		var w kv.Watch
		b.transact(t, func(tx kv.Transaction) error {
			w = tx.Watch([]byte("x"))
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Wait(ctx), context.DeadlineExceeded, "there is room for it")
		w.Cancel()
	})
}

// TestCloseWithoutStore: a store that does not answer delays Close for a limited time.
func TestCloseWithoutStore(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		hung := enginetest.Control(db)
		b := newBundle(t, hung)
		open := hung.HoldBefore()
		ended := make(chan error)
		go func() {
			_, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{})
			ended <- err
		}()
		go func() {
			_, err := b.jobs.Wait(t.Context(), "j", nil)
			ended <- err
		}()
		after(time.Second)
		began := time.Now()
		go b.layer.Close()
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
		b.layer.Close()
		assert.LessOrEqual(t, time.Since(began), 5*time.Second)
		open()
	})
}

// TestStoreFails: waiting callers get the store's error, and later ones start again.
func TestStoreFails(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		broken, failure := enginetest.Control(db), errors.New("no disk")
		b := newBundle(t, broken)
		b.add(t, fdbjobs.Spec{ID: "j", Scheduled: time.Now().Add(time.Hour)})
		accept := func() error { _, err := b.jobs.Accept(t.Context(), doesNotWait); return err }
		ended := make(chan error)
		for range 3 {
			go func() { _, err := b.jobs.Wait(t.Context(), "j", nil); ended <- err }()
		}
		after(time.Second)
		broken.Fail(failure)
		require.ErrorIs(t, accept(), failure)
		after(time.Minute)
		for range 3 {
			require.ErrorIs(t, <-ended, failure)
		}
		_, err := b.jobs.Wait(t.Context(), "j", nil)
		require.ErrorIs(t, err, failure)
		broken.Fail(kv.ErrClosed)
		require.ErrorIs(t, accept(), fdbjobs.ErrClosed)
		broken.Fail(nil)
		require.NoError(t, accept())
		go func() { _, err := b.jobs.Wait(t.Context(), "j", nil); ended <- err }()
		after(time.Second)
		b.remove(t, "j")
		require.ErrorIs(t, <-ended, fdbjobs.ErrNotFound)
	})
}

// TestAcceptorsComeAndGo: acceptors that give up just when their claim fails leave one claimer for later ones.
func TestAcceptorsComeAndGo(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		broken := enginetest.Control(db)
		b := newBundle(t, broken)
		for i := range 300 {
			broken.Fail(errors.New("no disk"))
			open := broken.HoldBefore()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { _, err := b.jobs.Accept(ctx, fdbjobs.AcceptOptions{}); ended <- err }()
			after(time.Millisecond)
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			go open()
			_, err := b.jobs.Accept(t.Context(), doesNotWait)
			if err != nil {
				require.ErrorContains(t, err, "no disk", "round %d", i)
			}
			after(time.Millisecond)
		}
		broken.Fail(nil)
	})
}

// TestNoWatches: a process without free watches still waits, and does not read the store without pause.
func TestNoWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := enginetest.Control(enginetest.MemoryWith(t, memkv.Options{MaxWatches: 1}))
		b := newBundle(t, store)
		var w kv.Watch
		b.transact(t, func(tx kv.Transaction) error {
			w = tx.Watch([]byte("x"))
			return nil
		})
		defer w.Cancel()
		waited := make(chan error)
		b.add(t, fdbjobs.Spec{ID: "j", Scheduled: time.Now().Add(time.Minute)})
		go func() { _, err := b.jobs.Wait(t.Context(), "j", nil); waited <- err }()
		go func() {
			held, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{})
			if assert.NoError(t, err) {
				assert.NoError(t, held[0].Finish(t.Context(), nil, nil))
			}
		}()
		began := time.Now()
		require.NoError(t, <-waited)
		assert.Less(t, time.Since(began), 62*time.Second)
		assert.Less(t, store.Runs.Load(), int64(150))
	})
}

// TestSchedulesOfOtherClocks: jobs are found that were put into delayed for times that this process considers past.
func TestSchedulesOfOtherClocks(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		after(24 * time.Hour)
		assert.Empty(t, b.take(t, 1))
		// A process whose clock is 50 s behind schedules a job in 10 s.
		b.delay(t, "behind", time.Now().Add(-40*time.Second))
		assert.Equal(t, "behind", b.accept(t).Job().ID)
		// A job from a clock further behind is seen in time too, if not at once.
		b.delay(t, "far behind", time.Now().Add(-time.Hour))
		began := time.Now()
		held := b.acceptBy(t, fdbjobs.AcceptOptions{})
		assert.Equal(t, "far behind", held[0].Job().ID)
		assert.LessOrEqual(t, time.Since(began), 90*time.Second)
	})
}
