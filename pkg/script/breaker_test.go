package script

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fails makes a call that fails, and returns whether it was tried alone.
func (b *breaker) fails(t *testing.T, key string, err error) (trial bool) {
	t.Helper()
	trial, refused := b.begin(key)
	require.NoError(t, refused)
	b.end(key, trial, verdictOf(err), err)
	return trial
}

func (b *breaker) refusedUntil(t *testing.T, key string, reason error) time.Duration {
	t.Helper()
	_, err := b.begin(key)
	require.ErrorIs(t, err, reason)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	return time.Until(refused.Until)
}

func TestBreakerRefusesLongerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker()
		for range failuresMost {
			require.False(t, b.fails(t, "p", fmt.Errorf("a call: %w", ErrTime)))
		}
		pause := firstPause
		for range 10 {
			require.Equal(t, pause, b.refusedUntil(t, "p", ErrTime))
			require.ErrorIs(t, b.refuses("p"), ErrTime, "a call that has waited since")
			_, err := b.begin("another")
			require.NoError(t, err)
			time.Sleep(pause - 1)
			require.EqualValues(t, 1, b.refusedUntil(t, "p", ErrTime))
			time.Sleep(time.Nanosecond)
			require.True(t, b.fails(t, "p", ErrTime))
			pause = min(2*pause, longestPause)
		}
		time.Sleep(pause)
		require.True(t, b.fails(t, "p", ErrMemory))
		b.refusedUntil(t, "p", ErrMemory)
	})
}

func TestBreakerTriesOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker()
		for range failuresMost {
			b.fails(t, "p", ErrTime)
		}
		b.end("p", false, failed, ErrTime) // a call that began before
		b.end("p", false, passed, nil)
		require.Equal(t, firstPause, b.refusedUntil(t, "p", ErrTime))
		time.Sleep(firstPause)
		trial, err := b.begin("p")
		require.NoError(t, err)
		require.True(t, trial)
		_, err = b.begin("p")
		require.EqualError(t, err, "it timed out repeatedly, and is not called while one call of it is tried")
		b.end("p", trial, none, nil) // its client is gone
		trial, err = b.begin("p")
		require.NoError(t, err)
		require.True(t, trial)
		b.end("p", trial, passed, nil)
		require.NoError(t, b.refuses("p"))
		require.Empty(t, b.byKey)
		require.Zero(t, b.recency.Len())
	})
}

// TestBreakerForgets has failures with successes in between, and more programs than are known.
func TestBreakerForgets(t *testing.T) {
	t.Parallel()
	b := newBreaker()
	for range 2 * failuresMost {
		for range failuresMost - 1 {
			b.fails(t, "p", ErrMemory)
		}
		b.fails(t, "p", &Exception{Text: "it ended"})
	}
	for range 2 * failuresMost {
		b.fails(t, "p", ErrBusy)
		b.fails(t, "p", errors.New("no configuration"))
		b.fails(t, "", ErrTime)
	}
	require.Empty(t, b.byKey)
	for i := range failingMost + 1 {
		b.fails(t, fmt.Sprint(i), ErrTime)
	}
	require.Len(t, b.byKey, failingMost)
	require.Equal(t, failingMost, b.recency.Len())
	require.Nil(t, b.known("0"))
}
