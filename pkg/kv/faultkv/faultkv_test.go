package faultkv_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

// TestReplay: the same seed and the same order of calls give the same faults.
func TestReplay(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (trace []string) {
		opts := faultkv.Options{Seed: seed, Rates: faultkv.Rates{
			faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.1, faultkv.TooOld: 0.05,
			faultkv.Delay: 0.3, faultkv.LostWatch: 0.2, faultkv.LateWatch: 0.2, faultkv.SpuriousWatch: 0.2,
		}}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			for n := range 150 {
				require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
					if _, err := tx.GetRange(between("", "\xff"), kv.RangeOptions{}).Slice(); err != nil {
						return err
					}
					tx.Watch([]byte("k"))
					return write(fmt.Sprint(n))(tx)
				}))
			}
			trace = b.trace()
		})
		return trace
	}
	first := run(1)
	assert.Greater(t, len(first), 100)
	assert.Equal(t, first, run(1))
	assert.NotEqual(t, first, run(2))
}

// TestRatesAreApart: delays do not affect the faults of other kinds.
func TestRatesAreApart(t *testing.T) {
	t.Parallel()
	run := func(rates faultkv.Rates) (watches []string) {
		inBubble(t, faultkv.Options{Seed: 3, Rates: rates}, func(t *testing.T, b *bundle) {
			for range 100 {
				require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
					tx.Watch([]byte("k"))
					return write("k")(tx)
				}))
			}
			for _, e := range b.events {
				if e.Call.Op == faultkv.Watch {
					watches = append(watches, e.String())
				}
			}
		})
		return watches
	}
	alone := run(faultkv.Rates{faultkv.SpuriousWatch: 0.3})
	assert.NotEmpty(t, alone)
	assert.Equal(t, alone, run(faultkv.Rates{faultkv.SpuriousWatch: 0.3, faultkv.Delay: 0.5}))
}

// TestAtEachCommit runs an operation of three transactions through each of its commits, as doc.go describes.
func TestAtEachCommit(t *testing.T) {
	t.Parallel()
	twice := []int{}
	for n, done := 1, false; !done; n++ {
		inBubble(t, faultkv.Options{
			Script: faultkv.At(faultkv.Commit, n, faultkv.UnknownCommitted),
		}, func(t *testing.T, b *bundle) {
			for step := range 3 {
				require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
					tx.Add(fmt.Append(nil, step), 1)
					return nil
				}))
			}
			if done = b.db.Calls(faultkv.Commit) < n; done {
				return
			}
			for step := range 3 {
				if b.number(t, fmt.Sprint(step)) == 2 {
					twice = append(twice, step)
				}
			}
		})
	}
	assert.Equal(t, []int{0, 1, 2}, twice)
}

// TestScript: the script gets each call, and its fault comes before a drawn one.
func TestScript(t *testing.T) {
	t.Parallel()
	var calls []faultkv.Call
	opts := faultkv.Options{
		Rates: faultkv.Rates{faultkv.UnknownNotCommitted: 1},
		Script: func(c faultkv.Call) faultkv.Fault {
			calls = append(calls, c)
			switch {
			case c.Op == faultkv.Commit && c.Run == 1:
				return faultkv.Conflict
			case c.Op == faultkv.Commit && c.Run == 3:
				return faultkv.Delay
			}
			return faultkv.LostWatch // hits neither a read nor a commit
		},
	}
	inBubble(t, opts, func(t *testing.T, b *bundle) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, b.db.Transact(ctx, write("k")))
		assert.Equal(t, 1, b.db.Hits(faultkv.Conflict))
		assert.Equal(t, 1, b.db.Hits(faultkv.UnknownNotCommitted))
		assert.Equal(t, 1, b.db.Hits(faultkv.Delay))
		key := []byte("read")
		assert.Equal(t, []faultkv.Call{
			{Op: faultkv.Read, N: 1, Transaction: 1, Run: 1, Key: key},
			{Op: faultkv.Commit, N: 1, Transaction: 1, Run: 1},
			{Op: faultkv.Read, N: 2, Transaction: 1, Run: 2, Key: key},
			{Op: faultkv.Commit, N: 2, Transaction: 1, Run: 2},
			{Op: faultkv.Read, N: 3, Transaction: 1, Run: 3, Unknown: 1, Key: key},
			{Op: faultkv.Commit, N: 3, Transaction: 1, Run: 3, Unknown: 1},
		}, calls)
	})
}

