package kvtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// watch arms a watch. A run whose commit was reported unknown leaves a cancelled watch, so the last run counts.
func (b *bench) watch(key string) (w kv.Watch) {
	b.t.Helper()
	b.read(func(tx kv.Transaction) { w = tx.Watch(b.key(key)) })
	return w
}

func testWatches(t *testing.T, b *bench) {
	b.set("k", "1", "cleared", "1", "kept", "1")
	for _, c := range []struct {
		key    string
		change func(tx kv.Transaction, key []byte)
	}{
		{"k", func(tx kv.Transaction, key []byte) { tx.Set(key, []byte("2")) }},
		{"new", func(tx kv.Transaction, key []byte) { tx.Set(key, nil) }},
		{"k", func(tx kv.Transaction, key []byte) { tx.Clear(key) }},
		{"cleared", func(tx kv.Transaction, _ []byte) { tx.ClearRange(b.between("c", "d")) }},
		{"sum", func(tx kv.Transaction, key []byte) { tx.Add(key, 1) }},
		{"stamped", func(tx kv.Transaction, key []byte) { tx.SetVersionstampedValue(key, stampedValue("", 0)) }},
	} {
		first, second := b.watch(c.key), b.watch(c.key)
		b.write(func(tx kv.Transaction) { c.change(tx, b.key(c.key)) })
		require.NoError(t, first.Wait(b.ctx()), c.key)
		require.NoError(t, second.Wait(b.ctx()), c.key)
		require.NoError(t, first.Wait(b.ctx()), "a watch may be waited for again")
	}
	b.testWatchesOfWriters()
	b.testWatchesThatEnd()
}

// testWatchesOfWriters: a watch waits for a change of what its transaction would read, including its own writes.
func (b *bench) testWatchesOfWriters() {
	var w kv.Watch
	require.NoError(b.t, b.run(func(tx kv.Transaction) {
		tx.Set(b.key("k"), []byte("mine"))
		w = tx.Watch(b.key("k"))
	}))
	b.set("k", "another's")
	require.NoError(b.t, w.Wait(b.ctx()))

	// A change between the read and the arming is not missed.
	require.True(b.t, b.watchesBesides(func(tx kv.Transaction) { w = tx.Watch(b.key("k")) },
		func(tx kv.Transaction) { tx.Set(b.key("k"), []byte("3")) }))
	require.NoError(b.t, w.Wait(b.ctx()))
}

// watchesBesides is besides for a transaction that writes nothing, which runs until it is committed.
func (b *bench) watchesBesides(first, other func(tx kv.Transaction)) bool {
	b.t.Helper()
	for range 10 {
		if b.besides(first, other) {
			return true
		}
	}
	return false
}

// testWatchesThatEnd tests the ends of a watch other than a change.
func (b *bench) testWatchesThatEnd() {
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("gone")
	cancel(gone)
	idle := b.watch("kept")
	// It may have ended without a change.
	if err := idle.Wait(ctx); err != nil {
		require.ErrorIs(b.t, err, gone)
		idle.Cancel()
		require.ErrorIs(b.t, idle.Wait(b.ctx()), kv.ErrWatchCancelled)
	}
	idle.Cancel() // a second call has no effect

	var dropped kv.Watch
	b.try(func(tx kv.Transaction) { dropped = tx.Watch(b.key("kept")) })
	require.ErrorIs(b.t, dropped.Wait(b.ctx()), kv.ErrWatchCancelled)

	var refused kv.Watch
	err := b.runErr(func(tx kv.Transaction) error {
		refused = tx.Watch([]byte("\xff/x"))
		return nil
	})
	if err == nil { // the transaction need not fail with its watch
		err = refused.Wait(b.ctx())
	}
	require.ErrorIs(b.t, err, kv.ErrKeyOutsideLegalRange)
}

// testTooManyWatches: max_watches limits the armed watches, and a cancelled one no longer counts.
func testTooManyWatches(t *testing.T, b *bench) {
	const perTransaction = 1000
	var armed []kv.Watch
	defer func() {
		for _, w := range armed {
			w.Cancel()
		}
	}()
	arm := func(n int) {
		var batch []kv.Watch
		err := b.run(func(tx kv.Transaction) {
			batch = batch[:0]
			for range n {
				batch = append(batch, tx.Watch(b.key("k")))
			}
		})
		if err != nil { // an engine may fail the transaction with its watch
			require.ErrorIs(t, err, kv.ErrTooManyWatches)
		}
		armed = append(armed, batch...)
	}
	for len(armed) <= kv.DefaultMaxWatches {
		arm(perTransaction)
	}
	ctx, found := context.WithCancel(b.ctx())
	defer found()
	var refused atomic.Int64
	var waiting sync.WaitGroup
	for _, w := range armed { // an engine may report it late
		waiting.Go(func() {
			if errors.Is(w.Wait(ctx), kv.ErrTooManyWatches) {
				refused.Add(1)
				found()
			}
		})
	}
	waiting.Wait()
	require.NotZero(t, refused.Load(), "%d watches were armed", len(armed))
	for _, w := range armed[:2*perTransaction] {
		w.Cancel()
	}
	w := b.watch("k")
	armed = append(armed, w)
	b.set("k", "changed")
	require.NoError(t, w.Wait(b.ctx()), "there is room again")
}
