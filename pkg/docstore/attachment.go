package docstore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// AttachmentReader reads the stored bytes of an attachment. It implements [io.ReadSeeker]
// and needs not be closed. One goroutine may use it at a time.
type AttachmentReader struct {
	ctx   context.Context
	db    *Database
	id    string
	of    Attachment
	space tuple.Subspace
	at    int64
	piece []byte // what was read and not yet handed out; it begins at at
}

// ReadAttachment returns a reader of the content of an attachment that a revision of the
// document has. It reads nothing yet, and later one megabyte at a time, each in a
// transaction of its own. A read is [ErrNotFound] if the last revision that refers to the
// content was replaced, and [ErrDatabaseNotFound] if the database was deleted. ctx is that
// of all reads.
func (db *Database) ReadAttachment(ctx context.Context, id string, a Attachment) *AttachmentReader {
	return &AttachmentReader{ctx: ctx, db: db, id: id, of: a, space: db.keys.chunks.Sub(id, a.key[:])}
}

// Read implements [io.Reader].
func (r *AttachmentReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.at >= r.of.StoredLength {
		return 0, io.EOF
	}
	if len(r.piece) == 0 {
		if err := r.fetch(); err != nil {
			return 0, inDocument(r.id, fmt.Errorf("attachment %s: %w", quote(r.of.Name), err))
		}
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	r.at += int64(n)
	return n, nil
}

// fetch reads the piece at r.at.
func (r *AttachmentReader) fetch() error {
	first := r.at / chunkSize
	last := min(first+chunksAtOnce, (r.of.StoredLength+chunkSize-1)/chunkSize) // exclusive
	piece, err := kv.TransactValue(r.ctx, r.db.store.kv, func(tx kv.Transaction) ([]byte, error) {
		snap := tx.Snapshot()
		exists := r.db.exists(snap)
		chunks := snap.GetRange(kv.KeyRange{Begin: r.space.Pack(first), End: r.space.Pack(last)},
			kv.RangeOptions{Mode: kv.StreamWantAll})
		if err := exists.await(); err != nil {
			return nil, err
		}
		return joinChunks(chunks)
	})
	if err != nil {
		return err
	}
	if int64(len(piece)) != min(last*chunkSize, r.of.StoredLength)-first*chunkSize {
		return ErrNotFound // all of it is there, or nothing
	}
	r.piece = piece[r.at-first*chunkSize:]
	return nil
}

// Seek implements [io.Seeker].
func (r *AttachmentReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.of.StoredLength
	}
	if offset < 0 {
		return 0, errors.New("docstore: seeking before the beginning of an attachment")
	}
	r.at, r.piece = offset, nil
	return offset, nil
}
