package turnstile_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs/internal/turnstile"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a turnstile and the log of its events.
type program struct {
	*turnstile.Turnstile
	lines []string
}

func (p *program) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

func inBubble(t *testing.T, opts turnstile.Options, f func(t *testing.T, p *program)) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{}
		opts.Observe = func(e turnstile.Event) {
			p.say("%s: %s %v", e.Name, e.At, e.Dead)
		}
		p.Turnstile = turnstile.New(opts)
		f(t, p)
		lines = p.lines
	})
	return lines
}

// increments runs goroutines of several processes that add to one key, on a store with faults, and returns the log.
func increments(t *testing.T, seed uint64) string {
	return strings.Join(inBubble(t, turnstile.Options{Seed: seed, Reads: 0.5}, func(t *testing.T, p *program) {
		store := enginetest.MemoryWith(t, memkv.Options{Pause: p.Pause})
		for i := range 3 {
			process := p.Process(fmt.Sprint("p", i))
			db := p.Wrap(faultkv.Wrap(store, faultkv.Options{
				Seed: seed + uint64(i), Now: time.Now, Sleep: p.Sleep, Pause: p.Pause,
				Rates:   faultkv.Rates{faultkv.Conflict: 0.1, faultkv.Delay: 0.2, faultkv.UnknownNotCommitted: 0.1, faultkv.LateWatch: 0.5},
				Observe: func(e faultkv.Event) { p.say("%v", e) },
			}))
			for j := range 4 {
				process.Go(fmt.Sprint("adder ", j), func(ctx context.Context) {
					for range 3 {
						check(t, add(ctx, db))
						p.Sleep(ctx, time.Second)
					}
				})
			}
			process.Go("watcher", func(ctx context.Context) {
				for n := uint64(0); n < 36; {
					watch, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) (kv.Watch, error) {
						value, err := tx.Get([]byte("n")).Await()
						if value != nil {
							n = binary.BigEndian.Uint64(value)
						}
						return tx.Watch([]byte("n")), err
					})
					check(t, err)
					p.say("%s: %d", turnstile.NameOf(ctx), n)
					if n < 36 {
						check(t, watch.Wait(ctx))
					}
					watch.Cancel()
				}
			})
		}
		require.NoError(t, p.Run(nil))
	}), "\n")
}

// check reports an error from another goroutine than the test's.
func check(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

func add(ctx context.Context, db kv.Database) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		value, err := tx.Get([]byte("n")).Await()
		if err != nil {
			return err
		}
		if value == nil {
			value = make([]byte, 8)
		}
		tx.Set([]byte("n"), binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(value)+1))
		return nil
	})
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := range uint64(10) {
		first := increments(t, seed)
		require.Equal(t, first, increments(t, seed))
		assert.Contains(t, first, ": read ")
		assert.Contains(t, first, "/watcher/watch: watch ")
		seen[first] = true
	}
	assert.Len(t, seen, 10)
}

// TestOneAtATime checks that a drawn goroutine runs alone until it waits.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	inBubble(t, turnstile.Options{}, func(t *testing.T, p *program) {
		n := 0 // the race detector reports concurrent access
		process := p.Process("p")
		for i := range 50 {
			process.Go(fmt.Sprint(i), func(ctx context.Context) {
				for range 20 {
					before := n
					n++
					assert.Equal(t, before+1, n)
					turnstile.Pass(ctx, "again")
				}
			})
		}
		require.NoError(t, p.Run(nil))
		assert.Equal(t, 1000, n)
	})
}

