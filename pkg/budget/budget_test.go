package budget_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/budget"
)

const limit = 6400

func newBudget() *budget.Budget {
	return budget.New(budget.Options{
		Limit: func() int64 { return limit }, Patience: 5 * time.Second, Grace: time.Second,
	})
}

// room is what is left of a budget of which the rest is used.
const room = 100

// newUsedBudget returns a budget with room for a hundred bytes.
func newUsedBudget(t *testing.T) (b *budget.Budget, end func()) {
	b = newBudget()
	rest := b.Account("rest", never(t))
	for range (limit - room) / room {
		require.NoError(t, rest.Take(t.Context(), room, budget.All))
	}
	return b, rest.Close
}

// never fails a test whose account is evicted.
func never(t *testing.T) func() {
	return func() { assert.Fail(t, "evicted") }
}

func TestTakeWaitsForWhatOthersGiveBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, end := newUsedBudget(t)
		first, second := b.Account("a", never(t)), b.Account("b", never(t))
		require.NoError(t, first.Take(t.Context(), 80, budget.All))
		require.NoError(t, second.Take(t.Context(), 20, budget.All))
		taken := make(chan error, 1)
		go func() { taken <- second.Take(t.Context(), 30, budget.All) }()
		synctest.Wait()
		require.EqualValues(t, limit, b.Used())
		first.Give(30)
		require.NoError(t, <-taken)
		require.EqualValues(t, 50, second.Held())
		second.Close()
		second.Close()
		require.EqualValues(t, limit-50, b.Used())
		first.Close()
		end()
		require.Zero(t, b.Used())
	})
}

func TestMostLeavesRoomForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		a, other := b.Account("a", never(t)), b.Account("a", never(t))
		require.True(t, other.TryTake(limit/2-1))
		require.True(t, a.TryTake(1))
		require.False(t, a.TryTake(1), "half is for those that cannot do without")
		require.NoError(t, a.Take(t.Context(), limit/4, budget.Most))
		waiting := make(chan error, 1)
		go func() { waiting <- other.Take(t.Context(), 1, budget.Most) }()
		synctest.Wait()
		for range limit / 4 / room {
			require.NoError(t, a.Take(t.Context(), room, budget.All), "it does not wait behind the other")
		}
		require.EqualValues(t, limit, b.Used())
		a.Close()
		require.NoError(t, <-waiting)
		other.Close()
	})
}

func TestTakeGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		first := b.Account("a", never(t))
		require.NoError(t, first.Take(t.Context(), limit, budget.All))
		began := time.Now()
		require.ErrorIs(t, b.Account("b", never(t)).Take(t.Context(), 1, budget.All), budget.ErrExhausted)
		require.Equal(t, 5*time.Second, time.Since(began))
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		require.ErrorIs(t, b.Account("b", never(t)).Take(ctx, 1, budget.All), gone)
		first.Close()
	})
}

func TestAnAccountMayHaveMoreThanTheLimitAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		small, large := b.Account("a", never(t)), b.Account("b", never(t))
		require.True(t, small.TryTake(1))
		taken := make(chan error, 1)
		go func() { taken <- large.Take(t.Context(), 3*limit, budget.All) }()
		synctest.Wait()
		require.False(t, small.TryTake(1), "others wait")
		small.Close()
		require.NoError(t, <-taken)
		require.NoError(t, large.Take(t.Context(), 1, budget.All))
		large.Close()
	})
}

func TestBytesGoToClientsInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, end := newUsedBudget(t)
		holder := b.Account("holder", never(t))
		require.NoError(t, holder.Take(t.Context(), room, budget.All))
		var mu sync.Mutex
		var order []string
		var waits sync.WaitGroup
		for _, name := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
			waits.Go(func() {
				account := b.Account(name[:1], never(t))
				if assert.NoError(t, account.Take(t.Context(), room, budget.All)) {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					account.Close()
				}
			})
			synctest.Wait()
		}
		holder.Close()
		waits.Wait()
		require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3"}, order)
		end()
	})
}

func TestStalledAccountsMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, end := newUsedBudget(t)
		defer end()
		var evicted []string
		stalled := func(client, name string, bytes int64) *budget.Account {
			var a *budget.Account
			a = b.Account(client, func() {
				evicted = append(evicted, name)
				a.Close()
			})
			require.NoError(t, a.Take(t.Context(), bytes, budget.All))
			a.Stall()
			time.Sleep(time.Millisecond)
			return a
		}
		defer stalled("one", "one1", 30).Close()
		stalled("many", "many1", 20)
		defer stalled("many", "many2", 20).Close()
		active := stalled("many", "active", 30)
		active.Resume()
		time.Sleep(time.Second)
		waiting := b.Account("new", never(t))
		require.NoError(t, waiting.Take(t.Context(), 10, budget.All))
		require.Equal(t, []string{"many1"}, evicted, "of the client with the most stalled bytes the longest")
		require.NoError(t, waiting.Take(t.Context(), 10, budget.All), "room was made for it")
		require.NoError(t, waiting.Take(t.Context(), 10, budget.All))
		require.Equal(t, []string{"many1", "one1"}, evicted)
		require.ErrorIs(t, waiting.Take(t.Context(), room-30, budget.All), budget.ErrExhausted, "what is active stays")
		require.Equal(t, []string{"many1", "one1", "many2"}, evicted)
		active.Close()
		waiting.Close()
	})
}

func TestEvictedAccountsCountUntilTheyAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, end := newUsedBudget(t)
		var evictions atomic.Int64
		var all []*budget.Account
		for range 10 {
			a := b.Account("slow", func() { evictions.Add(1) })
			require.NoError(t, a.Take(t.Context(), 10, budget.All))
			a.Stall()
			all = append(all, a)
		}
		taken := make(chan error, 1)
		waiting := b.Account("new", never(t))
		go func() { taken <- waiting.Take(t.Context(), 15, budget.All) }()
		time.Sleep(time.Second - time.Millisecond)
		require.Zero(t, evictions.Load(), "they have stalled for less than the grace period")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 2, evictions.Load(), "no more than it needs")
		all[0].Resume()
		all[0].Close()
		synctest.Wait()
		require.EqualValues(t, limit-10, b.Used())
		all[1].Close()
		require.NoError(t, <-taken)
		for _, a := range all {
			a.Close()
		}
		waiting.Close()
		end()
		require.Zero(t, b.Used())
	})
}

func TestNilAccount(t *testing.T) {
	t.Parallel()
	var a *budget.Account
	require.NoError(t, a.Take(t.Context(), 1<<40, budget.All))
	require.True(t, a.TryTake(1))
	a.Stall()
	a.Resume()
	a.Give(1)
	a.Close()
	require.Zero(t, a.Held())
}

// TestRandom lets clients take, give, stall and leave in an order from a seed. The sum never exceeds the limit unless one
// account has it all, it is always that of the accounts, and nobody waits when all are gone.
func TestRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { random(t, seed) })
		})
	}
}

func random(t *testing.T, seed uint64) {
	b := newBudget()
	var sum, accounts atomic.Int64 // of what the callers know to have
	var requests sync.WaitGroup
	for i := range 30 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		requests.Go(func() {
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				a := b.Account(fmt.Sprint(rng.IntN(5)), cancel)
				var held int64
				for ctx.Err() == nil && rng.IntN(6) > 0 {
					n := 1 + rng.Int64N(2*room)
					if rng.IntN(4) == 0 {
						n = 1 + rng.Int64N(limit/2)
					}
					var err error
					if rng.IntN(4) == 0 {
						if !a.TryTake(n) {
							err = budget.ErrExhausted
						}
					} else {
						err = a.Take(ctx, n, budget.Share(rng.IntN(2)))
					}
					if err != nil {
						continue
					}
					if held == 0 {
						accounts.Add(1)
					}
					held += n
					total := sum.Add(n)
					assert.True(t, total <= limit || accounts.Load() == 1, "%d bytes of %d accounts", total, accounts.Load())
					time.Sleep(time.Duration(rng.IntN(2_000)) * time.Millisecond)
					if rng.IntN(2) == 0 {
						a.Stall()
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(rng.IntN(4_000)) * time.Millisecond):
						}
						a.Resume()
					}
					if rng.IntN(2) == 0 {
						back := 1 + rng.Int64N(held)
						if held -= back; held == 0 {
							accounts.Add(-1)
						}
						sum.Add(-back)
						a.Give(back)
					}
				}
				if held > 0 {
					accounts.Add(-1)
				}
				sum.Add(-held)
				a.Close()
				cancel()
			}
		})
	}
	requests.Wait()
	assert.Zero(t, b.Used())
	last := b.Account("last", never(t))
	assert.True(t, last.TryTake(limit))
	last.Close()
}
