package docstore

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// The first elements of the store's keys. They are stored, and so never change.
const (
	tagDatabases int64 = iota
	tagTrash
	tagUploads
	tagInstances
	tagUpdates
	tagLives
	tagDeletions
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

// storeKeys packs the keys of the whole store. The package's doc comment lists them.
type storeKeys struct {
	root                                 tuple.Subspace
	databases, trash, uploads, instances tuple.Subspace
	updates, lives, deletions            tuple.Subspace
	stripes                              [stripes]stripeKeys // of updates
}

func newStoreKeys(prefix []byte) storeKeys {
	root := tuple.SubspaceFromBytes(prefix)
	k := storeKeys{
		root:      root,
		databases: root.Sub(tagDatabases),
		trash:     root.Sub(tagTrash),
		uploads:   root.Sub(tagUploads),
		instances: root.Sub(tagInstances),
		updates:   root.Sub(tagUpdates),
		lives:     root.Sub(tagLives),
		deletions: root.Sub(tagDeletions),
	}
	for i := range k.stripes {
		k.stripes[i] = newStripeKeys(k.updates.Sub(int64(i)))
	}
	return k
}

// databaseKeys packs the keys of one instance of a database.
type databaseKeys struct {
	row                                                        []byte // of the database in the store's list
	all                                                        tuple.Subspace
	docs, leaves, bodies, changes, index, local, blobs, chunks tuple.Subspace
	security, revsLimit, watch                                 []byte
	docCount, delCount, bodyBytes, attachmentBytes, numbered   []byte
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
		numbered:        all.Pack(tagCount, "numbered"),
	}
}

// leaf returns the subspace of a leaf's chunks.
func (k *databaseKeys) leaf(id string, rev Rev, deleted bool) tuple.Subspace {
	raw, isHex := revtree.Raw(rev.ID)
	return k.leaves.Sub(id, !deleted, rev.Pos, raw, isHex)
}

// body returns the subspace of the chunks of a revision's body.
func (k *databaseKeys) body(id string, rev Rev) tuple.Subspace {
	raw, isHex := revtree.Raw(rev.ID)
	return k.bodies.Sub(id, rev.Pos, raw, isHex)
}

func readAll(tx kv.ReadTransaction, s tuple.Subspace) kv.RangeResult {
	return tx.GetRange(rows.Range(s), kv.RangeOptions{})
}

// add adds n to a counter without reading it.
func add(tx kv.Transaction, key []byte, n int64) {
	if n != 0 {
		tx.Add(key, n)
	}
}

// errCorrupt is in the errors of corrupt.
var errCorrupt = errors.New("docstore: reading a row")

// corrupt returns an error for a row that this package cannot have written.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errCorrupt}, args...)...)
}
