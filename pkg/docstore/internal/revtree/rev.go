// Package revtree merges the revisions of one document. It is pure: no I/O, no time, no
// randomness, and it does not change its arguments.
//
// A [Tree] has the leaves of a document's revision tree, each with its known ancestors. Interior
// revisions have no content and exist only in the paths of leaves.
//
// # Invariants
//
//   - No leaf's revision is in the path of another leaf.
//   - Paths agree: two paths with the same revision have the same older ones,
//     unless one was stemmed.
//   - Leaves are in the order of [Leaf.Compare], so that the last one is the winner.
//
// # Merging
//
// A revision has one parent, because its id is a hash over its history. The same edits in any
// order make the same tree, if none is longer than the limit. After a merge all leaves that
// descend from a revision know all that any edit knows of its history. If a path names another
// parent of a known revision, the rest of that path is ignored. A stemmed path has forgotten its
// older revisions, so one of these becomes a leaf of its own when it is merged, as in CouchDB.
package revtree

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
)

// Rev identifies a revision: its position, from 1, and its id.
type Rev struct {
	Pos int64
	ID  string
}

// Compare orders revisions as CouchDB does to find the winner: by position, then by Raw bytes.
func (r Rev) Compare(s Rev) int {
	if c := cmp.Compare(r.Pos, s.Pos); c != 0 {
		return c
	}
	if isHex(r.ID) == isHex(s.ID) {
		return cmp.Compare(r.ID, s.ID) // hexadecimal digits sort like the bytes they encode
	}
	rawR, hexR := Raw(r.ID)
	rawS, _ := Raw(s.ID)
	if c := bytes.Compare(rawR, rawS); c != 0 {
		return c
	}
	if hexR {
		return 1
	}
	return -1
}

// rawSize is the length of an MD5 digest. Most ids are such digests.
const rawSize = 16

// Raw returns the bytes by which an id is compared and stored: the bytes that 32 lower-case
// hexadecimal digits encode, else the text.
func Raw(id string) (raw []byte, hexadecimal bool) {
	if !isHex(id) {
		return []byte(id), false
	}
	raw, _ = hex.DecodeString(id) // isHex has checked them
	return raw, true
}

func isHex(id string) bool {
	if len(id) != 2*rawSize {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// FromRaw is the inverse of Raw.
func FromRaw(raw []byte, hexadecimal bool) string {
	if hexadecimal {
		return hex.EncodeToString(raw)
	}
	return string(raw)
}

// Leaf is a revision without successors. Value belongs to the caller.
type Leaf[T any] struct {
	Pos int64
	// IDs are the id of the revision, of its parent and so on, as far as known.
	IDs     []string
	Deleted bool
	Value   T
}

// Rev returns the leaf's own revision.
func (l Leaf[T]) Rev() Rev { return Rev{l.Pos, l.IDs[0]} }

// Contains reports whether rev is the leaf's revision or a known ancestor of it.
func (l Leaf[T]) Contains(rev Rev) bool {
	i := l.Pos - rev.Pos
	return i >= 0 && i < int64(len(l.IDs)) && l.IDs[i] == rev.ID
}

// Compare orders leaves, the winner last. A leaf that is not deleted wins over a deleted one.
func (l Leaf[T]) Compare(m Leaf[T]) int {
	if l.Deleted != m.Deleted {
		if l.Deleted {
			return -1
		}
		return 1
	}
	return l.Rev().Compare(m.Rev())
}

// Tree has the leaves of a document in the order of [Leaf.Compare]. The zero value belongs to a
// document that does not exist.
type Tree[T any] []Leaf[T]

// Winner returns the winning leaf, nil if there is no leaf.
func (t Tree[T]) Winner() *Leaf[T] {
	if len(t) == 0 {
		return nil
	}
	return &t[len(t)-1]
}

// Leaf returns the leaf with that revision, or nil.
func (t Tree[T]) Leaf(rev Rev) *Leaf[T] {
	for i := range t {
		if t[i].Rev() == rev {
			return &t[i]
		}
	}
	return nil
}

// Knows reports whether rev is a leaf or a known ancestor of one.
func (t Tree[T]) Knows(rev Rev) bool {
	return slices.ContainsFunc(t, func(l Leaf[T]) bool { return l.Contains(rev) })
}
