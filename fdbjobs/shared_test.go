package fdbjobs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// transactions counts the transactions of a store, and the runs of their functions.
type transactions struct {
	kv.Database
	ended, runs atomic.Int64
}

func (c *transactions) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	defer c.ended.Add(1)
	return c.Database.Transact(ctx, func(tx kv.Transaction) error {
		c.runs.Add(1)
		return fn(tx)
	})
}

// holders hold jobs. Their calls wait for one transaction, and then share the next.
type holders struct {
	*bundle
	store *transactions
	held  []*fdbjobs.Held
	calls sync.WaitGroup
}

// newHolders returns n holders, besides the first.
func newHolders(t *testing.T, db kv.Database, n int) *holders {
	c := &holders{store: &transactions{Database: db}}
	c.bundle = newBundle(t, c.store)
	c.jobs.ShareAtOnce(1)
	for i := range n + 1 {
		c.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 3)})
	}
	for len(c.held) <= n {
		c.held = append(c.held, c.take(t, n+1-len(c.held))...)
	}
	return c
}

// gather starts calls while a transaction of the first holder is under way. All wait when it returns, and release lets
// them go on.
func (c *holders) gather(calls ...func()) (release func()) {
	gate := make(chan struct{})
	c.calls.Go(func() {
		_ = c.held[0].Update(context.Background(), nil, func(kv.Transaction) error {
			<-gate
			return nil
		})
	})
	synctest.Wait()
	for _, call := range calls {
		c.calls.Go(call)
		synctest.Wait() // in this order
	}
	c.store.ended.Store(0)
	return func() {
		close(gate)
		c.calls.Wait()
	}
}

func count(n *atomic.Int64) func(kv.Transaction) error {
	return func(tx kv.Transaction) error {
		n.Add(1)
		tx.Add([]byte("also"), 1)
		return nil
	}
}

// TestSharedTransaction: calls that wait share a transaction, and each has its effect.
func TestSharedTransaction(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 9)
		errs := make([]error, 10)
		var calls []func()
		var also atomic.Int64
		for i, h := range c.held[1:] {
			state := text(fmt.Sprintf(`{"s":%d}`, i))
			calls = append(calls, func() {
				switch i % 3 {
				case 0:
					errs[i] = h.Update(t.Context(), state, count(&also))
				case 1:
					errs[i] = h.Finish(t.Context(), state, nil)
				default:
					errs[i] = h.Resubmit(t.Context(), time.Now(), state, count(&also))
				}
			})
		}
		c.gather(calls...)()
		assert.EqualValues(t, 2, c.store.ended.Load(), "the first, and one for all others")
		assert.EqualValues(t, 6, also.Load())
		for i, h := range c.held[1:] {
			require.NoError(t, errs[i])
			job := c.get(t, h.Job().ID)
			assert.Equal(t, []fdbjobs.Status{fdbjobs.Running, fdbjobs.Finished, fdbjobs.Pending}[i%3], job.Status)
			assert.JSONEq(t, fmt.Sprintf(`{"s":%d}`, i), string(job.State))
		}
		c.check(t)
	})
}

// TestSharedTransactionLimits: a transaction carries a limited number of writes and bytes, and one of each job.
func TestSharedTransactionLimits(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 200)
		update := func(h *fdbjobs.Held, state string) func() {
			return func() { assert.NoError(t, h.Update(t.Context(), text(state), nil)) }
		}
		var many, large, same []func()
		for i, h := range c.held[1:] {
			many = append(many, update(h, `{}`))
			if i < 18 {
				large = append(large, update(h, `{"s":"`+strings.Repeat("s", 99_000)+`"}`))
			}
			if i < 3 {
				same = append(same, update(c.held[1], `{}`))
			}
		}
		c.gather(many...)()
		assert.EqualValues(t, 3, c.store.ended.Load(), "128 and 72")
		c.gather(large...)()
		assert.EqualValues(t, 3, c.store.ended.Load(), "nine of 100,000 bytes each")
		c.gather(same...)()
		assert.EqualValues(t, 4, c.store.ended.Load(), "one for each write of the job")
	})
}

