package optimistic

import "github.com/tidwall/btree"

// span is a range of keys, from begin to before end.
type span struct{ begin, end string }

// isPoint reports whether the range has exactly one key.
func (s span) isPoint() bool {
	return len(s.end) == len(s.begin)+1 && s.end[len(s.begin)] == 0 && s.end[:len(s.begin)] == s.begin
}

func (s span) has(key string) bool { return s.begin <= key && key < s.end }

// pointSpan returns the range with only key.
func pointSpan(key []byte) span {
	after := make([]byte, len(key)+1)
	copy(after, key)
	end := string(after)
	return span{end[:len(key)], end}
}

// keySet is a set of keys, stored as ranges that neither overlap nor touch, as a map from begin to end.
type keySet struct {
	ranges btree.Map[string, string]
}

func (s *keySet) empty() bool { return s.ranges.Len() == 0 }

// around returns the range that contains key.
func (s *keySet) around(key string) (found span, ok bool) {
	s.ranges.Descend(key, func(begin, end string) bool {
		found, ok = span{begin, end}, end > key
		return false
	})
	return found, ok
}

// touches reports whether any key of r is in the set.
func (s *keySet) touches(r span) bool {
	if s.empty() || r.begin >= r.end {
		return false
	}
	if _, ok := s.around(r.begin); ok {
		return true
	}
	found := false
	s.ranges.Ascend(r.begin, func(begin, _ string) bool {
		found = begin < r.end
		return false
	})
	return found
}

// add adds the keys of r.
func (s *keySet) add(r span) {
	if r.begin >= r.end {
		return
	}
	s.ranges.Descend(r.begin, func(begin, end string) bool {
		if end >= r.begin {
			r.begin, r.end = begin, max(r.end, end)
		}
		return false
	})
	s.ranges.Ascend(r.begin, func(begin, end string) bool {
		if begin > r.end {
			return false
		}
		r.end = max(r.end, end)
		return true
	})
	deleteBetween(&s.ranges, span{r.begin, r.end + "\x00"})
	s.ranges.Set(r.begin, r.end)
}

// remove removes the keys of r.
func (s *keySet) remove(r span) {
	if !s.touches(r) {
		return
	}
	first, cutBegin := s.around(r.begin)
	last, cutEnd := s.around(r.end)
	deleteBetween(&s.ranges, r)
	if cutBegin && first.begin < r.begin {
		s.ranges.Set(first.begin, r.begin)
	}
	if cutEnd {
		s.ranges.Set(r.end, last.end)
	}
}

// deleteBetween deletes the entries with keys in s.
func deleteBetween[V any](m *btree.Map[string, V], s span) {
	var within []string
	m.Ascend(s.begin, func(k string, _ V) bool {
		if k >= s.end {
			return false
		}
		within = append(within, k)
		return true
	})
	for _, k := range within {
		m.Delete(k)
	}
}
