package optimistic

import (
	"slices"

	"github.com/tidwall/btree"

	"settee/pkg/kv"
)

// buffer holds the writes of a transaction: as a log for the commit, and, once the
// transaction reads what it may have written, by key.
type buffer struct {
	log []mutation
	// conflicts are the write conflict ranges that were added to those of the log.
	conflicts []span
	// additions are the places in the log of additions that the next one to the same
	// key can become part of: nothing else was done to the key since.
	additions map[string]int

	own     layers // what the first seen mutations of the log make
	applied int    // how many those are
}

// see returns what the transaction's reads see above the snapshot.
func (b *buffer) see() *layers {
	for ; b.applied < len(b.log); b.applied++ {
		b.own.apply(b.log[b.applied])
	}
	return &b.own
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

// apply adds a mutation to what is seen.
func (l *layers) apply(m mutation) {
	switch m.kind {
	case mutationSet:
		l.keys.Set(string(m.key), written{value: m.value})
	case mutationClear:
		l.keys.Set(string(m.key), written{})
		l.unreadable.remove(pointSpanOf(m.key))
	case mutationClearRange:
		cleared := m.span()
		deleteBetween(&l.keys, cleared)
		l.unreadable.remove(cleared)
		l.cleared.add(cleared)
	case mutationAtomic:
		key := string(m.key)
		w, _, known := l.hides(key)
		if known {
			w.value = mutate(m.op, w.value, m.value)
		} else {
			w.ops = append(slices.Clip(w.ops), m)
		}
		l.keys.Set(key, w)
	case mutationStampKey:
		l.unreadable.add(stampRange(m.key))
	case mutationStampValue:
		l.keys.Set(string(m.key), written{value: m.value})
		l.unreadable.add(pointSpanOf(m.key))
	}
}

// write appends a mutation to the log. An addition becomes part of the one before it to
// the same key: a counter that a transaction adds to a thousand times is one mutation.
func (b *buffer) write(m mutation) {
	switch {
	case m.kind == mutationAtomic && m.op == kv.MutationAdd:
		if b.addMore(m) {
			return
		}
		if b.additions == nil {
			b.additions = map[string]int{}
		}
		b.additions[string(m.key)] = len(b.log)
	case m.kind == mutationClearRange, m.kind == mutationStampKey:
		// An addition to a key of the range comes after this.
		within := m.span()
		if m.kind == mutationStampKey {
			within = stampRange(m.key)
		}
		for key := range b.additions {
			if within.has(key) {
				delete(b.additions, key)
			}
		}
	default:
		delete(b.additions, string(m.key))
	}
	b.log = append(b.log, m)
}

// addMore makes an addition part of the one before it to the same key, of the same
// length, unless that has been seen, and reports whether there was one.
func (b *buffer) addMore(m mutation) bool {
	i, ok := b.additions[string(m.key)]
	if !ok || i < b.applied || len(b.log[i].value) != len(m.value) {
		return false
	}
	b.log[i].value = mutate(kv.MutationAdd, b.log[i].value, m.value)
	return true
}
