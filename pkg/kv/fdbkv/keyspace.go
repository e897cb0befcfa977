//go:build fdb

package fdbkv

import (
	"encoding/binary"
	"slices"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

// endOfKeys is the end of a store's keys, as the store's user writes it. Behind a
// prefix it is a key like others, but no key of the store reaches it, so that it
// bounds them there too.
const endOfKeys = "\xff"

// offsetSize is the length of the little-endian offset at the end of a stamped
// key or value.
const offsetSize = 4

// keySpace is the part of a cluster's keys that a store has. The client checks
// keys when it gets to them, and without knowing where a store's own keys end;
// the checks here give the errors that the other engines give.
type keySpace struct {
	prefix []byte
}

// key returns the cluster's key for one of the store.
func (s keySpace) key(key []byte) fdb.Key { return slices.Concat(s.prefix, key) }

func (s keySpace) keyRange(r kv.KeyRange) fdb.KeyRange {
	return fdb.KeyRange{Begin: s.key(r.Begin), End: s.key(r.End)}
}

// own returns the store's key for one of the cluster.
func (s keySpace) own(key fdb.Key) []byte { return key[len(s.prefix):] }

// stampedKey is key for one that ends in the offset of its stamp.
func (s keySpace) stampedKey(key []byte) fdb.Key {
	rest := len(key) - offsetSize
	offset := binary.LittleEndian.Uint32(key[rest:])
	return binary.LittleEndian.AppendUint32(s.key(key[:rest]), offset+uint32(len(s.prefix)))
}

func (s keySpace) maxKeySize() int { return kv.MaxKeySize - len(s.prefix) }

// checkKey checks a key that is read or written.
func (s keySpace) checkKey(key []byte) error {
	switch {
	case len(key) > s.maxKeySize():
		return kv.ErrKeyTooLarge
	case string(key) >= endOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}

// checkBound checks a key that bounds a range, and so may be the end of all.
func (s keySpace) checkBound(key []byte) error {
	switch {
	case len(key) > s.maxKeySize()+1:
		return kv.ErrKeyTooLarge
	case string(key) > endOfKeys:
		return kv.ErrKeyOutsideLegalRange
	}
	return nil
}

// checkRange checks a range that is written.
func (s keySpace) checkRange(r kv.KeyRange) error {
	for _, bound := range [][]byte{r.Begin, r.End} {
		if err := s.checkBound(bound); err != nil {
			return err
		}
	}
	if string(r.Begin) > string(r.End) {
		return kv.ErrInvertedRange
	}
	return nil
}

func (s keySpace) checkPair(key, value []byte) error {
	if err := s.checkKey(key); err != nil {
		return err
	}
	if len(value) > kv.MaxValueSize {
		return kv.ErrValueTooLarge
	}
	return nil
}

// hasRoomForStamp reports whether b ends in an offset at which 10 bytes have
// room.
func hasRoomForStamp(b []byte) bool {
	if len(b) < offsetSize {
		return false
	}
	rest := len(b) - offsetSize
	offset := binary.LittleEndian.Uint32(b[rest:])
	return uint64(offset)+uint64(len(kv.Versionstamp{})) <= uint64(rest)
}
