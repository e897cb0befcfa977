package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator/jobs"
)

// TestRoundTakesItsTime: a round over parked jobs takes the time that it may, also if there have become many more of them
// since the last one.
func TestRoundTakesItsTime(t *testing.T) {
	t.Parallel()
	const every, took = time.Hour, 50 * time.Millisecond
	for name, pages := range map[string]struct{ before, now int }{
		"as many": {100, 100}, "one": {1, 1}, "one more": {10, 11}, "the first jobs were few": {1, 1_000}, "fewer": {100, 10},
	} {
		r, began := round{Last: pages.before}, time.Now()
		at := began
		for page := range pages.now {
			at = at.Add(took)
			r = r.after(jobs.ParkedRow{}, page == pages.now-1, at, took, every)
			assert.False(t, r.Next.Before(at), name)
			at = r.Next
		}
		assert.Equal(t, round{Last: pages.now, Next: r.Next}, r, name)
		assert.LessOrEqual(t, at.Sub(began), every+every/10, name)
		if pages.now == pages.before {
			assert.GreaterOrEqual(t, at.Sub(began), every-every/10, name)
		}
	}
}
