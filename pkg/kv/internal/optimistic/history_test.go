package optimistic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHistoryAgainstList compares the step function with a plain list of all
// writes, while old ones expire.
func TestHistoryAgainstList(t *testing.T) {
	t.Parallel()
	type write struct {
		span
		version int64
	}
	const window = 20
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		randomSpan := func() span {
			a, b := random.IntN(50), random.IntN(50)
			return span{fmt.Sprintf("%02d", min(a, b)), fmt.Sprintf("%02d", max(a, b)+1)}
		}
		var h history
		var all []write
		start := time.Unix(0, 0)
		for version := int64(1); version < 150; version++ {
			now := start.Add(time.Duration(version) * time.Second)
			h.expire(now.Add(-window * time.Second))
			for range random.IntN(4) {
				s := randomSpan()
				h.wrote(s.begin, s.end, version)
				all = append(all, write{s, version})
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
	}
}
