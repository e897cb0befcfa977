// Package revtree merges the revisions of one document. It is pure: no I/O, no time, no
// randomness, and nothing that is passed in is changed.
//
// A [Tree] is the leaves of a document's revision tree, each with the ancestors that are
// known of it. Interior revisions have no content and exist in the paths of leaves alone.
//
// # What holds of a tree
//
//   - no leaf's revision is in the path of another leaf: it would not be a leaf;
//   - paths agree: where two contain the same revision, they agree on all older ones,
//     unless one was stemmed;
//   - leaves are in the order of [Leaf.Compare], so that the last one is the winner.
//
// # What a merge promises
//
// Revisions have one parent each, as their ids are hashes over their history. The same
// edits, of which none is longer than the limit, make the same tree in any order: what one
// edit knows of the history of a revision, all leaves that descend from it know after the
// merge. A path that contradicts what is known, because it names another parent of a
// revision, counts up to that place: what was first stands. Paths that were stemmed have
// forgotten where they belong, so a revision that is older than what they still know
// becomes a leaf of its own, as in CouchDB.
package revtree

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
)

// Rev names a revision: how many it has before it, itself included, and its id.
type Rev struct {
	Pos int64
	ID  string
}

// Compare orders revisions as CouchDB does where it looks for the winner: by position, then
// by the bytes of the id, which are those that hexadecimal digits stand for.
func (r Rev) Compare(s Rev) int {
	if c := cmp.Compare(r.Pos, s.Pos); c != 0 {
		return c
	}
	if isHex(r.ID) == isHex(s.ID) {
		return cmp.Compare(r.ID, s.ID) // digits compare as what they stand for
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

// rawSize is the length of an MD5 digest, which most ids are.
const rawSize = 16

// Raw returns the bytes of an id that it is compared and stored by: those that 32
// lower-case hexadecimal digits stand for, otherwise those of its text.
func Raw(id string) (raw []byte, hexadecimal bool) {
	if !isHex(id) {
		return []byte(id), false
	}
	raw, _ = hex.DecodeString(id) // they are digits
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

// FromRaw returns the id of which Raw returned these.
func FromRaw(raw []byte, hexadecimal bool) string {
	if hexadecimal {
		return hex.EncodeToString(raw)
	}
	return string(raw)
}

// Leaf is a revision without successors. Value is whatever belongs to it.
type Leaf[T any] struct {
	Pos int64
	// IDs are the id of the revision, of its parent and so on; all that are known.
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

// Compare orders leaves: the winner is the last. One that is not deleted wins over one
// that is.
func (l Leaf[T]) Compare(m Leaf[T]) int {
	if l.Deleted != m.Deleted {
		if l.Deleted {
			return -1
		}
		return 1
	}
	return l.Rev().Compare(m.Rev())
}

// Tree is the leaves of a document, in the order of [Leaf.Compare]. The zero value is that
// of a document that does not exist.
type Tree[T any] []Leaf[T]

// Winner returns the winning leaf, nil if there is no leaf.
func (t Tree[T]) Winner() *Leaf[T] {
	if len(t) == 0 {
		return nil
	}
	return &t[len(t)-1]
}

// Leaf returns the leaf of a revision, nil if there is none.
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
