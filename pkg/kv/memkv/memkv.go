// Package memkv is a kv engine in memory with the whole contract of package kv. It starts no goroutines, and is
// deterministic if its caller is. Its scheme is mem.
package memkv

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/optimistic"
)

func init() {
	kv.Register("mem", kv.Engine{
		Check: func(u *url.URL) error {
			if u.Opaque != "" || u.Host != "" || u.Path != "" {
				return fmt.Errorf("store %q: a store in memory has no name; write mem: alone", u)
			}
			return nil
		},
		Open: func(_ context.Context, _ *url.URL, opts kv.Options) (kv.Database, error) {
			return Open(Options{Options: opts})
		},
	})
}

// Options of a store.
type Options struct {
	kv.Options
	// MaxWatches is the maximum number of armed watches. 0 is kv.DefaultMaxWatches.
	MaxWatches int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Pause is the Pause of kv.Retrier.
	Pause func(ctx context.Context, most time.Duration)
}

// Open returns an empty database.
func Open(opts Options) (kv.Database, error) {
	return optimistic.Open(&storage{}, optimistic.Options{
		Options:    opts.Options,
		MaxWatches: opts.MaxWatches,
		Now:        opts.Now,
		Pause:      opts.Pause,
		Inline:     true,
	})
}

// storage is a tree that is copied on write. A snapshot is a copy.
type storage struct {
	mu   sync.Mutex
	tree btree.Map[string, []byte]
}

func (s *storage) copy() *btree.Map[string, []byte] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Copy()
}

func (s *storage) Snapshot() optimistic.Snapshot { return snapshot{view{s.copy()}} }

func (s *storage) NewBatch() optimistic.Batch { return &batch{view{s.copy()}, s} }

func (s *storage) Close() error { return nil }

// view reads a tree.
type view struct{ tree *btree.Map[string, []byte] }

func (v view) Get(key []byte) ([]byte, error) {
	value, ok := v.tree.Get(string(key))
	if !ok {
		return nil, nil
	}
	return append([]byte{}, value...), nil
}

type snapshot struct{ view }

func (s snapshot) Iterate(begin, end []byte) (optimistic.Iterator, error) {
	return &iterator{iter: s.tree.Iter(), begin: string(begin), end: string(end)}, nil
}

func (s snapshot) Close() error { return nil }

// batch is a copy that will replace the tree.
type batch struct {
	view
	storage *storage
}

func (b *batch) Set(key, value []byte) error {
	b.tree.Set(string(key), value)
	return nil
}

func (b *batch) Clear(key []byte) error {
	b.tree.Delete(string(key))
	return nil
}

func (b *batch) ClearRange(begin, end []byte) error {
	var within []string
	b.tree.Ascend(string(begin), func(key string, _ []byte) bool {
		if key >= string(end) {
			return false
		}
		within = append(within, key)
		return true
	})
	for _, key := range within {
		b.tree.Delete(key)
	}
	return nil
}

func (b *batch) Apply() error {
	b.storage.mu.Lock()
	defer b.storage.mu.Unlock()
	b.storage.tree = *b.tree
	return nil
}

func (b *batch) Close() {}

// iterator iterates over the keys from begin to before end.
type iterator struct {
	iter       btree.MapIter[string, []byte]
	begin, end string
}

func (it *iterator) inside(moved bool) bool {
	return moved && it.iter.Key() >= it.begin && it.iter.Key() < it.end
}

func (it *iterator) First() bool { return it.inside(it.iter.Seek(it.begin)) }
func (it *iterator) Last() bool  { return it.SeekLT([]byte(it.end)) }
func (it *iterator) Next() bool  { return it.inside(it.iter.Next()) }
func (it *iterator) Prev() bool  { return it.inside(it.iter.Prev()) }

func (it *iterator) SeekGE(key []byte) bool {
	return it.inside(it.iter.Seek(max(string(key), it.begin)))
}

func (it *iterator) SeekLT(key []byte) bool {
	limit := min(string(key), it.end)
	if it.iter.Seek(limit) {
		return it.inside(it.iter.Prev())
	}
	return it.inside(it.iter.Last())
}

func (it *iterator) Key() []byte            { return []byte(it.iter.Key()) }
func (it *iterator) Value() ([]byte, error) { return it.iter.Value(), nil }
func (it *iterator) Error() error           { return nil }
func (it *iterator) Close() error           { return nil }
