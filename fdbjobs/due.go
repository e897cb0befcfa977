package fdbjobs

import (
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// OldestDue returns the time for which the due job that waits longest is scheduled, of all owners, or the zero time if no
// job is due. Of the jobs that are ready it reads the first one of each of the 100 owners that are served next. Jobs of
// paused owners do not count.
func (x Index) OldestDue(tx kv.ReadTransaction) (time.Time, error) {
	q := x.queue
	now := q.layer.now().Unix()
	delayed := tx.GetRange(
		kv.KeyRange{Begin: rows.Range(q.keys.delayed).Begin, End: q.keys.delayed.Pack(now + 1)}, kv.RangeOptions{Limit: 1})
	ready, err := q.firstReady(tx)
	if err != nil {
		return time.Time{}, err
	}
	oldest := now + 1
	pairs, err := delayed.Slice()
	if err != nil {
		return time.Time{}, err
	}
	for _, pair := range pairs {
		if oldest, _, err = q.parseDelayed(pair.Key); err != nil {
			return time.Time{}, err
		}
	}
	for _, row := range ready {
		if row != nil {
			oldest = min(oldest, row.scheduled)
		}
	}
	if oldest > now {
		return time.Time{}, nil
	}
	return unixTime(oldest), nil
}

// firstReady returns the rows of the first ready jobs of the owners that are served next.
func (q *Queue) firstReady(tx kv.ReadTransaction) ([]*row, error) {
	owners, err := q.share.order(tx, "", 0, ownersAtATime).next(ownersAtATime)
	if err != nil {
		return nil, err
	}
	reads := make([]kv.Future[[]kv.KeyValue], len(owners))
	for i, o := range owners {
		reads[i] = q.readReady(tx, o.owner, 1)
	}
	firsts, err := kv.All(reads)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, pairs := range firsts {
		for _, pair := range pairs {
			_, id, err := stampAndID(q.keys.ready, pair.Key)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	return q.readRows(tx, ids)
}

// DueBefore counts the jobs of the same owner that became due before a job that waits to be taken, up to limit. more
// reports whether there are others. A job that no process has yet moved to the owner's rows comes after all of these.
// DueBefore returns zero and false for a job that does not exist, or does not wait to be taken.
func (x Index) DueBefore(tx kv.ReadTransaction, id string, limit int) (n int, more bool, err error) {
	q := x.queue
	row, err := q.readRow(tx, id).Await()
	if err != nil || row == nil || row.status != Pending || row.scheduled > q.layer.now().Unix() {
		return 0, false, err
	}
	ready := rows.Range(q.keys.ready.Sub(row.owner))
	if row.sequence != nil {
		ready.End = q.keys.ready.Pack(row.owner, *row.sequence, id)
	}
	pairs, err := tx.GetRange(ready, kv.RangeOptions{Limit: limit + 1}).Slice()
	return min(len(pairs), limit), len(pairs) > limit, err
}
