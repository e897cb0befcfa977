package docstore

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// localRowsAtOnce is the number of rows that one transaction of LocalDocs reads. The largest local document has fewer.
const localRowsAtOnce = 100

// LocalDocsOptions says what [Database.LocalDocs] yields. The zero value yields all local documents.
type LocalDocsOptions struct {
	// Start and End are the first and the last id. Empty is no bound. With Descending the ids go down from Start to
	// End. ExclusiveEnd leaves End out.
	Start, End   string
	ExclusiveEnd bool
	Descending   bool
}

// LocalDocs yields the local documents in byte order of their ids. It reads all bodies, at most some megabytes per
// transaction.
func (db *Database) LocalDocs(ctx context.Context, opts LocalDocsOptions) iter.Seq2[*LocalDocument, error] {
	within := localRange(db.keys.local, opts)
	return func(yield func(*LocalDocument, error) bool) {
		for {
			docs, err := db.localPage(ctx, within, opts.Descending)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, doc := range docs {
				if !yield(doc, nil) {
					return
				}
			}
			if len(docs) == 0 {
				return
			}
			// The chunks of the last document are behind it.
			if last := rows.Range(db.keys.local.Sub(docs[len(docs)-1].ID)); opts.Descending {
				within.End = last.Begin
			} else {
				within.Begin = last.End
			}
		}
	}
}

// localRange returns the range of the keys (id, chunk) below s.
func localRange(s tuple.Subspace, opts LocalDocsOptions) kv.KeyRange {
	r := rows.Range(s)
	low, high := opts.Start, opts.End
	if opts.Descending {
		low, high = high, low
	}
	cut := func(id string) string { return id[:min(len(id), MaxIDSize)] } // longer ids are no keys
	if low != "" {
		first := rows.Range(s.Sub(cut(low)))
		r.Begin = first.Begin
		if len(low) > MaxIDSize || opts.Descending && opts.ExclusiveEnd {
			r.Begin = first.End
		}
	}
	if high != "" {
		last := rows.Range(s.Sub(cut(high)))
		r.End = last.End
		if len(high) <= MaxIDSize && !opts.Descending && opts.ExclusiveEnd {
			r.End = last.Begin
		}
	}
	if bytes.Compare(r.Begin, r.End) > 0 {
		r.End = r.Begin
	}
	return r
}

// localPage reads the first documents of a range, or its last ones, the last one first.
func (db *Database) localPage(ctx context.Context, within kv.KeyRange, descending bool) ([]*LocalDocument, error) {
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) ([]*LocalDocument, error) {
		exists := db.exists(tx.Snapshot())
		pairs, err := tx.Snapshot().GetRange(within, kv.RangeOptions{Limit: localRowsAtOnce, Reverse: descending}).Slice()
		if missing := exists.await(); missing != nil {
			return nil, missing
		}
		if err != nil {
			return nil, err
		}
		var docs []*LocalDocument
		for begin := 0; begin < len(pairs); {
			id, err := db.localID(pairs[begin].Key)
			if err != nil {
				return nil, err
			}
			prefix := db.keys.local.Sub(id).Bytes()
			end := begin + 1
			for end < len(pairs) && bytes.HasPrefix(pairs[end].Key, prefix) {
				end++
			}
			if end == localRowsAtOnce && begin > 0 {
				break // the rest of the document may not be there
			}
			doc, err := db.localDocument(id, pairs[begin:end], descending)
			if err != nil {
				return nil, err
			}
			docs, begin = append(docs, doc), end
		}
		return docs, nil
	})
}

func (db *Database) localID(key []byte) (string, error) {
	var id string
	t, err := db.keys.local.Unpack(key)
	if err != nil || len(t) != 2 || !rows.As(t[0], &id) {
		return "", corrupt("the key of a local document: %v (%w)", t, err)
	}
	return id, nil
}

// localDocument returns the document that chunks are of.
func (db *Database) localDocument(id string, chunks []kv.KeyValue, descending bool) (*LocalDocument, error) {
	if descending {
		slices.Reverse(chunks)
	}
	var value []byte
	for _, chunk := range chunks {
		value = append(value, chunk.Value...)
	}
	return db.openLocal(id, value)
}
