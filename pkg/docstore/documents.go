package docstore

import (
	"settee/pkg/kv"
)

// documentsAtOnce is how many documents one transaction reads for a listing.
const documentsAtOnce = 100

// documentsRead is documents that are being read for a listing, whose rows say which
// revision wins and how large it is.
type documentsRead struct {
	reads []listedRead
	size  int64
}

type listedRead struct {
	db     *Database
	id     string
	rev    Rev
	winner *winnerRead
	tree   *treeRead
	body   kv.RangeResult
}

// add begins to read a document, unless there is no room for it in memory.
func (d *documentsRead) add(db *Database, tx kv.ReadTransaction, id string, rev Rev, size int64, conflicts bool) bool {
	if d.size += size; d.size > bodiesAtOnce && len(d.reads) > 0 {
		return false
	}
	r := listedRead{db: db, id: id, rev: rev, body: readAll(tx, db.keys.body(id, rev))}
	if conflicts {
		tree := db.readTree(tx, id)
		r.tree = &tree
	} else {
		winner := db.readWinner(tx, id)
		r.winner = &winner
	}
	d.reads = append(d.reads, r)
	return true
}

func (r *listedRead) await() (*Document, error) {
	var tree leafTree
	var l *leaf
	var err error
	if r.tree != nil {
		tree, err = r.tree.await()
		l = tree.Winner()
	} else {
		l, err = r.winner.await()
	}
	if err != nil {
		return nil, err
	}
	if l == nil || Rev(l.Rev()) != r.rev {
		return nil, corrupt("document %s: the winner %s is not in its leaves", quote(r.id), r.rev)
	}
	doc, err := r.db.documentOf(r.id, l, r.body)
	if err != nil {
		return nil, inDocument(r.id, err)
	}
	if r.tree != nil {
		doc.conflicts(tree)
	}
	return doc, nil
}
