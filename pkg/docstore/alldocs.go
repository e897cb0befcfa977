package docstore

import (
	"context"
	"iter"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// AllDocsOptions says what [Database.AllDocs] yields. The zero value yields all documents.
type AllDocsOptions struct {
	// Start and End are the first and the last id. Empty is no bound. With Descending the ids go down from Start to
	// End. ExclusiveEnd leaves End out.
	Start, End   string
	ExclusiveEnd bool
	Descending   bool
	// Keys, if not nil, are the ids to look up instead, in this order.
	Keys []string
	// Skip is the number of rows to leave out at the beginning. Each costs as much as a row. Limit is the maximum
	// number of rows. 0 is no limit.
	Skip, Limit int
	// Documents reads the winning revisions, up to 1 MB at a time or one larger document. Conflicts fills the field of
	// that name. LargeBody is as in [GetOptions].
	Documents, Conflicts bool
	LargeBody            int64
}

// DocRow is a row of a listing.
type DocRow struct {
	ID string
	// Rev is the winning revision, or zero for a key without a document.
	Rev Rev
	// Deleted is set for deleted documents, which are only listed for Keys.
	Deleted bool
	// Document is the winning revision, if it was requested and is not deleted.
	Document *Document
}

// AllDocs yields the documents that are not deleted, in byte order of their ids, or the documents of opts.Keys. It
// reads some hundred documents per transaction.
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
			case skip > 0: // skipped rows are only counted
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
			}
			if left -= len(rows); opts.Limit > 0 && left == 0 {
				return
			}
		}
	}
}

// docsPager reads a listing in pages.
type docsPager struct {
	db     *Database
	opts   AllDocsOptions
	within kv.KeyRange // what remains, without Keys
	keys   []string    // what remains of Keys
	done   bool
}

// docsPage is what one transaction has read.
type docsPage struct {
	rows []DocRow
	last []byte // the key of the last row
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
		Limit: most, Reverse: p.opts.Descending,
	}).Slice()
	if err != nil {
		return page, err
	}
	docs := documentsRead{large: p.opts.LargeBody}
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

// keyed looks up keys, which may have deleted documents or none.
func (p *docsPager) keyed(tx kv.ReadTransaction, keys []string, documents bool) (page docsPage, err error) {
	reads := make([]*winnerRead, len(keys))
	for i, id := range keys {
		if checkID(id) == nil {
			winner := p.db.readWinner(tx, id)
			reads[i] = &winner
		}
	}
	docs := documentsRead{large: p.opts.LargeBody}
	var rows []int // indexes in page.rows of docs.reads
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

// parseIndex returns a row and the size of the document's body.
func (db *Database) parseIndex(pair kv.KeyValue) (row DocRow, size int64, err error) {
	if row.ID, err = rows.LastString(db.keys.index, pair.Key); err != nil {
		return row, 0, err
	}
	t, err := tuple.Unpack(pair.Value)
	var raw []byte
	var isHex bool
	if err != nil || len(t) != 4 || !rows.As(t[0], &row.Rev.Pos) || !rows.As(t[1], &raw) || !rows.As(t[2], &isHex) || !rows.As(t[3], &size) {
		return row, 0, corrupt("a document in the index: %v (%w)", t, err)
	}
	row.Rev.ID = revtree.FromRaw(raw, isHex)
	return row, size, nil
}