// TestUnknownOnceAfterConflict: a conflict does not count as the one fault.
func TestUnknownOnceAfterConflict(t *testing.T) {
	t.Parallel()
	inBubble(t, faultkv.Options{Script: faultkv.UnknownOnce}, func(t *testing.T, b *bundle) {
		runs := 0
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			runs++
			err := write("k")(tx)
			if runs == 1 {
				b.set(t, "read")
			}
			return err
		}))
		assert.Equal(t, 3, runs)
		assert.Equal(t, 1, b.db.Hits(faultkv.UnknownCommitted))
	})
}

// TestFakeClock: all times come from Now and Sleep.
func TestFakeClock(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	plain, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	db := faultkv.Wrap(plain, faultkv.Options{
		Rates:  faultkv.Rates{faultkv.Delay: 1, faultkv.LateWatch: 1},
		Delays: fixed(time.Hour),
		Now:    func() time.Time { return now },
		Sleep:  func(_ context.Context, d time.Duration) { now = now.Add(d) },
	})
	var watch kv.Watch
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		watch = tx.Watch([]byte("k"))
		return write("k")(tx)
	}))
	assert.Equal(t, 2*time.Hour, now.Sub(time.Unix(0, 0)))
	require.NoError(t, plain.Transact(t.Context(), func(tx kv.Transaction) error {
		tx.Set([]byte("k"), []byte("other"))
		return nil
	}))
	require.NoError(t, watch.Wait(t.Context()))
	assert.Greater(t, now.Sub(time.Unix(0, 0)), 2*time.Hour)
	require.NoError(t, db.Close())
}

// TestClose: Close waits for transactions between two of their attempts too.
func TestClose(t *testing.T) {
	t.Parallel()
	inBubble(t, faultkv.Options{Rates: faultkv.Rates{faultkv.UnknownCommitted: 0.9}}, func(t *testing.T, b *bundle) {
		began, ended := make(chan struct{}), make(chan error)
		var once sync.Once
		go func() {
			ended <- b.db.Transact(t.Context(), func(tx kv.Transaction) error {
				once.Do(func() { close(began) })
				return write("k")(tx)
			})
		}()
		<-began
		closed := make(chan error)
		go func() { closed <- b.db.Close() }()
		require.NoError(t, <-ended)
		require.NoError(t, <-closed)
		require.ErrorIs(t, b.db.Transact(t.Context(), write("k")), kv.ErrClosed)
		require.ErrorIs(t, b.db.Close(), kv.ErrClosed)
	})
}

// TestShared: two processes use one store, one of them through the other.
func TestShared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := wrap(t, faultkv.Options{Seed: 1, Rates: faultkv.Rates{faultkv.UnknownCommitted: 0.5}})
		outer := faultkv.Wrap(b.db, faultkv.Options{Script: faultkv.UnknownOnce})
		for range 10 {
			require.NoError(t, outer.Transact(t.Context(), write("k")))
		}
		assert.NotZero(t, b.db.Hits(faultkv.UnknownCommitted))
		assert.Equal(t, 10, outer.Hits(faultkv.UnknownCommitted))
		require.NoError(t, outer.Close())
	})
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]faultkv.Options{
		"no fault":     {Rates: faultkv.Rates{faultkv.None: 0.5}},
		"unknown":      {Rates: faultkv.Rates{faultkv.Fault(99): 0.5}},
		"negative":     {Rates: faultkv.Rates{faultkv.Delay: -0.1}},
		"not a number": {Rates: faultkv.Rates{faultkv.Delay: math.NaN()}},
		"too often":    {Rates: faultkv.Rates{faultkv.Conflict: 0.6, faultkv.UnknownCommitted: 0.6}},
		"half a clock": {Now: time.Now},
	} {
		assert.Panics(t, func() { faultkv.Wrap(nil, opts) }, name)
	}
	assert.NotPanics(t, func() {
		faultkv.Wrap(nil, faultkv.Options{Rates: faultkv.Rates{faultkv.Conflict: 1, faultkv.Delay: 1, faultkv.LostWatch: 1}})
	})
}
