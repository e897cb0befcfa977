package docstore

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// UpdatesOptions says what [Store.Updates] yields. The zero value yields all updates.
type UpdatesOptions struct {
	// Since leaves out all updates up to this sequence. A sequence that this store has not reached is of another one, and
	// leaves out nothing. It is ignored with Descending.
	Since Sequence
	// Limit is the maximum number of updates. 0 is no limit. Updates with the same sequence count as one.
	Limit int
	// Descending yields the last update first.
	Descending bool
}

// UpdateRow is a database's last update of a type.
type UpdateRow struct {
	// Sequence is the position of the update among the updates of all databases. It cannot be compared with sequences of
	// changes. Its number is the version of the store at the commit.
	Sequence Sequence
	Database string
	Type     UpdateType
}

// updateSequence returns the sequence of the rows with a stamp.
func updateSequence(stamp tuple.Versionstamp) Sequence {
	const most = 999_999_999_999_999_999 // of 18 digits, see sequenceForm
	return Sequence{stamp, int64(min(version(stamp), most))}
}

// version returns the version of the store at the commit that has a stamp.
func version(stamp tuple.Versionstamp) uint64 {
	return binary.BigEndian.Uint64(stamp.TransactionVersion[:])
}

// Updates is one pass over the updates of all databases.
type Updates struct {
	store *Store
	opts  UpdatesOptions
	last  Sequence
}

// Updates returns a pass over the updates of all databases: when each was created, when a document of it has last
// changed, or that it was deleted, in the order of the commits. Each commit that creates, changes or deletes a database
// has a row, until a later row of the database replaces it. No update can later appear before one that was yielded.
//
// The pass reads some hundred rows per transaction, and ends with a transaction that has found the last row. A database
// that is written by several writers at a time may appear at an earlier position, too. A deleted database appears for
// [DeletedLife].
func (s *Store) Updates(opts UpdatesOptions) *Updates {
	return &Updates{store: s, opts: opts, last: opts.Since}
}

// Last returns the sequence after which another pass continues. If All stopped at the limit or its loop was left, that
// is the last row's sequence. Otherwise it is the sequence of the last update. A descending pass cannot be continued.
func (u *Updates) Last() Sequence { return u.last }

// All yields the updates. It may be called once.
func (u *Updates) All(ctx context.Context) iter.Seq2[UpdateRow, error] {
	return func(yield func(UpdateRow, error) bool) {
		p := newUpdatesPager(u.store, u.opts)
		left := u.opts.Limit
		for first := true; !p.done; first = false {
			page, err := p.next(ctx)
			if err != nil {
				yield(UpdateRow{}, err)
				return
			}
			if first && page.foreign {
				u.last = Sequence{}
			}
			for _, row := range page.rows {
				if u.opts.Limit > 0 && left <= 0 && row.Sequence != u.last {
					return
				}
				left--
				u.last = row.Sequence
				if !yield(row.UpdateRow, nil) {
					return
				}
			}
			if p.done && !u.opts.Descending {
				u.store.noneAfter(u.last, page.version)
			}
		}
	}
}

// updatesAtOnce is how many rows of each stripe one transaction reads.
const updatesAtOnce = 50

// updatesPager reads the stripes in pages.
type updatesPager struct {
	store  *Store
	opts   UpdatesOptions
	within [stripes]kv.KeyRange // what remains
	begun  bool
	done   bool
}

func newUpdatesPager(s *Store, opts UpdatesOptions) *updatesPager {
	p := &updatesPager{store: s, opts: opts}
	p.begin(opts.Since)
	return p
}

// begin lets the pager begin after a sequence.
func (p *updatesPager) begin(since Sequence) {
	for i := range p.within {
		space := p.store.keys.stripes[i].rows
		p.within[i] = rows.Range(space)
		if since != (Sequence{}) && !p.opts.Descending {
			p.within[i].Begin = rows.Range(space.Sub(since.stamp)).End
		}
	}
}

// updatesPage is what one transaction has read.
type updatesPage struct {
	rows    []storedUpdate // in order
	within  [stripes]kv.KeyRange
	version int64 // of the store
	foreign bool  // since is of another store
	end     bool  // no rows follow
}

