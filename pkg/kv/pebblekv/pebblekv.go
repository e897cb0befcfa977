// Package pebblekv is the kv engine for one node: it keeps the data on disk in
// Pebble. Its scheme is pebble, and the rest of the URL is a directory:
// pebble:///var/lib/settee, or pebble:data for one below the working directory.
//
// A commit is acknowledged when Pebble's log is synced; commits that wait at
// the same time share a sync. One process owns the directory. On disk each pair
// is a pair of Pebble's, its key behind one byte, keyPrefix, because Pebble does
// not like keys of no bytes; keys from \xff on are the engine's (package
// optimistic).
//
// When the disk refuses a write (it is full, or broken), the commit that met it
// and all later ones fail with that error, kv.Writable says so, and the store stays readable. Nothing
// more is written until the store is opened again, with every acknowledged
// commit in it; a commit that failed may be there too, but whole.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/optimistic"
)

func init() {
	kv.Register("pebble", func(_ context.Context, u *url.URL) (kv.Database, error) {
		dir := u.Path
		if u.Opaque != "" {
			dir = u.Opaque
		}
		switch {
		case u.Host != "" && u.Host != "localhost":
			return nil, fmt.Errorf("store %q: the directory follows three slashes, as in pebble:///var/lib/settee", u)
		case u.RawQuery != "":
			return nil, fmt.Errorf("store %q: an embedded store has no parameters", u)
		case dir == "":
			return nil, fmt.Errorf("store %q names no directory", u)
		}
		return Open(dir, Options{})
	})
}

// Options of a store.
type Options struct {
	// MaxWatches is how many watches may be armed; 0 is kv.DefaultMaxWatches.
	MaxWatches int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// FS is the file system; nil is the disk.
	FS vfs.FS
	// NoSync acknowledges commits before they are durable. It is for tests that
	// show what the sync is for.
	NoSync bool

	memTableBytes int // 0 is defaultMemTableBytes
}

// Memory given to Pebble, which takes that of its tables in memory out of the cache's: a
// few of them wait to be written out, and blocks that were read are to have room too.
const (
	cacheBytes           = 256 << 20
	defaultMemTableBytes = 32 << 20
)

// bloomBits are those of each key in a table's filter: a key that is not there is
// looked for in vain in one table of a hundred.
const bloomBits = 10

// Open opens the store in dir, which is made when it is missing. A directory
// that another process has open is an error that says so.
func Open(dir string, opts Options) (kv.Database, error) {
	s, err := openStorage(dir, opts)
	if err != nil {
		return nil, err
	}
	db, err := optimistic.Open(s, optimistic.Options{MaxWatches: opts.MaxWatches, Now: opts.Now})
	if err != nil {
		return nil, err
	}
	return database{db, s.writable}, nil
}

// database is a store that says when it has stopped writing.
type database struct {
	*optimistic.DB
	writable context.Context
}

var _ kv.WriteStopper = database{}

// Writable implements kv.WriteStopper. It ends with the first write that fails, be it of a
// commit or of what Pebble does by itself.
func (db database) Writable() context.Context { return db.writable }

func openStorage(dir string, opts Options) (*storage, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.memTableBytes == 0 {
		opts.memTableBytes = defaultMemTableBytes
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	if err := opts.FS.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("store %s: %w", abs, err)
	}
	writable, stop := context.WithCancelCause(context.Background())
	fence := newFence(opts.FS, stop)
	lock, err := pebble.LockDirectory(abs, fence)
	if err != nil {
		return nil, lockError(abs, err)
	}
	s := &storage{
		lock:          lock,
		fence:         fence,
		writable:      writable,
		stop:          stop,
		sync:          &pebble.WriteOptions{Sync: !opts.NoSync},
		memTableBytes: uint64(opts.memTableBytes),
		progress:      make(chan struct{}, 1),
	}
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	s.db, err = pebble.Open(abs, s.options(cache))
	if err != nil {
		if failure := fence.Err(); failure != nil {
			err = failure // of which Pebble saw a consequence
		}
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), lock.Close())
	}
	if err := fence.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), s.Close())
	}
	return s, nil
}

// lockError says why the directory could not be locked.
func lockError(dir string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("store %s: %w", dir, err)
	}
	return fmt.Errorf("store %s: another process has it open (%w); one process owns an embedded store, "+
		"several nodes need FoundationDB (fdb://)", dir, err)
}

// options returns Pebble's options. Pebble's own limits to what waits to be
// flushed or compacted are out of reach, because it waits there for a disk that
// may have failed; batch.Apply keeps to lower ones.
func (s *storage) options(cache *pebble.Cache) *pebble.Options {
	options := &pebble.Options{
		Cache:                       cache,
		FS:                          s.fence,
		FormatMajorVersion:          pebble.FormatNewest,
		Lock:                        s.lock,
		Logger:                      logger{s.fence},
		MemTableSize:                s.memTableBytes,
		MemTableStopWritesThreshold: 64,
		L0StopWritesThreshold:       1000,
		EventListener: &pebble.EventListener{
			FlushEnd:        func(pebble.FlushInfo) { s.progressed() },
			CompactionEnd:   func(pebble.CompactionInfo) { s.progressed() },
			BackgroundError: s.backgroundError,
			// The read that meets it returns the error.
			DataCorruption: func(pebble.DataCorruptionInfo) {},
		},
	}
	options.Levels[0].FilterPolicy = bloom.FilterPolicy(bloomBits) // and so all below
	return options
}

