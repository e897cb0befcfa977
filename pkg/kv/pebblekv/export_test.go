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

// WrongBits returns the offsets of the wrong bits of a log that were put right, and whether it is damaged beyond that.
func WrongBits(log []byte, number uint32) (offsets []int, damaged bool) {
	offsets, tail := wrongBits(log, number)
	return offsets, tail.damage(log) != ""
}

// Chunk is a chunk of a log: where it begins and ends, and whether it ends a record.
type Chunk struct {
	Begin, End int
	Last       bool
}

// Chunks returns the whole chunks of a log.
func Chunks(log []byte, number uint32) (chunks []Chunk) {
	walk(log, syncedHeader, func(byte) int { return syncedHeader }, func(at int, c chunk, data []byte) bool {
		if c.kind < firstSyncedType || c.kind > lastSyncedType || numberIn(data) != number {
			return false
		}
		position := c.kind - firstSyncedType
		chunks = append(chunks, Chunk{at, at + c.length, position == whole || position == last})
		return true
	})
	return chunks
}
