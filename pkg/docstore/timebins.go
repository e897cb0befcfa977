package docstore

import (
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// TimeBin is the number of changes in a stretch of time.
type TimeBin struct {
	// Begin is the beginning of the stretch, which ends where the next one begins. The zero of Unix time stands for changes
	// whose times are not known.
	Begin time.Time
	// Changes is the number of changes. One whose document has changed since counts in the stretch of the next change that is
	// still there.
	Changes int64
}

// binWidths are the widths of stretches of time, from the last change back. A database has at most 60 of them, as in CouchDB.
var binWidths = []struct {
	width time.Duration
	count int
}{{3 * time.Hour, 8}, {24 * time.Hour, 10}, {30 * 24 * time.Hour, 12}, {365 * 24 * time.Hour, 29}}

// searchesAtOnce bounds the rows of a step in memory: each is one value of at most 100 kB.
const searchesAtOnce = 8

// TimeBins returns the numbers of the changes in stretches of time, the first one first, without those in which there are none.
// Their sum is the number of changes in the database. The older they are, the longer are the stretches. It searches for the
// beginning of each, like [Database.SequenceBefore].
func (db *Database) TimeBins(ctx context.Context) ([]TimeBin, error) {
	all, err := db.extent(ctx)
	if err != nil {
		return nil, err
	}
	var searches []*timeSearch
	for _, begin := range all.bins() {
		searches = append(searches, db.searchTime(begin))
	}
	for some := range slices.Chunk(searches, searchesAtOnce) {
		if err := db.searchTimes(ctx, some); err != nil {
			return nil, err
		}
	}
	return binsBetween(searches, all.changes), nil
}

// extent is from when to when changes were written, in seconds since the epoch, 0 if that is unknown, and their number.
type extent struct{ first, last, changes int64 }

func (db *Database) extent(ctx context.Context) (extent, error) {
	return read(ctx, db, func(tx kv.ReadTransaction) kv.Future[extent] {
		first, last := tx.GetRange(rows.Range(db.keys.changes), kv.RangeOptions{Limit: 1}), db.lastRows(tx)
		number := tx.Get(db.keys.watch)
		return kv.Func[extent](func() (all extent, err error) {
			if all.first, err = db.awaitTime(first); err != nil {
				return all, err
			}
			if all.last, err = db.awaitTime(last); err != nil {
				return all, err
			}
			all.changes, err = rows.AwaitInt(number)
			return all, err
		})
	})
}

// awaitTime returns the time of a change, 0 if it is unknown or there is no change.
func (db *Database) awaitTime(change kv.RangeResult) (int64, error) {
	pairs, err := change.Slice()
	if err != nil || len(pairs) == 0 {
		return 0, err
	}
	row, err := db.parseChange(pairs[0])
	return row.time, err
}

// bins returns the beginnings of stretches of time, the last one first. They are multiples of the widths.
func (e extent) bins() (begins []time.Time) {
	if e.last == 0 {
		return nil
	}
	begin := e.last + 1
	for _, of := range binWidths {
		width := int64(of.width.Seconds())
		for range of.count {
			begin = (begin - 1) / width * width
			begins = append(begins, time.Unix(begin, 0))
			if begin == 0 || e.first > 0 && begin <= e.first {
				return begins
			}
		}
	}
	return begins
}

// binsBetween returns the changes between the rows that were found, the last one first, of a number of changes.
func binsBetween(searches []*timeSearch, changes int64) (bins []TimeBin) {
	add := func(begin, before int64) {
		if before < changes {
			bins = append(bins, TimeBin{time.Unix(begin, 0), changes - before})
			changes = before
		}
	}
	for _, search := range searches {
		if search.low == nil {
			add(search.before, 0)
		} else {
			add(search.before, search.low.sequence.number)
		}
	}
	add(0, 0)
	slices.Reverse(bins)
	return bins
}
