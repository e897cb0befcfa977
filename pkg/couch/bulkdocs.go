package couch

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// BulkDocs writes revisions as they are (new_edits=false) and returns those that the server refused,
// with its reasons, in the order of its answer; none if it took all. The documents' bodies are sent as
// they are and must not change before BulkDocs returns. Their attachments are not sent: of a document
// that has any, PutMultipart writes them.
//
// [ErrTooLarge] says that the whole was too much for the server: write it in smaller portions. CouchDB
// says so, too, of a single document.
func (d *Database) BulkDocs(ctx context.Context, docs []Document) ([]DocError, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	var refused []DocError
	err := d.post(ctx, "_bulk_docs", &docsBody{docs: docs}, func(p *response) (err error) {
		refused, err = readRefused(p)
		hidden := p.hidden()
		for i := range refused {
			refused[i] = *refused[i].redacted(hidden)
		}
		return err
	})
	nameRevisions(refused, docs)
	return refused, err
}

// readRefused reads [{"id": ..., "rev": ..., "error": ..., "reason": ...}, ...]. CouchDB lists what it
// refused only; others list all, with "ok" or just an id and a revision for what they took.
func readRefused(r io.Reader) ([]DocError, error) {
	j := newJSONReader(&bounded{r: r, left: maxWriteBody}, bulkWindow)
	defer j.free()
	err := j.open('[')
	var refused []DocError
	for err == nil {
		var more bool
		var raw []byte
		if more, err = j.element(); err == nil && !more {
			return refused, nil
		}
		if err == nil {
			raw, err = j.value(maxInfo)
		}
		if err == nil && !isObject(raw) {
			err = fmt.Errorf("%w: a row that is not an object", ErrMalformed)
		}
		if err == nil {
			if e, ok := docError(raw); ok {
				refused = append(refused, *e)
			}
		}
	}
	return nil, fmt.Errorf("reading the answer to a bulk write: %w", err)
}

// docsBody is the body of a _bulk_docs, made of the documents while it is sent.
type docsBody struct {
	docs []Document

	mu     sync.Mutex // held by a Read: what comes after done does not touch the documents
	closed bool
	next   int    // the piece to come: what comes before the documents, each of them, and what comes after
	piece  []byte // what is left of the last one
	comma  bool   // is to come before piece
}

const (
	beforeDocs = `{"new_edits":false,"docs":[`
	afterDocs  = `]}`
)

func (b *docsBody) open() (io.Reader, int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.next, b.piece, b.comma = false, 0, nil, false
	length := len(beforeDocs) + len(b.docs) - 1 + len(afterDocs)
	for _, doc := range b.docs {
		length += len(doc.Body)
	}
	return b, int64(length)
}

func (b *docsBody) again() bool { return true }

func (b *docsBody) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *docsBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(p) {
		if len(b.piece) == 0 && !b.advance() {
			if n == 0 {
				return 0, io.EOF
			}
			break
		}
		if b.closed {
			return 0, errExchangeOver
		}
		if b.comma {
			p[n], b.comma = ',', false
			n++
			continue
		}
		copied := copy(p[n:], b.piece)
		n += copied
		b.piece = b.piece[copied:]
	}
	return n, nil
}

// advance begins the next piece, and returns false after the last.
func (b *docsBody) advance() bool {
	switch last := len(b.docs) + 1; {
	case b.next > last:
		return false
	case b.next == 0:
		b.piece = []byte(beforeDocs)
	case b.next == last:
		b.piece = []byte(afterDocs)
	default:
		b.piece, b.comma = b.docs[b.next-1].Body, b.next > 1
	}
	b.next++
	return true
}

// nameRevisions fills in the revisions that a server did not repeat, where the id tells them.
func nameRevisions(refused []DocError, docs []Document) {
	for i := range refused {
		if refused[i].Rev != "" {
			continue
		}
		named := 0
		rev := ""
		for _, doc := range docs {
			if doc.ID == refused[i].ID {
				named++
				rev = doc.Rev
			}
		}
		if named == 1 {
			refused[i].Rev = rev
		}
	}
}
