package docstore

import (
	"context"
	"iter"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// ChangesOptions says what [Database.Changes] yields. The zero value is all changes.
type ChangesOptions struct {
	// Since leaves out the changes up to it. It has no meaning with Descending.
	Since Sequence
	// Limit is how many changes there are at most; 0 is no limit.
	Limit int
	// Descending begins with the last change.
	Descending bool
	// IDs, if not nil, are the documents whose changes there are, in the order of the
	// changes. It costs a read for each, and not for each change of the database.
	IDs []string
	// Documents reads the winning revisions, which are in memory up to 4 MB at a time, or
	// one by one; Conflicts fills that field of theirs.
	Documents, Conflicts bool
}

// ChangeRow is the last change of a document.
type ChangeRow struct {
	Sequence Sequence
	ID       string
	// Deleted reports whether the winning revision is.
	Deleted bool
	// Revs are the leaf revisions, in the order in which they win; deleted ones too.
	Revs []Rev
	// Document is the winning revision, deleted or not, if it was asked for.
	Document *Document
}

// Changes is a reading of a changes feed.
type Changes struct {
	db   *Database
	opts ChangesOptions
	last Sequence
}

// Changes returns a reading of the changes: each document at its last change, in the order
// of the changes. It never ends with one that other changes will yet come before.
//
// It reads some hundred rows in each transaction, and ends with a transaction that has found
// the last of all rows. So each document that there was when it began is in it, one that
// changed before it was reached at its new place, and one that changed afterwards at both.
// Only a descending reading does not have those that changed before they were reached.
func (db *Database) Changes(opts ChangesOptions) *Changes {
	return &Changes{db: db, opts: opts, last: opts.Since}
}

// Last returns up to where the changes have been read: that of the last row, if there were
// more than the limit, or the loop over them was left; otherwise that of the last change of
// the database, or with IDs what that was when the reading began, but not less than Since.
// Another reading goes on from there.
// Descending readings cannot be gone on with.
func (c *Changes) Last() Sequence { return c.last }

// All yields the changes. It is called once.
func (c *Changes) All(ctx context.Context) iter.Seq2[ChangeRow, error] {
	return func(yield func(ChangeRow, error) bool) {
		p, err := c.begin(ctx)
		if err != nil {
			yield(ChangeRow{}, err)
			return
		}
		left := c.opts.Limit
		for !p.done {
			rows, err := p.next(ctx, left)
			if err != nil {
				yield(ChangeRow{}, err)
				return
			}
			for _, row := range rows {
				c.last = row.Sequence
				if !yield(row, nil) {
					return
				}
				if c.opts.Limit > 0 {
					if left--; left == 0 {
						return
					}
				}
			}
		}
		if p.through.Compare(c.opts.Since) > 0 && !c.opts.Descending {
			c.last = p.through
		}
	}
}

// changesPager reads a feed in pages.
type changesPager struct {
	db      *Database
	opts    ChangesOptions
	through Sequence // the last change when the reading began, if that is of interest
	done    bool

	within kv.KeyRange // what remains, if there are no ids
	stamps []stampOf   // of the ids' changes that remain
	moved  []string    // ids whose change was not there any more
	rounds int         // that stamps were looked for
}

// stampOf is where the last change of a document was.
type stampOf struct {
	tuple.Versionstamp
	id string
}

// maxRounds is how often documents are looked for that changed before they were reached. Each round reads those
// that changed during the one before.
const maxRounds = 10

// begin finds where the feed begins.
func (c *Changes) begin(ctx context.Context) (*changesPager, error) {
	p := &changesPager{db: c.db, opts: c.opts}
	if !c.opts.Descending && c.opts.IDs == nil {
		p.within = c.db.changesAfter(c.opts.Since)
		return p, nil
	}
	var err error
	if p.through, err = c.db.UpdateSequence(ctx); err != nil {
		return nil, err
	}
	if c.opts.Descending {
		p.opts.Since = Sequence{}
	}
	p.within = c.db.changesRange(p.opts.Since, p.through)
	if c.opts.IDs != nil {
		err = p.find(ctx, c.opts.IDs)
	}
	return p, err
}

// changesAfter is the range of the changes after a sequence.
func (db *Database) changesAfter(since Sequence) kv.KeyRange {
	r := keyRange(db.keys.changes)
	if stamp := since.stamp(); !stamp.IsComplete() {
		r.Begin = r.End
	} else if since != (Sequence{}) {
		r.Begin = kv.KeyAfter(db.keys.changes.Pack(stamp))
	}
	return r
}

// changesRange is the range of the changes after one sequence and up to another.
func (db *Database) changesRange(since, through Sequence) kv.KeyRange {
	r := db.changesAfter(since)
	if end := kv.KeyAfter(db.keys.changes.Pack(through.stamp())); string(end) < string(r.Begin) {
		r.End = r.Begin
	} else {
		r.End = end
	}
	return r
}

// find looks where the changes of ids are.
func (p *changesPager) find(ctx context.Context, ids []string) error {
	p.rounds++
	ids = slices.Clone(ids)
	slices.Sort(ids)
	for some := range slices.Chunk(slices.Compact(ids), rowsAtOnce) {
		found, err := kv.TransactValue(ctx, p.db.store.kv, func(tx kv.Transaction) ([]stampOf, error) {
			return p.findSome(tx.Snapshot(), some)
		})
		if err != nil {
			return err
		}
		p.stamps = append(p.stamps, found...)
	}
	slices.SortFunc(p.stamps, func(a, b stampOf) int {
		if p.opts.Descending {
			a, b = b, a
		}
		return a.Compare(b.Versionstamp)
	})
	return nil
}

func (p *changesPager) findSome(tx kv.ReadTransaction, ids []string) (stamps []stampOf, err error) {
	exists := p.db.exists(tx)
	headers := make([]kv.Future[[]byte], len(ids))
	for i, id := range ids {
		if checkID(id) == nil {
			headers[i] = tx.Get(p.db.keys.docs.Pack(id))
		}
	}
	if err := exists.await(); err != nil {
		return nil, err
	}
	for i, read := range headers {
		if read == nil {
			continue
		}
		header, err := read.Await()
		if err != nil {
			return nil, err
		}
		if header == nil {
			continue
		}
		stamp, err := parseHeader(header)
		if err != nil {
			return nil, err
		}
		seq := sequenceOf(*stamp)
		if seq.Compare(p.opts.Since) > 0 && (!p.opts.Descending || seq.Compare(p.through) <= 0) {
			stamps = append(stamps, stampOf{*stamp, ids[i]})
		}
	}
	return stamps, nil
}

// changesPage is what one transaction has read.
type changesPage struct {
	rows  []ChangeRow
	read  int      // how many rows were read: some may be gone
	moved []string // the ids of those
	last  []byte   // the key of the last one
	end   bool     // behind them there is none; for ids the pager knows
}

// next reads the next rows, as many as fit into memory and a limit.
func (p *changesPager) next(ctx context.Context, limit int) ([]ChangeRow, error) {
	most := rowsAtOnce
	if p.opts.Documents {
		most = documentsAtOnce
	}
	if limit > 0 {
		most = min(most, limit)
	}
	page, err := kv.TransactValue(ctx, p.db.store.kv, func(tx kv.Transaction) (changesPage, error) {
		return p.readPage(tx.Snapshot(), most)
	})
	if err != nil {
		return nil, err
	}
	if p.opts.IDs != nil {
		p.stamps = p.stamps[page.read:]
		p.moved = append(p.moved, page.moved...)
		if again := p.moved; len(p.stamps) == 0 && len(again) > 0 && p.rounds < maxRounds && !p.opts.Descending {
			p.moved = nil
			if err := p.find(ctx, again); err != nil {
				return nil, err
			}
		}
		p.done = len(p.stamps) == 0
	} else {
		if p.done = page.end; !p.done {
			p.within = rest(p.within, page.last, p.opts.Descending)
		}
	}
	return page.rows, nil
}

func (p *changesPager) readPage(tx kv.ReadTransaction, most int) (page changesPage, err error) {
	exists := p.db.exists(tx)
	pairs, err := p.pairs(tx, most)
	if err != nil {
		return page, err
	}
	if err := exists.await(); err != nil {
		return page, err
	}
	var docs documentsRead
	for _, pair := range pairs {
		var row ChangeRow
		var size int64
		if pair.Value != nil {
			if row, size, err = p.db.parseChange(pair); err != nil {
				return page, err
			}
			if p.opts.Documents && !docs.add(p.db, tx, row.ID, row.Revs[0], size, p.opts.Conflicts) {
				break
			}
			page.rows = append(page.rows, row)
		} else {
			page.moved = append(page.moved, p.stamps[page.read].id)
		}
		page.read++
		page.last = pair.Key
	}
	page.end = len(pairs) < most && page.read == len(pairs)
	for i := range docs.reads {
		if page.rows[i].Document, err = docs.reads[i].await(); err != nil {
			return page, err
		}
	}
	return page, nil
}

// pairs returns the next rows. Those of ids are without a value if there are newer ones.
func (p *changesPager) pairs(tx kv.ReadTransaction, most int) ([]kv.KeyValue, error) {
	if p.opts.IDs == nil {
		return tx.GetRange(p.within, kv.RangeOptions{
			Limit: most, Reverse: p.opts.Descending, Mode: kv.StreamWantAll,
		}).Slice()
	}
	stamps := p.stamps[:min(len(p.stamps), most)]
	reads := make([]kv.Future[[]byte], len(stamps))
	pairs := make([]kv.KeyValue, len(stamps))
	for i, stamp := range stamps {
		pairs[i].Key = p.db.keys.changes.Pack(stamp.Versionstamp)
		reads[i] = tx.Get(pairs[i].Key)
	}
	for i, read := range reads {
		var err error
		if pairs[i].Value, err = read.Await(); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// parseChange returns a row, and the size of the winner's body.
func (db *Database) parseChange(pair kv.KeyValue) (row ChangeRow, size int64, err error) {
	key, err := db.keys.changes.Unpack(pair.Key)
	var stamp tuple.Versionstamp
	if err != nil || len(key) != 1 || !as(key[0], &stamp) {
		return row, 0, corrupt("the key of a change: %v (%w)", key, err)
	}
	row.Sequence = sequenceOf(stamp)
	t, err := tuple.Unpack(pair.Value)
	if err != nil || len(t) < 3 || !as(t[0], &row.ID) || !as(t[1], &size) {
		return row, 0, corrupt("a change of %d elements (%w)", len(t), err)
	}
	for i, element := range t[2:] {
		var l tuple.Tuple
		var raw []byte
		var rev Rev
		var isHex, deleted bool
		if !as(element, &l) || len(l) != 4 || !as(l[0], &rev.Pos) || !as(l[1], &raw) || !as(l[2], &isHex) || !as(l[3], &deleted) {
			return row, 0, corrupt("a leaf in a change: %v", element)
		}
		rev.ID = revtree.FromRaw(raw, isHex)
		row.Revs = append(row.Revs, rev)
		if i == 0 {
			row.Deleted = deleted
		}
	}
	return row, size, nil
}

// lastRead is the last change that is being read.
type lastRead struct {
	db   *Database
	last kv.RangeResult
}

func (db *Database) lastChange(tx kv.ReadTransaction) lastRead {
	return lastRead{db, tx.GetRange(keyRange(db.keys.changes), kv.RangeOptions{Limit: 1, Reverse: true})}
}

func (r lastRead) await() (Sequence, error) {
	pairs, err := r.last.Slice()
	if err != nil || len(pairs) == 0 {
		return Sequence{}, err
	}
	row, _, err := r.db.parseChange(pairs[0])
	return row.Sequence, err
}

// UpdateSequence returns the sequence of the last change.
func (db *Database) UpdateSequence(ctx context.Context) (Sequence, error) {
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (Sequence, error) {
		exists, last := db.exists(tx.Snapshot()), db.lastChange(tx.Snapshot())
		if err := exists.await(); err != nil {
			return Sequence{}, err
		}
		return last.await()
	})
}

// CountChanges returns how many changes there are after a sequence, but counts no further
// than limit, which is what it costs.
func (db *Database) CountChanges(ctx context.Context, since Sequence, limit int) (int, error) {
	n := 0
	within := db.changesRange(since, since)
	within.End = keyRange(db.keys.changes).End
	for n < limit {
		most := min(limit-n, countAtOnce)
		pairs, err := kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			exists := db.exists(tx.Snapshot())
			pairs := tx.Snapshot().GetRange(within, kv.RangeOptions{Limit: most, Mode: kv.StreamWantAll})
			if err := exists.await(); err != nil {
				return nil, err
			}
			return pairs.Slice()
		})
		if err != nil {
			return 0, err
		}
		n += len(pairs)
		if len(pairs) < most {
			break
		}
		within = rest(within, pairs[len(pairs)-1].Key, false)
	}
	return n, nil
}

// countAtOnce is how many changes one transaction counts.
const countAtOnce = 2_000
