package docstore

import (
	"context"
	"math/big"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

const (
	// clockSlack is how much later than a row says it may have been committed: MaxTransactionAge because the clock is read
	// while the transaction runs, and as much because the clocks of processes differ.
	clockSlack = 2 * kv.MaxTransactionAge
	// maxClockStep is how far a clock may be set back so that changes after that still have no earlier time than those before.
	// A row with a later time was written while a clock was wrong, and other rows do not follow it.
	maxClockStep = 24 * time.Hour
)

// changeTime returns the time of a change, in seconds since the epoch: now, or last if the clock was set back. last is the
// time of the change before in the database, and 0 if it is not known.
func changeTime(now time.Time, last int64) int64 {
	if last-now.Unix() > int64(maxClockStep.Seconds()) {
		return now.Unix()
	}
	return max(now.Unix(), last)
}

// SequenceBefore returns a sequence that is followed by all changes since a time. It is the sequence of the last change if the
// time is yet to come. Changes after it may be earlier than the time: up to clockSlack; more if a clock was ahead; and any
// number if the last change before the time has none, because [Store.Check] has repaired its row.
//
// Times are those of the clocks of the processes that write. What a process has written whose clock is behind by more than
// kv.MaxTransactionAge is found at the time that its clock had.
//
// It reads two rows for each halving of the range of the changes' stamps, and so some dozens.
func (db *Database) SequenceBefore(ctx context.Context, at time.Time) (Sequence, error) {
	search := db.searchTime(at.Add(-clockSlack))
	if err := db.searchTimes(ctx, []*timeSearch{search}); err != nil {
		return Sequence{}, err
	}
	return search.sequence(), nil
}

// searchTime begins a search in the changes of the database.
func (db *Database) searchTime(before time.Time) *timeSearch {
	return &timeSearch{space: db.keys.changes, before: before.Unix(), parse: func(pair kv.KeyValue) (timedRow, error) {
		row, err := db.parseChange(pair)
		return timedRow{pair.Key, row.Sequence, row.time}, err
	}}
}

// searchTimes makes searches in the changes of the database.
func (db *Database) searchTimes(ctx context.Context, searches []*timeSearch) error {
	return db.store.searchTimes(ctx, searches, func(tx kv.ReadTransaction) error { return db.exists(tx).await() })
}

// UpdatesBefore is [Database.SequenceBefore] for the updates of all databases.
func (s *Store) UpdatesBefore(ctx context.Context, at time.Time) (before Sequence, err error) {
	searches := make([]*timeSearch, stripes)
	for i := range searches {
		searches[i] = &timeSearch{space: s.keys.stripes[i].rows, before: at.Add(-clockSlack).Unix(), parse: func(pair kv.KeyValue) (timedRow, error) {
			row, err := s.keys.parseUpdate(pair)
			return timedRow{pair.Key, row.Sequence, row.time}, err
		}}
	}
	if err := s.searchTimes(ctx, searches, func(kv.ReadTransaction) error { return nil }); err != nil {
		return before, err
	}
	for _, search := range searches { // what one stripe has had before the time, all others have had
		before = later(before, search.sequence())
	}
	return before, nil
}

// timedRow is a row whose key has a stamp.
type timedRow struct {
	key      []byte
	sequence Sequence
	time     int64 // 0: not known
}

// timeSearch searches the rows of a range for one that was written before a time, and after which the first one was not. Times
// are nearly in the order of the rows: where they are not, it finds one of several such rows. Each will do, because
// whatever is before a row was committed before it. What it has found stays true, so its transactions may run twice.
type timeSearch struct {
	space  tuple.Subspace
	before int64 // seconds since the epoch
	parse  func(kv.KeyValue) (timedRow, error)

	begun  bool
	done   bool
	low    *timedRow // was written before the time, or has no time; nil: no such row is known
	high   *timedRow // was not; nil: no such row is known
	middle []byte    // a key between them
	left   kv.RangeResult
	right  kv.RangeResult
}

// stepsAtOnce is the number of steps in one transaction. A search has a step for each bit of a stamp at most.
const stepsAtOnce = 24

// searchTimes makes searches, some steps in each transaction. exists is called in each.
func (s *Store) searchTimes(ctx context.Context, searches []*timeSearch, exists func(kv.ReadTransaction) error) error {
	for {
		done, err := kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (done bool, err error) {
			if err := exists(tx.Snapshot()); err != nil {
				return false, err
			}
			for range stepsAtOnce {
				if done, err = step(tx.Snapshot(), searches); done || err != nil {
					break
				}
			}
			return done, err
		})
		if done || err != nil {
			return err
		}
	}
}

