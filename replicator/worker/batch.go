package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"settee/pkg/couch"
)

const (
	// maxAhead is how many batches may be ended or under way beyond one that is not ended.
	maxAhead = 1000
	// maxBatch is about how many bytes of memory the rows of a batch take, but for one larger row.
	maxBatch = 512 << 10
	// linger is how long a batch of a feed that ends waits for more rows: a filter may find few.
	linger = time.Second
)

// batch is a part of the changes feed.
type batch struct {
	number int // in the feed's order
	rows   []couch.Row
	size   int             // bytes of the rows
	seq    json.RawMessage // up to where the feed was read for it; nil if it does not say
	due    bool            // it is not to wait for more rows
	ended  bool            // the feed ended with it
}

// position is how far a run is in the changes feed. run.mu guards it.
type position struct {
	read, through, committed json.RawMessage // as in Progress

	rowsRead, rowsPassed int64
	left                 *int64 // how many changes lie beyond read, if the source said so

	issued int                     // how many batches were begun
	next   int                     // the first batch that has not ended
	done   map[int]json.RawMessage // the sequences of those that ended out of order
}

func newPosition() position { return position{done: map[int]json.RawMessage{}} }

// intake gathers rows into batches, in the feed's order, and starts them: in goroutines that are there only
// as long as their batch. A batch of a feed that ends is a full one, or the last. A batch of a live feed
// takes what is there at the moment and leaves as soon as there is room for it: the busier the run is, the
// larger it grows. run.mu guards the intake.
type intake struct {
	r *run
	// start has copy called, in a goroutine, and does not block.
	start func(*batch)

	filling *batch // nil if none was begun
	linger  *time.Timer
	asking  int           // batches of which the target is not asked yet what it has
	space   chan struct{} // an element when the one who waits is to look again

	busy   int           // goroutines that read the feed or copy a batch
	copied chan struct{} // closed when there are none any more
}

// newIntake returns the intake of one who reads the feed. start is to be set.
func newIntake(r *run) *intake {
	return &intake{r: r, space: make(chan struct{}, 1), busy: 1, copied: make(chan struct{})}
}

// take adds an item of the feed to batches, and waits for room for it. One goroutine calls it.
func (q *intake) take(ctx context.Context, item feedItem) error {
	for {
		q.r.mu.Lock()
		left := true
		for left && q.hasRoom() {
			item.rows = q.add(item)
			q.launch()
			left = len(item.rows) > 0
		}
		q.r.mu.Unlock()
		if !left {
			return nil
		}
		select {
		case <-q.space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasRoom reports whether another item has a place, and begins a batch if there is none.
func (q *intake) hasRoom() bool {
	if q.filling != nil {
		return !q.r.isFull(q.filling) && !q.filling.ended
	}
	if q.r.issued-q.r.next >= maxAhead {
		return false
	}
	q.filling = &batch{number: q.r.issued}
	q.r.issued++
	return true
}

// add adds an item to the batch that is filled, and returns the rows that it has no room for.
func (q *intake) add(item feedItem) (left []couch.Row) {
	r, b := q.r, q.filling
	first := len(b.rows) == 0
	if item.end {
		b.due, b.ended = true, true
	} else {
		if b.rows == nil && !item.live {
			b.rows = make([]couch.Row, 0, min(r.batchSize, defaultWorkerBatchSize))
		}
		n := 0
		for n < len(item.rows) && !r.isFull(b) {
			row := item.rows[n]
			row.Seq = nil // of the last one it is the batch's
			b.rows = append(b.rows, row)
			b.size += rowSize(row)
			n++
		}
		item.seq, left = lastSequence(item.rows[:n]), item.rows[n:]
		b.due = b.due || item.live || r.isFull(b)
		r.row = time.Now()
		if r.rowsRead == r.rowsPassed {
			r.busy = r.row
		}
		r.rowsRead += int64(n)
		if r.left != nil && !r.filtered {
			*r.left = max(0, *r.left-int64(n))
		}
	}
	if item.seq != nil {
		b.seq, r.read = item.seq, item.seq
	}
	if !b.due && first {
		q.linger = time.AfterFunc(linger, func() { q.lingered(b) })
	}
	return left
}

// lingered lets a batch go as it is.
func (q *intake) lingered(b *batch) {
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	if q.filling == b && !b.due {
		b.due = true
		q.launch()
	}
}

// launch starts the batch that is filled, if it is due and there is room for it.
func (q *intake) launch() {
	b := q.filling
	if b == nil || !b.due || q.asking >= q.r.workers {
		return
	}
	if q.linger != nil {
		q.linger.Stop()
		q.linger = nil
	}
	q.filling = nil
	q.asking++
	q.busy++
	q.start(b)
	q.look()
}

// look has the goroutine that waits for room look again.
func (q *intake) look() {
	select {
	case q.space <- struct{}{}:
	default:
	}
}

// asked notes that the target was asked what it has of a batch: another one may be started.
func (q *intake) asked() {
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	q.asking--
	q.launch()
}

// end notes that the feed was read, or given up with what was gathered last.
func (q *intake) end(err error) {
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	if err != nil {
		q.filling = nil
	}
	if q.linger != nil {
		q.linger.Stop()
	}
	q.leave()
}

// leave notes that one of the goroutines has ended.
func (q *intake) leave() {
	if q.busy--; q.busy == 0 {
		close(q.copied)
	}
}

// copy copies a batch, as copyBatch says, and starts the next one.
func (q *intake) copy(ctx, writing context.Context, b *batch, fail func(error)) error {
	var once sync.Once
	asked := func() { once.Do(q.asked) }
	q.r.inFlight.Add(1)
	err := q.r.copyBatch(ctx, writing, b, asked, fail)
	q.r.inFlight.Add(-1)
	if err == nil {
		q.r.pass(b)
		asked()
	}
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	q.look() // to begin one that was too far ahead
	q.leave()
	return err
}

// isFull reports whether a batch takes no more rows.
func (r *run) isFull(b *batch) bool { return len(b.rows) >= r.batchSize || b.size >= maxBatch }

// rowSize is about how many bytes of memory a row takes in a batch.
func rowSize(row couch.Row) int {
	const words = 9 // of 64 bits: the row's own
	size := 8*words + len(row.ID)
	for _, rev := range row.Revs {
		size += len(rev) + 16
	}
	return size
}

// pass notes that all changes of a batch are dealt with.
func (r *run) pass(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(b.rows) > 0 {
		r.passed = time.Now()
	}
	r.rowsPassed += int64(len(b.rows))
	r.done[b.number] = b.seq
	// Of batches in a row that have ended the last one's sequence is enough: a server's may be long.
	if _, before := r.done[b.number-1]; before && b.seq != nil {
		r.done[b.number-1] = nil
	}
	if seq := r.done[b.number+1]; seq != nil {
		r.done[b.number] = nil
	}
	for {
		seq, ok := r.done[r.next]
		if !ok {
			return
		}
		delete(r.done, r.next)
		r.next++
		if seq != nil {
			r.through = seq
		}
	}
}

// setLeft notes how many changes lie beyond what was read.
func (r *run) setLeft(left int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = &left
}

// setLeftSince does so for an answer that is true of since: what was read meanwhile is not known then.
func (r *run) setLeftSince(since json.RawMessage, left int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == nil || bytes.Equal(r.read, since) {
		r.left = &left
	}
}

// changesPending is how many changes are not dealt with yet, as far as that is known.
func (p *position) changesPending() *int64 {
	if p.left == nil {
		return nil
	}
	pending := *p.left + p.rowsRead - p.rowsPassed
	return &pending
}
