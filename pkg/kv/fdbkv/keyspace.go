//go:build fdb

package fdbkv

import (
	"encoding/binary"
	"slices"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// keySpace is the part of a cluster's keys that belongs to a store. The client checks keys late, and does not know
// where the store's keys end. The checks here return the same errors as the other engines.
type keySpace struct {
	prefix []byte
}

// key returns the cluster's key for a key of the store.
func (s keySpace) key(key []byte) fdb.Key { return slices.Concat(s.prefix, key) }

func (s keySpace) keyRange(r kv.KeyRange) fdb.KeyRange {
	return fdb.KeyRange{Begin: s.key(r.Begin), End: s.key(r.End)}
}

// own returns the store's key for a key of the cluster.
func (s keySpace) own(key fdb.Key) []byte { return key[len(s.prefix):] }

// stampedKey is key for a key that ends in the offset of its stamp.
func (s keySpace) stampedKey(key []byte) fdb.Key {
	rest := len(key) - engine.OffsetSize
	offset := binary.LittleEndian.Uint32(key[rest:])
	return binary.LittleEndian.AppendUint32(s.key(key[:rest]), offset+uint32(len(s.prefix)))
}

func (s keySpace) maxKeySize() int { return kv.MaxKeySize - len(s.prefix) }

// The checks of package engine, for keys that share their bytes with the prefix.

func (s keySpace) checkKey(key []byte) error { return engine.CheckKey(key, s.maxKeySize()) }
func (s keySpace) checkPair(key, value []byte) error {
	return engine.CheckPair(key, value, s.maxKeySize())
}
func (s keySpace) checkBounds(r kv.KeyRange) error { return engine.CheckBounds(r, s.maxKeySize()) }
func (s keySpace) checkRange(r kv.KeyRange) error  { return engine.CheckRange(r, s.maxKeySize()) }
