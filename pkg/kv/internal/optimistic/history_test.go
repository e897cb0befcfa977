package optimistic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// TestHistoryAgainstList compares the history with a plain list of all writes, while old ones expire.
func TestHistoryAgainstList(t *testing.T) {
	t.Parallel()
	const window = 20
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		randomSpan := func() span {
			a, b := random.IntN(50), random.IntN(50)
			if random.IntN(2) == 0 {
				return pointSpan(fmt.Appendf(nil, "%02d", a))
			}
			return span{fmt.Sprintf("%02d", min(a, b)), fmt.Sprintf("%02d", max(a, b)+1)}
		}
		var h history
		type writtenAt struct {
			span
			version int64
		}
		var all []writtenAt
		start := time.Unix(0, 0)
		for version := int64(1); version < 150; version++ {
			now := start.Add(time.Duration(version) * time.Second)
			h.expire(now.Add(-window * time.Second))
			for range random.IntN(4) {
				s := randomSpan()
				h.wrote(s.begin, s.end, version)
				all = append(all, writtenAt{s, version})
				if random.IntN(8) == 0 {
					h.settle() // as a check does when the list is long
				}
			}
			h.committed(version, now)
			for range 5 {
				s := randomSpan()
				since := max(h.floor, version-random.Int64N(window))
				want := false
				for _, w := range all {
					want = want || w.version > since && w.begin < s.end && s.begin < w.end
				}
				if got := h.writtenSince(s.begin, s.end, since); got != want {
					require.Equal(t, want, got, "seed %d, version %d: [%s, %s) since %d", seed, version, s.begin, s.end, since)
				}
			}
		}
		// Once all is old, nothing is left of it.
		h.expire(start.Add(time.Hour))
		require.LessOrEqual(t, h.steps.Len(), 1, "seed %d", seed)
		require.Zero(t, h.aging.len())
		require.Zero(t, h.recent.count)
		require.Zero(t, h.recent.chunks.len())
		require.Zero(t, h.ranges.len())
		require.Empty(t, h.points)
	}
}

// TestHistoryIsBoundedByItsWindow: however many commits there were, only those of the last five seconds are kept, and
// memory is freed.
func TestHistoryIsBoundedByItsWindow(t *testing.T) {
	t.Parallel()
	var h history
	now := time.Unix(0, 0)
	version := int64(0)
	// commit commits n times, step apart, with three writes of new keys in each.
	commit := func(n int, step time.Duration) {
		for range n {
			now = now.Add(step)
			h.expire(now.Add(-kv.MaxTransactionAge))
			version++
			for i := range 3 {
				s := pointSpan(fmt.Appendf(nil, "%d/%d", version*7919%1_000_003, i))
				h.wrote(s.begin, s.end, version)
			}
			h.committed(version, now)
		}
	}
	const inWindow = 1000
	step := kv.MaxTransactionAge / inWindow
	commit(20*inWindow, step)
	require.LessOrEqual(t, len(h.points), 3*(inWindow+2))
	require.LessOrEqual(t, h.recent.chunks.len(), 2+3*(inWindow+2)/chunkWrites)
	h.writtenSince("x", "y", h.floor)
	require.LessOrEqual(t, h.recent.count, maxScan)
	require.Positive(t, h.steps.Len())
	commit(20*inWindow, step)
	require.LessOrEqual(t, h.steps.Len(), 2*3*(inWindow+2))
	require.LessOrEqual(t, cap(h.aging.items), 4*2*2*3*(inWindow+2))
	require.LessOrEqual(t, cap(h.commits.items), 4*2*(inWindow+2))
	// A burst is kept for the window, and then dropped by a few commits.
	commit(20_000, time.Microsecond)
	require.Greater(t, len(h.points), 20_000)
	h.writtenSince("x", "y", h.floor)
	require.Greater(t, h.steps.Len(), 20_000)
	commit(20, time.Second)
	require.LessOrEqual(t, h.steps.Len(), 100)
	require.LessOrEqual(t, cap(h.aging.items), 1000)
	require.LessOrEqual(t, cap(h.commits.items), 1000)
}
