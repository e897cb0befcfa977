package optimistic

import "settee/pkg/kv"

// cursor walks over the pairs that a transaction sees between two keys: the
// snapshot below its own writes. It finds its place in the buffer anew at each
// step, so that writes made during the walk do no harm.
type cursor struct {
	writes *buffer
	base   Iterator
	// begin and end bound what is still ahead.
	begin, end string
	reverse    bool
	valid      bool // base stands at a pair
	started    bool
}

func newCursor(snap Snapshot, writes *buffer, s span, reverse bool) (*cursor, error) {
	base, err := snap.Iterate([]byte(s.begin), []byte(s.end))
	if err != nil {
		return nil, err
	}
	return &cursor{writes: writes, base: base, begin: s.begin, end: s.end, reverse: reverse}, nil
}

func (c *cursor) close() error { return c.base.Close() }

// next returns the next pair; ok is false at the end.
func (c *cursor) next() (pair kv.KeyValue, ok bool, err error) {
	for {
		from, to := c.begin, c.end
		key, value, ok, err := c.step()
		if err != nil {
			return kv.KeyValue{}, false, err
		}
		if c.writes.unreadable.Len() > 0 && c.writes.touchesUnreadable(passed(from, to, key, ok, c.reverse)) {
			return kv.KeyValue{}, false, kv.ErrUnreadable
		}
		if !ok {
			return kv.KeyValue{}, false, nil
		}
		if value != nil {
			return kv.KeyValue{Key: []byte(key), Value: value}, true, nil
		}
	}
}

// passed returns the keys that a step looked at.
func passed(begin, end, key string, ok, reverse bool) (string, string) {
	switch {
	case !ok:
		return begin, end
	case reverse:
		return key, end
	default:
		return begin, key + "\x00"
	}
}

// step moves to the next key of either side; the value of a key that turns out
// to be cleared is nil.
func (c *cursor) step() (key string, value []byte, ok bool, err error) {
	c.moveBase()
	if err := c.base.Error(); err != nil {
		return "", nil, false, err
	}
	own, w, hasOwn := c.nextWritten()
	below := ""
	if c.valid {
		below = string(c.base.Key())
	}
	switch {
	case !c.valid && !hasOwn:
		return "", nil, false, nil
	case c.valid && (!hasOwn || before(below, own, c.reverse)):
		key, value = below, notNil(append([]byte(nil), c.base.Value()...))
	default:
		key = own
		if w.unreadable {
			return "", nil, false, kv.ErrUnreadable
		}
		var base []byte
		if c.valid && below == own {
			base = append([]byte{}, c.base.Value()...)
		}
		value = w.over(base)
	}
	if c.reverse {
		c.end = key
	} else {
		c.begin = key + "\x00"
	}
	return key, value, true, nil
}

func before(a, b string, reverse bool) bool {
	if reverse {
		return a > b
	}
	return a < b
}

// moveBase brings the snapshot's iterator to its first pair ahead that is not
// in a cleared range.
func (c *cursor) moveBase() {
	switch {
	case !c.started && c.reverse:
		c.valid = c.base.Last()
	case !c.started:
		c.valid = c.base.First()
	case c.valid && c.reverse && string(c.base.Key()) >= c.end:
		c.valid = c.base.Prev()
	case c.valid && !c.reverse && string(c.base.Key()) < c.begin:
		c.valid = c.base.Next()
	}
	c.started = true
	for c.valid && c.writes.cleared.Len() > 0 {
		gap, ok := c.writes.clearedAround(string(c.base.Key()))
		switch {
		case !ok:
			return
		case c.reverse:
			c.valid = c.base.SeekLT([]byte(gap.begin))
		default:
			c.valid = c.base.SeekGE([]byte(gap.end))
		}
	}
}

// nextWritten returns the buffer's first key ahead.
func (c *cursor) nextWritten() (key string, w written, ok bool) {
	if c.writes.keys.Len() == 0 {
		return "", written{}, false
	}
	if c.reverse {
		c.writes.keys.Descend(c.end, func(k string, v written) bool {
			if k == c.end {
				return true
			}
			key, w, ok = k, v, k >= c.begin
			return false
		})
		return key, w, ok
	}
	c.writes.keys.Ascend(c.begin, func(k string, v written) bool {
		key, w, ok = k, v, k < c.end
		return false
	})
	return key, w, ok
}
