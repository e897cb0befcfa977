package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

func TestBulkPauseAfter(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		0: 0, 2: 0, 3: 30 * time.Second, 4: time.Minute, 5: 2 * time.Minute, 8: 10 * time.Minute, 1_000: 10 * time.Minute,
	} {
		require.Equal(t, want, bulkPauseAfter(failures))
	}
}

func TestBulkPauseEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var p bulkPause
		for range maxBulkFailures {
			require.True(t, p.over())
			p.failed()
		}
		require.False(t, p.over())
		p.failed() // it was under way
		time.Sleep(30 * time.Second)
		require.True(t, p.over(), "it is tried again")
		p.failed()
		time.Sleep(59 * time.Second)
		require.False(t, p.over(), "the next pause is longer")
		time.Sleep(time.Second)
		require.True(t, p.over())
		p.succeeded()
		p.failed()
		require.True(t, p.over(), "the count begins anew")
	})
}
