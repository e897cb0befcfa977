// Package pebblekv is the kv engine for one node. It keeps the data on disk in Pebble. Its scheme is pebble, and the
// rest of the URL is a directory: pebble:///var/lib/settee, or pebble:data for one below the working directory.
//
// A commit is acknowledged when Pebble's log is synced. Commits that wait at the same time share a sync. One process
// owns the directory. On disk each pair is a pair of Pebble's, with the byte keyPrefix before the key, because Pebble
// does not like empty keys. Keys from \xff on are the engine's (package optimistic).
//
// A write that fails because the system lacks open files or memory is repeated until it succeeds (passing.go). If the
// disk refuses a write (it is full or broken), that commit and all later ones fail with the error, kv.Writable
// reports it, and the store stays readable. Nothing more is written until the store is opened again. It then has every
// acknowledged commit. A failed commit is there completely or not at all.
//
// A damaged file is an error that names it: of Open for the log, the manifest and the options (damage.go), and of each
// read of a damaged part of a table. [RepairLog] puts the log right, or gives up what is behind the damage.
package pebblekv

import (
	"cmp"
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
	kv.Register("pebble", kv.Engine{
		Check: func(u *url.URL) error {
			_, err := directory(u)
			return err
		},
		Open: func(ctx context.Context, u *url.URL, opts kv.Options) (kv.Database, error) {
			dir, err := directory(u)
			if err != nil {
				return nil, err
			}
			return OpenContext(ctx, dir, Options{Options: opts})
		},
	})
}

// Directory returns the directory of a store by its URL, or nothing if the store is none of this engine's.
func Directory(store string) string {
	u, err := url.Parse(store)
	if err != nil || u.Scheme != "pebble" {
		return ""
	}
	dir, _ := directory(u)
	return dir
}

// directory returns the directory of a store's URL.
func directory(u *url.URL) (string, error) {
	dir := u.Path
	if u.Opaque != "" {
		dir = u.Opaque
	}
	switch {
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("store %q: the directory follows three slashes, as in pebble:///var/lib/settee", u)
	case u.RawQuery != "":
		return "", fmt.Errorf("store %q: an embedded store has no parameters", u)
	case dir == "":
		return "", fmt.Errorf("store %q names no directory", u)
	}
	return dir, nil
}

// Options of a store.
type Options struct {
	kv.Options
	// MaxWatches is the maximum number of armed watches. 0 is kv.DefaultMaxWatches.
	MaxWatches int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// NoSync acknowledges commits before they are durable. It is for tests of the sync.
	NoSync bool

	memTableBytes int // 0 is defaultMemTableBytes
	// cutting opens a store whose damaged log has been cut.
	cutting bool
}

// Pebble's memory. Its tables in memory are part of the cache: there must be room for a few that wait to be written,
// and for blocks that were read.
const (
	defaultCacheBytes = 256 << 20
	tablesInCache     = 8
)

// bloomBits is the number of bits for each key in a table's filter. A search for a missing key reads one table in a
// hundred.
const bloomBits = 10

// Open opens the store in dir, and creates dir if it is missing. It fails if another process has dir open.
func Open(dir string, opts Options) (kv.Database, error) {
	s, err := openStorage(dir, opts)
	if err != nil {
		return nil, err
	}
	db, err := optimistic.Open(s, optimistic.Options{Options: opts.Options, MaxWatches: opts.MaxWatches, Now: opts.Now})
	if err != nil {
		return nil, err
	}
	return database{db, s}, nil
}

// OpenContext is Open, except that it returns when ctx ends. A store that is being opened then is closed as soon as it is
// open; until that, its directory stays locked.
func OpenContext(ctx context.Context, dir string, opts Options) (kv.Database, error) {
	type result struct {
		db  kv.Database
		err error
	}
	opened := make(chan result, 1)
	go func() {
		db, err := Open(dir, opts)
		opened <- result{db, err}
	}()
	select {
	case r := <-opened:
		return r.db, r.err
	case <-ctx.Done():
	}
	go func() {
		if r := <-opened; r.err == nil {
			_ = r.db.Close() // nothing was written
		}
	}()
	return nil, fmt.Errorf("store %s: opening it was ended: %w", dir, context.Cause(ctx))
}

// database is a store that reports when it has stopped writing.
type database struct {
	*optimistic.DB
	storage *storage
}

var _ kv.WriteStopper = database{}

// Writable implements kv.WriteStopper. The context ends with the first failed write of a commit, or of Pebble's own
// work.
func (db database) Writable() context.Context { return db.storage.writable }

// Close implements [kv.Database]. Writes that wait for the system to have enough of something end first.
func (db database) Close() error {
	db.storage.fence.end()
	return db.DB.Close()
}

// Exclusive implements [kv.Exclusive]: the directory is locked.
func (db database) Exclusive() {}

