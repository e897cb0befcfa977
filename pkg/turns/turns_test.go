package turns_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// callers enter places, and note who got one.
type callers struct {
	*testing.T
	*turns.Turns
	ctx context.Context

	mu      sync.Mutex // guards the fields below
	entered []string
	leaves  map[string][]func()
	errs    []error
}

// come lets a caller come, and waits until it has a place, or waits for one, or is refused.
func (c *callers) come(ctx context.Context, key string) {
	go func() {
		leave, err := c.Enter(ctx, key)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		c.entered = append(c.entered, key)
		c.leaves[key] = append(c.leaves[key], leave)
	}()
	synctest.Wait()
}

// leave lets a caller leave its place.
func (c *callers) leave(key string) {
	c.Helper()
	c.mu.Lock()
	require.NotEmpty(c, c.leaves[key], key)
	leave := c.leaves[key][0]
	c.leaves[key] = c.leaves[key][1:]
	c.mu.Unlock()
	leave()
	synctest.Wait()
}

// test lets callers of the keys come, one after the other.
func test(t *testing.T, places, most int, keys string, then func(c *callers)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &callers{T: t, Turns: turns.New(places, most), ctx: ctx, leaves: map[string][]func(){}}
		for _, key := range keys {
			c.come(ctx, string(key))
		}
		then(c)
		cancel()
		synctest.Wait()
	})
}

func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	test(t, 1, 100, "aaaabbc", func(c *callers) {
		order := []string{"a", "b", "c", "a", "b", "a", "a"}
		for _, key := range order {
			c.leave(key)
		}
		require.Equal(t, order, c.entered)
	})
}

func TestOneKeyHasHalfWhileAnotherWaits(t *testing.T) {
	t.Parallel()
	test(t, 4, 100, "aaaaaaaabbbbbb", func(c *callers) {
		require.Equal(t, []string{"a", "a", "a", "a"}, c.entered, "no other key waited")
		c.leave("a")
		c.leave("a")
		require.Equal(t, []string{"b", "b"}, c.entered[4:])
		c.leave("a")
		c.leave("b")
		require.Equal(t, []string{"a", "b"}, c.entered[6:], "each has half")
		c.come(c.ctx, "c")
		c.leave("a")
		require.Equal(t, "c", c.entered[8])
	})
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	test(t, 1, 3, "aaaa", func(c *callers) {
		c.come(c.ctx, "a")
		require.Equal(t, []error{turns.ErrFull}, c.errs)
		c.come(c.ctx, "b")
		require.Len(t, c.errs, 2, "a caller of a has made room")
		c.leave("a")
		c.leave("b")
		c.leave("a")
		c.leave("a")
		require.Equal(t, []string{"a", "b", "a", "a"}, c.entered)
	})
}

func TestCallersGiveUp(t *testing.T) {
	t.Parallel()
	test(t, 1, 3, "a", func(c *callers) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(c.ctx)
		c.come(ctx, "b")
		c.come(c.ctx, "c")
		cancel(gone)
		synctest.Wait()
		require.Equal(t, []error{gone}, c.errs)
		c.leave("a")
		require.Equal(t, []string{"a", "c"}, c.entered)
	})
}
