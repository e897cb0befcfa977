package faultkv_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

func (b *bundle) watch(t *testing.T, key string) kv.Watch {
	t.Helper()
	w, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (kv.Watch, error) {
		return tx.Watch([]byte(key)), nil
	})
	require.NoError(t, err)
	return w
}

func within(t *testing.T, d time.Duration, w kv.Watch) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return w.Wait(ctx)
}

func TestLostWatch(t *testing.T) {
	t.Parallel()
	opts := faultkv.Options{Rates: faultkv.Rates{faultkv.LostWatch: 1}}
	inBubble(t, opts, func(t *testing.T, b *bundle) {
		lost, cancelled, closed := b.watch(t, "k"), b.watch(t, "k"), b.watch(t, "k")
		require.ErrorIs(t, within(t, time.Minute, lost), context.DeadlineExceeded, "nothing has changed")
		b.set(t, "k")
		require.ErrorIs(t, within(t, time.Hour, lost), context.DeadlineExceeded, "the watch does not notice the change")
		errs := make(chan error)
		go func() { errs <- cancelled.Wait(t.Context()) }()
		synctest.Wait()
		cancelled.Cancel()
		require.ErrorIs(t, <-errs, kv.ErrWatchCancelled)
		require.ErrorIs(t, cancelled.Wait(t.Context()), kv.ErrWatchCancelled)
		go func() { errs <- closed.Wait(t.Context()) }()
		synctest.Wait()
		require.NoError(t, b.db.Close())
		require.ErrorIs(t, <-errs, kv.ErrClosed)
		assert.Equal(t, 3, b.db.Hits(faultkv.LostWatch))
		assert.Equal(t, `watch 1 (transaction 1, run 1) of "k": lost watch`, b.trace()[0])
	})
}

func TestLateWatch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		opts := faultkv.Options{Seed: seed, Rates: faultkv.Rates{faultkv.LateWatch: 1}}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			w, idle := b.watch(t, "k"), b.watch(t, "idle")
			lag := b.events[0].Delay
			require.Positive(t, lag)
			require.LessOrEqual(t, lag, 30*time.Second)
			b.set(t, "k")
			start := time.Now()
			require.ErrorIs(t, within(t, lag-1, w), context.DeadlineExceeded)
			require.NoError(t, within(t, time.Hour, w))
			assert.Equal(t, lag, time.Since(start))
			require.NoError(t, w.Wait(t.Context()), "the watch stays ended")
			assert.Equal(t, lag, time.Since(start))
			require.ErrorIs(t, within(t, time.Hour, idle), context.DeadlineExceeded)
			idle.Cancel()
			require.ErrorIs(t, idle.Wait(t.Context()), kv.ErrWatchCancelled)
		})
	}
}

func TestSpuriousWatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		plain, err := memkv.Open(memkv.Options{MaxWatches: 1})
		require.NoError(t, err)
		b := &bundle{plain: plain, db: faultkv.Wrap(plain, faultkv.Options{Rates: faultkv.Rates{faultkv.SpuriousWatch: 1}})}
		w := b.watch(t, "k")
		require.NoError(t, w.Wait(t.Context()))
		require.NoError(t, w.Wait(t.Context()), "the watch stays ended")
		// It no longer counts, like a watch that has fired.
		other, err := kv.TransactValue(t.Context(), plain, func(tx kv.Transaction) (kv.Watch, error) {
			return tx.Watch([]byte("k")), nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, within(t, time.Second, other), context.DeadlineExceeded)
		other.Cancel()
		w.Cancel()
		require.ErrorIs(t, w.Wait(t.Context()), kv.ErrWatchCancelled)

		// It does not end before its transaction has committed.
		ended := make(chan error, 1)
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			w = tx.Watch([]byte("k"))
			go func() { ended <- w.Wait(t.Context()) }()
			synctest.Wait()
			require.Empty(t, ended)
			require.ErrorIs(t, within(t, time.Second, w), context.DeadlineExceeded)
			return nil
		}))
		require.NoError(t, <-ended)
		require.ErrorIs(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			w = tx.Watch([]byte("k"))
			return context.Canceled
		}), context.Canceled)
		require.ErrorIs(t, w.Wait(t.Context()), kv.ErrWatchCancelled)
		// It does not end either if the transaction conflicts.
		var watches []kv.Watch
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			watches = append(watches, tx.Watch([]byte("k")))
			err := write("other")(tx)
			if len(watches) == 1 {
				b.set(t, "read")
			}
			return err
		}))
		require.ErrorIs(t, watches[0].Wait(t.Context()), kv.ErrWatchCancelled)
		require.NoError(t, watches[1].Wait(t.Context()))
		w = b.watch(t, "k")
		require.NoError(t, b.db.Close())
		require.ErrorIs(t, w.Wait(t.Context()), kv.ErrClosed)
	})
}

// TestFiredBeforeTheReport: a watch of a commit that was reported unknown is cancelled even if it has fired.
func TestFiredBeforeTheReport(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := wrap(t, faultkv.Options{})
		b.db = faultkv.Wrap(b.plain, faultkv.Options{
			Script: faultkv.UnknownOnce,
			// Observe is called after the commit.
			Observe: func(faultkv.Event) { b.set(t, "k") },
		})
		var watches []kv.Watch
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			watches = append(watches, tx.Watch([]byte("k")))
			tx.Set([]byte("other"), nil)
			return nil
		}))
		require.Len(t, watches, 2)
		require.ErrorIs(t, watches[0].Wait(t.Context()), kv.ErrWatchCancelled)
		require.NoError(t, b.db.Close())
	})
}
