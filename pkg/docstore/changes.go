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

// ChangesOptions says what [Database.Changes] yields. The zero value yields all changes.
type ChangesOptions struct {
	// Since leaves out all changes up to this sequence. It is ignored with Descending.
	Since Sequence
	// Limit is the maximum number of changes. 0 is no limit.
	Limit int
	// Descending yields the last change first.
	Descending bool
	// IDs, if not nil, are the documents whose changes are yielded, in the order of the changes. The cost is a read per
	// document, whatever the number of changes in the database.
	IDs []string
	// Documents reads the winning revisions, up to 1 MB at a time or one larger document. Conflicts fills the field of
	// that name. LargeBody is as in [GetOptions].
	Documents, Conflicts bool
	LargeBody            int64
}

// ChangeRow is the last change of a document.
type ChangeRow struct {
	Sequence Sequence
	ID       string
	// Deleted reports whether the winning revision is deleted.
	Deleted bool
	// Revs are the leaf revisions in winning order, deleted ones included.
	Revs []Rev
	// Document is the winning revision, deleted or not, if it was requested.
	Document *Document
}

// Changes is one pass over a changes feed.
type Changes struct {
	db    *Database
	opts  ChangesOptions
	last  Sequence
	count int64 // the number of the last row
}

// number gives a row its number: the writer's or, where that is too small, one more than the row before it has. So the numbers of a pass are in the order of the rows, whatever the writers knew of each other. With
// Descending, no row has a greater number than the one before it.
func (c *Changes) number(row *ChangeRow) {
	n := &row.Sequence.number
	if !c.opts.Descending {
		*n = max(*n, c.count+1)
	} else {
		*n = max(min(*n, c.count), 1)
	}
	c.count, c.last = *n, row.Sequence
}

// Changes returns a pass over the changes: each document at its last change, in the order of the changes. No change can
// later appear before one that was yielded.
//
// The pass reads some hundred rows per transaction, and ends with a transaction that has found the last row. So it has
// each document that existed when it began. A document that changes before its row is reached appears at its new
// position, one that changes later appears at both. Only a descending pass leaves out documents that change before
// their row is reached.
func (db *Database) Changes(opts ChangesOptions) *Changes {
	return &Changes{db: db, opts: opts, last: opts.Since}
}

// Last returns the sequence after which another pass continues. If All stopped at the limit or its loop was left, that
// is the last row's sequence. Otherwise it is the sequence of the database's last change or, with IDs, of the last
// change when the pass began, and at least Since. A descending pass cannot be continued.
func (c *Changes) Last() Sequence { return c.last }

// All yields the changes. It may be called once.
func (c *Changes) All(ctx context.Context) iter.Seq2[ChangeRow, error] {
	return func(yield func(ChangeRow, error) bool) {
		p, err := c.begin(ctx)
		if err != nil {
			yield(ChangeRow{}, err)
			return
		}
		c.count = c.opts.Since.number
		if c.opts.Descending {
			c.count = p.through.number
		}
		left := c.opts.Limit
		for !p.done {
			rows, err := p.next(ctx, left)
			if err != nil {
				yield(ChangeRow{}, err)
				return
			}
			for _, row := range rows {
				if c.opts.Descending && row.Sequence.Compare(p.through) == 0 {
					row.Sequence = p.through // whose number is exact
				}
				c.number(&row)
				if !yield(row, nil) {
					return
				}
			}
			if left -= len(rows); c.opts.Limit > 0 && left == 0 {
				return
			}
		}
		if c.opts.Descending {
			return
		}
		if p.through.Compare(c.opts.Since) > 0 {
			c.last = p.through
		}
		if c.last != (Sequence{}) {
			c.last.number = max(c.last.number, p.number)
		}
	}
}

// changesPager reads a feed in pages.
type changesPager struct {
	db      *Database
	opts    ChangesOptions
	through Sequence // the last change when the pass began, with IDs or Descending
	number  int64    // of the last change, when done without IDs
	done    bool

	within kv.KeyRange // what remains, without IDs
	stamps []stampOf   // of the changes that remain, with IDs
	moved  []string    // ids whose row was gone
	rounds int         // of looking for stamps
}

// stampOf is the position of a document's last change.
type stampOf struct {
	tuple.Versionstamp
	id string
}

// maxRounds is how often documents are looked up again that changed before they were reached. Each round reads those
// that changed during the previous one.
const maxRounds = 10

// begin finds the first row of the pass.
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

// changesAfter returns the range of the changes after a sequence.
func (db *Database) changesAfter(since Sequence) kv.KeyRange {
	r := rows.Range(db.keys.changes)
	if !since.stamp.IsComplete() {
		r.Begin = r.End
	} else if since != (Sequence{}) {
		r.Begin = kv.KeyAfter(db.keys.changes.Pack(since.stamp))
	}
	return r
}

// changesRange returns the range of the changes after one sequence and up to another.
func (db *Database) changesRange(since, through Sequence) kv.KeyRange {
	r := db.changesAfter(since)
	if end := kv.KeyAfter(db.keys.changes.Pack(through.stamp)); string(end) < string(r.Begin) {
		r.End = r.Begin
	} else {
		r.End = end
	}
	return r
}

// find finds the rows of the changes of ids.
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
		seq, err := parseHeader(header)
		if err != nil {
			return nil, err
		}
		if seq.Compare(p.opts.Since) > 0 && (!p.opts.Descending || seq.Compare(p.through) <= 0) {
			stamps = append(stamps, stampOf{seq.stamp, ids[i]})
		}
	}
	return stamps, nil
}

// changesPage is what one transaction has read.
type changesPage struct {
	rows  []ChangeRow
	read  int      // number of rows read, including rows that are gone
	moved []string // the ids of the rows that are gone
	last  []byte   // the key of the last row
	end   bool     // no rows follow; not set with IDs
	// number belongs to the last change.
	number int64
}

