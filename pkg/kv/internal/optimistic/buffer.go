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
	// conflicts are the write conflict ranges.
	conflicts []span
	layers
}

// layers are what a transaction's reads see above the snapshot: first
// unreadable, then keys, then cleared.
type layers struct {
	// keys has what is known of each key that was written by itself.
	keys btree.Map[string, written]
	// cleared are the keys that were cleared as ranges.
	cleared keySet
	// unreadable are the keys that were written with a versionstamp, or that
	// a stamped key may become. A key stays unreadable under later writes,
	// but not when it is cleared.
	unreadable keySet
}

// written is what a transaction knows of a key it wrote.
type written struct {
	// ops are the atomic operations on a value that lies below the buffer;
	// when there are none, value is the whole truth, nil for cleared.
	ops   []mutation
	value []byte
	// added is the place in the log, from 1, of an addition that the next one can
	// become part of: nothing else was done to the key since.
	added int
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

func (l *layers) empty() bool {
	return l.keys.Len() == 0 && l.cleared.empty() && l.unreadable.empty()
}

// copy returns the layers as they are now, nil when they hide nothing. The
// copy shares its nodes with the original until that is written to.
func (l *layers) copy() *layers {
	if l.empty() {
		return nil
	}
	return &layers{
		keys:       *l.keys.Copy(),
		cleared:    keySet{*l.cleared.ranges.Copy()},
		unreadable: keySet{*l.unreadable.ranges.Copy()},
	}
}

// hides returns what the layers make of key without a look below them: ok is
// false when that look is needed.
func (l *layers) hides(key string) (w written, own, ok bool) {
	w, own = l.keys.Get(key)
	if own {
		return w, true, len(w.ops) == 0
	}
	_, cleared := l.cleared.around(key)
	return written{}, false, cleared
}

// wroteNothing reports whether there is nothing to commit.
func (b *buffer) wroteNothing() bool { return len(b.log) == 0 && len(b.conflicts) == 0 }

func (b *buffer) set(key, value []byte) {
	point := pointSpanOf(key)
	b.log = append(b.log, mutation{kind: mutationSet, key: key, value: value})
	b.keys.Set(point.begin, written{value: value})
	b.conflicts = append(b.conflicts, point)
}

func (b *buffer) clear(key []byte) {
	point := pointSpanOf(key)
	b.log = append(b.log, mutation{kind: mutationClear, key: key})
	b.keys.Set(point.begin, written{})
	b.unreadable.remove(point)
	b.conflicts = append(b.conflicts, point)
}

func (b *buffer) clearRange(begin, end []byte) {
	b.log = append(b.log, mutation{kind: mutationClearRange, key: begin, value: end})
	cleared := span{string(begin), string(end)}
	b.conflicts = append(b.conflicts, cleared)
	deleteBetween(&b.keys, cleared)
	b.unreadable.remove(cleared)
	b.cleared.add(cleared)
}

func (b *buffer) atomic(op kv.MutationType, key, operand []byte) {
	m := mutation{kind: mutationAtomic, op: op, key: key, value: operand}
	if op == kv.MutationAdd && b.addMore(m) {
		return
	}
	point := pointSpanOf(key)
	b.log = append(b.log, m)
	b.conflicts = append(b.conflicts, point)
	w, _, known := b.hides(point.begin)
	w.added = 0
	if known {
		w.value = mutate(op, w.value, operand)
	} else {
		w.ops = append(slices.Clip(w.ops), m)
		if op == kv.MutationAdd {
			w.added = len(b.log)
		}
	}
	b.keys.Set(point.begin, w)
}

// addMore makes an addition part of the one before it, of the same length and to the
// same key, and reports whether there was one. A counter that a transaction adds to
// a thousand times is one mutation.
func (b *buffer) addMore(m mutation) bool {
	w, own := b.keys.Get(string(m.key))
	if !own || w.added == 0 {
		return false
	}
	earlier := b.log[w.added-1]
	if len(earlier.value) != len(m.value) {
		return false
	}
	// A new slice: what was read above may still hold the old one.
	sum := mutate(kv.MutationAdd, earlier.value, m.value)
	b.log[w.added-1].value = sum
	w.ops = slices.Clone(w.ops)
	w.ops[len(w.ops)-1].value = sum
	b.keys.Set(string(m.key), w)
	return true
}

func (b *buffer) stampKey(key, value []byte) {
	b.log = append(b.log, mutation{kind: mutationStampKey, key: key, value: value})
	b.unreadable.add(stampRange(key))
}

func (b *buffer) stampValue(key, value []byte) {
	point := pointSpanOf(key)
	b.log = append(b.log, mutation{kind: mutationStampValue, key: key, value: value})
	b.keys.Set(point.begin, written{value: value})
	b.unreadable.add(point)
	b.conflicts = append(b.conflicts, point)
}