// TestKill checks that a goroutine ends when it next passes, running only deferred functions.
func TestKill(t *testing.T) {
	t.Parallel()
	inBubble(t, turnstile.Options{}, func(t *testing.T, p *program) {
		store := enginetest.MemoryWith(t, memkv.Options{Pause: p.Pause})
		victim, other := p.Process("victim"), p.Process("other")
		db := p.Wrap(store)
		var deferred, cleaned, after int
		closed := make(chan struct{})
		victim.Cleanup(func() { cleaned++; close(closed) })
		for i, f := range []func(ctx context.Context){
			func(ctx context.Context) { p.Sleep(ctx, time.Second); _ = add(ctx, db) },
			func(ctx context.Context) { p.Sleep(ctx, time.Hour) },
			func(ctx context.Context) { <-ctx.Done(); turnstile.Pass(ctx, "done") },
			func(ctx context.Context) { <-closed; turnstile.Pass(ctx, "closed") },
		} {
			victim.Go(fmt.Sprint(i), func(ctx context.Context) {
				defer func() { deferred++ }()
				f(ctx)
				after++
			})
		}
		other.Go("adder", func(ctx context.Context) { check(t, add(ctx, db)) })
		began := time.Now()
		require.NoError(t, p.Run(func() {
			for _, line := range p.lines {
				if strings.HasPrefix(line, "victim/0: run") {
					victim.Kill()
					victim.Kill() // changes nothing
				}
			}
		}))
		assert.True(t, victim.Dead())
		assert.False(t, other.Dead())
		assert.Equal(t, []int{4, 1, 0}, []int{deferred, cleaned, after})
		assert.Equal(t, time.Second, time.Since(began), "the kill has ended the sleep of an hour")
		value, err := kv.TransactValue(t.Context(), store, func(tx kv.Transaction) ([]byte, error) {
			return tx.Get([]byte("n")).Await()
		})
		require.NoError(t, err)
		assert.EqualValues(t, 1, binary.BigEndian.Uint64(value), "only the other process has added")
	})
}

// TestFreeze checks that a frozen process does not notice that time passes.
func TestFreeze(t *testing.T) {
	t.Parallel()
	inBubble(t, turnstile.Options{}, func(t *testing.T, p *program) {
		frozen, other := p.Process("frozen"), p.Process("other")
		began := time.Now()
		var woke, otherWoke time.Duration
		frozen.Go("sleeper", func(ctx context.Context) {
			p.Sleep(ctx, time.Second)
			woke = time.Since(began)
		})
		other.Go("sleeper", func(ctx context.Context) {
			p.Sleep(ctx, time.Second)
			otherWoke = time.Since(began)
		})
		done := false
		require.NoError(t, p.Run(func() {
			if !done {
				done = true
				frozen.Freeze(3 * time.Second)
				frozen.Freeze(5 * time.Second) // the longer freeze counts
				assert.True(t, frozen.Frozen())
			}
		}))
		assert.False(t, frozen.Frozen())
		assert.Equal(t, 6*time.Second, woke, "the goroutine begins after 5 s and sleeps for one")
		assert.Equal(t, time.Second, otherWoke)
	})
}

func TestStuck(t *testing.T) {
	t.Parallel()
	inBubble(t, turnstile.Options{}, func(t *testing.T, p *program) {
		process := p.Process("p")
		process.Go("waiter", func(ctx context.Context) {
			<-ctx.Done()
			turnstile.Pass(ctx, "done")
		})
		require.ErrorIs(t, p.Run(nil), turnstile.ErrStuck)
		process.Kill()
		require.NoError(t, p.Run(nil))
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { turnstile.Pass(t.Context(), "nowhere") })
	inBubble(t, turnstile.Options{}, func(t *testing.T, p *program) {
		process := p.Process("p")
		process.Go("a", func(ctx context.Context) {
			ctx = process.Name(ctx, "b")
			assert.Equal(t, "p/a/b", turnstile.NameOf(ctx))
			turnstile.Pass(ctx, "there")
		})
		require.NoError(t, p.Run(nil))
		assert.Equal(t, []string{"p/a: begins false", "p/a/b: there false"}, p.lines)
	})
	assert.Empty(t, turnstile.NameOf(t.Context()))
}
