package optimistic

import (
	"slices"
	"time"

	"github.com/tidwall/btree"
)

// history knows, for every key, the version at which it was last written, as
// far back as a living transaction may have read.
//
// It is a step function over the key space: the entry at boundary k holds for
// the keys from k to the next boundary. Versions up to floor count as never
// written; neighbouring steps that both lie there are merged, so the size is
// bounded by the writes within the window.
type history struct {
	steps btree.Map[string, int64]
	// floor: no living transaction reads at a version below it.
	floor int64
	// aging holds the boundaries in the order in which they were set, to find
	// those that fell under the floor without a walk over the steps.
	aging queue[boundary]
	// commits holds the time of each version, to move the floor.
	commits queue[commitTime]
}

type boundary struct {
	key     string
	version int64
}

type commitTime struct {
	version int64
	at      time.Time
}

// wrote records that the keys from begin to end were written at version.
func (h *history) wrote(begin, end string, version int64) {
	if begin >= end {
		return
	}
	after := h.at(end) // what the keys from end on had before
	h.deleteWithin(begin, end)
	h.set(begin, version)
	if _, ok := h.steps.Get(end); !ok {
		h.set(end, after)
	}
}

// at returns the version of the last write of key.
func (h *history) at(key string) int64 {
	version := int64(0)
	h.steps.Descend(key, func(_ string, v int64) bool {
		version = v
		return false
	})
	return version
}

func (h *history) deleteWithin(begin, end string) {
	var within []string
	h.steps.Ascend(begin, func(k string, _ int64) bool {
		if k >= end {
			return false
		}
		within = append(within, k)
		return true
	})
	for _, k := range within {
		h.steps.Delete(k)
	}
}

func (h *history) set(key string, version int64) {
	h.steps.Set(key, version)
	h.aging.push(boundary{key, version})
}

// writtenSince reports whether any key from begin to end was written after
// version.
func (h *history) writtenSince(begin, end string, version int64) bool {
	if begin >= end {
		return false
	}
	if h.at(begin) > version {
		return true
	}
	written := false
	h.steps.Ascend(begin, func(k string, v int64) bool {
		if k >= end {
			return false
		}
		written = v > version
		return !written
	})
	return written
}

// committed records when version was committed, for expire.
func (h *history) committed(version int64, at time.Time) {
	h.commits.push(commitTime{version, at})
}

// expire forgets what no transaction that began after limit can conflict with.
func (h *history) expire(limit time.Time) {
	// The last version committed before limit is one that such a transaction
	// may read at; only what is older than the next one is out of reach.
	for h.commits.len() > 0 && h.commits.front().at.Before(limit) {
		h.floor = h.commits.pop().version
	}
	for h.aging.len() > 0 && h.aging.front().version <= h.floor {
		b := h.aging.pop()
		if v, ok := h.steps.Get(b.key); ok && v <= h.floor {
			h.mergeAt(b.key)
		}
	}
}

// mergeAt merges the step at key, which lies under the floor, with those
// neighbours that do too. Invariant: when both of two neighbours are under the
// floor, the younger of them is still to come in aging.
func (h *history) mergeAt(key string) {
	next, nextVersion, hasNext := "", int64(0), false
	h.steps.Ascend(key+"\x00", func(k string, v int64) bool {
		next, nextVersion, hasNext = k, v, true
		return false
	})
	if hasNext && nextVersion <= h.floor {
		h.steps.Delete(next)
	}
	before, isFirst := int64(0), true
	h.steps.Descend(key, func(k string, v int64) bool {
		if k == key {
			return true
		}
		before, isFirst = v, false
		return false
	})
	if isFirst || before <= h.floor {
		h.steps.Delete(key)
	}
}

// queue is a first-in first-out list whose memory follows its length.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int  { return len(q.items) - q.head }
func (q *queue[T]) front() *T { return &q.items[q.head] }
func (q *queue[T]) push(v T)  { q.items = append(q.items, v) }
func (q *queue[T]) pop() T {
	v := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head > len(q.items)/2 {
		left := q.items[q.head:]
		if cap(q.items) > 4*len(left)+64 {
			q.items, q.head = slices.Clone(left), 0
			return v
		}
		n := copy(q.items, left)
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}