// next reads the next rows, at most limit and as many as fit into memory.
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
		if p.done, p.number = page.end, page.number; !p.done {
			p.within = rest(p.within, page.last, p.opts.Descending)
		}
	}
	return page.rows, nil
}

func (p *changesPager) readPage(tx kv.ReadTransaction, most int) (page changesPage, err error) {
	exists, number := p.db.exists(tx), tx.Get(p.db.keys.watch)
	pairs, err := p.pairs(tx, most)
	if err != nil {
		return page, err
	}
	if err := exists.await(); err != nil {
		return page, err
	}
	if page.number, err = rows.AwaitInt(number); err != nil {
		return page, err
	}
	docs := documentsRead{large: p.opts.LargeBody}
	for _, pair := range pairs {
		if pair.Value != nil {
			row, err := p.db.parseChange(pair)
			if err != nil {
				return page, err
			}
			if p.opts.Documents && !docs.add(p.db, tx, row.ID, row.Revs[0], row.size, p.opts.Conflicts) {
				break
			}
			page.rows = append(page.rows, row.ChangeRow)
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

// pairs returns the next rows. With IDs, a row has no value if the document has changed again.
func (p *changesPager) pairs(tx kv.ReadTransaction, most int) ([]kv.KeyValue, error) {
	if p.opts.IDs == nil {
		return tx.GetRange(p.within, kv.RangeOptions{
			Limit: most, Reverse: p.opts.Descending,
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

// storedChange is a row of changes.
type storedChange struct {
	ChangeRow
	size int64 // of the winner's body
	time int64 // of the change, in seconds since the epoch; 0: unknown
}

func (db *Database) parseChange(pair kv.KeyValue) (row storedChange, err error) {
	if row.Sequence.stamp, err = db.parseChangeKey(pair.Key); err != nil {
		return row, err
	}
	t, err := tuple.Unpack(pair.Value)
	if err != nil || len(t) < 5 || !rows.Store(t[:4], &row.ID, &row.size, &row.Sequence.number, &row.time) {
		return row, corrupt("a change of %d elements (%w)", len(t), err)
	}
	for i, element := range t[4:] {
		var l tuple.Tuple
		var raw []byte
		var rev Rev
		var isHex, deleted bool
		if !rows.As(element, &l) || len(l) != 4 || !rows.As(l[0], &rev.Pos) || !rows.As(l[1], &raw) || !rows.As(l[2], &isHex) || !rows.As(l[3], &deleted) {
			return row, corrupt("a leaf in a change: %v", element)
		}
		rev.ID = revtree.FromRaw(raw, isHex)
		row.Revs = append(row.Revs, rev)
		if i == 0 {
			row.Deleted = deleted
		}
	}
	return row, nil
}

// lastRead is a pending read of the last change and of its number.
type lastRead struct {
	db     *Database
	last   kv.RangeResult
	number kv.Future[[]byte]
}

func (db *Database) lastChange(tx kv.ReadTransaction) lastRead {
	return lastRead{db, db.lastRows(tx), tx.Get(db.keys.watch)}
}

// lastRows starts reading the last row in changes.
func (db *Database) lastRows(tx kv.ReadTransaction) kv.RangeResult {
	return tx.GetRange(rows.Range(db.keys.changes), kv.RangeOptions{Limit: 1, Reverse: true})
}

// awaitLastStamp returns the stamp of the last change, which is not complete if there is none.
func (db *Database) awaitLastStamp(last kv.RangeResult) (tuple.Versionstamp, error) {
	pairs, err := last.Slice()
	if err != nil {
		return tuple.IncompleteVersionstamp(0), err
	}
	return db.stampOfLast(pairs)
}

// stampOfLast returns the stamp of the last change among pairs, which has it or nothing.
func (db *Database) stampOfLast(pairs []kv.KeyValue) (tuple.Versionstamp, error) {
	if len(pairs) == 0 {
		return tuple.IncompleteVersionstamp(0), nil
	}
	return db.parseChangeKey(pairs[0].Key)
}

func (db *Database) parseChangeKey(packed []byte) (stamp tuple.Versionstamp, err error) {
	key, err := db.keys.changes.Unpack(packed)
	if err != nil || len(key) != 1 || !rows.As(key[0], &stamp) {
		return stamp, corrupt("the key of a change: %v (%w)", key, err)
	}
	return stamp, nil
}

// Await implements [kv.Future].
func (r lastRead) Await() (Sequence, error) {
	pairs, err := r.last.Slice()
	if err != nil || len(pairs) == 0 {
		return Sequence{}, err
	}
	row, err := r.db.parseChange(pairs[0])
	if err != nil {
		return Sequence{}, err
	}
	row.Sequence.number, err = rows.AwaitInt(r.number)
	return row.Sequence, err
}

// UpdateSequence returns the sequence of the last change.
func (db *Database) UpdateSequence(ctx context.Context) (Sequence, error) {
	return read(ctx, db, func(tx kv.ReadTransaction) kv.Future[Sequence] { return db.lastChange(tx) })
}

// CountChanges returns the number of changes after a sequence, but at most limit. It reads each change that it counts.
func (db *Database) CountChanges(ctx context.Context, since Sequence, limit int) (int, error) {
	n := 0
	within := db.changesRange(since, since)
	within.End = rows.Range(db.keys.changes).End
	for n < limit {
		most := min(limit-n, countAtOnce)
		pairs, err := read(ctx, db, func(tx kv.ReadTransaction) kv.Future[[]kv.KeyValue] {
			return kv.Func[[]kv.KeyValue](tx.GetRange(within, kv.RangeOptions{Limit: most}).Slice)
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
