package docstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

const (
	// DeletedLife is how long [Store.Updates] yields a deleted database.
	DeletedLife = 30 * 24 * time.Hour
	// judgeAfter is the time after which rows of updates are judged. Until then a transaction may run that began before
	// them, and does not see them. It is much longer than kv.MaxTransactionAge, because it is measured by the clocks of two
	// processes.
	judgeAfter = time.Minute
)

// RemoveUpdates removes rows of [Store.Updates] in one transaction, and reports whether there may be more: up to 100 of
// databases that were deleted more than [DeletedLife] ago, and those that writers at a time have left behind, among up
// to 100 rows of each stripe that no earlier call has judged. So its cost does not depend on the number of databases.
func (s *Store) RemoveUpdates(ctx context.Context) (more bool, err error) {
	now := time.Now()
	return kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (bool, error) {
		more, err := s.removeDeleted(tx, now)
		if err != nil {
			return false, err
		}
		var judges [stripes]judge
		for i := range judges {
			judges[i] = s.judge(tx, &s.keys.stripes[i], now)
		}
		for i := range judges {
			if err := judges[i].read(); err != nil {
				return false, err
			}
		}
		for i := range judges {
			left, err := judges[i].decide()
			if err != nil {
				return false, err
			}
			more = more || left
		}
		return more, nil
	})
}

// removeDeleted removes rows of databases that were deleted long ago.
func (s *Store) removeDeleted(tx kv.Transaction, now time.Time) (more bool, err error) {
	old := rows.Range(s.keys.deletions)
	old.End = s.keys.deletions.Pack(now.Add(-DeletedLife).Unix())
	pairs, err := tx.GetRange(old, kv.RangeOptions{Limit: removeAtOnce}).Slice()
	if err != nil {
		return false, err
	}
	names := make([]string, len(pairs))
	lives := make([]kv.Future[[]byte], len(pairs))
	for i, pair := range pairs {
		if names[i], err = rows.LastString(s.keys.deletions, pair.Key); err != nil {
			return false, err
		}
		lives[i] = tx.Get(s.keys.lives.Pack(names[i]))
	}
	for i, pair := range pairs {
		value, err := lives[i].Await()
		if err != nil {
			return false, err
		}
		tx.Clear(pair.Key)
		last, err := parseLife(value)
		if value == nil || err == nil && last.kind != Deleted {
			continue // Check says so
		}
		if err != nil {
			return false, err
		}
		tx.Clear(s.keys.updateKey(names[i], last.stamp))
		tx.Clear(s.keys.lives.Pack(names[i]))
	}
	return len(pairs) == removeAtOnce, nil
}

// judged is how far the rows of a stripe have been judged. Of the rows up to a place that was seen judgeAfter ago, each
// transaction that still runs sees all. So the first one that is committed from then on removes the last row of its
// database, if it is one of these: only the others may be left behind.
type judged struct {
	upTo, seen []byte // keys
	at         int64  // when seen was seen, in seconds since the epoch
}

func (j judged) pack() []byte { return tuple.Tuple{j.upTo, j.seen, j.at}.Pack() }

func parseJudged(value []byte) (j judged, err error) {
	t, err := tuple.Unpack(value)
	if err != nil || len(t) != 3 || !rows.As(t[0], &j.upTo) || !rows.As(t[1], &j.seen) || !rows.As(t[2], &j.at) {
		return judged{}, corrupt("how far updates are judged: %v (%w)", t, err)
	}
	return j, nil
}

// judge judges rows of one stripe.
type judge struct {
	store  *Store
	tx     kv.Transaction
	stripe *stripeKeys
	now    time.Time
	row    kv.Future[[]byte]
	last   kv.RangeResult
	judged judged
	found  []storedUpdate
	whole  bool // found has all rows up to what was seen
	newest []newest
}

func (s *Store) judge(tx kv.Transaction, stripe *stripeKeys, now time.Time) judge {
	return judge{
		store: s, tx: tx, stripe: stripe, now: now,
		row: tx.Get(stripe.judged), last: stripe.last(tx.Snapshot()),
	}
}

// read reads the rows to judge.
func (j *judge) read() error {
	value, err := j.row.Await()
	if err != nil {
		return err
	}
	all := rows.Range(j.stripe.rows)
	j.judged = judged{upTo: all.Begin, seen: all.Begin}
	if value != nil {
		if j.judged, err = parseJudged(value); err != nil {
			return err
		}
	}
	if j.now.Sub(time.Unix(j.judged.at, 0)) < judgeAfter {
		return nil
	}
	within := kv.KeyRange{Begin: kv.KeyAfter(j.judged.upTo), End: kv.KeyAfter(j.judged.seen)}
	pairs, err := j.tx.Snapshot().GetRange(within, kv.RangeOptions{Limit: removeAtOnce}).Slice()
	if err != nil {
		return err
	}
	if j.found, err = j.store.keys.parseUpdates(pairs); err != nil {
		return err
	}
	j.whole = len(pairs) < removeAtOnce
	j.newest = make([]newest, len(j.found))
	for i, row := range j.found {
		if row.Type == Updated {
			j.newest[i] = j.store.newest(j.tx.Snapshot(), row.Database)
		}
	}
	return nil
}

// decide removes the rows that were left behind, and reports whether more rows are to be judged now.
func (j *judge) decide() (more bool, err error) {
	for i, row := range j.found {
		if row.Type != Updated {
			continue
		}
		last, err := j.newest[i].await()
		if err != nil {
			return false, err
		}
		if last.TransactionVersion != row.Sequence.stamp.TransactionVersion {
			j.tx.Clear(row.key)
		}
	}
	switch {
	case len(j.found) > 0 && !j.whole:
		j.judged.upTo = j.found[len(j.found)-1].key
	case j.whole:
		return false, j.lookOn()
	default: // it is too early
		return false, nil
	}
	j.tx.Set(j.stripe.judged, j.judged.pack())
	return true, nil
}

// lookOn notes that all rows which were seen are judged, and sees those that there are now.
func (j *judge) lookOn() error {
	j.judged.upTo = j.judged.seen
	pairs, err := j.last.Slice()
	if err != nil {
		return err
	}
	if len(pairs) > 0 && bytes.Compare(pairs[0].Key, j.judged.seen) > 0 {
		j.judged.seen, j.judged.at = pairs[0].Key, j.now.Unix()
		j.tx.Set(j.stripe.judged, j.judged.pack())
	} else if len(j.found) > 0 {
		j.tx.Set(j.stripe.judged, j.judged.pack())
	}
	return nil
}

// newest is a pending read of the stamp of a database's last change.
type newest struct {
	store *Store
	tx    kv.ReadTransaction
	name  string
	row   kv.Future[[]byte]
}

func (s *Store) newest(tx kv.ReadTransaction, name string) newest {
	return newest{s, tx, name, tx.Get(s.keys.databases.Pack(name))}
}

// await returns the stamp, which is not complete if there is no change or no database.
func (n newest) await() (tuple.Versionstamp, error) {
	row, err := awaitDatabaseRow(n.row)
	if errors.Is(err, ErrDatabaseNotFound) {
		return tuple.IncompleteVersionstamp(0), nil
	}
	if err != nil {
		return tuple.Versionstamp{}, err
	}
	db := n.store.database(n.name, row.instance)
	return db.awaitLastStamp(db.lastRows(n.tx))
}
