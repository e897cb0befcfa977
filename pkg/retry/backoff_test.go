package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/retry"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const first, most = 32 * time.Second, 8 * time.Hour
	tests := []struct {
		waits int
		want  time.Duration
	}{
		{-1, first}, {0, first}, {1, 64 * time.Second}, {2, 128 * time.Second}, {9, 16384 * time.Second},
		{10, most}, {63, most}, {64, most}, {math.MaxInt, most},
	}
	b := retry.Backoff{First: first, Most: most}
	for _, test := range tests {
		require.Equal(t, test.want, b.After(test.waits, 0), test.waits)
		require.Equal(t, test.want*7/8, b.After(test.waits, 0.5), test.waits)
		require.GreaterOrEqual(t, b.After(test.waits, 0.999), test.want*3/4, test.waits)
	}
	require.Equal(t, time.Second, retry.Backoff{First: time.Minute, Most: time.Second}.After(3, 0), "a Most below First holds")
	require.Zero(t, retry.Backoff{Most: time.Hour}.After(math.MaxInt, 0))
	long := retry.Backoff{First: 3, Most: math.MaxInt64}
	require.Equal(t, time.Duration(math.MaxInt64), long.After(math.MaxInt, 0))
	require.Positive(t, long.After(math.MaxInt, 0.999))
}

func TestNextWait(t *testing.T) {
	t.Parallel()
	b := retry.Backoff{First: 20 * time.Second}
	for _, want := range []time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		require.Equal(t, want, b.Next())
	}
	b.Reset()
	require.Equal(t, 20*time.Second, b.Next())
}
