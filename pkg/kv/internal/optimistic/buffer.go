package optimistic

import (
	"slices"

	"github.com/tidwall/btree"
)

// buffer holds the writes of a transaction, as a log for the commit and, once the transaction reads, by key.
type buffer struct {
	log []mutation
	// conflicts are additional write conflict ranges, besides the conflict ranges of the log.
	conflicts []span
	// additions are the indexes in the log of additions that the next addition to the same key can join, because
	// nothing else was done to the key since.
	additions map[string]int

	own     layers // the effect of the first mutations of the log
	applied int    // the number of these mutations
}

// see returns what the transaction's reads see above the snapshot.
func (b *buffer) see() *layers {
	for ; b.applied < len(b.log); b.applied++ {
		b.own.apply(b.log[b.applied])
	}
	return &b.own
}

// layers are what a transaction's reads see above the snapshot, in this order: unreadable, keys, cleared.
type layers struct {
	// keys has what is known of each key that was written on its own.
	keys btree.Map[string, written]
	// cleared are the keys that were cleared as ranges.
	cleared keySet
	// unreadable are the keys that were written with a versionstamp, and all keys that a stamped key may become. Later
	// writes do not make a key readable again, but clearing it does.
	unreadable keySet
}

// written is what a transaction knows of a key that it wrote.
type written struct {
	// added is what was added to a value below the buffer. If it has no n, value is the key's value, nil if cleared.
	added addend
	value []byte
}

// over returns the value of the key if base is its value below the buffer.
func (w written) over(base []byte) []byte {
	if w.added.n == nil {
		return slices.Clone(w.value)
	}
	return w.added.to(base)
}

func (l *layers) empty() bool {
	return l.keys.Len() == 0 && l.cleared.empty() && l.unreadable.empty()
}

// copy returns a copy of the layers, or nil if they are empty. The copy shares its nodes with the original until that
// is written to.
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

// hides returns what the layers know of key. ok is false if the value below them is needed.
func (l *layers) hides(key string) (w written, own, ok bool) {
	w, own = l.keys.Get(key)
	if own {
		return w, true, w.added.n == nil
	}
	_, cleared := l.cleared.around(key)
	return written{}, false, cleared
}

// wroteNothing reports whether there is nothing to commit.
func (b *buffer) wroteNothing() bool { return len(b.log) == 0 && len(b.conflicts) == 0 }

// apply adds the effect of a mutation.
func (l *layers) apply(m mutation) {
	switch m.kind {
	case mutationSet:
		l.keys.Set(string(m.key), written{value: m.value})
	case mutationClear:
		l.keys.Set(string(m.key), written{})
		l.unreadable.remove(pointSpan(m.key))
	case mutationClearRange:
		cleared := m.span()
		deleteBetween(&l.keys, cleared)
		l.unreadable.remove(cleared)
		l.cleared.add(cleared)
	case mutationAdd, mutationAddOrClear:
		key := string(m.key)
		w, _, known := l.hides(key)
		if known {
			w.value = m.addend().to(w.value)
		} else {
			w.added = w.added.and(m.addend())
		}
		l.keys.Set(key, w)
	case mutationStampKey:
		l.unreadable.add(stampRange(m.key))
	case mutationStampValue:
		l.keys.Set(string(m.key), written{value: m.value})
		l.unreadable.add(pointSpan(m.key))
	}
}

// write appends a mutation to the log. An addition joins the previous addition to the same key, so a counter that a
// transaction adds to a thousand times is one mutation.
func (b *buffer) write(m mutation) {
	switch {
	case m.adds():
		if b.addMore(m) {
			return
		}
		if b.additions == nil {
			b.additions = map[string]int{}
		}
		b.additions[string(m.key)] = len(b.log)
	case m.kind == mutationClearRange, m.kind == mutationStampKey:
		// A later addition to a key of the range must stay after this mutation.
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

// addMore joins an addition to the previous one of the same key, unless that one has been read, and reports whether it
// did.
func (b *buffer) addMore(m mutation) bool {
	i, ok := b.additions[string(m.key)]
	if !ok || i < b.applied {
		return false
	}
	b.log[i].value, b.log[i].kind = add(b.log[i].value, m.value), m.kind
	return true
}
