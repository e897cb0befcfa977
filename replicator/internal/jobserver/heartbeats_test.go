package jobserver

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	const beat, s = 20 * time.Second, time.Second
	began := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		before, took time.Duration // before the beginning of the heartbeat; 0 for the first one
		late         time.Duration
	}{
		"the first":                 {0, s, 0},
		"the first took long":       {0, 6 * s, 6 * s},
		"in time":                   {20 * s, 5 * s, 0},
		"sooner":                    {2 * s, 0, 0},
		"begun late":                {26 * s, 0, 6 * s},
		"begun a little late, slow": {23 * s, 4 * s, 7 * s},
	} {
		var b heartbeats
		before := time.Time{}
		if c.before > 0 {
			before = began.Add(-c.before)
		}
		ended := began.Add(c.took)
		b.observe(before, began, ended, beat)
		wait, by := b.late(ended)
		assert.Equal(t, c.late, by, name)
		assert.Equal(t, c.late > 0, wait == beat, name)
		wait, _ = b.late(ended.Add(beat))
		assert.Zero(t, wait, name)
	}
}

// A node takes jobs again when no heartbeat was late for a whole heartbeat.
func TestMayAccept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		server := New(Options[*toyJob]{Log: zerolog.New(&log)})
		began := time.Now()
		assert.True(t, server.mayAccept(t.Context()))
		assert.Empty(t, log.String())
		server.heartbeats.observe(time.Time{}, began.Add(-10*time.Second), began, 20*time.Second)
		go func() {
			time.Sleep(15 * time.Second)
			server.heartbeats.observe(time.Time{}, time.Now().Add(-10*time.Second), time.Now(), 20*time.Second)
		}()
		assert.True(t, server.mayAccept(t.Context()))
		assert.Equal(t, 35*time.Second, time.Since(began))
		assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("takes no new jobs")))
		assert.Contains(t, log.String(), "10s")
		assert.Contains(t, log.String(), "on time again")
		server.heartbeats.observe(time.Time{}, time.Now().Add(-10*time.Second), time.Now(), 20*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, server.mayAccept(ctx))
	})
}

// A job is updated at least once in a heartbeat, never so early that this does not renew the hold, and soon at the time of
// all jobs of the node, also if the updates themselves begin a little late.
func TestNextBeat(t *testing.T) {
	t.Parallel()
	const beat = 20 * time.Second
	origin := time.Unix(1000, 0)
	for start := time.Duration(0); start <= 3*beat; start += time.Second / 4 {
		for _, late := range []time.Duration{0, time.Millisecond, time.Second} {
			last := origin.Add(start)
			for i := range 10 {
				next := nextBeat(origin, last, beat)
				require.GreaterOrEqual(t, next.Sub(last), beat/2)
				require.LessOrEqual(t, next.Sub(last), beat)
				if i >= 2 {
					require.Zero(t, next.Sub(origin)%beat, "begun after %v", start)
				}
				last = next.Add(late)
			}
		}
	}
}
