package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// DueBefore counts the jobs of the same owner that became due before a job that waits to be taken, up to limit. more reports
// whether there are others. A job that no process has yet moved to the owner's rows comes after all of these. DueBefore
// returns zero and false for a job that does not exist, or does not wait to be taken.
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
