package couch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

const (
	// maxBlank is how many bytes of white space a feed may have within blankTime, where nothing else comes.
	// A heartbeat has one or two.
	maxBlank  = 1 << 20
	blankTime = time.Hour
)

// quiet is the time in which a feed has nothing but signs of life.
type quiet struct {
	patience time.Duration // 0: without end

	began  time.Time // zero when there is none
	from   time.Time // where blank is counted from
	counts int64
}

// more notes that there was white space, blank bytes of it in this place. It is called only when the feed is
// read to where it came to, so that rows cost no look at the clock.
func (q *quiet) more(blank int64) error {
	now := time.Now()
	if q.began.IsZero() || blank < q.counts {
		if q.began.IsZero() {
			q.began = now
		}
		q.from, q.counts = now, blank
	}
	if q.patience > 0 && now.Sub(q.began) > q.patience {
		return fmt.Errorf("%w: nothing but heartbeats for %s", ErrStalled, q.patience)
	}
	if blank-q.counts > maxBlank {
		if now.Sub(q.from) < blankTime {
			return fmt.Errorf("%w: white space without end", ErrMalformed)
		}
		q.from, q.counts = now, blank
	}
	return nil
}

// end notes that a row came.
func (q *quiet) end() { q.began = time.Time{} }

// ascends checks that sequences which are numbers do not go back: a checkpoint on the way would leave out
// what comes with a lower one. Of others only their server knows which is the later.
func (c *Changes) ascends(seq json.RawMessage) error {
	if len(seq) == 0 || seq[0] < '0' || seq[0] > '9' {
		return nil
	}
	number, err := strconv.ParseInt(string(seq), 10, 64)
	if err != nil {
		return nil //nolint:nilerr // it is not a number of CouchDB's
	}
	if number < c.number {
		return fmt.Errorf("%w: sequence %d comes after %d", ErrMalformed, number, c.number)
	}
	c.number = number
	return nil
}
