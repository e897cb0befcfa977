package docstore

import (
	"context"
	"iter"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// AllDocsOptions says what [Database.AllDocs] yields. The zero value is all documents.
type AllDocsOptions struct {
	// Start and End are the first and the last id; empty is none. With Descending the ids
	// go down from Start to End. ExclusiveEnd leaves End itself out.
	Start, End   string
	ExclusiveEnd bool
	Descending   bool
	// Keys, if not nil, are the ids to look up instead, in their order.
	Keys []string
	// Skip leaves the first rows out; each costs as much as a row. Limit is how many rows
	// there are at most; 0 is no limit.
	Skip, Limit int
	// Documents reads the winning revisions, which are in memory up to 4 MB at a time, or
	// one by one; Conflicts fills that field of theirs.
	Documents, Conflicts bool
}

// DocRow is a document of a listing.
type DocRow struct {
	ID string
	// Rev is the winning revision; zero for a key of which there is no document.
	Rev Rev
	// Deleted documents are among those of Keys only.
	Deleted bool
	// Document is the winning revision, if it was asked for and is not deleted.
	Document *Document
}

// AllDocs yields the documents that are not deleted, in the order of the bytes of their
// ids; or the documents of keys. Each some hundred are of one moment.
func (db *Database) AllDocs(ctx context.Context, opts AllDocsOptions) iter.Seq2[DocRow, error] {
	p := &docsPager{db: db, opts: opts, keys: slices.Clone(opts.Keys)}
	if opts.Keys == nil {
		p.within = nameRange(db.keys.index, opts.Start, opts.End, opts.Descending, opts.ExclusiveEnd)
	} else if opts.Descending {
		slices.Reverse(p.keys) // as CouchDB does
	}
	return func(yield func(DocRow, error) bool) {
		skip, left := opts.Skip, opts.Limit
		for !p.done {
			most := rowsAtOnce
			switch {
			case skip > 0: // of these nothing but the number is needed
				most = min(most, skip)
			case opts.Documents:
				most = documentsAtOnce
			}
			if opts.Limit > 0 && skip == 0 {
				most = min(most, left)
			}
			rows, err := p.next(ctx, most, opts.Documents && skip == 0)
			if err != nil {
				yield(DocRow{}, err)
				return
			}
			if skip > 0 {
				skip -= len(rows)
				continue
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				if opts.Limit > 0 {
					if left--; left == 0 {
						return
					}
				}
			}
		}
	}
}

// docsPager reads a listing in pages.
type docsPager struct {
	db     *Database
	opts   AllDocsOptions
	within kv.KeyRange // what remains, if there are no keys
	keys   []string    // that remain
	done   bool
}

// docsPage is what one transaction has read.
type docsPage struct {
	rows []DocRow
	last []byte // the key of the last one
}

// next reads the next rows, as many as fit into memory.
func (p *docsPager) next(ctx context.Context, most int, documents bool) ([]DocRow, error) {
	page, err := kv.TransactValue(ctx, p.db.store.kv, func(tx kv.Transaction) (docsPage, error) {
		exists := p.db.exists(tx.Snapshot())
		page, err := p.page(tx.Snapshot(), most, documents)
		if missing := exists.await(); missing != nil {
			return docsPage{}, missing
		}
		return page, err
	})
	if err != nil {
		return nil, err
	}
	if p.opts.Keys != nil {
		p.keys = p.keys[len(page.rows):]
		p.done = len(p.keys) == 0
	} else {
		p.done = len(page.rows) == 0
		if !p.done {
			p.within = rest(p.within, page.last, p.opts.Descending)
		}
	}
	return page.rows, nil
}

func (p *docsPager) page(tx kv.ReadTransaction, most int, documents bool) (docsPage, error) {
	if p.opts.Keys != nil {
		return p.keyed(tx, p.keys[:min(len(p.keys), most)], documents)
	}
	return p.ranged(tx, most, documents)
}

// ranged reads the next rows of the index.
func (p *docsPager) ranged(tx kv.ReadTransaction, most int, documents bool) (page docsPage, err error) {
	pairs, err := tx.GetRange(p.within, kv.RangeOptions{
		Limit: most, Reverse: p.opts.Descending, Mode: kv.StreamWantAll,
	}).Slice()
	if err != nil {
		return page, err
	}
	var docs documentsRead
	for _, pair := range pairs {
		row, size, err := p.db.parseIndex(pair)
		if err != nil {
			return page, err
		}
		if documents && !docs.add(p.db, tx, row.ID, row.Rev, size, p.opts.Conflicts) {
			break
		}
		page.rows = append(page.rows, row)
		page.last = pair.Key
	}
	for i := range docs.reads {
		if page.rows[i].Document, err = docs.reads[i].await(); err != nil {
			return page, err
		}
	}
	return page, nil
}

// keyed looks keys up, of which there may be deleted documents or none.
func (p *docsPager) keyed(tx kv.ReadTransaction, keys []string, documents bool) (page docsPage, err error) {
	reads := make([]*winnerRead, len(keys))
	for i, id := range keys {
		if checkID(id) == nil {
			winner := p.db.readWinner(tx, id)
			reads[i] = &winner
		}
	}
	var docs documentsRead
	var rows []int // of docs.reads
	for i, id := range keys {
		row := DocRow{ID: id}
		var winner *leaf
		if reads[i] != nil {
			if winner, err = reads[i].await(); err != nil {
				return page, inDocument(id, err)
			}
		}
		if winner != nil {
			row.Rev, row.Deleted = Rev(winner.Rev()), winner.Deleted
			if documents && !row.Deleted {
				if !docs.add(p.db, tx, id, row.Rev, winner.Value.size, p.opts.Conflicts) {
					break
				}
				rows = append(rows, i)
			}
		}
		page.rows = append(page.rows, row)
	}
	for i := range docs.reads {
		if page.rows[rows[i]].Document, err = docs.reads[i].await(); err != nil {
			return page, err
		}
	}
	return page, nil
}

// parseIndex returns a row, and the size of the document's body.
func (db *Database) parseIndex(pair kv.KeyValue) (row DocRow, size int64, err error) {
	if row.ID, err = lastName(db.keys.index, pair.Key); err != nil {
		return row, 0, err
	}
	t, err := tuple.Unpack(pair.Value)
	var raw []byte
	var isHex bool
	if err != nil || len(t) != 4 || !as(t[0], &row.Rev.Pos) || !as(t[1], &raw) || !as(t[2], &isHex) || !as(t[3], &size) {
		return row, 0, corrupt("a document in the index: %v (%w)", t, err)
	}
	row.Rev.ID = revtree.FromRaw(raw, isHex)
	return row, size, nil
}
