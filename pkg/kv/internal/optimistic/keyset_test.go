package optimistic

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeySetAgainstMap compares the set with a plain map of its keys.
func TestKeySetAgainstMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		key := func(n int) string { return fmt.Sprintf("%02d", n) }
		var set keySet
		in := map[int]bool{}
		for range 300 {
			a, b := random.IntN(40), random.IntN(40)
			a, b = min(a, b), max(a, b)
			r := span{key(a), key(b)}
			touches := false
			for n := a; n < b; n++ {
				touches = touches || in[n]
			}
			require.Equal(t, touches, set.touches(r), "seed %d: %v", seed, r)
			add := random.IntN(2) == 0
			if add {
				set.add(r)
			} else {
				set.remove(r)
			}
			for n := a; n < b; n++ {
				in[n] = add
			}
			for n := range 40 {
				found, ok := set.around(key(n))
				require.Equal(t, in[n], ok, "seed %d: %d", seed, n)
				if ok {
					require.True(t, found.begin <= key(n) && key(n) < found.end)
				}
			}
			last := ""
			set.ranges.Scan(func(begin, end string) bool {
				require.Less(t, last, begin, "ranges neither overlap nor touch")
				require.Less(t, begin, end)
				last = end
				return true
			})
		}
	}
}

func TestJoined(t *testing.T) {
	t.Parallel()
	require.Empty(t, joined(nil))
	require.Equal(t, []span{{"a", "d"}, {"e", "f"}, {"x", "z"}},
		joined([]span{{"x", "y"}, {"a", "b"}, {"b", "d"}, {"e", "f"}, {"a", "c"}, {"xx", "z"}}))
}
