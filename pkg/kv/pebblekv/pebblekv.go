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
// When the disk refuses a write, the commit that met it and all later ones fail
// with that error, and the store stays readable.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
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
	// FS is the file system; nil is the disk.
	FS vfs.FS
	// NoSync acknowledges commits before they are durable. It is for tests that
	// show what the sync is for.
	NoSync bool
}

// memory given to Pebble.
const (
	cacheBytes    = 64 << 20
	memTableBytes = 32 << 20
)

// Open opens the store in dir, which is made when it is missing. A directory
// that another process has open is an error that says so.
func Open(dir string, opts Options) (kv.Database, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	if err := opts.FS.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("store %s: %w", abs, err)
	}
	lock, err := pebble.LockDirectory(abs, opts.FS)
	if err != nil {
		return nil, fmt.Errorf("store %s: another process has it open (%w); one process owns an embedded store, "+
			"several nodes need FoundationDB (fdb://)", abs, err)
	}
	s := &storage{lock: lock, sync: &pebble.WriteOptions{Sync: !opts.NoSync}}
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	s.db, err = pebble.Open(abs, &pebble.Options{
		Cache:              cache,
		FS:                 opts.FS,
		FormatMajorVersion: pebble.FormatNewest,
		Lock:               lock,
		Logger:             fatalLogger{},
		MemTableSize:       memTableBytes,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), lock.Close())
	}
	return optimistic.Open(s, optimistic.Options{MaxWatches: opts.MaxWatches})
}

// storage is a Pebble database.
type storage struct {
	db   *pebble.DB
	lock *pebble.Lock
	sync *pebble.WriteOptions
	// broken is set when Pebble could not write its log: nothing is known of
	// its state on disk then, and it must not be used for writing again.
	broken atomic.Bool
}

// fatalLogger turns what Pebble calls fatal into a panic, which batch.Apply
// catches; Pebble's own logger would end the process.
type fatalLogger struct{}

// fatal is what Pebble could not go on after.
type fatal struct{ error }

func (fatalLogger) Infof(string, ...any) {}
func (fatalLogger) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble: "+format+"\n", args...)
}
func (fatalLogger) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

func (s *storage) Snapshot() optimistic.Snapshot { return snapshot{s.db.NewSnapshot()} }

func (s *storage) NewBatch() optimistic.Batch { return &batch{storage: s} }

func (s *storage) Close() error {
	if s.broken.Load() {
		// Closing would wait for the log that cannot be written.
		return s.lock.Close()
	}
	return errors.Join(s.db.Close(), s.lock.Close())
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

func (it iterator) Key() []byte            { return it.Iterator.Key()[1:] }
func (it iterator) SeekGE(key []byte) bool { return it.Iterator.SeekGE(onDisk(key)) }
func (it iterator) SeekLT(key []byte) bool { return it.Iterator.SeekLT(onDisk(key)) }

// batch is a Pebble batch, which is indexed once it is read from.
type batch struct {
	storage *storage
	batch   *pebble.Batch
	indexed bool
}

// plain returns the batch for writing.
func (b *batch) plain() *pebble.Batch {
	if b.batch == nil {
		b.batch = b.storage.db.NewBatch()
	}
	return b.batch
}

// Get turns the batch into an indexed one: those cost more to write to, and
// only an atomic operation reads.
func (b *batch) Get(key []byte) ([]byte, error) {
	if !b.indexed {
		plain := b.batch
		b.batch, b.indexed = b.storage.db.NewIndexedBatch(), true
		if plain != nil {
			if err := errors.Join(b.batch.Apply(plain, nil), plain.Close()); err != nil {
				return nil, fmt.Errorf("reading the store: %w", err)
			}
		}
	}
	return get(b.batch, key)
}

func (b *batch) Set(key, value []byte) error { return b.plain().Set(onDisk(key), value, nil) }

func (b *batch) Clear(key []byte) error { return b.plain().Delete(onDisk(key), nil) }

func (b *batch) ClearRange(begin, end []byte) error {
	return b.plain().DeleteRange(onDisk(begin), onDisk(end), nil)
}

func (b *batch) Apply() (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatal:
			b.storage.broken.Store(true)
			err = fmt.Errorf("writing the store: %w", p.error)
		default:
			panic(p)
		}
	}()
	if err := b.plain().Commit(b.storage.sync); err != nil {
		return fmt.Errorf("writing the store: %w", err)
	}
	return nil
}

func (b *batch) Close() error {
	if b.batch == nil || b.storage.broken.Load() {
		return nil
	}
	return b.batch.Close()
}
