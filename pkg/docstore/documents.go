package docstore

import (
	"settee/pkg/kv"
)

// documentsAtOnce is how many documents one transaction reads for a listing.
const documentsAtOnce = 100

// documentsRead is a pending read of documents for a listing, whose rows contain the winning revision and its size.
type documentsRead struct {
	reads []listedRead
	large int64 // see GetOptions.LargeBody
	size  int64 // of the bodies
}

type listedRead struct {
	db     *Database
	id     string
	rev    Rev
	leaves leavesRead
	body   kv.RangeResult
}

// add starts reading a document, and reports whether there was room for it in memory.
func (d *documentsRead) add(db *Database, tx kv.ReadTransaction, id string, rev Rev, size int64, conflicts bool) bool {
	if !db.isLarge(size, d.large) {
		d.size += size
	}
	if d.size > bodiesAtOnce && len(d.reads) > 0 {
		return false
	}
	d.reads = append(d.reads, listedRead{
		db: db, id: id, rev: rev, body: db.startBody(tx, id, rev, size, d.large), leaves: db.readLeaves(tx, id, conflicts),
	})
	return true
}

func (r *listedRead) await() (*Document, error) {
	winner, tree, err := r.leaves.await()
	if err != nil {
		return nil, err
	}
	if winner == nil || Rev(winner.Rev()) != r.rev {
		return nil, corrupt("document %s: the winner %s is not in its leaves", quote(r.id), r.rev)
	}
	doc, err := r.db.documentOf(r.id, winner, r.body)
	if err != nil {
		return nil, inDocument(r.id, err)
	}
	doc.conflicts(tree)
	return doc, nil
}
