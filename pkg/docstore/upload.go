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
)

const (
	// chunksAtOnce is how many chunks of an attachment one transaction writes or reads, and
	// how many are in memory.
	chunksAtOnce = 10
	// UploadLife is how long an upload is kept that no revision refers to: since its last
	// bytes arrived, or up to uploadRestamp less.
	UploadLife = time.Hour
	// uploadRestamp is how old the row of an upload grows while bytes arrive.
	uploadRestamp = 5 * time.Minute
	// cleanupTimeout is how long it is tried to remove an upload that failed.
	cleanupTimeout = 5 * time.Second
)

// Upload is the content of an attachment that was stored, for a revision to refer to. One
// that no revision refers to within [UploadLife] is removed by upkeep.
type Upload struct {
	db         *Database
	id         string
	stamp      int64 // seconds since the epoch, of its row in uploads
	attachment Attachment
}

// Length returns how many bytes were stored.
func (u *Upload) Length() int64 { return u.attachment.StoredLength }

// Digest returns md5- and the MD5 of the stored bytes in base64.
func (u *Upload) Digest() string { return u.attachment.Digest() }

// UploadOptions are the options of [Database.Upload]. The zero value works.
type UploadOptions struct {
	// Digest, if not empty, is that of the bytes to be stored: md5- and the MD5 in base64.
	Digest string
	// Length, if positive, is how many they are.
	Length int64
	// MaxLength, if positive, is how many they may be.
	MaxLength int64
	// Encoding is the content coding in which the content arrives and is kept, such as
	// gzip; empty is none.
	Encoding string
	// DecodedLength is the length of content that has an Encoding without it, if known.
	DecodedLength int64
}

// Upload stores content for an attachment of a document, which need not exist yet. It takes
// many transactions for much content and one megabyte of memory, and holds no transaction
// open while it reads.
//
// The errors are [ErrDigest] for content that is not what opts announce, [ErrTooLarge],
// [ErrDocumentID], [ErrDatabaseNotFound], [ErrMissingStub] if the bytes came so slowly that
// the upload was given up, and that of content. Nothing is left of an upload that failed
// but, if the store failed too, what upkeep removes.
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
		// What cannot be removed here is upkeep's. That whoever uploads has gone, as ctx says
		// then, is no reason to leave it.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return nil, inDocument(id, fmt.Errorf("storing an attachment: %w", errors.Join(err, db.Discard(cleanup, u.Upload))))
	}
	return u.Upload, nil
}

// Discard removes an upload that no revision refers to, and that none will.
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

// row is the upload's key in uploads.
func (u *Upload) row() []byte {
	return u.db.store.keys.uploads.Pack(u.stamp, u.db.instance, u.id, u.attachment.key[:])
}

func (u *Upload) remove(tx kv.Transaction) {
	tx.Clear(u.row())
	tx.ClearRange(keyRange(u.db.keys.chunks.Sub(u.id, u.attachment.key[:])))
}

// uploading is an upload that is under way.
type uploading struct {
	*Upload
	content io.Reader
	opts    UploadOptions
	digest  hash.Hash
	chunks  int64 // that were written
	begun   bool  // the row is there
}

func (u *uploading) run(ctx context.Context) error {
	// Most attachments are small: the first piece is one chunk.
	piece := make([]byte, chunkSize)
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
		if len(piece) == chunkSize {
			piece = make([]byte, chunksAtOnce*chunkSize)
		}
	}
}

// take counts and digests what has arrived, and checks it at the end.
func (u *uploading) take(piece []byte, last bool) error {
	a := &u.attachment
	a.StoredLength += int64(len(piece))
	_, _ = u.digest.Write(piece) // never fails (hash.Hash)
	if most := u.opts.MaxLength; most > 0 && a.StoredLength > most {
		return fmt.Errorf("%w: an attachment of more than %d bytes", ErrTooLarge, most)
	}
	if want := u.opts.Length; want > 0 && (a.StoredLength > want || last && a.StoredLength < want) {
		return fmt.Errorf("%w: it has not %d bytes", ErrDigest, want)
	}
	if !last {
		return nil
	}
	a.MD5 = [16]byte(u.digest.Sum(nil))
	if want := u.opts.Digest; want != "" && want != a.Digest() {
		return fmt.Errorf("%w: its digest is %s, and not %s", ErrDigest, a.Digest(), quote(want))
	}
	a.Length = a.StoredLength
	if a.Encoding != "" {
		a.Length = u.opts.DecodedLength
	}
	return nil
}

// write writes a piece in one transaction, unless upkeep has given the upload up meanwhile:
// both read the row with a conflict.
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
			there, err = restamped.Await() // by an earlier run of this
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
			size := min(len(rest), chunkSize)
			tx.Set(space.Pack(n), rest[:size])
			rest = rest[size:]
		}
		return nil
	})
	u.begun = true
	u.chunks += int64((len(piece) + chunkSize - 1) / chunkSize)
	return err
}
