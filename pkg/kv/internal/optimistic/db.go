package optimistic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// versionKey has the version of the last commit, 8 bytes big-endian. It is one of the engine's own keys.
const versionKey = "\xff\xff/version"

// metadataKey has the metadata version, 10 bytes. It does not exist before the first change. It is one of the engine's
// own keys.
const metadataKey = "\xff\xff/metadataVersion"

var metadataSpan = pointSpan([]byte(metadataKey))

// Options of a DB.
type Options struct {
	kv.Options
	// MaxWatches is the maximum number of armed watches. 0 is kv.DefaultMaxWatches.
	MaxWatches int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Pause is the Pause of kv.Retrier.
	Pause func(ctx context.Context, most time.Duration)
	// Inline commits in the caller's goroutine instead of a new one. It is for storage that never waits.
	Inline bool
}

// DB is a kv.Database over a Storage.
type DB struct {
	storage Storage
	now     func() time.Time
	retrier kv.Retrier
	inline  bool
	watches watches
	commits committer
	views
	gate engine.Gate
}

// Open returns a database over storage, which then belongs to the database.
func Open(storage Storage, opts Options) (*DB, error) {
	if opts.MaxWatches == 0 {
		opts.MaxWatches = kv.DefaultMaxWatches
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	snapshot := storage.Snapshot()
	version, err := readVersion(snapshot)
	var metadata kv.Versionstamp
	if err == nil {
		metadata, err = readMetadataVersion(snapshot)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store: %w", err), snapshot.Close(), storage.Close())
	}
	db := &DB{storage: storage, now: opts.Now, retrier: kv.Retrier{Pause: opts.Pause, Options: opts.Options}, inline: opts.Inline}
	db.watches.max = opts.MaxWatches
	db.view = newView(version, metadata, snapshot)
	db.commits.history.floor = version
	return db, nil
}

// readVersion returns the version of the last commit, 0 if there was none.
func readVersion(r Reader) (int64, error) {
	raw, err := r.Get([]byte(versionKey))
	if err == nil && raw != nil && len(raw) != 8 {
		err = fmt.Errorf("the version of the last commit has %d bytes, not 8", len(raw))
	}
	if err != nil || raw == nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(raw)), nil
}

// readMetadataVersion returns the metadata version, the zero value if it was never changed.
func readMetadataVersion(r Reader) (version kv.Versionstamp, err error) {
	raw, err := r.Get([]byte(metadataKey))
	if err == nil && raw != nil && len(raw) != len(version) {
		err = fmt.Errorf("the metadata version has %d bytes, not %d", len(raw), len(version))
	}
	copy(version[:], raw)
	return version, err
}

// Transact implements kv.Database.
func (db *DB) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if !db.gate.Enter() {
		return kv.ErrClosed
	}
	defer db.gate.Leave()
	return db.retrier.Retry(ctx, func() error { return db.attempt(ctx, fn) })
}

// attempt runs fn once and commits.
func (db *DB) attempt(ctx context.Context, fn func(kv.Transaction) error) (err error) {
	tx := &transaction{db: db}
	committed := false
	defer func() {
		tx.end()
		for _, w := range tx.armed {
			if committed {
				db.arm(w)
			} else {
				w.Finish(kv.ErrWatchCancelled)
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	c, err := tx.finish()
	if err != nil {
		return err
	}
	if c != nil {
		if err := db.submit(ctx, c); err != nil {
			return err
		}
	}
	committed = true
	return nil
}

// Close implements kv.Database.
func (db *DB) Close() error {
	if !db.gate.Close() {
		return kv.ErrClosed
	}
	db.commits.working.Wait()
	db.watches.close()
	db.stopExpiry()
	return errors.Join(db.view.snapshot.Close(), db.storage.Close())
}

// Raise raises the version of a storage that is not open, so that the versions in between are never used.
func Raise(storage Storage, by int64) error {
	snapshot := storage.Snapshot()
	version, err := readVersion(snapshot)
	if err = errors.Join(err, snapshot.Close()); err != nil {
		return err
	}
	batch := storage.NewBatch()
	defer batch.Close()
	if err := batch.Set([]byte(versionKey), binary.BigEndian.AppendUint64(nil, uint64(version+by))); err != nil {
		return err
	}
	return batch.Apply()
}
