package scheduler

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
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
		b.saw(before, began, ended, beat)
		wait, by := b.late(ended)
		assert.Equal(t, c.late, by, name)
		assert.Equal(t, c.late > 0, wait == beat, name)
		wait, _ = b.late(ended.Add(beat))
		assert.Zero(t, wait, name)
	}
}

// A node takes jobs again when no heartbeat was late for a whole heartbeat.
func TestOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		server := &Server{opts: Options{Log: zerolog.New(&log)}, heartbeats: new(heartbeats)}
		began := time.Now()
		assert.True(t, server.onTime(t.Context()))
		assert.Empty(t, log.String())
		server.heartbeats.saw(time.Time{}, began.Add(-10*time.Second), began, 20*time.Second)
		go func() {
			time.Sleep(15 * time.Second)
			server.heartbeats.saw(time.Time{}, time.Now().Add(-10*time.Second), time.Now(), 20*time.Second)
		}()
		assert.True(t, server.onTime(t.Context()))
		assert.Equal(t, 35*time.Second, time.Since(began))
		assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("takes no new jobs")))
		assert.Contains(t, log.String(), "10s")
		assert.Contains(t, log.String(), "on time again")
		server.heartbeats.saw(time.Time{}, time.Now().Add(-10*time.Second), time.Now(), 20*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, server.onTime(ctx))
	})
}
