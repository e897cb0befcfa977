package watch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/pkg/couch"
	"settee/replicator"
	"settee/replicator/jobs"
)

// The lag is the longer of a server's silence and the delay of its earliest question.
func TestLateness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lateness
		assert.Zero(t, l.lag())
		l.answered(false)
		time.Sleep(time.Minute)
		l.answered(false)
		time.Sleep(time.Minute)
		assert.Equal(t, 2*time.Minute, l.lag(), "since the first request without an answer")
		l.due([]jobs.ParkedRow{{Ask: time.Now().Add(-time.Hour)}, {Ask: time.Now()}})
		assert.Equal(t, time.Hour, l.lag())
		l.answered(true)
		assert.Equal(t, time.Hour, l.lag())
		l.due([]jobs.ParkedRow{{Ask: time.Now().Add(time.Second)}})
		assert.Zero(t, l.lag())
		l.due([]jobs.ParkedRow{{Ask: time.Now().Add(-time.Second)}})
		l.due(nil)
		assert.Zero(t, l.lag())
	})
}

func TestShortened(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "no", shortened("no"))
	assert.Equal(t, "x"+strings.Repeat("ä", maxWhy/2-1), shortened("x"+strings.Repeat("ä", maxWhy)), "no half of a character")
}

// Questions are late if a job is not asked within five minutes.
func TestLateSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	before := now.Add(-time.Hour)
	for name, test := range map[string]struct {
		was   time.Time
		worst time.Duration
		want  time.Time
	}{
		"nothing was due":       {time.Time{}, 0, time.Time{}},
		"all in time":           {time.Time{}, askLast, time.Time{}},
		"late now":              {time.Time{}, askLast + 2*time.Minute, now.Add(-2 * time.Minute)},
		"late for longer":       {before, askLast + time.Second, before},
		"in time again":         {before, askLast, time.Time{}},
		"no longer, and silent": {before, 0, time.Time{}},
	} {
		assert.Equal(t, test.want, lateSince(test.was, test.worst, now), name)
	}
}

// How long a job was not asked is at least how late its question is, and the wait before it.
func TestNotAsked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ parked, late, least, most time.Duration }{
		{time.Minute, 0, 4 * time.Second, 15 * time.Second},
		{100 * time.Second, 95 * time.Second, 99 * time.Second, 100 * time.Second},
		{time.Hour, 0, 4 * time.Minute, 5 * time.Minute},
		{time.Hour, 2 * time.Minute, 6 * time.Minute, 7 * time.Minute},
		{0, time.Minute, 64 * time.Second, 65 * time.Second},
	} {
		got := notAsked(test.parked, test.late)
		assert.GreaterOrEqual(t, got, test.least, "%v", test)
		assert.LessOrEqual(t, got, test.most, "%v", test)
	}
}

// What was due before the watch asks does not count, as long as the watch gets to it within five minutes.
func TestAsked(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var a asked
	a.begin(now)
	a.begin(now.Add(time.Minute))
	a.recordQuestion(now.Add(4*time.Minute), 24*time.Hour, 12*time.Hour)
	assert.Zero(t, a.worst)
	a.recordQuestion(now.Add(6*time.Minute), 24*time.Hour, 12*time.Hour)
	assert.Equal(t, 6*time.Minute, a.worst)
	a.recordQuestion(now.Add(7*time.Minute), time.Hour, time.Minute)
	assert.Equal(t, 6*time.Minute, a.worst)
}

func TestNoFeed(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("%w for the user \"ann\" (%w)", couch.ErrNoUpdates, couch.ErrForbidden)
	for want, whys := range map[replicator.FaultCode][]error{
		replicator.FaultFeedRefused: {refused, errNoLogin},
		replicator.FaultFeedMissing: {fmt.Errorf("%w because the server does not have it", couch.ErrNoUpdates)},
		replicator.FaultFeedFails:   {errors.New("its feed fails: 500"), errFlood},
	} {
		for _, why := range whys {
			assert.Equal(t, want, noFeedOf(why, askLast), why)
		}
	}
	assert.Equal(t, replicator.FaultFeedFails, noFeedOf(refused, askLast+1))
}