// storage is a Pebble database.
type storage struct {
	db    *pebble.DB
	lock  *pebble.Lock
	fence *fence
	sync  *pebble.WriteOptions

	// writable ends by stop, which is given the reason.
	writable context.Context
	stop     context.CancelCauseFunc

	memTableBytes uint64
	// unchecked is how much was written since backlog was last looked at; it
	// belongs to the one who applies batches.
	unchecked uint64
	// progress has an element when a flush or a compaction has ended.
	progress chan struct{}
}

// logger hears what Pebble calls errors.
type logger struct{ fence *fence }

func (logger) Infof(string, ...any) {}

func (logger) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble: "+format+"\n", args...)
}

// Fatalf returns when writing has failed: Pebble then goes on to return the
// error, and the fence keeps what it does meanwhile off the disk. Anything else
// that Pebble calls fatal is a broken invariant.
func (l logger) Fatalf(format string, args ...any) {
	if l.fence.Err() == nil {
		panic(fmt.Sprintf("pebble: "+format, args...))
	}
}

func (s *storage) Snapshot() optimistic.Snapshot { return snapshot{s.db.NewSnapshot()} }

func (s *storage) NewBatch() optimistic.Batch { return &batch{s, s.db.NewBatch()} }

func (s *storage) Close() error {
	s.fence.release()
	err := s.db.Close()
	if s.fence.Err() != nil {
		// Every commit since has said so, and nothing else is wrong.
		err = nil
	}
	return errors.Join(err, s.lock.Close())
}

// backgroundError hears of what failed outside of commits and reads. Every
// commit after a failed write tells of that.
func (s *storage) backgroundError(err error) {
	if s.fence.Err() == nil {
		logger{s.fence}.Errorf("background error: %v", err)
	}
}

func (s *storage) progressed() {
	select {
	case s.progress <- struct{}{}:
	default:
	}
}

// How much may wait to be flushed, in tables in memory, or to be compacted.
const (
	maxMemTables = 3
	maxSublevels = 12
)

// admit waits until another batch of size bytes may be written.
func (s *storage) admit(size uint64) error {
	s.unchecked += size
	if s.unchecked < s.memTableBytes/2 {
		return s.fence.Err()
	}
	s.unchecked = 0
	for s.backlog() {
		select {
		case <-s.progress:
		case <-s.writable.Done():
		}
		if err := s.fence.Err(); err != nil {
			return err
		}
	}
	return s.fence.Err()
}

func (s *storage) backlog() bool {
	m := s.db.Metrics()
	return m.MemTable.Size > maxMemTables*s.memTableBytes || m.Levels[0].Sublevels > maxSublevels
}

// keyPrefix stands before every key on disk.
const keyPrefix = 'k'

func onDisk(key []byte) []byte {
	prefixed := make([]byte, 1+len(key))
	prefixed[0] = keyPrefix
	copy(prefixed[1:], key)
	return prefixed
}

func get(r pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := r.Get(onDisk(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	copied := append([]byte{}, value...)
	return copied, closer.Close()
}

type snapshot struct{ snap *pebble.Snapshot }

func (s snapshot) Get(key []byte) ([]byte, error) { return get(s.snap, key) }

func (s snapshot) Iterate(begin, end []byte) (optimistic.Iterator, error) {
	it, err := s.snap.NewIter(&pebble.IterOptions{LowerBound: onDisk(begin), UpperBound: onDisk(end)})
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	return iterator{it}, nil
}

func (s snapshot) Close() error { return s.snap.Close() }

// iterator is a Pebble iterator without the prefix.
type iterator struct{ *pebble.Iterator }

func (it iterator) Key() []byte { return it.Iterator.Key()[1:] }

func (it iterator) Value() ([]byte, error) {
	value, err := it.Iterator.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	return value, nil
}

func (it iterator) SeekGE(key []byte) bool { return it.Iterator.SeekGE(onDisk(key)) }
func (it iterator) SeekLT(key []byte) bool { return it.Iterator.SeekLT(onDisk(key)) }

// batch is a Pebble batch.
type batch struct {
	storage *storage
	batch   *pebble.Batch
}

func (b *batch) Set(key, value []byte) error {
	op := b.batch.SetDeferred(1+len(key), len(value))
	op.Key[0] = keyPrefix
	copy(op.Key[1:], key)
	copy(op.Value, value)
	return op.Finish()
}

func (b *batch) Clear(key []byte) error {
	op := b.batch.DeleteDeferred(1 + len(key))
	op.Key[0] = keyPrefix
	copy(op.Key[1:], key)
	return op.Finish()
}

func (b *batch) ClearRange(begin, end []byte) error {
	return b.batch.DeleteRange(onDisk(begin), onDisk(end), nil)
}

func (b *batch) Apply() error {
	s := b.storage
	if err := s.admit(uint64(b.batch.Len())); err != nil {
		return fmt.Errorf("writing the store: %w", err)
	}
	err := b.batch.Commit(s.sync)
	if failure := s.fence.Err(); failure != nil {
		err = failure // which may look like a success to Pebble: see fence
	}
	if err != nil {
		s.stop(err) // as no other batch is applied then
		return fmt.Errorf("writing the store: %w", err)
	}
	return nil
}

func (b *batch) Close() {
	// There is nothing in a batch whose end could fail.
	_ = b.batch.Close()
}
