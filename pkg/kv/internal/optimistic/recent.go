package optimistic

import (
	"iter"
)

// recentWrites is a list of writes in order of their versions. It consists of chunks without pointers, so that the
// garbage collector need not scan five seconds of writes. Chunks are freed when they expire.
type recentWrites struct {
	chunks queue[*recentChunk]
	count  int
}

const (
	chunkWrites = 1024
	chunkBytes  = 64 << 10 // of keys
)

type recentChunk struct {
	head   int    // the first write that was not popped
	text   []byte // of the keys, concatenated
	writes []recentWrite
}

// recentWrite has the position of the keys in the text.
type recentWrite struct {
	version            int64
	begin, middle, end uint32
}

// write is a write of a range, or, without an end, of the key begin.
type write struct {
	begin, end []byte // must not be kept
	version    int64
}

func (w write) isPoint() bool { return len(w.end) == 0 }

func (w write) touches(r span) bool {
	if w.isPoint() {
		return r.begin <= string(w.begin) && string(w.begin) < r.end
	}
	return string(w.begin) < r.end && r.begin < string(w.end)
}

// push appends a write of a range, or, without an end, of a key.
func (r *recentWrites) push(begin, end []byte, version int64) {
	size := len(begin) + len(end)
	if r.chunks.len() == 0 || !r.last().has(size) {
		r.chunks.push(&recentChunk{
			text: make([]byte, 0, max(chunkBytes, size)), writes: make([]recentWrite, 0, chunkWrites),
		})
	}
	c := r.last()
	at := len(c.text)
	c.text = append(append(c.text, begin...), end...)
	c.writes = append(c.writes, recentWrite{
		version: version, begin: uint32(at), middle: uint32(at + len(begin)), end: uint32(len(c.text)),
	})
	r.count++
}

func (r *recentWrites) last() *recentChunk { return r.chunks.items[len(r.chunks.items)-1] }

// has reports whether a chunk has room for a write with size bytes of keys.
func (c *recentChunk) has(size int) bool {
	return len(c.writes) < cap(c.writes) && len(c.text)+size <= cap(c.text)
}

func (c *recentChunk) at(i int) write {
	w := c.writes[i]
	return write{begin: c.text[w.begin:w.middle], end: c.text[w.middle:w.end], version: w.version}
}

// oldest returns the version of the first write.
func (r *recentWrites) oldest() int64 {
	c := *r.chunks.front()
	return c.writes[c.head].version
}

// pop removes and returns the first write.
func (r *recentWrites) pop() write {
	c := *r.chunks.front()
	w := c.at(c.head)
	r.count--
	if c.head++; c.head == len(c.writes) {
		r.chunks.pop()
	}
	return w
}

// backward yields the writes, the latest first.
func (r *recentWrites) backward() iter.Seq[write] {
	return func(yield func(write) bool) {
		chunks := r.chunks.all()
		for i := len(chunks) - 1; i >= 0; i-- {
			c := chunks[i]
			for j := len(c.writes) - 1; j >= c.head; j-- {
				if !yield(c.at(j)) {
					return
				}
			}
		}
	}
}
