package couch

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// entry returns a limiter's entry for a key, or nil, without changing it.
func (l *Limiter) entry(key limitKey) *restraint {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		known := s.all[key]
		s.mu.Unlock()
		if known != nil {
			return known
		}
	}
	return nil
}

func (l *Limiter) entries() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.all)
		s.mu.Unlock()
	}
	return n
}

// Properties of the limiter for any answers in any order and at any rate.
func TestTheLimiterStaysWithinItsBounds(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			l := &Limiter{}
			if seed%3 == 0 {
				l.Longest = time.Duration(1+random.IntN(60_000)) * time.Millisecond
			}
			key, other := limitKey{route: "http://a", method: "GET"}, limitKey{route: "http://a", method: "POST"}
			refusals := random.Float64()
			refused := false
			for range 2000 {
				status, after := http.StatusOK, time.Duration(0)
				switch draw := random.Float64(); {
				case draw < refusals:
					status, refused = http.StatusTooManyRequests, true
					if random.IntN(10) == 0 {
						after = time.Duration(random.IntN(100)) * time.Second
					}
				case draw < refusals+0.05:
					status = http.StatusServiceUnavailable
				}
				l.note(key, status, after)
				for range random.IntN(3) {
					wait, alone := l.wait(key)
					require.GreaterOrEqual(t, wait, time.Duration(0))
					require.LessOrEqual(t, wait, l.longest()+MaxPause)
					if known := l.entry(key); known != nil {
						require.LessOrEqual(t, known.at(time.Now()), l.longest())
						require.Equal(t, known.at(time.Now()) >= l.longest(), alone)
						if !known.until.After(time.Now()) {
							require.LessOrEqual(t, wait, known.at(time.Now()))
						}
					} else {
						require.False(t, alone)
						require.Zero(t, wait)
					}
				}
				require.True(t, refused || l.entries() == 0, "no request was refused, but there is an entry")
				// From microseconds to a minute, mostly short.
				time.Sleep(time.Duration(random.Int64N(int64(1) << (10 + random.IntN(26)))))
			}
			wait, alone := l.wait(other)
			require.Zero(t, wait)
			require.False(t, alone)

			l.note(key, http.StatusTooManyRequests, 0)
			require.NotNil(t, l.entry(key))
			time.Sleep(MaxPause + 2*l.longest() + idleTime)
			wait, alone = l.wait(key)
			require.Zero(t, wait)
			require.False(t, alone)
			require.Zero(t, l.entries(), "an endpoint that was left alone is forgotten")
		})
	}
}

func TestTheLimiterFollowsRefusalsAndSuccesses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, key := &Limiter{}, limitKey{route: "http://a", method: "GET"}
		at := func() time.Duration { return l.entry(key).at(time.Now()) }
		l.failure(key, 0)
		require.Equal(t, 24*time.Millisecond, at())
		for range 100 {
			l.failure(key, 0) // sent before the first refusal arrived
		}
		require.Equal(t, 24*time.Millisecond, at())
		raises := 0
		for at() < l.longest() {
			before := at()
			time.Sleep(max(before, settleTime))
			l.failure(key, 0)
			require.Equal(t, min(time.Duration(backoffFactor*float64(before)), l.longest()), at())
			raises++
		}
		require.Equal(t, 40, raises+1)
		_, alone := l.wait(key)
		require.True(t, alone)

		// One second after the interval, the interval begins to fall by twice the time of silence.
		time.Sleep(25*time.Second + idleTime)
		require.Equal(t, 25*time.Second, at())
		time.Sleep(time.Second)
		require.Equal(t, 21*time.Second, at())
		_, alone = l.wait(key)
		require.False(t, alone)

		// With successes it falls by a quarter of a second per second.
		l.success(key)
		before := at()
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			l.success(key)
		}
		require.InDelta(t, (before - 2500*time.Millisecond).Seconds(), at().Seconds(), 0.01)
		// A single success counts for the time since the last one, up to a quarter of the interval.
		before = at()
		time.Sleep(before)
		l.success(key)
		require.InDelta(t, before.Seconds()*0.75, at().Seconds(), 0.01)
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			l.success(key)
		}
		require.Zero(t, l.entries())
	})
}

func TestTheLimiterHoldsRequestsBackForRetryAfter(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, key := &Limiter{}, limitKey{route: "http://a", method: "GET"}
		l.failure(key, 10*time.Second)
		for range 100 {
			wait, alone := l.wait(key)
			require.False(t, alone)
			require.GreaterOrEqual(t, wait, 10*time.Second)
			require.LessOrEqual(t, wait, 10*time.Second+24*time.Millisecond)
		}
		time.Sleep(4 * time.Second)
		l.failure(key, time.Second) // shorter than the previous one
		wait, _ := l.wait(key)
		require.GreaterOrEqual(t, wait, 6*time.Second)
		l.failure(key, 1000*time.Hour)
		wait, _ = l.wait(key)
		require.LessOrEqual(t, wait, MaxPause+time.Second)
		require.GreaterOrEqual(t, wait, MaxPause)
		time.Sleep(MaxPause + time.Second)
		wait, _ = l.wait(key)
		require.Less(t, wait, time.Second)
	})
}

// Unused endpoints are forgotten without a request to them.
func TestTheLimiterForgets(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var l Limiter
		for minute := range 60 {
			for i := range 100 {
				l.failure(limitKey{route: fmt.Sprintf("http://host-%d-%d", minute, i), method: "GET"}, 0)
			}
			require.LessOrEqual(t, l.entries(), 200)
			time.Sleep(time.Minute)
		}
	})
}
