package optimistic

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/tidwall/btree"
)

// history knows, for every key, the version at which it was last written, as
// far back as a living transaction may have read.
//
// What was written lately is a list, and for single keys a map beside it: most
// transactions read few keys that were written by themselves, a moment ago. Older
// writes move on into a step function over the key space, as soon as a check has to
// look further back: the entry at boundary k holds for the keys from k to the next
// boundary. Versions up to floor count as never written; neighbouring steps that both
// lie there are merged. So the size is bounded by the writes within the window.
type history struct {
	// recent are the latest writes, in order of their versions. All of them are
	// younger than what is in steps.
	recent recentWrites
	// ranges are those of recent that are not of one key.
	ranges queue[rangeWrite]
	// points are the versions of the last writes of single keys in recent, by the
	// hash of the key: two keys of one hash make for a conflict that is none, once in
	// a great while, and nothing here is for the garbage collector to follow.
	points map[uint64]int64
	seed   maphash.Seed

	steps btree.Map[string, int64]
	// floor: no living transaction reads at a version below it.
	floor int64
	// aging holds the boundaries in the order in which they were set, to find
	// those that fell under the floor without a walk over the steps.
	aging queue[boundary]
	// commits holds the time of each version, to move the floor.
	commits queue[commitTime]
}

// maxScan is how many recent writes a check of a range looks through. If that is not
// enough to see all that it may conflict with, the others move into the steps.
const maxScan = 2_000

type rangeWrite struct {
	span
	version int64
}

type boundary struct {
	key     string
	version int64
}

type commitTime struct {
	version int64
	at      time.Time
}

// wrote records that the keys from begin to end were written at version, which is
// not below that of an earlier call.
func (h *history) wrote(begin, end string, version int64) {
	s := span{begin, end}
	switch {
	case begin >= end:
	case s.isPoint():
		h.wrotePoint([]byte(begin), version)
	default:
		h.recent.push([]byte(begin), []byte(end), version)
		h.ranges.push(rangeWrite{s, version})
	}
}

// wrotePoint is wrote for one key.
func (h *history) wrotePoint(key []byte, version int64) {
	if h.points == nil {
		h.points, h.seed = map[uint64]int64{}, maphash.MakeSeed()
	}
	h.recent.push(key, nil, version)
	h.points[maphash.Bytes(h.seed, key)] = version
}

// point returns the version of the last recent write of a key by itself.
func (h *history) point(key string) int64 {
	if h.points == nil {
		return 0
	}
	return h.points[maphash.String(h.seed, key)]
}

// settle moves the oldest recent write into the steps, or away if no living
// transaction can conflict with it.
func (h *history) settle() {
	w := h.recent.pop()
	var s span
	if w.isPoint() {
		if hash := maphash.Bytes(h.seed, w.begin); h.points[hash] == w.version {
			delete(h.points, hash)
		}
	} else {
		h.ranges.pop()
	}
	if w.version <= h.floor {
		return
	}
	if s = (span{string(w.begin), string(w.end)}); w.isPoint() {
		s = pointSpanOf(w.begin)
	}
	after := h.at(s.end) // what the keys from end on had before
	h.deleteWithin(s.begin, s.end)
	h.set(s.begin, w.version)
	if _, ok := h.steps.Get(s.end); !ok {
		h.set(s.end, after)
	}
}

// at returns the version of the last write of key that is in the steps.
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
	read := span{begin, end}
	if begin >= end {
		return false
	}
	if read.isPoint() {
		return h.point(begin) > version || h.rangeSince(read, version) || h.steppedSince(read, version)
	}
	scanned := 0
	for w := range h.recent.backward() {
		if w.version <= version {
			return false // and so are all older ones
		}
		if w.touches(read) {
			return true
		}
		if scanned++; scanned == maxScan {
			break
		}
	}
	for h.recent.count > maxScan {
		h.settle()
	}
	return h.steppedSince(read, version)
}

// rangeSince is writtenSince for what was written recently as a range.
func (h *history) rangeSince(read span, version int64) bool {
	for h.ranges.len() > maxScan {
		h.settle()
	}
	for _, w := range slices.Backward(h.ranges.all()) {
		if w.version <= version {
			return false
		}
		if w.begin < read.end && read.begin < w.end {
			return true
		}
	}
	return false
}

// steppedSince is writtenSince for what is in the steps.
func (h *history) steppedSince(read span, version int64) bool {
	if h.at(read.begin) > version {
		return true
	}
	written := false
	h.steps.Ascend(read.begin, func(k string, v int64) bool {
		if k >= read.end {
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
	for h.recent.count > 0 && h.recent.oldest() <= h.floor {
		h.settle()
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
func (q *queue[T]) all() []T  { return q.items[q.head:] }
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
