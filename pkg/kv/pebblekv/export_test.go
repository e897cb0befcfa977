package pebblekv

import (
	"settee/pkg/kv"
	"settee/pkg/kv/internal/optimistic"
)

// WithMemTables returns opts with tables of this many bytes in memory, so that a small test makes Pebble write tables.
func WithMemTables(opts Options, size int) Options {
	opts.memTableBytes = size
	return opts
}

// OpenCounting is Open, and also returns a function that counts the open Pebble snapshots.
func OpenCounting(dir string, opts Options) (db kv.Database, snapshots func() int, err error) {
	s, err := openStorage(dir, opts)
	if err != nil {
		return nil, nil, err
	}
	db, err = optimistic.Open(s, optimistic.Options{MaxWatches: opts.MaxWatches, Now: opts.Now})
	return db, func() int { return s.db.Metrics().Snapshots.Count }, err
}
