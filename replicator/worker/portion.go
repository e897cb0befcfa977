package worker

import (
	"context"
	"sync"

	"settee/pkg/couch"
)

// maxPortion is the size in bytes of the largest _bulk_docs of more than one document. Up to a megabyte a
// request is sent without asking the server first.
const maxPortion = 1<<20 - 4<<10

// minPortion is the size in bytes of the memory that a portion begins with.
const minPortion = 4 << 10

// portion is what one _bulk_docs writes.
type portion struct {
	docs  []couch.Document
	size  int    // of the request, but for what is always the same
	bytes []byte // where the documents' bodies are copied to; full ones before are held by the documents
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

// free lets the memory be used for another portion.
func (p *portion) free() {
	clear(p.docs)
	p.docs, p.bytes, p.size = p.docs[:0], p.bytes[:0], 0
	portions.Put(p)
}

// writer gathers the documents of a batch into portions, and writes these while more is read. It is safe
// for concurrent use.
type writer struct {
	r      *run
	ctx    context.Context // of the writes
	fail   func(error)     // what is told if one fails
	writes sync.WaitGroup

	mu      sync.Mutex
	portion *portion // nil for an empty one
}

// add takes a copy of a document, and begins to write a portion if there is one. It waits while as many
// are being written as may be.
func (w *writer) add(ctx context.Context, doc couch.Document) error {
	if len(doc.Body) > maxPortion {
		return w.writeAlone(ctx, doc)
	}
	return w.write(ctx, w.push(doc))
}

// writeAlone writes a large document where it lies. It does not wait for others, and is not in memory longer
// than the call: its room is another's then.
func (w *writer) writeAlone(ctx context.Context, doc couch.Document) error {
	release, err := w.r.steps.write.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	return w.r.write(w.ctx, []couch.Document{doc})
}

// push takes a document, and returns a portion that is to be written, or nil.
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

// flush begins to write what is left.
func (w *writer) flush(ctx context.Context) error {
	w.mu.Lock()
	p := w.portion
	w.portion = nil
	w.mu.Unlock()
	return w.write(ctx, p)
}

// write begins to write a portion, as soon as that may be.
func (w *writer) write(ctx context.Context, p *portion) error {
	if p == nil {
		return nil
	}
	release, err := w.r.steps.write.enter(ctx)
	if err != nil {
		return err
	}
	w.writes.Go(func() {
		defer release()
		defer p.free()
		if err := w.r.write(w.ctx, p.docs); err != nil {
			w.fail(err)
		}
	})
	return nil
}
