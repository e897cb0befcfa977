package optimistic

import (
	"errors"

	"settee/pkg/kv"
)

// scan iterates over the pairs that a transaction sees between two keys: a snapshot below the transaction's own writes
// at the start of the scan. It reads in batches, and holds nothing of the storage between them.
type scan struct {
	own *layers // nil without own writes
	// begin and end are the bounds of the rest.
	begin, end string
	reverse    bool
}

// maxBatchBytes is the size at which a batch ends.
const maxBatchBytes = 1 << 20

// fetch returns the next pairs, at most n, and whether there may be more. With an error it returns the pairs before it.
func (s *scan) fetch(snapshot Snapshot, n int) (pairs []kv.KeyValue, more bool, err error) {
	if s.begin >= s.end {
		return nil, false, nil
	}
	below, err := snapshot.Iterate([]byte(s.begin), []byte(s.end))
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, below.Close()) }()
	m := merge{scan: s, below: below}
	m.start()
	for size := 0; len(pairs) < n && size < maxBatchBytes; {
		pair, ok, err := m.next()
		if err != nil || !ok {
			return pairs, false, err
		}
		pairs = append(pairs, pair)
		size += len(pair.Key) + len(pair.Value)
	}
	if s.own == nil && len(pairs) > 0 {
		s.pass(pairs[len(pairs)-1].Key)
	}
	return pairs, true, nil
}

// pass moves the bounds past key.
func (s *scan) pass(key []byte) {
	if s.reverse {
		s.end = string(key)
	} else {
		s.begin = pointSpan(key).end
	}
}

// merge is one batch of a scan.
type merge struct {
	*scan
	below Iterator
	valid bool // below is at a pair
	taken bool // which was taken
}

func (m *merge) start() {
	if m.reverse {
		m.valid = m.below.Last()
	} else {
		m.valid = m.below.First()
	}
}

// advance moves below past a pair that was taken. It moves only when the next pair is asked for, because the storage may
// pass over any number of removed pairs on the way.
func (m *merge) advance() {
	switch {
	case !m.taken:
		return
	case m.reverse:
		m.valid = m.below.Prev()
	default:
		m.valid = m.below.Next()
	}
	m.taken = false
}

// next returns the next pair; ok is false at the end.
func (m *merge) next() (pair kv.KeyValue, ok bool, err error) {
	if m.own == nil {
		m.advance()
		if !m.valid {
			return kv.KeyValue{}, false, m.below.Error()
		}
		pair, err = m.take()
		return pair, err == nil, err
	}
	for {
		ahead := span{m.begin, m.end}
		pair, ok, err := m.step()
		if err != nil {
			return kv.KeyValue{}, false, err
		}
		if ok && m.reverse {
			ahead.begin = m.end
		} else if ok {
			ahead.end = m.begin
		}
		if m.own.unreadable.touches(ahead) {
			return kv.KeyValue{}, false, kv.ErrUnreadable
		}
		if !ok || pair.Value != nil {
			return pair, ok, nil
		}
	}
}

// step moves to the next key of either side. The value is nil if the key turns out to be cleared.
func (m *merge) step() (pair kv.KeyValue, ok bool, err error) {
	m.advance()
	m.skipCleared()
	if err := m.below.Error(); err != nil {
		return kv.KeyValue{}, false, err
	}
	own, w, hasOwn := m.nextWritten()
	switch {
	case !m.valid && !hasOwn:
		return kv.KeyValue{}, false, nil
	case m.valid && (!hasOwn || before(string(m.below.Key()), own, m.reverse)):
		if pair, err = m.take(); err != nil {
			return kv.KeyValue{}, false, err
		}
	default:
		var base kv.KeyValue
		if m.valid && string(m.below.Key()) == own {
			if base, err = m.take(); err != nil {
				return kv.KeyValue{}, false, err
			}
		}
		pair = kv.KeyValue{Key: []byte(own), Value: w.over(base.Value)}
	}
	m.pass(pair.Key)
	return pair, true, nil
}

// take returns a copy of below's current pair.
func (m *merge) take() (kv.KeyValue, error) {
	value, err := m.below.Value()
	if err != nil {
		return kv.KeyValue{}, err
	}
	m.taken = true
	return copyPair(m.below.Key(), value), nil
}

func before(a, b string, reverse bool) bool {
	if reverse {
		return a > b
	}
	return a < b
}

// skipCleared moves below to its next pair that is not cleared.
func (m *merge) skipCleared() {
	for m.valid && !m.own.cleared.empty() {
		gap, ok := m.own.cleared.around(string(m.below.Key()))
		switch {
		case !ok:
			return
		case m.reverse:
			m.valid = m.below.SeekLT([]byte(gap.begin))
		default:
			m.valid = m.below.SeekGE([]byte(gap.end))
		}
	}
}

// nextWritten returns the next key that was written on its own.
func (m *merge) nextWritten() (key string, w written, ok bool) {
	if m.own.keys.Len() == 0 {
		return "", written{}, false
	}
	if m.reverse {
		m.own.keys.Descend(m.end, func(k string, v written) bool {
			if k == m.end {
				return true
			}
			key, w, ok = k, v, k >= m.begin
			return false
		})
		return key, w, ok
	}
	m.own.keys.Ascend(m.begin, func(k string, v written) bool {
		key, w, ok = k, v, k < m.end
		return false
	})
	return key, w, ok
}

// copyPair copies a pair. The copy of an empty value is not nil.
func copyPair(key, value []byte) kv.KeyValue {
	buf := make([]byte, len(key)+len(value))
	n := copy(buf, key)
	copy(buf[n:], value)
	return kv.KeyValue{Key: buf[:n:n], Value: buf[n:]}
}
