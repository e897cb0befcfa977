package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// A run is healthy if it was well for longer than the threshold, without a request that failed in between.
func TestHealthOfARun(t *testing.T) {
	t.Parallel()
	const threshold = 120
	// A report at a second, and since when a request fails, 0 if none does.
	type report struct {
		at, failing int
		doing       replicator.Doing
		limited     bool
	}
	const copying, starting = replicator.DoingCopying, replicator.DoingStarting
	for name, test := range map[string]struct {
		reports []report
		healthy bool
	}{
		"no report":                     {nil, false},
		"well, but not for longer":      {[]report{{1, 0, copying, false}, {121, 0, copying, false}}, false},
		"well for longer":               {[]report{{1, 0, copying, false}, {122, 0, copying, false}}, true},
		"a good report after failures":  {[]report{{1, 1, copying, false}, {131, 0, copying, false}}, false},
		"good reports after failures":   {[]report{{1, 1, copying, false}, {131, 0, copying, false}, {252, 0, copying, false}}, true},
		"an interruption":               {[]report{{1, 0, copying, false}, {80, 79, copying, false}, {90, 0, copying, false}, {150, 0, copying, false}}, false},
		"well until the source died":    {[]report{{1, 0, copying, false}, {150, 149, copying, false}, {300, 149, copying, false}}, true},
		"well until soon":               {[]report{{1, 0, copying, false}, {150, 60, copying, false}}, false},
		"healthy once":                  {[]report{{1, 0, copying, false}, {150, 0, copying, false}, {160, 155, copying, false}}, true},
		"its databases are not open":    {[]report{{1, 0, starting, false}, {150, 0, starting, false}, {151, 0, copying, false}}, false},
		"waits as the endpoint demands": {[]report{{1, 1, copying, true}, {150, 1, copying, true}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			second := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
			h := &health{threshold: threshold * time.Second}
			for _, r := range test.reports {
				a := &replicator.Activity{Doing: r.doing}
				if r.failing > 0 {
					a.Waiting = []replicator.Wait{{Endpoint: "source", Since: second(r.failing), RateLimited: r.limited}}
				}
				h.observe(a, second(r.at))
			}
			require.Equal(t, test.healthy, h.healthy)
		})
	}
}

// A turn that ends while a request fails counts as a crash only if nothing was copied in it.
func TestTurnsThatCount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failing time.Duration // 0: no request fails
		copied  replicator.Stats
		stuck   bool
	}{
		"no request fails":   {0, replicator.Stats{}, false},
		"for a short time":   {stuckAfter - time.Second, replicator.Stats{}, false},
		"for long":           {stuckAfter, replicator.Stats{}, true},
		"only reads":         {stuckAfter, replicator.Stats{DocCounts: replicator.DocCounts{DocsRead: 9}}, true},
		"wrote before":       {stuckAfter, replicator.Stats{DocCounts: replicator.DocCounts{DocsWritten: 1}}, false},
		"was refused before": {stuckAfter, replicator.Stats{DocCounts: replicator.DocCounts{DocWriteFailures: 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := new(health)
			if test.failing > 0 {
				h.failing = &replicator.Wait{Since: time.Now().Add(-test.failing)}
			}
			require.Equal(t, test.stuck, h.stuck(test.copied))
		})
	}
}