// TestSharedTransactionUrgent: renewals and ends of holds do not wait behind other writes, and a write that waits in vain
// says for how long and behind what.
func TestSharedTransactionUrgent(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 150)
		old, held := c.held[141:], c.held[1:141]
		time.Sleep(fdbjobs.DefaultTimeout / 5)
		for _, h := range held {
			require.NoError(t, h.Update(t.Context(), nil, nil)) // fresh again
		}
		require.NoError(t, c.held[0].Update(t.Context(), nil, nil))
		var order []string
		var mu sync.Mutex
		ran := func(what string) func(kv.Transaction) error {
			return func(kv.Transaction) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what)
				return nil
			}
		}
		var calls []func()
		for _, h := range held {
			calls = append(calls, func() { assert.NoError(t, h.Update(t.Context(), text(`{}`), ran("state"))) })
		}
		calls = append(calls,
			func() { assert.NoError(t, old[0].Resubmit(t.Context(), time.Now(), nil, ran("put back"))) },
			func() { assert.NoError(t, old[1].Update(t.Context(), nil, ran("renewed"))) },
			func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(errors.New("no time"))
				assert.EqualError(t, old[2].Update(ctx, nil, nil), "no time: the write waited for 0s behind 2 other writes of this process")
			},
			func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(errors.New("no time"))
				assert.EqualError(t, held[0].Update(ctx, nil, nil), "no time: the write waited for 0s behind 142 other writes of this process")
			},
		)
		c.gather(calls...)()
		require.Len(t, order, 142)
		require.Equal(t, []string{"put back", "renewed", "state"}, order[:3])
	})
}

// TestSharedTransactionApart: a write that fails, is lost or is too large concerns no other.
func TestSharedTransactionApart(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 8)
		failure := errors.New("failure")
		errs := make([]error, 8)
		finish := func(i int, also func(kv.Transaction) error) func() {
			return func() { errs[i] = c.held[i+1].Finish(t.Context(), text(`{"s":1}`), also) }
		}
		var done atomic.Int64
		fill := func(key string) func(kv.Transaction) error {
			return func(tx kv.Transaction) error {
				for i := range 40 {
					tx.Set(fmt.Appendf(nil, "%s/%d", key, i), make([]byte, kv.MaxValueSize))
				}
				return nil
			}
		}
		release := c.gather(
			finish(0, count(&done)),
			finish(1, func(tx kv.Transaction) error {
				tx.Set([]byte("failed"), nil)
				return failure
			}),
			finish(2, nil),
			finish(3, fill("a")), finish(4, fill("b")), finish(5, fill("c")),
			finish(6, nil),
			finish(7, count(&done)),
		)
		c.remove(t, c.held[3].Job().ID)
		release()
		for i, want := range []error{nil, failure, fdbjobs.ErrHalt, nil, nil, nil, nil, nil} {
			require.ErrorIs(t, errs[i], want, i)
		}
		assert.Equal(t, fdbjobs.Running, c.get(t, c.held[2].Job().ID).Status)
		require.NoError(t, c.held[2].Context().Err(), "it may be tried again")
		require.NoError(t, c.held[2].Finish(t.Context(), nil, nil))
		c.transact(t, func(tx kv.Transaction) error {
			value, err := tx.Get([]byte("failed")).Await()
			assert.Nil(t, value)
			return err
		})
		c.check(t)
	})
}

