package watch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
