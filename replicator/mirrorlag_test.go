package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
)

// A slot has the largest lag of its looks, slots without a look are unknown, and there are never more than those of a day.
func TestMirrorLags(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000*300, 0)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	shown := func(l replicator.MirrorLags, now time.Time) (since int, lags []int64) {
		from, all := l.Until(now)
		for _, lag := range all {
			if lag == nil {
				lags = append(lags, -1)
				continue
			}
			lags = append(lags, *lag)
		}
		return int(from.Sub(begin) / time.Minute), lags
	}
	var none replicator.MirrorLags
	_, lags := shown(none, at(0))
	assert.Empty(t, lags)
	before := none.Add(at(1), 3*time.Second)
	l := before.Add(at(2), 9*time.Second+time.Millisecond).Add(at(3), 0).Add(at(16), 0).Add(at(14), 2*time.Second)
	since, lags := shown(l, at(26))
	assert.Zero(t, since)
	assert.Equal(t, []int64{9, -1, -1, 2, -1, -1}, lags)
	_, lags = shown(before, at(1))
	assert.Equal(t, []int64{3}, lags, "it was not changed")
	for minutes := range 3 * 24 * 60 {
		l = l.Add(at(minutes), time.Duration(minutes)*time.Second)
	}
	assert.Len(t, l.Lags, 288)
	since, lags = shown(l, at(3*24*60-1))
	assert.Equal(t, 2*24*60, since)
	assert.EqualValues(t, 3*24*60-1, lags[287])
	since, lags = shown(l, at(3*24*60+60))
	assert.Equal(t, 2*24*60+65, since, "the oldest are dropped")
	assert.EqualValues(t, -1, lags[287])
	_, lags = shown(l, at(9*24*60))
	assert.Empty(t, lags)
}
