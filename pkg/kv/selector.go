package kv

// Range is what [ReadTransaction.GetRange] reads: a [KeyRange] or a
// [SelectorRange].
type Range interface {
	Selectors() SelectorRange
}

// KeyRange is the keys from Begin (inclusive) to End (exclusive).
type KeyRange struct {
	Begin, End []byte
}

// Selectors returns the range as selectors.
func (r KeyRange) Selectors() SelectorRange {
	return SelectorRange{Begin: FirstGreaterOrEqual(r.Begin), End: FirstGreaterOrEqual(r.End)}
}

// SelectorRange is the keys from the one that Begin selects (inclusive) to the
// one that End selects (exclusive).
type SelectorRange struct {
	Begin, End KeySelector
}

// Selectors returns the range itself.
func (r SelectorRange) Selectors() SelectorRange { return r }

// KeySelector names a key by its place: from the last key that is less than Key
// (less than or equal with OrEqual), Offset keys forward.
type KeySelector struct {
	Key     []byte
	OrEqual bool
	Offset  int
}

// LastLessThan selects the last key before key.
func LastLessThan(key []byte) KeySelector { return KeySelector{Key: key} }

// LastLessOrEqual selects key, or the last key before it.
func LastLessOrEqual(key []byte) KeySelector { return KeySelector{Key: key, OrEqual: true} }

// FirstGreaterThan selects the first key after key.
func FirstGreaterThan(key []byte) KeySelector {
	return KeySelector{Key: key, OrEqual: true, Offset: 1}
}

// FirstGreaterOrEqual selects key, or the first key after it.
func FirstGreaterOrEqual(key []byte) KeySelector { return KeySelector{Key: key, Offset: 1} }

// KeyAfter returns the key that follows key directly.
func KeyAfter(key []byte) []byte {
	after := make([]byte, len(key)+1)
	copy(after, key)
	return after
}

// PrefixRange returns the range of all keys that begin with prefix. A prefix of
// \xff bytes only reaches to the end of the key space.
func PrefixRange(prefix []byte) KeyRange {
	begin := append([]byte(nil), prefix...)
	end := append([]byte(nil), prefix...)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return KeyRange{Begin: begin, End: []byte{0xff}}
	}
	end[len(end)-1]++
	return KeyRange{Begin: begin, End: end}
}
