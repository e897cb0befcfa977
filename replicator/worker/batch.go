package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"settee/pkg/couch"
)

const (
	// maxAhead is how many batches may be ended or under way beyond one that is not ended.
	maxAhead = 1000
	// maxBatch is about how many bytes of memory the rows of a batch take, but for one larger row.
	maxBatch = 2 << 20
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
	room   chan struct{}           // an element for each batch between next and issued
}

func newPosition() position {
	return position{done: map[int]json.RawMessage{}, room: make(chan struct{}, maxAhead)}
}

// fillBatches gathers rows into batches, in the feed's order, and closes batches at the end. A batch of
// a feed that ends is a full one, or the last. A batch of a live feed takes what is there at the moment
// and leaves as soon as a worker is free: the busier they are, the larger it grows. complete says that
// the feed was read to its end.
func (r *run) fillBatches(ctx context.Context, items <-chan feedItem, batches chan<- *batch) (complete bool, err error) {
	defer close(batches)
	for {
		b, err := r.beginBatch(ctx)
		if err != nil {
			return false, err
		}
		last, err := r.fill(ctx, b, items, batches)
		if err != nil || last {
			// The reader closes items after an error, too, and after the end of a feed that ends.
			return err == nil && b.ended, err
		}
	}
}

// beginBatch waits until another batch may be begun.
func (r *run) beginBatch(ctx context.Context) (*batch, error) {
	select {
	case r.room <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &batch{number: r.issued}
	r.issued++
	return b, nil
}

// fill fills a batch and hands it to a worker. last says that there will be no more rows.
func (r *run) fill(ctx context.Context, b *batch, items <-chan feedItem, batches chan<- *batch) (last bool, err error) {
	var timer <-chan time.Time
	for {
		in, out := items, batches
		if r.isFull(b) || b.ended {
			in = nil
		} else if !b.due {
			out = nil
		}
		// What is there already goes along.
		var item feedItem
		var more bool
		select {
		case item, more = <-in:
		default:
			select {
			case item, more = <-in:
			case out <- b:
				return b.ended && !r.rep.Continuous, nil
			case <-timer:
				b.due = true
				continue
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
		if !more {
			return true, nil
		}
		r.add(b, item)
		if timer == nil && !b.due {
			t := time.NewTimer(linger)
			defer t.Stop()
			timer = t.C
		}
	}
}

// add adds an item of the feed to a batch.
func (r *run) add(b *batch, item feedItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if item.end {
		b.due, b.ended = true, true
	} else {
		b.rows = append(b.rows, item.row)
		b.size += rowSize(item.row)
		item.seq = item.row.Seq
		b.due = b.due || item.live || r.isFull(b)
		r.row = time.Now()
		if r.rowsRead == r.rowsPassed {
			r.busy = r.row
		}
		r.rowsRead++
		if r.left != nil && !r.filtered {
			*r.left = max(0, *r.left-1)
		}
	}
	if item.seq != nil {
		b.seq, r.read = item.seq, item.seq
	}
}

// isFull reports whether a batch takes no more rows.
func (r *run) isFull(b *batch) bool { return len(b.rows) >= r.batchSize || b.size >= maxBatch }

// rowSize is about how many bytes of memory a row takes.
func rowSize(row couch.Row) int {
	const words = 8 // of 64 bits: the row's own
	size := 8*words + len(row.Seq) + len(row.ID)
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
		<-r.room
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
