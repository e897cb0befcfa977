package optimistic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"settee/pkg/kv"
)

// versionKey holds the version of the last commit, 8 bytes big-endian. It lies
// in the engine's part of the key space.
const versionKey = "\xff\xff/version"

// Options of a DB.
type Options struct {
	// MaxWatches is how many watches may be armed; 0 is kv.DefaultMaxWatches.
	MaxWatches int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Inline commits in the goroutine of a caller instead of one started for
	// it: for storage that never waits.
	Inline bool
}

// DB is a kv.Database over a Storage.
type DB struct {
	storage Storage
	now     func() time.Time
	inline  bool
	watches watches
	commits committer

	viewMu sync.Mutex
	view   *view // the published one

	runMu   sync.RWMutex // held for reading by each Transact
	closed  bool
	running sync.WaitGroup
}

// view is a published snapshot and its version.
type view struct {
	version  int64
	snapshot Snapshot
	readers  int // with the one of being published; under viewMu
}

// Open returns a database over storage, which it owns from then on.
func Open(storage Storage, opts Options) (*DB, error) {
	if opts.MaxWatches == 0 {
		opts.MaxWatches = kv.DefaultMaxWatches
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	snapshot := storage.Snapshot()
	raw, err := snapshot.Get([]byte(versionKey))
	if err == nil && raw != nil && len(raw) != 8 {
		err = fmt.Errorf("the version of the last commit has %d bytes, not 8", len(raw))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store: %w", err), snapshot.Close(), storage.Close())
	}
	version := int64(0)
	if raw != nil {
		version = int64(binary.BigEndian.Uint64(raw))
	}
	db := &DB{storage: storage, now: opts.Now, inline: opts.Inline}
	db.watches.max = opts.MaxWatches
	db.view = &view{version: version, snapshot: snapshot, readers: 1}
	db.commits.history.floor = version
	return db, nil
}

// Transact implements kv.Database.
func (db *DB) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if !db.enter() {
		return kv.ErrClosed
	}
	defer db.running.Done()
	return kv.Retry(ctx, func() error { return db.attempt(ctx, fn) })
}

// enter counts a running transaction, unless the database is closed.
func (db *DB) enter() bool {
	db.runMu.RLock()
	defer db.runMu.RUnlock()
	if db.closed {
		return false
	}
	db.running.Add(1)
	return true
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
				w.finish(kv.ErrWatchCancelled)
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

// finish ends the use of the transaction and returns what is to be committed,
// nil when it wrote nothing.
func (tx *transaction) finish() (*commit, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	switch {
	case tx.failed != nil:
		return nil, tx.failed
	case tx.size > kv.MaxTransactionSize:
		return nil, kv.ErrTransactionTooLarge
	case tx.writes.empty():
		return nil, nil
	}
	tx.commit = &commit{
		reads: tx.reads,
		log:   tx.writes.log, conflicts: tx.writes.conflicts,
		start: tx.start,
		size:  tx.size,
		done:  make(chan struct{}),
	}
	if tx.view != nil {
		tx.commit.readVersion = tx.view.version
	}
	return tx.commit, nil
}

// Close implements kv.Database.
func (db *DB) Close() error {
	db.runMu.Lock()
	wasClosed := db.closed
	db.closed = true
	db.runMu.Unlock()
	if wasClosed {
		return kv.ErrClosed
	}
	db.running.Wait()
	db.watches.close()
	return errors.Join(db.view.snapshot.Close(), db.storage.Close())
}

// acquireView returns the published view; releaseView gives it back.
func (db *DB) acquireView() *view {
	db.viewMu.Lock()
	defer db.viewMu.Unlock()
	db.view.readers++
	return db.view
}

func (db *DB) releaseView(v *view) {
	db.viewMu.Lock()
	v.readers--
	last := v.readers == 0
	db.viewMu.Unlock()
	if last {
		// A snapshot only pins what it shows: an error of its end is nobody's.
		_ = v.snapshot.Close()
	}
}

// publish makes the storage's present state what new transactions see.
func (db *DB) publish(version int64) {
	next := &view{version: version, snapshot: db.storage.Snapshot(), readers: 1}
	db.viewMu.Lock()
	old := db.view
	db.view = next
	db.viewMu.Unlock()
	db.releaseView(old)
}
