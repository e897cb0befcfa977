package watch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// Without a feed a mirror's lag is at least the time for which one of its databases was not asked. With a feed there is no such time.
func TestMirrorLagsWithoutFeed(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "other")
		l.source.secure("db", `{}`)
		l.source.secure("other", `{}`)
		mirror, _ := l.parkChildrenOf("ann:pw", "db", "other")
		require.NoError(l, mirror.Update(l.Context(), func(s *replicator.JobState) {
			s.Mirror = &replicator.MirrorProgress{By: replicator.ByList, LastLook: time.Now().Add(time.Hour)} // not this test's
		}))
		lag := func() time.Duration {
			since := l.mirrorSummary(mirror).LagsSince()
			require.False(l, since.IsZero())
			return time.Since(since)
		}
		n := l.start()
		l.until(n.asks(1))
		last := map[string]time.Time{"ann GET /db/_changes": time.Now(), "ann GET /other/_changes": time.Now()}
		for began := time.Now(); time.Since(began) < 30*time.Minute; time.Sleep(time.Second) {
			is := lag()
			for question := range last {
				if len(l.source.requests(question)) > 0 {
					last[question] = time.Now()
				}
				require.LessOrEqual(l, time.Since(last[question]), is, question)
			}
			if parked := time.Since(began); parked < 20*time.Second {
				require.Less(l, is, 20*time.Second)
			}
			require.Less(l, is, 7*time.Minute)
		}

		l.source.set(func() { l.source.down = true })
		time.Sleep(20 * time.Minute)
		require.Greater(l, lag(), 19*time.Minute, "nobody answers")
		require.NoError(l, mirror.Update(l.Context(), func(s *replicator.JobState) {
			s.Mirror = &replicator.MirrorProgress{By: replicator.ByFeed, LastLook: time.Now()}
		}))
		require.Zero(l, l.mirrorSummary(mirror).LagsSince())
	})
}

// mirrorSummary returns what lists have of a mirror.
func (l *lab) mirrorSummary(mirror *jobs.Run) *replicator.MirrorSummary {
	l.Helper()
	job, err := l.jobs.Lists.Get(l.Context(), mirror.Job().ID)
	require.NoError(l, err)
	return job.Summary
}