// TestSharedTransactionWritesOtherJobs: the function of a call changes a job that another call writes.
func TestSharedTransactionWritesOtherJobs(t *testing.T) {
	for name, write := range map[string]func(*fdbjobs.Held) error{
		"with a function":    func(h *fdbjobs.Held) error { return h.Finish(context.Background(), nil, noWrites) },
		"without a function": func(h *fdbjobs.Held) error { return h.Finish(context.Background(), nil, nil) },
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			c := newHolders(t, enginetest.Memory(t), 3)
			errs := make([]error, 3)
			removed := c.held[2].Job().ID
			c.gather(
				func() { errs[0] = write(c.held[1]) },
				func() {
					errs[1] = c.held[3].Finish(t.Context(), nil, func(tx kv.Transaction) error {
						_, err := c.jobs.Remove(tx, removed)
						return err
					})
				},
				func() { errs[2] = write(c.held[2]) },
			)()
			require.NoError(t, errors.Join(errs[:2]...))
			require.ErrorIs(t, errs[2], fdbjobs.ErrHalt)
			_, err := c.read(t, removed)
			require.ErrorIs(t, err, fdbjobs.ErrNotFound)
			c.check(t)
		})
	}
}

func noWrites(kv.Transaction) error { return nil }

// TestSharedTransactionUnknown: every write recognises its own commit.
func TestSharedTransactionUnknown(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, enginetest.UnknownOnce(db), 8)
		errs := make([]error, 8)
		var calls []func()
		var ends atomic.Int64
		for i, h := range c.held[1:] {
			calls = append(calls, func() {
				if i%2 == 0 {
					errs[i] = h.Finish(t.Context(), nil, count(&ends))
				} else {
					errs[i] = h.Resubmit(t.Context(), time.Now(), nil, count(&ends))
				}
			})
		}
		c.gather(calls...)()
		require.NoError(t, errors.Join(errs...))
		assert.EqualValues(t, 8, ends.Load())
		assert.EqualValues(t, 4, c.count(t, fdbjobs.Finished))
		assert.EqualValues(t, 4, c.count(t, fdbjobs.Pending))
	})
}

// lateCommits is a store that says nothing of the commit of one transaction, and does not begin those after it.
type lateCommits struct {
	kv.Database
	begun   atomic.Bool
	commits atomic.Int64
}

func (l *lateCommits) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if !l.begun.Load() {
		return l.Database.Transact(ctx, fn)
	}
	if l.commits.Add(1) > 1 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := l.Database.Transact(ctx, fn); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(kv.ErrCommitUnknown, context.Cause(ctx))
}

// TestSharedTransactionMayBeCommitted: a write whose transaction may have been committed says so, although its context
// has ended before it could be repeated.
func TestSharedTransactionMayBeCommitted(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := &lateCommits{Database: db}
		c := newHolders(t, store, 2)
		causes, errs, cancels := []error{errors.New("one"), errors.New("two")}, make([]error, 2), make([]context.CancelCauseFunc, 2)
		var calls []func()
		for i := range 2 {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancels[i] = cancel
			calls = append(calls, func() { errs[i] = c.held[i+1].Update(ctx, text(`{"s":1}`), nil) })
		}
		release := c.gather(calls...)
		store.begun.Store(true)
		go release()
		for i, cancel := range cancels {
			synctest.Wait()
			cancel(causes[i])
		}
		c.calls.Wait()
		store.begun.Store(false)
		for i, h := range c.held[1:] {
			require.JSONEq(t, `{"s":1}`, string(c.get(t, h.Job().ID).State))
			require.ErrorIs(t, errs[i], causes[i])
			require.ErrorIs(t, errs[i], kv.ErrCommitUnknown)
		}
	})
}

