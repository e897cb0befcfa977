package kv

// KeyRange is the keys from Begin (inclusive) to End (exclusive).
type KeyRange struct {
	Begin, End []byte
}

// KeyAfter returns the next key after key.
func KeyAfter(key []byte) []byte {
	after := make([]byte, len(key)+1)
	copy(after, key)
	return after
}

// PrefixRange returns the range of all keys that begin with prefix. If prefix has only \xff bytes, the range ends at
// the end of the key space.
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
