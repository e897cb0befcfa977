package docstore

import (
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// The first elements of the store's keys. They are stored, and so never change.
const (
	tagDatabases int64 = iota
	tagTrash
	tagUploads
	tagInstances
)

// The elements after (instances, instance). They are stored, and so never change.
const (
	tagConfig int64 = iota
	tagDocs
	tagLeaves
	tagBodies
	tagChanges
	tagAll
	tagLocal
	tagCount
	tagWatch
	tagBlobs
	tagChunks
)

// storeKeys packs the keys of the whole store. The comment of the package has their table.
type storeKeys struct {
	databases, trash, uploads, instances tuple.Subspace
}

func newStoreKeys(prefix []byte) storeKeys {
	root := tuple.SubspaceFromBytes(prefix)
	return storeKeys{
		databases: root.Sub(tagDatabases),
		trash:     root.Sub(tagTrash),
		uploads:   root.Sub(tagUploads),
		instances: root.Sub(tagInstances),
	}
}

// databaseKeys packs the keys of one instance of a database.
type databaseKeys struct {
	row                                                        []byte // of the database in the store's list
	all                                                        tuple.Subspace
	docs, leaves, bodies, changes, index, local, blobs, chunks tuple.Subspace
	security, revsLimit, watch                                 []byte
	docCount, delCount, bodyBytes, attachmentBytes             []byte
}

func newDatabaseKeys(s *storeKeys, name string, instance uuid.UUID) databaseKeys {
	all := s.instances.Sub(instance)
	return databaseKeys{
		row:             s.databases.Pack(name),
		all:             all,
		docs:            all.Sub(tagDocs),
		leaves:          all.Sub(tagLeaves),
		bodies:          all.Sub(tagBodies),
		changes:         all.Sub(tagChanges),
		index:           all.Sub(tagAll),
		local:           all.Sub(tagLocal),
		blobs:           all.Sub(tagBlobs),
		chunks:          all.Sub(tagChunks),
		security:        all.Pack(tagConfig, "security"),
		revsLimit:       all.Pack(tagConfig, "revs_limit"),
		watch:           all.Pack(tagWatch),
		docCount:        all.Pack(tagCount, "docs"),
		delCount:        all.Pack(tagCount, "deleted"),
		bodyBytes:       all.Pack(tagCount, "bodies"),
		attachmentBytes: all.Pack(tagCount, "attachments"),
	}
}

// leaf is the place of a leaf's chunks.
func (k *databaseKeys) leaf(id string, rev Rev, deleted bool) tuple.Subspace {
	raw, isHex := revtree.Raw(rev.ID)
	return k.leaves.Sub(id, !deleted, rev.Pos, raw, isHex)
}

// body is the place of the chunks of a revision's body.
func (k *databaseKeys) body(id string, rev Rev) tuple.Subspace {
	raw, isHex := revtree.Raw(rev.ID)
	return k.bodies.Sub(id, rev.Pos, raw, isHex)
}

// keyRange is the range of all keys of s.
func keyRange(s tuple.Subspace) kv.KeyRange {
	begin, end := s.Range()
	return kv.KeyRange{Begin: begin, End: end}
}

// chunkSize is how much of what does not fit into one value a chunk holds: somewhat less
// than kv.MaxValueSize.
const chunkSize = 90_000

// setChunks writes data as the keys (0), (1), ... below s. There is one even of nothing.
func setChunks(tx kv.Transaction, s tuple.Subspace, data []byte) {
	for n := int64(0); n == 0 || len(data) > 0; n++ {
		size := min(len(data), chunkSize)
		tx.Set(s.Pack(n), data[:size])
		data = data[size:]
	}
}

// joinChunks returns what setChunks wrote, nil if it did not.
func joinChunks(chunks kv.RangeResult) ([]byte, error) {
	var data []byte
	for pair, err := range chunks.All() {
		if err != nil {
			return nil, err
		}
		if data == nil {
			data = pair.Value
		} else {
			data = append(data, pair.Value...)
		}
	}
	return data, nil
}

func readAll(tx kv.ReadTransaction, s tuple.Subspace) kv.RangeResult {
	return tx.GetRange(keyRange(s), kv.RangeOptions{Mode: kv.StreamWantAll})
}

// as takes an element of a tuple.
func as[T any](element any, into *T) bool {
	v, ok := element.(T)
	*into = v
	return ok
}

// littleEndian is the operand of an atomic addition.
func littleEndian(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// add adds n to a counter, without reading it.
func add(tx kv.Transaction, key []byte, n int64) {
	if n != 0 {
		tx.Atomic(kv.MutationAdd, key, littleEndian(n))
	}
}

// awaitInt returns what atomic additions have made of a key, 0 if there were none.
func awaitInt(f kv.Future[[]byte]) (int64, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, corrupt("a counter of %d bytes", len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// corrupt is the error of a row that this package cannot have written.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("docstore: reading a row: "+format, args...)
}
