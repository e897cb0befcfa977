package worker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"settee/pkg/couch"
)

const (
	// maxAhead is the number of batches that may be started or done after the oldest unfinished one.
	maxAhead = 1000
	// firstRows is the initial capacity of a batch, in rows.
	firstRows = 500
	// maxBatch is the approximate limit on the memory for the rows of a batch, in bytes. One row may be larger.
	maxBatch = 512 << 10
	// linger is how long a batch of a feed that ends waits for more rows. A filter may pass only a few.
	linger = time.Second
	// liveLinger is how long a batch of a live feed waits for more rows while others are being copied.
	liveLinger = 100 * time.Millisecond
)

type batch struct {
	number int       // in the feed's order
	began  time.Time // when the first row was read
	rows   []couch.Row
	size   int             // bytes of the rows
	seq    json.RawMessage // the feed was read up to it; nil if unknown
	live   bool            // its rows come from a live feed
	due    bool            // it does not wait for more rows
	ended  bool            // the feed ended with it
}

// position is a run's position in the changes feed. progress.mu guards it.
type position struct {
	read, through, committed json.RawMessage // as in Progress

	rowsRead, rowsPassed int64
	left                 *int64 // changes after read, at most; nil if the source does not say
	leftAt               int64  // rowsRead when the source was asked for it

	issued int                     // number of batches begun
	next   int                     // the oldest unfinished batch
	done   map[int]json.RawMessage // sequences of batches that ended out of order
}

func newPosition() position { return position{done: map[int]json.RawMessage{}} }

// intake gathers rows into batches, in the feed's order, and starts a goroutine for each. A batch of a feed that ends
// is full, except the last one. A batch of a live feed takes the rows available at the moment, and starts at once if no
// other is being copied. Otherwise it waits for that, until it is full, or for liveLinger. So a single change is copied at
// once, and many that arrive one after the other are copied together. progress.mu guards the intake.
type intake struct {
	r *run
	// start calls copy in a goroutine and does not block.
	start func(*batch)

	filling *batch // nil if there is none
	linger  *time.Timer
	asking  int           // batches that are still to ask the target
	space   chan struct{} // wakes the waiting reader

	busy   int           // goroutines reading the feed or copying a batch
	copied chan struct{} // closed when busy drops to 0
}

// newIntake returns an intake. The caller sets start.
func newIntake(r *run) *intake {
	return &intake{r: r, space: make(chan struct{}, 1), busy: 1, copied: make(chan struct{})}
}

// take adds an item of the feed to batches, and waits until there is room for it. Only one goroutine calls it.
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

// hasRoom reports whether a batch can take another item. It begins a batch if there is none.
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

// add adds an item to the batch being filled, and returns the rows that do not fit.
func (q *intake) add(item feedItem) (left []couch.Row) {
	r, b := q.r, q.filling
	first := len(b.rows) == 0
	if item.end {
		b.due, b.ended = true, true
	} else {
		if b.rows == nil && !item.live {
			b.rows = make([]couch.Row, 0, min(r.batchSize, firstRows))
		}
		n := 0
		for n < len(item.rows) && !r.isFull(b) {
			row := item.rows[n]
			row.Seq = nil // the batch keeps the last one
			b.rows = append(b.rows, row)
			b.size += rowSize(row)
			n++
		}
		item.seq, left = lastSequence(item.rows[:n]), item.rows[n:]
		b.live = item.live
		b.due = b.due || r.isFull(b) || item.live && q.idle()
		r.row = time.Now()
		if first {
			b.began = r.row
		}
		if r.rowsRead == r.rowsPassed {
			r.busy = r.row
		}
		r.rowsRead += int64(n)
		r.tookRow()
		if r.left != nil {
			*r.left = max(0, *r.left-int64(n))
		}
		r.tellSoon()
	}
	if item.seq != nil {
		b.seq, r.read = item.seq, item.seq
	}
	if !b.due && first {
		wait := linger
		if item.live {
			wait = liveLinger
		}
		q.linger = time.AfterFunc(wait, func() { q.lingered(b) })
	}
	return left
}

// idle reports whether no batch is being copied. The feed must not have ended.
func (q *intake) idle() bool { return q.busy == 1 }

// lingered starts a batch that has waited long enough.
func (q *intake) lingered(b *batch) {
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	if q.filling == b && !b.due {
		b.due = true
		q.launch()
	}
}

// launch starts the batch being filled if it is due and there is room for it.
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

// look wakes the goroutine that waits for room.
func (q *intake) look() {
	select {
	case q.space <- struct{}{}:
	default:
	}
}

// asked records that a batch has asked the target, so that another may start.
func (q *intake) asked() {
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	q.asking--
	q.launch()
}

// end records the end of the feed. After an error the batch being filled is dropped.
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

// leave records that a goroutine has ended.
func (q *intake) leave() {
	if q.busy--; q.busy == 0 {
		close(q.copied)
	}
	if b := q.filling; b != nil && b.live && len(b.rows) > 0 && q.idle() {
		b.due = true
		q.launch()
	}
}

// copy handles a batch and makes room for the next one.
func (q *intake) copy(ctx, writing context.Context, b *batch, fail func(error)) error {
	var once sync.Once
	asked := func() { once.Do(q.asked) }
	q.r.inFlight.Add(1)
	err := q.r.handle(ctx, writing, b, asked, fail)
	q.r.inFlight.Add(-1)
	if err == nil {
		q.r.pass(b)
		asked()
	}
	q.r.mu.Lock()
	defer q.r.mu.Unlock()
	q.look() // a batch that was too far ahead may begin now
	q.leave()
	return err
}

func (r *run) isFull(b *batch) bool { return len(b.rows) >= r.batchSize || b.size >= maxBatch }

// rowSize returns the approximate memory of a row in a batch, in bytes.
func rowSize(row couch.Row) int {
	const words = 11 // 64-bit words of a couch.Row
	size := 8*words + len(row.ID)
	for _, rev := range row.Revs {
		size += len(rev) + 16
	}
	return size
}

// pass records that all changes of a batch are dealt with.
func (r *run) pass(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.idles()
	if len(b.rows) > 0 {
		r.passed = time.Now()
	}
	if len(b.rows) > 0 || b.seq != nil {
		r.tellSoon()
	}
	r.rowsPassed += int64(len(b.rows))
	r.done[b.number] = b.seq
	// Sequences may be long, so adjacent finished batches keep only the last one's.
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

// changesPending returns how many changes are not dealt with yet, or nil if that is not known.
func (p *position) changesPending() *int64 {
	if p.left == nil {
		return nil
	}
	pending := *p.left + p.rowsRead - p.rowsPassed
	return &pending
}