// step makes one step of each search, and reports whether all are done.
func step(tx kv.ReadTransaction, searches []*timeSearch) (done bool, err error) {
	for _, s := range searches {
		if !s.done {
			s.read(tx)
		}
	}
	done = true
	for _, s := range searches {
		if !s.done {
			if err := s.await(); err != nil {
				return false, err
			}
			done = done && s.done
		}
	}
	return done, nil
}

// read reads the rows around the middle: the last one before it and the first one after it. At the beginning these are the
// last one and the first one of all.
func (s *timeSearch) read(tx kv.ReadTransaction) {
	within := rows.Range(s.space)
	if !s.begun {
		s.left = tx.GetRange(within, kv.RangeOptions{Limit: 1, Reverse: true})
		s.right = tx.GetRange(within, kv.RangeOptions{Limit: 1})
		return
	}
	within = kv.KeyRange{Begin: kv.KeyAfter(s.low.key), End: s.high.key}
	s.middle = within.Begin
	if key := s.space.Pack(between(s.low.sequence.stamp, s.high.sequence.stamp)); string(key) > string(s.middle) {
		s.middle = key
	}
	s.left = tx.GetRange(kv.KeyRange{Begin: within.Begin, End: s.middle}, kv.RangeOptions{Limit: 1, Reverse: true})
	s.right = tx.GetRange(kv.KeyRange{Begin: s.middle, End: within.End}, kv.RangeOptions{Limit: 1})
}

func (s *timeSearch) await() error {
	left, err := s.awaitRow(s.left)
	if err != nil {
		return err
	}
	right, err := s.awaitRow(s.right)
	if err != nil {
		return err
	}
	if s.begun {
		s.narrow(left, right)
	} else {
		s.begin(right, left)
	}
	return nil
}

func (s *timeSearch) awaitRow(read kv.RangeResult) (*timedRow, error) {
	pairs, err := read.Slice()
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	row, err := s.parse(pairs[0])
	return &row, err
}

// isLow reports whether the row searched for is the given one or a later one.
func (s *timeSearch) isLow(row *timedRow) bool { return row.time < s.before }

// begin begins with the first and the last row.
func (s *timeSearch) begin(first, last *timedRow) {
	s.begun = true
	switch {
	case first == nil || !s.isLow(first):
		s.done = true
	case s.isLow(last):
		s.low, s.done = last, true
	default:
		s.low, s.high = first, last
	}
}

// narrow goes on with the last row before the middle and the first one after it. nil: there is none between low and high.
func (s *timeSearch) narrow(left, right *timedRow) {
	switch {
	case right != nil && s.isLow(right):
		s.low = right
		return
	case right != nil:
		s.high = right
	}
	switch {
	case left == nil:
		s.done = true
	case s.isLow(left):
		s.low, s.done = left, true
	default:
		s.high = left
	}
}

// sequence returns the sequence of the row that was found, and the zero value if all rows may have been written since the
// time: if there is no such row, or if it has no time. Then it was written before now.
func (s *timeSearch) sequence() Sequence {
	if s.low == nil || s.low.time == 0 && time.Now().Unix() >= s.before {
		return Sequence{}
	}
	return s.low.sequence
}

// between returns the stamp halfway between two.
func between(a, b tuple.Versionstamp) tuple.Versionstamp {
	sum := new(big.Int).Add(new(big.Int).SetBytes(a.Bytes()), new(big.Int).SetBytes(b.Bytes()))
	var half [12]byte
	stamp, _ := tuple.ParseVersionstamp(sum.Rsh(sum, 1).FillBytes(half[:])) // it has the length
	return stamp
}
