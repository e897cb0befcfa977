package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// A watch whose questions are late says so, and for how many jobs, until they are in time or it has a feed.
func TestLateQuestions(t *testing.T) {
	inLab(t, func(l *lab) {
		l.set("replicator/max_questions_per_sec=1")
		late := func() []jobs.Problem {
			found, more, err := l.jobs.Lists.LateWatches(l.Context())
			require.NoError(l, err)
			require.False(l, more)
			return found
		}
		const many = 500
		for i := range many {
			name := fmt.Sprintf("db%03d", i)
			l.source.write(name)
			l.park("ann", name)
		}
		n := l.start()
		l.until(n.asks(1))
		require.Empty(t, late())
		time.Sleep(30 * time.Minute)
		found := late()
		require.Len(t, found, 1)
		require.Equal(t, replicator.Endpoint{URL: server}.Host(), found[0].Host)
		require.Equal(t, replicator.FaultFeedRefused, found[0].Code)
		require.EqualValues(t, many, found[0].Jobs)
		require.InDelta(t, 20, time.Since(found[0].Since).Minutes(), 9)
		since := found[0].Since

		n.stop()
		n = l.start()
		l.until(n.asks(1))
		require.Equal(t, since, late()[0].Since, "another node goes on")
		l.set("replicator/max_questions_per_sec=100")
		time.Sleep(20 * time.Minute)
		require.Empty(t, late(), "they are in time")

		l.set("replicator/max_questions_per_sec=1")
		time.Sleep(40 * time.Minute)
		require.Len(t, late(), 1)
		l.source.set(func() { l.source.admins["root"] = "pw" })
		l.set("replicator/max_questions_per_sec=1", "replicator.watches/"+server+"=root:pw")
		l.until(n.follows(1))
		require.Empty(t, late(), "it has a feed")
	})
}

// Questions that are in time are no trouble, also after a burst of parked jobs and after a time without a node.
func TestQuestionsInTime(t *testing.T) {
	inLab(t, func(l *lab) {
		l.set("replicator/max_questions_per_sec=1")
		for i := range 200 {
			name := fmt.Sprintf("db%03d", i)
			l.source.write(name)
			l.park("ann", name)
		}
		for range 2 {
			n := l.start()
			for range 60 {
				time.Sleep(time.Minute)
				found, _, err := l.jobs.Lists.LateWatches(l.Context())
				require.NoError(t, err)
				require.Empty(t, found)
			}
			n.stop()
			time.Sleep(time.Hour)
		}
	})
}

// A server that does not answer is asked in vain, also for one job.
func TestLateAtSilentServer(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.park("ann", "db")
		n := l.start()
		l.until(n.asks(1))
		l.source.set(func() { l.source.down = true })
		time.Sleep(30 * time.Minute)
		found, _, err := l.jobs.Lists.LateWatches(l.Context())
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, replicator.FaultFeedFails, found[0].Code)
		require.EqualValues(t, 1, found[0].Jobs)
		l.source.set(func() { l.source.down = false })
		time.Sleep(15 * time.Minute)
		found, _, err = l.jobs.Lists.LateWatches(l.Context())
		require.NoError(t, err)
		require.Empty(t, found)
	})
}
