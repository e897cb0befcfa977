package optimistic

import (
	"slices"

	"github.com/tidwall/btree"

	"settee/pkg/kv"
)

// buffer holds the writes of a transaction: as a log for the commit, and by key
// for the transaction's own reads.
type buffer struct {
	log []mutation
	// keys has what is known of each key that was written by itself. It lies
	// over cleared, which lies over the snapshot.
	keys btree.Map[string, written]
	// cleared maps the begin of each cleared range to its end; the ranges are
	// disjoint.
	cleared btree.Map[string, string]
	// unreadable maps the begin of each range in which a stamped key may land
	// to its end.
	unreadable btree.Map[string, string]
	// conflicts are the write conflict ranges.
	conflicts []span
}

// span is a range of keys, from begin to before end.
type span struct{ begin, end string }

func pointSpan(key string) span { return span{key, key + "\x00"} }

// written is what a transaction knows of a key it wrote.
type written struct {
	// ops are the atomic operations on a value that lies below the buffer;
	// when there are none, value is the whole truth, nil for cleared.
	ops        []mutation
	value      []byte
	unreadable bool
}

// over returns what the key reads as when base lies below the buffer.
func (w written) over(base []byte) []byte {
	if len(w.ops) == 0 {
		return slices.Clone(w.value)
	}
	for _, m := range w.ops {
		base = mutate(m.op, base, m.value)
	}
	return base
}

func (b *buffer) empty() bool { return len(b.log) == 0 && len(b.conflicts) == 0 }

func (b *buffer) set(key, value []byte) {
	b.log = append(b.log, mutation{kind: mutationSet, key: key, value: value})
	b.keys.Set(string(key), written{value: value})
	b.conflicts = append(b.conflicts, pointSpan(string(key)))
}

func (b *buffer) clear(key []byte) {
	b.log = append(b.log, mutation{kind: mutationClear, key: key})
	b.keys.Set(string(key), written{})
	b.conflicts = append(b.conflicts, pointSpan(string(key)))
}

func (b *buffer) clearRange(begin, end []byte) {
	b.log = append(b.log, mutation{kind: mutationClearRange, key: begin, value: end})
	cleared := span{string(begin), string(end)}
	b.conflicts = append(b.conflicts, cleared)
	deleteBetween(&b.keys, cleared)
	// Join with the cleared ranges that overlap or touch.
	b.cleared.Descend(cleared.begin, func(begin, end string) bool {
		if end >= cleared.begin {
			cleared.begin, cleared.end = begin, max(cleared.end, end)
		}
		return false
	})
	b.cleared.Ascend(cleared.begin, func(begin, end string) bool {
		if begin > cleared.end {
			return false
		}
		cleared.end = max(cleared.end, end)
		return true
	})
	deleteBetween(&b.cleared, cleared)
	b.cleared.Set(cleared.begin, cleared.end)
}

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

func (b *buffer) atomic(op kv.MutationType, key, operand []byte) {
	m := mutation{kind: mutationAtomic, op: op, key: key, value: operand}
	b.log = append(b.log, m)
	b.conflicts = append(b.conflicts, pointSpan(string(key)))
	w, known := b.keys.Get(string(key))
	if !known {
		_, known = b.clearedAround(string(key))
	}
	switch {
	case w.unreadable:
	case known && len(w.ops) == 0:
		w.value = mutate(op, w.value, operand)
	default:
		w.ops = append(slices.Clip(w.ops), m)
	}
	b.keys.Set(string(key), w)
}

func (b *buffer) stampKey(key, value []byte) {
	b.log = append(b.log, mutation{kind: mutationStampKey, key: key, value: value})
	begin, end := stampRange(key)
	b.unreadable.Set(begin, max(end, b.unreadableFrom(begin)))
}

func (b *buffer) unreadableFrom(begin string) string {
	end, _ := b.unreadable.Get(begin)
	return end
}

func (b *buffer) stampValue(key, value []byte) {
	b.log = append(b.log, mutation{kind: mutationStampValue, key: key, value: value})
	b.keys.Set(string(key), written{unreadable: true})
	b.conflicts = append(b.conflicts, pointSpan(string(key)))
}

// clearedAround returns the cleared range that holds key.
func (b *buffer) clearedAround(key string) (s span, ok bool) {
	b.cleared.Descend(key, func(begin, end string) bool {
		s, ok = span{begin, end}, end > key
		return false
	})
	return s, ok
}

// touchesUnreadable reports whether a stamped key may land between begin and
// end. There are few such ranges in a transaction, or many that do not overlap
// and are read by nobody, so a walk from the left is enough.
func (b *buffer) touchesUnreadable(begin, end string) bool {
	touches := false
	b.unreadable.Scan(func(from, to string) bool {
		if from >= end {
			return false
		}
		touches = to > begin
		return !touches
	})
	return touches
}
