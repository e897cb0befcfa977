package docstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"settee/pkg/docstore/internal/revtree"
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

// Check reads all keys of the store and reports violations of the invariants in the package's doc comment.
func (s *Store) Check(tx kv.ReadTransaction) error {
	c := storeChecker{store: s, tx: tx, live: map[uuid.UUID]*Database{}, trash: map[uuid.UUID]bool{}, uploads: map[string]bool{}}
	for _, step := range []func() error{c.databases, c.deleted, c.pending, c.instances, c.contents} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(c.wrong...)
}

type storeChecker struct {
	store   *Store
	tx      kv.ReadTransaction
	live    map[uuid.UUID]*Database
	trash   map[uuid.UUID]bool
	uploads map[string]bool // by the prefix of their chunks
	wrong   []error
}

func (c *storeChecker) say(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
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

func (c *storeChecker) databases() error {
	return each(c.tx, c.store.keys.databases, func(key tuple.Tuple, value []byte) error {
		row, err := awaitDatabaseRow(known(value))
		c.live[row.instance] = c.store.database(key[0].(string), row.instance)
		return err
	})
}

func (c *storeChecker) deleted() error {
	return each(c.tx, c.store.keys.trash, func(key tuple.Tuple, _ []byte) error {
		instance := key[0].(uuid.UUID)
		c.trash[instance] = true
		if c.live[instance] != nil {
			c.say("the database %s lives and is in the trash", c.live[instance].name)
		}
		return nil
	})
}

func (c *storeChecker) pending() error {
	return each(c.tx, c.store.keys.uploads, func(key tuple.Tuple, _ []byte) error {
		keys := newDatabaseKeys(&c.store.keys, "", key[1].(uuid.UUID))
		place := string(keys.chunks.Sub(key[2], key[3]).Bytes())
		if c.uploads[place] {
			c.say("an upload has two rows: %v", key)
		}
		c.uploads[place] = true
		return nil
	})
}

// instances checks that only live databases and those in the trash have rows.
func (c *storeChecker) instances() error {
	seen := map[uuid.UUID]bool{}
	return each(c.tx, c.store.keys.instances, func(key tuple.Tuple, _ []byte) error {
		instance := key[0].(uuid.UUID)
		if !seen[instance] && c.live[instance] == nil && !c.trash[instance] {
			c.say("rows of a database that is nowhere: %v", key)
		}
		seen[instance] = true
		return nil
	})
}

func (c *storeChecker) contents() error {
	for _, db := range c.live {
		d := checker{storeChecker: c, db: db, docs: map[string]*checkedDoc{}, blobs: map[string]*checkedBlob{}}
		for _, step := range []func() error{
			d.leaves, d.headers, d.bodies, d.changes, d.index, d.references, d.chunks, d.counters,
		} {
			if err := step(); err != nil {
				return fmt.Errorf("database %s: %w", db.name, err)
			}
		}
	}
	return nil
}

// checker checks one database.
type checker struct {
	*storeChecker
	db    *Database
	docs  map[string]*checkedDoc
	blobs map[string]*checkedBlob // by the prefix of their chunks
}

type checkedDoc struct {
	tree     leafTree
	sequence tuple.Versionstamp
	changes  int
}

type checkedBlob struct {
	Attachment
	references int64
	row        bool
}

func (c *checker) leaves() error {
	ids := map[string]bool{}
	err := each(c.tx, c.db.keys.leaves, func(key tuple.Tuple, _ []byte) error {
		ids[key[0].(string)] = true
		return nil
	})
	if err != nil {
		return err
	}
	for id := range ids {
		tree, err := c.db.readTree(c.tx, id).await()
		if err != nil {
			return err
		}
		c.docs[id] = &checkedDoc{tree: tree}
		if !slices.IsSortedFunc(tree, leaf.Compare) {
			c.say("%q: its leaves are in a wrong order", id)
		}
		for i, l := range tree {
			for j, m := range tree {
				if i != j && m.Contains(l.Rev()) {
					c.say("%q: the leaf %s is an ancestor of %s", id, Rev(l.Rev()), Rev(m.Rev()))
				}
			}
			for _, a := range l.Value.attachments {
				place := string(c.db.keys.chunks.Sub(id, a.key[:]).Bytes())
				if c.blobs[place] == nil {
					c.blobs[place] = &checkedBlob{Attachment: a}
				}
				c.blobs[place].references++
			}
		}
		winner, err := c.db.readWinner(c.tx, id).await()
		if err != nil {
			return err
		}
		if winner.Rev() != tree.Winner().Rev() {
			c.say("%q: the winner is %s, and read as %s", id, Rev(tree.Winner().Rev()), Rev(winner.Rev()))
		}
	}
	return nil
}

func (c *checker) headers() error {
	n := 0
	err := each(c.tx, c.db.keys.docs, func(key tuple.Tuple, value []byte) error {
		id := key[0].(string)
		stamp, err := parseHeader(value)
		if err != nil {
			return err
		}
		n++
		if c.docs[id] == nil {
			c.say("%q: a header without leaves", id)
			return nil
		}
		c.docs[id].sequence = *stamp
		return nil
	})
	if n != len(c.docs) {
		c.say("%d headers for %d documents", n, len(c.docs))
	}
	return err
}

func (c *checker) bodies() error {
	sizes := map[string]map[revtree.Rev][]byte{}
	err := each(c.tx, c.db.keys.bodies, func(key tuple.Tuple, value []byte) error {
		id, rev := key[0].(string), revtree.Rev{Pos: key[1].(int64), ID: revtree.FromRaw(key[2].([]byte), key[3].(bool))}
		if sizes[id] == nil {
			sizes[id] = map[revtree.Rev][]byte{}
		}
		if n := int64(len(sizes[id][rev])); key[4] != n/rows.ChunkSize || n%rows.ChunkSize != 0 {
			c.say("%q: chunk %v of the body of %s comes after %d bytes", id, key[4], Rev(rev), n)
		}
		sizes[id][rev] = append(sizes[id][rev], value...)
		if c.docs[id] == nil || c.docs[id].tree.Leaf(rev) == nil {
			c.say("%q: a body of %s, which is no leaf", id, Rev(rev))
		}
		return nil
	})
	for id, d := range c.docs {
		for _, l := range d.tree {
			stored, ok := sizes[id][l.Rev()]
			body, err := c.db.openBody(stored, place{id, Rev(l.Rev())})
			if err != nil {
				c.say("%q: the body of %s: %v", id, Rev(l.Rev()), err)
				continue
			}
			if !ok || int64(len(body)) != l.Value.size || !json.Valid(body) {
				c.say("%q: the body of %s has %d bytes, and not %d", id, Rev(l.Rev()), len(body), l.Value.size)
			}
		}
	}
	return err
}

func (c *checker) changes() error {
	err := each(c.tx, c.db.keys.changes, func(key tuple.Tuple, value []byte) error {
		row, size, err := c.db.parseChange(kv.KeyValue{Key: c.db.keys.changes.Pack(key...), Value: value})
		if err != nil {
			return err
		}
		d := c.docs[row.ID]
		if d == nil {
			c.say("%q: a change without a document", row.ID)
			return nil
		}
		d.changes++
		if row.Sequence != sequenceOf(d.sequence) {
			c.say("%q: a change at %s, and its header says %s", row.ID, row.Sequence, d.sequence)
		}
		winner := d.tree.Winner()
		if row.Deleted != winner.Deleted || size != winner.Value.size || len(row.Revs) != len(d.tree) {
			c.say("%q: the change is %+v, and the winner %+v of %d leaves", row.ID, row, winner, len(d.tree))
			return nil
		}
		for i, rev := range row.Revs {
			if want := Rev(d.tree[len(d.tree)-1-i].Rev()); rev != want {
				c.say("%q: leaf %d of its change is %s, and not %s", row.ID, i, rev, want)
			}
		}
		return nil
	})
	for id, d := range c.docs {
		if d.changes != 1 {
			c.say("%q: %d changes", id, d.changes)
		}
	}
	return err
}

func (c *checker) index() error {
	n := 0
	err := each(c.tx, c.db.keys.index, func(key tuple.Tuple, value []byte) error {
		row, size, err := c.db.parseIndex(kv.KeyValue{Key: c.db.keys.index.Pack(key...), Value: value})
		if err != nil {
			return err
		}
		n++
		d := c.docs[row.ID]
		if d == nil || d.tree.Winner().Deleted || Rev(d.tree.Winner().Rev()) != row.Rev || d.tree.Winner().Value.size != size {
			c.say("%q: in the index as %+v", row.ID, row)
		}
		return nil
	})
	for _, d := range c.docs {
		if !d.tree.Winner().Deleted {
			n--
		}
	}
	if n != 0 {
		c.say("%d documents too many in the index", n)
	}
	return err
}

// references are the references of attachments to contents.
func (c *checker) references() error {
	err := each(c.tx, c.db.keys.blobs, func(key tuple.Tuple, value []byte) error {
		blob := c.blobs[string(c.db.keys.chunks.Sub(key...).Bytes())]
		t, err := tuple.Unpack(value)
		if err != nil {
			return err
		}
		if blob == nil {
			c.say("%q: a content to which nothing refers", key[0])
			return nil
		}
		blob.row = true
		if t[0] != blob.StoredLength || string(t[1].([]byte)) != string(blob.MD5[:]) || t[2] != blob.references {
			c.say("%q: a content of %v, and %d attachments refer to it as %+v", key[0], t, blob.references, blob.Attachment)
		}
		return nil
	})
	for place, blob := range c.blobs {
		if !blob.row {
			c.say("the attachment %+v is nowhere", blob.Attachment)
		}
		if c.uploads[place] {
			c.say("the attachment %+v is an upload too", blob.Attachment)
		}
	}
	return err
}

func (c *checker) chunks() error {
	lengths := map[string]int64{}
	err := each(c.tx, c.db.keys.chunks, func(key tuple.Tuple, value []byte) error {
		place := string(c.db.keys.chunks.Sub(key[:2]...).Bytes())
		if c.blobs[place] == nil && !c.uploads[place] {
			c.say("%q: chunk %v of a content that is nowhere", key[0], key[2])
		}
		if n := lengths[place]; key[2] != n/rows.ChunkSize || n%rows.ChunkSize != 0 {
			c.say("%q: chunk %v of a content comes after %d bytes", key[0], key[2], n)
		}
		lengths[place] += int64(len(value))
		return nil
	})
	for place, blob := range c.blobs {
		if lengths[place] != blob.StoredLength {
			c.say("the attachment %+v has %d bytes", blob.Attachment, lengths[place])
		}
	}
	return err
}

func (c *checker) counters() error {
	var docs, deleted, bodies, attachments int64
	for _, d := range c.docs {
		if d.tree.Winner().Deleted {
			deleted++
		} else {
			docs++
		}
		for _, l := range d.tree {
			bodies += l.Value.size
		}
	}
	for _, blob := range c.blobs {
		attachments += blob.StoredLength
	}
	for _, counter := range []struct {
		name string
		key  []byte
		want int64
	}{
		{"documents", c.db.keys.docCount, docs},
		{"deleted documents", c.db.keys.delCount, deleted},
		{"bytes of bodies", c.db.keys.bodyBytes, bodies},
		{"bytes of attachments", c.db.keys.attachmentBytes, attachments},
	} {
		n, err := rows.AwaitInt(c.tx.Get(counter.key))
		if err != nil {
			return err
		}
		if n != counter.want {
			c.say("%d %s are counted, and there are %d", n, counter.name, counter.want)
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
		row, err := awaitDatabaseRow(known(value))
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
