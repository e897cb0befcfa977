package web

import (
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/budget"
	"settee/pkg/config"
)

// fixed are settings that do not change.
type fixed struct{ cfg *config.Config }

func (f fixed) Current() *config.Config { return f.cfg }

func TestMemoryThatConnectionsLeave(t *testing.T) {
	t.Parallel()
	const all = 64 * connectionCost
	c := NewConnections(fixed{settings(t, "chttpd/max_connections=100")}, all, 0, zerolog.Nop())
	for opened, left := range map[int64]int64{0: all, 1: 63 * connectionCost, 32: all / 2, 1_000: all / 2} {
		c.opened.Store(opened)
		assert.Equal(t, left, c.memoryLimit(), opened)
	}
	assert.Equal(t, 32, c.maxConnections(), "they take at most half of the memory")
}

func TestRequestsWaitForMemory(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const all = 64 * connectionCost
		c := NewConnections(fixed{settings(t)}, all, 0, zerolog.Nop())
		one := Memory{c.memory.Account("192.0.2.1", func() {}), "too little memory"}
		other := Memory{c.memory.Account("192.0.2.2", func() {}), "too little memory"}
		require.NoError(t, one.Take(t.Context(), all*3/4, budget.Most))
		began := time.Now()
		var refused *Failure
		require.ErrorAs(t, other.Take(t.Context(), all/8, budget.Most), &refused, "a quarter is for other needs")
		require.Equal(t, http.StatusServiceUnavailable, refused.Status)
		require.Equal(t, "too little memory", refused.Reason)
		require.Equal(t, memoryPatience, time.Since(began))
		require.NoError(t, other.Take(t.Context(), all/8, budget.All))
		time.AfterFunc(time.Second, func() { one.Give(all / 2) })
		require.NoError(t, other.Take(t.Context(), all/4, budget.Most))
		require.Equal(t, memoryPatience+time.Second, time.Since(began))
	})
}