// TestSharedTransactionContexts: a call ends with its own context, and no other does.
func TestSharedTransactionContexts(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 4)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("cause")
		gate, runs := make(chan struct{}), 0
		errs := make([]error, 4)
		release := c.gather(
			func() { errs[0] = c.held[1].Finish(t.Context(), nil, nil) },
			func() {
				errs[1] = c.held[2].Finish(ctx, nil, func(kv.Transaction) error {
					runs++
					<-gate
					return context.Cause(ctx)
				})
			},
			func() { errs[2] = c.held[3].Finish(ctx, nil, nil) },
		)
		go release()
		synctest.Wait() // they share a transaction, which waits for the gate
		c.calls.Go(func() { errs[3] = c.held[4].Finish(ctx, nil, nil) })
		synctest.Wait()
		cancel(cause)
		synctest.Wait()
		require.ErrorIs(t, errs[3], cause, "it waited for its turn")
		require.NoError(t, errs[1], "its function runs: it has not returned")
		close(gate)
		c.calls.Wait()
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], cause)
		require.ErrorIs(t, errs[2], cause)
		assert.Equal(t, 1, runs)
		assert.EqualValues(t, 1, c.count(t, fdbjobs.Finished))
	})
}

// TestSharedTransactionRepeats: a transaction that must be repeated is not waited for, and is taken apart in the end.
func TestSharedTransactionRepeats(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 3)
		gate, runs, errs := make(chan struct{}), 0, make([]error, 3)
		release := c.gather(
			func() {
				errs[0] = c.held[1].Update(t.Context(), nil, func(tx kv.Transaction) error {
					if _, err := tx.Get([]byte("contended")).Await(); err != nil {
						return err
					}
					switch runs++; {
					case runs == 2:
						<-gate
						fallthrough
					case runs < 6:
						return db.Transact(t.Context(), func(tx kv.Transaction) error {
							tx.Set([]byte("contended"), fmt.Append(nil, runs))
							return nil
						})
					}
					return nil
				})
			},
			func() { errs[1] = c.held[2].Update(t.Context(), nil, nil) },
		)
		go release()
		time.Sleep(time.Minute) // pauses before a repetition
		synctest.Wait()
		assert.Equal(t, 2, runs)
		require.NoError(t, c.held[3].Update(t.Context(), nil, nil), "it does not wait for the others")
		close(gate)
		c.calls.Wait()
		require.NoError(t, errors.Join(errs...))
		assert.Equal(t, 6, runs)
	})
}

// TestSharedTransactionPanic: a call whose function panics, or ends its goroutine, leaves the others alone.
func TestSharedTransactionPanic(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := newHolders(t, db, 4)
		errs := make([]error, 4)
		panics := func(i int) func() {
			return func() {
				defer func() { assert.Equal(t, "wrong", recover()) }()
				_ = c.held[i].Finish(t.Context(), nil, func(kv.Transaction) error { panic("wrong") })
			}
		}
		finishes := func(i int) func() {
			return func() { errs[i-1] = c.held[i].Finish(t.Context(), nil, nil) }
		}
		c.gather(panics(1), finishes(2), panics(3), finishes(4))()
		require.NoError(t, errors.Join(errs...))
		assert.EqualValues(t, 2, c.count(t, fdbjobs.Finished))
		require.NoError(t, c.held[1].Finish(t.Context(), nil, nil), "it is still held")

		// A call that fails in the same transaction returns its own error. One whose function ends the goroutine does so.
		c = newHolders(t, enginetest.Memory(t), 4)
		failure := errors.New("failure")
		ends := func(i int, also func()) func() {
			return func() {
				errs[i-1] = c.held[i].Finish(t.Context(), nil, func(kv.Transaction) error {
					also()
					return failure
				})
			}
		}
		c.gather(ends(1, func() {}), panics(2), finishes(3))()
		require.ErrorIs(t, errs[0], failure)
		require.NoError(t, errs[2])
		c.gather(ends(4, runtime.Goexit))()
		require.ErrorContains(t, errs[3], "has ended the goroutine")
		require.NoError(t, c.held[4].Finish(t.Context(), nil, nil), "it is still held")
		c.add(t, fdbjobs.Spec{ID: c.held[4].Job().ID})
		assert.EqualValues(t, 1, c.count(t, fdbjobs.Finished))
	})
}
