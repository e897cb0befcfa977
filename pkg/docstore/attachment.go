package docstore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// AttachmentReader reads the stored bytes of an attachment. It implements [io.ReadSeeker] and needs no closing. One
// goroutine may use it at a time.
type AttachmentReader struct{ chunksReader }

// chunksReader reads what is stored in chunks, in pieces.
type chunksReader struct {
	ctx    context.Context
	db     *Database
	id     string // of the document
	what   string // for errors
	space  tuple.Subspace
	length int64 // in bytes
	most   int64 // chunks that one transaction reads
	at     int64
	piece  []byte // read and not yet returned; it begins at at
}

// ReadAttachment returns a reader for the content of an attachment of a revision of the document. The call reads
// nothing. The reader reads up to one megabyte at a time, each in a transaction of its own, with ctx. A read returns
// [ErrNotFound] if no revision refers to the content any longer, and [ErrDatabaseNotFound] if the database was deleted.
func (db *Database) ReadAttachment(ctx context.Context, id string, a Attachment) *AttachmentReader {
	return &AttachmentReader{chunksReader{
		ctx: ctx, db: db, id: id, what: "attachment " + quote(a.Name), space: db.keys.chunks.Sub(id, a.key[:]),
		length: a.StoredLength, most: chunksAtOnce,
	}}
}

// bodyChunksAtOnce is the number of chunks of a large body that one transaction reads, and that are in memory.
const bodyChunksAtOnce = 3

// ReadBody returns a reader for the body of a document that was read without it. The call reads nothing. The reader reads
// up to 270,000 bytes at a time, each time in a transaction of its own, with ctx. A read returns [ErrNotFound] if the
// revision is no longer a leaf, and [ErrDatabaseNotFound] if the database was deleted.
func (db *Database) ReadBody(ctx context.Context, doc *Document) io.Reader {
	return &chunksReader{
		ctx: ctx, db: db, id: doc.ID, what: "revision " + doc.Rev.String(), space: db.keys.body(doc.ID, doc.Rev),
		length: doc.Size, most: bodyChunksAtOnce,
	}
}

// Read implements [io.Reader].
func (r *chunksReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.at >= r.length {
		return 0, io.EOF
	}
	if len(r.piece) == 0 {
		if err := r.fetch(); err != nil {
			return 0, inDocument(r.id, fmt.Errorf("%s: %w", r.what, err))
		}
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	r.at += int64(n)
	return n, nil
}

// fetch reads the piece at r.at.
func (r *chunksReader) fetch() error {
	first := r.at / rows.ChunkSize
	last := min(first+r.most, (r.length+rows.ChunkSize-1)/rows.ChunkSize) // exclusive
	piece, err := read(r.ctx, r.db, func(tx kv.ReadTransaction) kv.Future[[]byte] {
		chunks := tx.GetRange(kv.KeyRange{Begin: r.space.Pack(first), End: r.space.Pack(last)}, kv.RangeOptions{})
		return kv.Func[[]byte](func() ([]byte, error) { return rows.JoinChunks(chunks) })
	})
	if err != nil {
		return err
	}
	if int64(len(piece)) != min(last*rows.ChunkSize, r.length)-first*rows.ChunkSize {
		return ErrNotFound // a content is stored in full or not at all
	}
	r.piece = piece[r.at-first*rows.ChunkSize:]
	return nil
}

// Seek implements [io.Seeker].
func (r *AttachmentReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.length
	}
	if offset < 0 {
		return 0, errors.New("docstore: seeking before the beginning of an attachment")
	}
	r.at, r.piece = offset, nil
	return offset, nil
}