// next reads the next rows.
func (p *updatesPager) next(ctx context.Context) (updatesPage, error) {
	most := updatesAtOnce
	if p.opts.Limit > 0 && p.opts.Limit < most {
		most = p.opts.Limit + 1 // so that a page that ends at the limit has the next row, too
	}
	page, err := kv.TransactValue(ctx, p.store.kv, func(tx kv.Transaction) (updatesPage, error) {
		return p.read(tx.Snapshot(), most)
	})
	p.within, p.done, p.begun = page.within, page.end, true
	return page, err
}

func (p *updatesPager) read(tx kv.ReadTransaction, most int) (page updatesPage, err error) {
	page.within = p.within
	if page.version, err = tx.ReadVersion().Await(); err != nil {
		return page, err
	}
	if !p.begun && !p.opts.Descending && p.opts.Since != (Sequence{}) {
		if page.foreign = version(p.opts.Since.stamp) > uint64(page.version); page.foreign {
			p.begin(Sequence{})
			page.within = p.within
		}
	}
	var reads [stripes]kv.RangeResult
	for i := range reads {
		reads[i] = tx.GetRange(page.within[i], kv.RangeOptions{Limit: most, Reverse: p.opts.Descending})
	}
	var found [stripes][]storedUpdate
	merged := newMerge(p.opts.Descending)
	for i, read := range reads {
		pairs, err := read.Slice()
		if err != nil {
			return page, err
		}
		if found[i], err = p.store.keys.parseUpdates(pairs); err != nil {
			return page, err
		}
		merged.add(found[i], len(pairs) < most)
	}
	for i := range found {
		if n := merged.take(found[i]); n > 0 {
			page.within[i] = rest(page.within[i], found[i][n-1].key, p.opts.Descending)
		}
	}
	page.rows, page.end = merged.rows(), merged.whole
	return page, nil
}

// merge puts rows of several stripes in order. Rows behind the end of a stripe that was not read as a whole have to
// wait.
type merge struct {
	descending bool
	whole      bool      // all stripes were read as a whole
	bound      *Sequence // the end of the stripe that was read least far; nil: none
	taken      []storedUpdate
}

func newMerge(descending bool) *merge { return &merge{descending: descending, whole: true} }

// compare compares in the order of the pass.
func (m *merge) compare(a, b Sequence) int {
	if m.descending {
		a, b = b, a
	}
	return a.Compare(b)
}

// add notes how far a stripe was read.
func (m *merge) add(found []storedUpdate, whole bool) {
	if whole {
		return
	}
	m.whole = false
	if last := found[len(found)-1].Sequence; m.bound == nil || m.compare(last, *m.bound) < 0 {
		m.bound = &last
	}
}

// take takes the rows of a stripe that need not wait, and returns how many there are.
func (m *merge) take(found []storedUpdate) (n int) {
	for n < len(found) && (m.bound == nil || m.compare(found[n].Sequence, *m.bound) <= 0) {
		n++
	}
	m.taken = append(m.taken, found[:n]...)
	return n
}

// rows returns the taken rows in order, without those that others replace.
func (m *merge) rows() []storedUpdate {
	slices.SortStableFunc(m.taken, func(a, b storedUpdate) int { return m.compare(a.Sequence, b.Sequence) })
	if !m.descending {
		slices.Reverse(m.taken)
	}
	later := superseded{}
	last := slices.DeleteFunc(m.taken, func(row storedUpdate) bool { return later.is([]byte(row.Database), row.Type == Updated) })
	if !m.descending {
		slices.Reverse(last)
	}
	return last
}

// LastUpdate returns the sequence of the last update.
func (s *Store) LastUpdate(ctx context.Context) (Sequence, error) {
	return kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (last Sequence, err error) {
		var reads [stripes]kv.RangeResult
		for i := range reads {
			reads[i] = s.keys.stripes[i].last(tx.Snapshot())
		}
		for _, read := range reads {
			of, err := s.keys.awaitLast(read)
			if err != nil {
				return last, err
			}
			last = later(last, of)
		}
		return last, nil
	})
}

func (k *stripeKeys) last(tx kv.ReadTransaction) kv.RangeResult {
	return tx.GetRange(rows.Range(k.rows), kv.RangeOptions{Limit: 1, Reverse: true})
}

func (k *storeKeys) awaitLast(read kv.RangeResult) (Sequence, error) {
	pairs, err := read.Slice()
	if err != nil || len(pairs) == 0 {
		return Sequence{}, err
	}
	row, err := k.parseUpdate(pairs[0])
	return row.Sequence, err
}