func openStorage(dir string, opts Options) (*storage, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	opts.CacheBytes = cmp.Or(opts.CacheBytes, defaultCacheBytes)
	if opts.memTableBytes == 0 {
		opts.memTableBytes = int(opts.CacheBytes / tablesInCache)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	if opts.Existing {
		err = exists(abs, opts.FS)
	} else {
		err = opts.FS.MkdirAll(abs, 0o700)
	}
	if err == nil && opts.FS == vfs.Default {
		err = checkOwner(abs)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", abs, err)
	}
	writable, stop := context.WithCancelCause(context.Background())
	fence := newFence(opts.FS, abs, stop)
	lock, err := pebble.LockDirectory(abs, fence)
	if err != nil {
		return nil, lockError(abs, err)
	}
	if err := errors.Join(tidy(opts.FS, abs, opts.cutting), checkFiles(opts.FS, abs)); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), lock.Close())
	}
	s := &storage{
		dir:           abs,
		lock:          lock,
		fence:         fence,
		writable:      writable,
		stop:          stop,
		sync:          &pebble.WriteOptions{Sync: !opts.NoSync},
		memTableBytes: uint64(opts.memTableBytes),
		openFiles:     opts.OpenFiles,
		progress:      make(chan struct{}, 1),
	}
	cache := pebble.NewCache(opts.CacheBytes)
	defer cache.Unref()
	desc, err := pebble.Peek(abs, opts.FS)
	if err == nil {
		s.db, err = pebble.Open(abs, s.options(cache))
	}
	if err == nil && !desc.Exists {
		// The first log of a new store does not have what checkFiles needs.
		if err = s.db.Close(); err == nil {
			s.db, err = pebble.Open(abs, s.options(cache))
		}
	}
	if err != nil {
		if failure := fence.Err(); failure != nil {
			err = failure // the cause of Pebble's error
		}
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, nameLog(err)), lock.Close())
	}
	if err := fence.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), s.Close())
	}
	return s, nil
}

// exists returns an error if there is no store in dir.
func exists(dir string, files vfs.FS) error {
	desc, err := pebble.Peek(dir, files)
	if err == nil && !desc.Exists {
		err = errors.New("there is no store in this directory")
	}
	return err
}

// lockError says why the directory could not be locked.
func lockError(dir string, err error) error {
	for _, cause := range []error{fs.ErrPermission, syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, cause) {
			return fmt.Errorf("store %s: %w", dir, err)
		}
	}
	return fmt.Errorf("store %s: another process has it open (%w); one process owns an embedded store, "+
		"several nodes need FoundationDB (fdb://)", dir, err)
}

// options returns Pebble's options. Pebble's own limits for pending flushes and compactions are set too high to be
// reached, because Pebble would wait there for a disk that may have failed. batch.Apply keeps lower limits.
func (s *storage) options(cache *pebble.Cache) *pebble.Options {
	options := &pebble.Options{
		Cache:                       cache,
		FS:                          s.fence,
		FormatMajorVersion:          pebble.FormatNewest,
		Lock:                        s.lock,
		Logger:                      logger{s.fence},
		MaxOpenFiles:                s.openFiles,
		MemTableSize:                s.memTableBytes,
		MemTableStopWritesThreshold: 64,
		L0StopWritesThreshold:       1000,
		EventListener: &pebble.EventListener{
			FlushEnd:        func(pebble.FlushInfo) { s.progressed() },
			CompactionEnd:   func(pebble.CompactionInfo) { s.progressed() },
			BackgroundError: s.backgroundError,
			// The read that finds it returns the error.
			DataCorruption: func(pebble.DataCorruptionInfo) {},
		},
	}
	options.Levels[0].FilterPolicy = bloom.FilterPolicy(bloomBits) // also for all lower levels
	return options
}

// storage is a Pebble database.
type storage struct {
	dir   string
	db    *pebble.DB
	lock  *pebble.Lock
	fence *fence
	sync  *pebble.WriteOptions

	// writable ends when stop is called with the reason.
	writable context.Context
	stop     context.CancelCauseFunc

	memTableBytes uint64
	openFiles     int // 0 is Pebble's default, 1000
	// unchecked is the number of bytes written since backlog was last called. Only the goroutine that applies batches
	// uses it.
	unchecked uint64
	// progress receives an element when a flush or a compaction has ended.
	progress chan struct{}
	backups  backups
}

// logger receives what Pebble logs as errors.
type logger struct{ fence *fence }

func (logger) Infof(string, ...any) {}

func (logger) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble: "+format+"\n", args...)
}

// Fatalf returns if writing has failed: Pebble then returns the error, and the fence keeps its other writes off the
// disk. Any other fatal error is a broken invariant.
func (l logger) Fatalf(format string, args ...any) {
	if l.fence.Err() == nil {
		panic(fmt.Sprintf("pebble: "+format, args...))
	}
}

func (s *storage) Snapshot() optimistic.Snapshot { return snapshot{s.db.NewSnapshot()} }

func (s *storage) NewBatch() optimistic.Batch { return &batch{s, s.db.NewBatch()} }

func (s *storage) Close() error {
	s.backups.using.Lock()
	defer s.backups.using.Unlock()
	s.backups.closed = true
	s.fence.release()
	err := s.db.Close()
	if s.fence.Err() != nil {
		// Every commit since has reported it, and nothing else is wrong.
		err = nil
	}
	return errors.Join(err, s.lock.Close())
}

// backgroundError receives errors outside of commits and reads. After a failed write every commit reports it.
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

// Limits for tables in memory that wait to be flushed, and for files that wait to be compacted.
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

// keyPrefix is the first byte of every key on disk.
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

// Error returns the error that ended the iteration.
func (it iterator) Error() error {
	if err := it.Iterator.Error(); err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	return nil
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
	err := b.batch.LogData(sealOf(b.batch.Repr()), nil)
	if err == nil {
		err = b.batch.Commit(s.sync)
	}
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
