package worker

import (
	"context"
	"sync"

	"settee/pkg/couch"
)

// maxPortion is the maximum size in bytes of a _bulk_docs request of several documents. Requests of up to a megabyte
// are sent without Expect: 100-continue.
const maxPortion = 1<<20 - 4<<10

// minPortion is the size in bytes of a portion's first buffer.
const minPortion = 4 << 10

// portion has the documents of one _bulk_docs request.
type portion struct {
	docs  []couch.Document
	size  int    // bytes of the request, without its frame
	bytes []byte // buffer for bodies; the documents keep earlier, full buffers
}

var portions = sync.Pool{New: func() any { return new(portion) }}

// add adds a copy of a document.
func (p *portion) add(doc couch.Document) {
	start := len(p.bytes)
	if start+len(doc.Body) > cap(p.bytes) {
		start = 0
		p.bytes = make([]byte, 0, max(len(doc.Body), minPortion, min(2*cap(p.bytes), maxPortion-p.size)))
	}
	p.bytes = append(p.bytes, doc.Body...)
	doc.Body = p.bytes[start:len(p.bytes):len(p.bytes)]
	p.docs = append(p.docs, doc)
	p.size += len(doc.Body) + 1
}

// free returns the portion to the pool.
func (p *portion) free() {
	clear(p.docs)
	p.docs, p.bytes, p.size = p.docs[:0], p.bytes[:0], 0
	portions.Put(p)
}

// writer gathers the documents of a batch into portions, and writes them while more documents are read. It is safe for
// concurrent use.
type writer struct {
	r      *run
	ctx    context.Context // of the writes
	fail   func(error)     // called when a write fails
	writes sync.WaitGroup
	adding step // in which one goroutine adds a document, and waits for room to write a portion: the others wait, too

	mu      sync.Mutex
	portion *portion // nil if empty
}

// add copies a document and begins to write a portion when it is full. It blocks while the write step is full.
func (w *writer) add(ctx context.Context, doc couch.Document) error {
	if len(doc.Body) > maxPortion {
		return w.writeAlone(ctx, doc)
	}
	leave, err := w.adding.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return w.write(ctx, w.push(doc))
}

// writeAlone writes a large document without copying it. It returns when the document is no longer needed, so that the
// caller can give up its room.
func (w *writer) writeAlone(ctx context.Context, doc couch.Document) error {
	release, err := w.r.steps.write.enter(ctx, len(doc.Body), maxPortion)
	if err != nil {
		return err
	}
	defer release()
	return w.r.write(w.ctx, []couch.Document{doc}, w)
}

// push adds a document, and returns a portion that is ready to be written, or nil.
func (w *writer) push(doc couch.Document) *portion {
	w.mu.Lock()
	defer w.mu.Unlock()
	var full *portion
	if p := w.portion; p != nil && (p.size+len(doc.Body) > w.r.writing.limit() || len(p.docs) >= w.r.batchSize) {
		full, w.portion = p, nil
	}
	if w.portion == nil {
		w.portion = portions.Get().(*portion)
	}
	w.portion.add(doc)
	return full
}

// flush begins to write the last portion.
func (w *writer) flush(ctx context.Context) error {
	w.mu.Lock()
	p := w.portion
	w.portion = nil
	w.mu.Unlock()
	return w.write(ctx, p)
}

// write begins to write a portion as soon as the write step has room.
func (w *writer) write(ctx context.Context, p *portion) error {
	if p == nil {
		return nil
	}
	release, err := w.r.steps.write.enter(ctx, p.size, w.r.writing.limit())
	if err != nil {
		return err
	}
	w.writes.Go(func() {
		defer release()
		defer p.free()
		if err := w.r.write(w.ctx, p.docs, w); err != nil {
			w.fail(err)
		}
	})
	return nil
}
