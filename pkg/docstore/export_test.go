package docstore

import (
	"errors"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// The sizes at which reads and writes are split.
const (
	ChunkSize      = rows.ChunkSize
	ChunksAtOnce   = chunksAtOnce
	BodiesAtOnce   = bodiesAtOnce
	BatchSize      = batchSize
	BatchDocuments = batchDocuments
	RowsAtOnce     = rowsAtOnce
	ResealRows     = resealRows
	MaxChangeSize  = maxChangeSize
)

// Waiting returns the number of tickers, and of calls of WaitChange.
func (s *Store) Waiting() (tickers, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickers {
		waiting += t.waiting
	}
	return len(s.tickers), waiting
}

// Leaf is a leaf as it is stored, for models.
type Leaf struct {
	Rev     Rev
	Path    []string
	Deleted bool
}

// Leaves returns the leaves of a document, the winner last.
func (db *Database) Leaves(tx kv.ReadTransaction, id string) ([]Leaf, error) {
	tree, err := db.readTree(tx, id).await()
	var leaves []Leaf
	for _, l := range tree {
		leaves = append(leaves, Leaf{Rev(l.Rev()), l.IDs, l.Deleted})
	}
	return leaves, err
}

func each(tx kv.ReadTransaction, s tuple.Subspace, f func(key tuple.Tuple, value []byte) error) error {
	for pair, err := range readAll(tx, s).All() {
		if err != nil {
			return err
		}
		key, err := s.Unpack(pair.Key)
		if err == nil {
			err = f(key, pair.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Contents returns the keys of all contents, their chunks and uploads.
func (s *Store) Contents(tx kv.ReadTransaction) (keys []string, err error) {
	note := func(key tuple.Tuple, _ []byte) error {
		keys = append(keys, fmt.Sprint(key))
		return nil
	}
	err = each(tx, s.keys.uploads, note)
	return keys, errors.Join(err, each(tx, s.keys.databases, func(key tuple.Tuple, value []byte) error {
		row, err := awaitDatabaseRow(kv.Known(value))
		db := s.database(key[0].(string), row.instance)
		return errors.Join(err, each(tx, db.keys.blobs, note), each(tx, db.keys.chunks, note))
	}))
}

// Instances returns the number of databases with rows, deleted ones included.
func (s *Store) Instances(tx kv.ReadTransaction) (int, error) {
	instances := map[any]bool{}
	for _, space := range []tuple.Subspace{s.keys.instances, s.keys.trash} {
		if err := each(tx, space, func(key tuple.Tuple, _ []byte) error {
			instances[key[0]] = true
			return nil
		}); err != nil {
			return 0, err
		}
	}
	return len(instances), nil
}

// NewRev returns the revision of an edit that creates a document.
func NewRev(body []byte) Rev { return newRev(Rev{}, false, false, body, nil, nil) }

// Silence stops the writing of rows in updates, to measure what they cost.
func (s *Store) Silence() { s.silent = true }

// The bounds of rows in updates.
const (
	Stripes        = stripes
	UpdatesAtOnce  = updatesAtOnce
	TidyEvery      = tidyEvery
	JudgeAfter     = judgeAfter
	FreshFor       = freshFor
	LookInterval   = lookInterval
	FollowerLinger = followerLinger
)

// NameHash returns the last two bytes of the stamps of a database's updates.
func NameHash(name string) uint16 { return nameHash(name) }

// StoredUpdates returns the number of rows in updates.
func (s *Store) StoredUpdates(tx kv.ReadTransaction) (n int, err error) {
	for i := range s.keys.stripes {
		err = errors.Join(err, each(tx, s.keys.stripes[i].rows, func(tuple.Tuple, []byte) error { n++; return nil }))
	}
	return n, err
}

// Retime gives the last change of a document another time, in seconds since the epoch. 0 is none.
func (db *Database) Retime(tx kv.Transaction, id string, to int64) error {
	key, row, err := db.changeOf(tx, id)
	if err != nil {
		return err
	}
	tree, err := db.readTree(tx, id).await()
	if err != nil {
		return err
	}
	tx.Set(key, packChange(id, row.Sequence.number, to, tree))
	return nil
}

// ForgetTimes gives all changes of the database, and all updates, the time 0, as a repair does.
func (db *Database) ForgetTimes(tx kv.Transaction) error {
	err := each(tx, db.keys.docs, func(key tuple.Tuple, _ []byte) error { return db.Retime(tx, key[0].(string), 0) })
	for i := range db.store.keys.stripes {
		stripe := db.store.keys.stripes[i].rows
		err = errors.Join(err, each(tx, stripe, func(key tuple.Tuple, value []byte) error {
			kind, _, err := parseUpdateValue(value)
			tx.Set(stripe.Pack(key...), kind.packed(0))
			return err
		}))
	}
	return err
}

// TimeOf returns the time of the last change of a document, in seconds since the epoch.
func (db *Database) TimeOf(tx kv.Transaction, id string) (int64, error) {
	_, row, err := db.changeOf(tx, id)
	return row.time, err
}

func (db *Database) changeOf(tx kv.Transaction, id string) (key []byte, row storedChange, err error) {
	header, err := tx.Get(db.keys.docs.Pack(id)).Await()
	if err != nil {
		return nil, row, err
	}
	sequence, err := parseHeader(header)
	if err != nil {
		return nil, row, err
	}
	key = db.keys.changes.Pack(sequence.stamp)
	value, err := tx.Get(key).Await()
	if err != nil {
		return nil, row, err
	}
	row, err = db.parseChange(kv.KeyValue{Key: key, Value: value})
	return key, row, err
}
