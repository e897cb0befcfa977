package couch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

const (
	// maxBlank is the maximum number of bytes of white space that a feed may send within blankTime without a row. A
	// heartbeat has one or two.
	maxBlank  = 1 << 20
	blankTime = time.Hour
)

// quiet measures how long a feed has sent nothing but heartbeats.
type quiet struct {
	patience time.Duration // 0: unlimited

	began  time.Time // zero if the feed is not quiet
	from   time.Time // start of the count of blank
	counts int64
}

// more records white space, blank bytes of it in this place. It is called only when all received bytes are read, so
// rows need no look at the clock.
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

// end records that a row came.
func (q *quiet) end() { q.began = time.Time{} }

// ascends checks that numeric sequences do not decrease, because a checkpoint in between would skip the changes with
// lower ones. Only the server can compare other sequences.
func (c *Changes) ascends(seq json.RawMessage) error {
	if len(seq) == 0 || seq[0] < '0' || seq[0] > '9' {
		return nil
	}
	number, err := strconv.ParseInt(string(seq), 10, 64)
	if err != nil {
		return nil //nolint:nilerr // not a sequence number
	}
	if number < c.number {
		return fmt.Errorf("%w: sequence %d comes after %d", ErrMalformed, number, c.number)
	}
	c.number = number
	return nil
}
