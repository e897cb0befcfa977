package script

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ instances, processors, small, large int }{
		{2, 1, 1, 1}, {2, 64, 1, 1}, {16, 1, 1, 1}, {16, 2, 2, 1}, {16, 4, 4, 2}, {16, 8, 8, 4}, {16, 64, 12, 4}, {100, 8, 8, 4},
	} {
		small, large := places(c.instances, c.processors)
		assert.Equal(t, []int{c.small, c.large}, []int{small, large}, c)
	}
}

// TestCopiesCount has calls that copy and fill memory, which count as passes through loops do.
func TestCopiesCount(t *testing.T) {
	t.Parallel()
	limits := Limits{Time: time.Hour, Memory: 64 << 20, Instances: 2, Idle: time.Hour}
	e := New(func() Limits { return limits }, nil)
	defer e.Close()
	const n, size = 25, 1 << 20
	for _, body := range []string{`s.concat("a")`, `"x".repeat(s.length)`} {
		c := call{
			Program: &Program{
				Source: fmt.Sprintf(`(function () { return function () { var s = "x".repeat(%d); for (var i = 0; i < %d; i++) %s; return "" } })`, size, n, body),
				Config: func() (string, error) { return "{}", nil },
			},
			argument: "{}", limits: limits, allowed: &allowance{memory: 64 << 20, passes: math.MaxInt64},
		}
		_, err := e.run(t.Context(), c, e.small)
		require.NoError(t, err)
		require.Greater(t, math.MaxInt64-c.allowed.passes, int64(n*size>>passBytes), body)
	}
}
