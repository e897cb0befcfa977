package docstore

import (
	"fmt"
	"slices"
	"strings"

	"settee/pkg/docjson"
	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// maxChangeSize is the maximum size of a row in changes, which is one value.
const maxChangeSize = 90_000

// checkTree returns ErrTooManyLeaves if a document has more leaves than fit into its row in changes.
func checkTree(t leafTree) error {
	if len(t) > MaxLeaves {
		return fmt.Errorf("%w: %d leaf revisions; the most is %d", ErrTooManyLeaves, len(t), MaxLeaves)
	}
	size := MaxIDSize
	for _, l := range t {
		size += maxRevSize + len(l.IDs[0]) + strings.Count(l.IDs[0], "\x00") // which tuples escape
	}
	if size > maxChangeSize {
		return fmt.Errorf("%w: the names of %d leaf revisions have %d bytes", ErrTooManyLeaves, len(t), size)
	}
	return nil
}

// maxRevSize is the maximum size of a revision in a row of changes without its id: two bytes as a tuple, nine for the
// position, two around the id, and two flags.
const maxRevSize = 15

// flush writes the changes that the edits made to a document.
func (w *writer) flush(d *docWrite) error {
	changed := w.flushLeaves(d)
	if !changed.rows {
		return nil
	}
	w.flushAttachments(d)
	if !changed.revisions {
		// Only paths have grown, which only the leaves' rows contain. Other writes of the document must still see it.
		w.tx.AddWriteConflictKey(w.db.keys.docs.Pack(d.id))
		return nil
	}
	if err := w.flushIndexes(d); err != nil {
		return err
	}
	w.count(d)
	w.changed = true
	return w.after(d)
}

// differences says whether any row has changed, and whether the set of leaf revisions has.
type differences struct{ rows, revisions bool }

func (w *writer) flushLeaves(d *docWrite) (changed differences) {
	keys := &w.db.keys
	for i := range d.old {
		old := &d.old[i]
		now := d.tree.Leaf(old.Rev())
		if now != nil && len(now.IDs) == len(old.IDs) {
			continue
		}
		changed.rows = true
		space := keys.leaf(d.id, Rev(old.Rev()), old.Deleted)
		w.tx.ClearRange(rows.Range(space))
		if now != nil {
			rows.SetChunks(w.tx, space, packLeaf(now))
			continue
		}
		changed.revisions = true
		w.tx.ClearRange(rows.Range(keys.body(d.id, Rev(old.Rev()))))
	}
	for i := range d.tree {
		l := &d.tree[i]
		if d.old.Leaf(l.Rev()) != nil {
			continue
		}
		changed = differences{true, true}
		rev := Rev(l.Rev())
		rows.SetChunks(w.tx, keys.leaf(d.id, rev, l.Deleted), packLeaf(l))
		rows.SetChunks(w.tx, keys.body(d.id, rev), w.db.sealBody(d.bodies[l.Rev()].Bytes(), place{d.id, rev}))
	}
	return changed
}

// content is the content of one or more attachments of a document's leaves.
type content struct {
	Attachment
	before, after int64 // the number of attachments that refer to it
	upload        *Upload
}

// flushAttachments counts the references of leaves to attachments' contents, and removes contents without references.
func (w *writer) flushAttachments(d *docWrite) {
	contents := map[[16]byte]*content{}
	get := func(a Attachment) *content {
		c := contents[a.key]
		if c == nil {
			c = &content{Attachment: a}
			contents[a.key] = c
		}
		return c
	}
	for _, l := range d.old {
		for _, a := range l.Value.attachments {
			get(a).before++
		}
	}
	for _, l := range d.tree {
		for _, a := range l.Value.attachments {
			get(a).after++
		}
	}
	for upload := range d.fresh {
		get(upload.attachment).upload = upload
	}
	var delta int64
	for _, c := range contents {
		delta += w.flushContent(d, c)
	}
	add(w.tx, w.db.keys.attachmentBytes, delta)
}

// flushContent writes one content, and returns the change of the stored bytes.
func (w *writer) flushContent(d *docWrite, c *content) int64 {
	keys := &w.db.keys
	if c.upload != nil {
		w.tx.Clear(c.upload.row())
	} else if c.before == c.after {
		return 0
	}
	blob := keys.blobs.Pack(d.id, c.key[:])
	if c.after == 0 {
		w.tx.Clear(blob)
		w.tx.ClearRange(rows.Range(keys.chunks.Sub(d.id, c.key[:])))
	} else {
		w.tx.Set(blob, tuple.Tuple{c.StoredLength, c.MD5[:], c.after}.Pack())
	}
	switch {
	case c.before == 0 && c.after > 0:
		return c.StoredLength
	case c.before > 0 && c.after == 0:
		return -c.StoredLength
	}
	return 0
}

// flushIndexes writes the document's header and its rows in changes and all.
func (w *writer) flushIndexes(d *docWrite) error {
	keys := &w.db.keys
	w.changes++
	stamp := tuple.IncompleteVersionstamp(d.order)
	header, err := tuple.Tuple{stamp, w.changes}.PackWithVersionstamp(nil)
	if err != nil {
		return err
	}
	w.tx.SetVersionstampedValue(keys.docs.Pack(d.id), header)
	if d.sequence != (Sequence{}) {
		w.tx.Clear(keys.changes.Pack(d.sequence.stamp))
	}
	key, err := keys.changes.PackWithVersionstamp(stamp)
	if err != nil {
		return err
	}
	w.tx.SetVersionstampedKey(key, packChange(d.id, w.changes, w.time, d.tree))
	before, after := d.old.Winner(), d.tree.Winner()
	switch {
	case !after.Deleted:
		w.tx.Set(keys.index.Pack(d.id), packIndex(after))
	case before != nil && !before.Deleted:
		w.tx.Clear(keys.index.Pack(d.id))
	}
	return nil
}

// packChange returns a document's value in changes: its id, the size of the winner's body, the number and the time of the
// change, which is 0 if it is not known, and the leaves, the winner first.
func packChange(id string, number, time int64, t leafTree) []byte {
	value := tuple.Tuple{id, t.Winner().Value.size, number, time}
	for _, l := range slices.Backward(t) {
		raw, isHex := revtree.Raw(l.IDs[0])
		value = append(value, tuple.Tuple{l.Pos, raw, isHex, l.Deleted})
	}
	return value.Pack()
}

// packIndex returns a document's value in all: its winner and the size of the winner's body.
func packIndex(winner *leaf) []byte {
	raw, isHex := revtree.Raw(winner.IDs[0])
	return tuple.Tuple{winner.Pos, raw, isHex, winner.Value.size}.Pack()
}

// count updates the counters for a document, and wakes waiting feeds.
func (w *writer) count(d *docWrite) {
	keys := &w.db.keys
	var docs, deleted, bodies int64
	for _, side := range []struct {
		tree leafTree
		sign int64
	}{{d.old, -1}, {d.tree, 1}} {
		for _, l := range side.tree {
			bodies += side.sign * l.Value.size
		}
		switch winner := side.tree.Winner(); {
		case winner == nil:
		case winner.Deleted:
			deleted += side.sign
		default:
			docs += side.sign
		}
	}
	add(w.tx, keys.docCount, docs)
	add(w.tx, keys.delCount, deleted)
	add(w.tx, keys.bodyBytes, bodies)
	add(w.tx, keys.watch, 1)
}

// after calls the hook After, if the document has a new winner.
func (w *writer) after(d *docWrite) error {
	after := w.db.store.hooks.After
	before, now := d.old.Winner(), d.tree.Winner()
	if after == nil || before != nil && before.Rev() == now.Rev() {
		return nil
	}
	body, added := d.bodies[now.Rev()]
	if !added {
		rev := Rev(now.Rev())
		stored, err := rows.JoinChunks(readAll(w.tx.Snapshot(), w.db.keys.body(d.id, rev)))
		if err != nil {
			return err
		}
		text, err := w.db.openBody(stored, place{d.id, rev})
		if err != nil {
			return inDocument(d.id, err)
		}
		body, _ = docjson.Parse(text) // damage is {} to the hook: it must not keep the winner from being replaced
	}
	change := d.change(now, body, before)
	change.By = w.opts.By
	change.Draft = d.drafts[now.Rev()]
	if err := after(w.tx, w.db, change); err != nil {
		return inDocument(d.id, err)
	}
	return nil
}

// change returns what a hook gets for a leaf.
func (d *docWrite) change(l *leaf, body docjson.Body, winner *leaf) *Change {
	c := &Change{
		ID: d.id, Rev: Rev(l.Rev()), Deleted: l.Deleted, Body: body, Attachments: l.Value.attachments,
	}
	if winner != nil {
		c.Winner, c.WinnerDeleted = Rev(winner.Rev()), winner.Deleted
	}
	return c
}
