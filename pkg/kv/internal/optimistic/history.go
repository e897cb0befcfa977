package optimistic

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/tidwall/btree"
)

// history has the version of the last write of every key, as far back as a living transaction may have read.
//
// Recent writes are a list and, for single keys, also a map, because most transactions read few keys that were written
// on their own a moment ago. When a check has to look further back, older writes move into a step function over the key
// space: the entry at boundary k holds for the keys from k to the next boundary. Versions up to floor count as never
// written, and neighbouring steps below floor are merged. So the size is bounded by the writes within the window.
type history struct {
	// recent are the latest writes, in order of their versions. All are younger than the writes in steps.
	recent recentWrites
	// ranges are the writes of recent that are not of a single key.
	ranges queue[rangeWrite]
	// points are the versions of the last writes of single keys in recent, by the hash of the key. Two keys with one
	// hash very rarely cause a needless conflict, and the map has no pointers for the garbage collector.
	points map[uint64]int64
	seed   maphash.Seed

	steps btree.Map[string, int64]
	// No living transaction reads at a version below floor.
	floor int64
	// aging has the boundaries in the order in which they were set, to find those below the floor without scanning the
	// steps.
	aging queue[boundary]
	// commits has the time of each version, to move the floor.
	commits queue[commitTime]
}

// maxScan is the number of recent writes that a check of a range looks at. If there may be more conflicts beyond, the
// older writes move into the steps.
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

// wrote records that the keys from begin to end were written at version. Versions never decrease.
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

// point returns the version of the last recent write of a single key.
func (h *history) point(key string) int64 {
	if h.points == nil {
		return 0
	}
	return h.points[maphash.String(h.seed, key)]
}

// settle moves the oldest recent write into the steps, or drops it if no living transaction can conflict with it.
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
		s = pointSpan(w.begin)
	}
	after := h.at(s.end) // the version of the keys from end on
	h.deleteWithin(s.begin, s.end)
	h.set(s.begin, w.version)
	if _, ok := h.steps.Get(s.end); !ok {
		h.set(s.end, after)
	}
}

// at returns the version of key in the steps.
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

// writtenSince reports whether any key from begin to end was written after version.
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
			return false // all older ones are too
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

// rangeSince is writtenSince for recent writes of ranges.
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

// steppedSince is writtenSince for the steps.
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

// committed records the time of a version, for expire.
func (h *history) committed(version int64, at time.Time) {
	h.commits.push(commitTime{version, at})
}

// expire drops what no transaction that began after limit can conflict with.
func (h *history) expire(limit time.Time) {
	// Such a transaction may read at the last version committed before limit. Only what is older than the next version
	// cannot be reached.
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

// mergeAt merges the step at key, which is below the floor, with the neighbours below the floor. Invariant: if two
// neighbours are both below the floor, the younger one is still in aging.
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

// queue is a first-in, first-out list whose memory follows its length.
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
