package docstore

import (
	"encoding/base64"
	"encoding/binary"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Attachment describes an attachment of a revision. [Database.ReadAttachment] reads its content.
type Attachment struct {
	Name string
	// Type is the content type.
	Type string
	// Length is the length of the content in bytes, without Encoding. If it is not known, it is StoredLength, as in CouchDB:
	// see HasLength.
	Length int64
	// Encoding is the content coding in which the content is stored, such as gzip. Empty is none.
	Encoding string
	// StoredLength is the number of bytes that are stored. It is Length if there is no Encoding.
	StoredLength int64
	// MD5 is the digest of the stored bytes.
	MD5 [16]byte
	// RevPos is the position of the revision that added the attachment.
	RevPos int64

	key [16]byte // of the content
}

// Digest returns md5- and the MD5 in base64, as CouchDB writes it.
func (a Attachment) Digest() string { return "md5-" + base64.StdEncoding.EncodeToString(a.MD5[:]) }

// HasLength reports whether Length is the length of the content without Encoding. It is not known if the upload did not give
// it, or if it came from a server that did not know it.
func (a Attachment) HasLength() bool { return a.Encoding == "" || a.Length != a.StoredLength }

func (a Attachment) tuple() tuple.Tuple {
	return tuple.Tuple{a.Name, a.Type, a.Length, a.Encoding, a.StoredLength, a.MD5[:], a.RevPos, a.key[:]}
}

func parseAttachment(element any) (a Attachment, ok bool) {
	var t tuple.Tuple
	var md5, key []byte
	if !rows.As(element, &t) || len(t) != 8 {
		return a, false
	}
	ok = rows.As(t[0], &a.Name) && rows.As(t[1], &a.Type) && rows.As(t[2], &a.Length) && rows.As(t[3], &a.Encoding) &&
		rows.As(t[4], &a.StoredLength) && rows.As(t[5], &md5) && rows.As(t[6], &a.RevPos) && rows.As(t[7], &key) &&
		len(md5) == len(a.MD5) && len(key) == len(a.key)
	if ok {
		a.MD5, a.key = [16]byte(md5), [16]byte(key)
	}
	return a, ok
}

// leafRow is what is stored of a leaf, without its revision and path.
type leafRow struct {
	size        int64  // of the body, in bytes
	token       []byte // of the write that made the leaf; nil if replicated
	attachments []Attachment
}

func (r *leafRow) attachment(name string) (Attachment, bool) {
	i := slices.IndexFunc(r.attachments, func(a Attachment) bool { return a.Name == name })
	if i < 0 {
		return Attachment{}, false
	}
	return r.attachments[i], true
}

type (
	leaf     = revtree.Leaf[*leafRow]
	leafTree = revtree.Tree[*leafRow]
)

// packLeaf returns the value of a leaf, which is stored in chunks.
func packLeaf(l *leaf) []byte {
	attachments := make(tuple.Tuple, len(l.Value.attachments))
	for i, a := range l.Value.attachments {
		attachments[i] = a.tuple()
	}
	return tuple.Tuple{packPath(l.IDs), l.Value.size, l.Value.token, attachments}.Pack()
}

// packPath writes, for each id, its length times two, plus one if it is hexadecimal, and its bytes.
func packPath(ids []string) []byte {
	packed := make([]byte, 0, 17*len(ids))
	for _, id := range ids {
		raw, isHex := revtree.Raw(id)
		length := uint64(len(raw)) << 1
		if isHex {
			length |= 1
		}
		packed = binary.AppendUvarint(packed, length)
		packed = append(packed, raw...)
	}
	return packed
}

func parsePath(packed []byte) ([]string, error) {
	ids := make([]string, 0, len(packed)/17+1)
	for len(packed) > 0 {
		length, n := binary.Uvarint(packed)
		if n <= 0 || length>>1 > uint64(len(packed)-n) {
			return nil, corrupt("a path that ends early")
		}
		end := n + int(length>>1)
		ids = append(ids, revtree.FromRaw(packed[n:end], length&1 == 1))
		packed = packed[end:]
	}
	return ids, nil
}

// parseLeaf parses a leaf from its value and the elements of its key after the document's id.
func parseLeaf(key tuple.Tuple, value []byte) (leaf, error) {
	l := leaf{Value: &leafRow{}}
	var alive, isHex bool
	var raw, path []byte
	if len(key) < 4 || !rows.As(key[0], &alive) || !rows.As(key[1], &l.Pos) || !rows.As(key[2], &raw) || !rows.As(key[3], &isHex) {
		return l, corrupt("the key of a leaf of unknown form %v", key)
	}
	l.Deleted = !alive
	t, err := tuple.Unpack(value)
	if err != nil {
		return l, corrupt("a leaf: %w", err)
	}
	var attachments tuple.Tuple
	if len(t) != 4 || !rows.As(t[0], &path) || !rows.As(t[1], &l.Value.size) || !rows.As(t[2], &l.Value.token) || !rows.As(t[3], &attachments) {
		return l, corrupt("a leaf of unknown form, of %d elements", len(t))
	}
	for _, element := range attachments {
		a, ok := parseAttachment(element)
		if !ok {
			return l, corrupt("an attachment of unknown form %v", element)
		}
		l.Value.attachments = append(l.Value.attachments, a)
	}
	if l.IDs, err = parsePath(path); err != nil {
		return l, err
	}
	if len(l.IDs) == 0 || l.IDs[0] != revtree.FromRaw(raw, isHex) {
		return l, corrupt("a leaf whose path is not its own")
	}
	return l, nil
}

// readTree starts reading all leaves of a document.
func (db *Database) readTree(tx kv.ReadTransaction, id string) treeRead {
	space := db.keys.leaves.Sub(id)
	return treeRead{space, readAll(tx, space)}
}

// treeRead is a pending read of leaves.
type treeRead struct {
	space tuple.Subspace // of the document's leaves
	pairs kv.RangeResult
}

// await returns the leaves in key order. A row whose key ends in 0 is the first chunk of a leaf.
func (r treeRead) await() (t leafTree, err error) {
	var key tuple.Tuple // of the leaf whose chunks are in value
	var value []byte
	add := func() error {
		if key == nil {
			return nil
		}
		l, err := parseLeaf(key, value)
		t = append(t, l)
		return err
	}
	for pair, err := range r.pairs.All() {
		if err != nil {
			return nil, err
		}
		next, err := r.space.Unpack(pair.Key)
		if err != nil || len(next) != 5 {
			return nil, corrupt("the key of a leaf of unknown form %v (%w)", next, err)
		}
		if n, ok := next[4].(int64); ok && n > 0 && key != nil {
			value = append(value, pair.Value...)
			continue
		}
		if err := add(); err != nil {
			return nil, err
		}
		key, value = next, pair.Value
	}
	if err := add(); err != nil {
		return nil, err
	}
	return t, nil
}

// winnerRead is a pending read of a winner.
type winnerRead struct {
	db   *Database
	tx   kv.ReadTransaction
	id   string
	last kv.RangeResult
}

// readWinner starts reading the winning leaf of a document, which is the last in key order.
func (db *Database) readWinner(tx kv.ReadTransaction, id string) winnerRead {
	last := tx.GetRange(rows.Range(db.keys.leaves.Sub(id)), kv.RangeOptions{Limit: 1, Reverse: true})
	return winnerRead{db, tx, id, last}
}

// await returns the winner, or nil if there is no document.
func (r winnerRead) await() (*leaf, error) {
	pairs, err := r.last.Slice()
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	space := r.db.keys.leaves.Sub(r.id)
	key, err := space.Unpack(pairs[0].Key)
	if err != nil || len(key) != 5 {
		return nil, corrupt("the key of a leaf of unknown form %v (%w)", key, err)
	}
	value := pairs[0].Value
	if key[4] != int64(0) { // the last of several chunks
		if value, err = rows.JoinChunks(readAll(r.tx, space.Sub(key[:4]...))); err != nil {
			return nil, err
		}
	}
	l, err := parseLeaf(key, value)
	return &l, err
}

// leavesRead is a pending read of a document's winner, or of all its leaves.
type leavesRead struct {
	all    bool
	tree   treeRead // if all
	winner winnerRead
}

// readLeaves starts reading the winning leaf of a document, or all leaves.
func (db *Database) readLeaves(tx kv.ReadTransaction, id string, all bool) leavesRead {
	if all {
		return leavesRead{all: true, tree: db.readTree(tx, id)}
	}
	return leavesRead{winner: db.readWinner(tx, id)}
}

// await returns the winner, or nil if there is no document. The tree is empty if only the winner was read.
func (r leavesRead) await() (winner *leaf, t leafTree, err error) {
	if r.all {
		t, err = r.tree.await()
		return t.Winner(), t, err
	}
	winner, err = r.winner.await()
	return winner, nil, err
}
