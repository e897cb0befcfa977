package docstore

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

const (
	// chunksAtOnce is the number of chunks of an attachment that one transaction writes or reads, and that are in
	// memory.
	chunksAtOnce = 10
	// UploadLife is how long an upload without a revision is kept after its last bytes arrived. It may be up to
	// uploadRestamp shorter.
	UploadLife = time.Hour
	// uploadRestamp is the age at which the row of an upload is renewed while bytes arrive.
	uploadRestamp = 5 * time.Minute
	// cleanupTimeout is the time limit for removing a failed upload.
	cleanupTimeout = 5 * time.Second
)

// Upload is the stored content of an attachment, for a revision to refer to. If no revision refers to it within
// [UploadLife], [Store.RemoveUploads] removes it.
type Upload struct {
	db         *Database
	id         string
	stamp      int64 // seconds since the epoch, of its row in uploads
	attachment Attachment
}

// Length returns the number of stored bytes.
func (u *Upload) Length() int64 { return u.attachment.StoredLength }

// Digest returns the digest of the stored bytes: md5- and the MD5 in base64.
func (u *Upload) Digest() string { return u.attachment.Digest() }

// UploadOptions are the options of [Database.Upload]. The zero value works.
type UploadOptions struct {
	// Digest, if not empty, is the expected digest of the stored bytes: md5- and the MD5 in base64.
	Digest string
	// MaxLength, if positive, is the maximum number of stored bytes.
	MaxLength int64
	// Encoding is the content coding of the content, such as gzip. The content is stored in it. Empty is none.
	Encoding string
	// DecodedLength is the length of the content in bytes without its Encoding. nil means that it is not known.
	DecodedLength *int64
}

// Upload stores content for an attachment of a document, which need not exist yet. It uses one transaction for each
// megabyte, and one megabyte of memory. No transaction is open while it reads.
//
// The errors are [ErrDigest] if the content is not as opts announce, [ErrTooLarge], [ErrDocumentID],
// [ErrDatabaseNotFound], [ErrMissingStub] if the bytes came so slowly that [Store.RemoveUploads] removed the upload,
// and the errors of content. A failed upload leaves nothing in the store. If the store failed too, RemoveUploads
// removes what is left.
func (db *Database) Upload(ctx context.Context, id string, content io.Reader, opts UploadOptions) (*Upload, error) {
	if err := checkID(id); err != nil {
		return nil, inDocument(id, err)
	}
	u := &uploading{
		Upload:  &Upload{db: db, id: id, stamp: time.Now().Unix(), attachment: Attachment{Encoding: opts.Encoding}},
		content: content, opts: opts, digest: md5.New(),
	}
	_, _ = rand.Read(u.attachment.key[:]) // never fails (crypto/rand.Read)
	if err := u.run(ctx); err != nil {
		// ctx may have ended because the client is gone. If removing the rows fails, RemoveUploads removes them later.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return nil, inDocument(id, fmt.Errorf("storing an attachment: %w", errors.Join(err, db.Discard(cleanup, u.Upload))))
	}
	return u.Upload, nil
}

// Discard removes an upload that no revision refers to or will refer to.
func (db *Database) Discard(ctx context.Context, u *Upload) error {
	return db.store.kv.Transact(ctx, func(tx kv.Transaction) error {
		row, err := tx.Get(u.row()).Await()
		if err != nil || row == nil {
			return err
		}
		u.remove(tx)
		return nil
	})
}

// row returns the upload's key in uploads.
func (u *Upload) row() []byte {
	return u.db.store.keys.uploads.Pack(u.stamp, u.db.instance, u.id, u.attachment.key[:])
}

func (u *Upload) remove(tx kv.Transaction) {
	tx.Clear(u.row())
	tx.ClearRange(rows.Range(u.db.keys.chunks.Sub(u.id, u.attachment.key[:])))
}

// uploading is an upload in progress.
type uploading struct {
	*Upload
	content io.Reader
	opts    UploadOptions
	digest  hash.Hash
	chunks  int64 // number of chunks written
	begun   bool  // the row was written
}

func (u *uploading) run(ctx context.Context) error {
	// Most attachments are small: the first piece is one chunk.
	piece := make([]byte, rows.ChunkSize)
	for {
		n, err := io.ReadFull(u.content, piece)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return err
		}
		if err := u.take(piece[:n], last); err != nil {
			return err
		}
		if err := u.write(ctx, piece[:n]); err != nil {
			return err
		}
		if last {
			return nil
		}
		if len(piece) == rows.ChunkSize {
			piece = make([]byte, chunksAtOnce*rows.ChunkSize)
		}
	}
}

// take counts and digests a piece, and checks the totals after the last one.
func (u *uploading) take(piece []byte, last bool) error {
	a := &u.attachment
	a.StoredLength += int64(len(piece))
	_, _ = u.digest.Write(piece) // never fails (hash.Hash)
	if most := u.opts.MaxLength; most > 0 && a.StoredLength > most {
		return fmt.Errorf("%w: an attachment of more than %d bytes", ErrTooLarge, most)
	}
	if !last {
		return nil
	}
	a.MD5 = [16]byte(u.digest.Sum(nil))
	if want := u.opts.Digest; want != "" && want != a.Digest() {
		return fmt.Errorf("%w: its digest is %s, and not %s", ErrDigest, a.Digest(), quote(want))
	}
	a.Length = a.StoredLength
	if decoded := u.opts.DecodedLength; a.Encoding != "" && decoded != nil {
		a.Length = *decoded
	}
	return nil
}

// write writes a piece in one transaction, unless RemoveUploads has removed the upload. Both read its row with a
// conflict.
func (u *uploading) write(ctx context.Context, piece []byte) error {
	before, after := u.row(), u.row()
	if now := time.Now().Unix(); now-u.stamp >= int64(uploadRestamp.Seconds()) {
		u.stamp = now
		after = u.row()
	}
	space := u.db.keys.chunks.Sub(u.id, u.attachment.key[:])
	err := u.db.store.kv.Transact(ctx, func(tx kv.Transaction) error {
		exists, old, restamped := u.db.exists(tx), tx.Get(before), tx.Get(after)
		if err := exists.await(); err != nil {
			return err
		}
		there, err := old.Await()
		if err == nil && there == nil {
			there, err = restamped.Await() // written by an earlier run of this function
		}
		if err != nil {
			return err
		}
		if there == nil && u.begun {
			return fmt.Errorf("%w: the upload was given up", ErrMissingStub)
		}
		tx.Clear(before)
		tx.Set(after, nil)
		for n, rest := u.chunks, piece; len(rest) > 0; n++ {
			size := min(len(rest), rows.ChunkSize)
			tx.Set(space.Pack(n), rest[:size])
			rest = rest[size:]
		}
		return nil
	})
	u.begun = true
	u.chunks += int64((len(piece) + rows.ChunkSize - 1) / rows.ChunkSize)
	return err
}
