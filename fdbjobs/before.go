package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// DueBefore returns how many jobs of the same owner became due before a job that is due and waits, and counts no more than
// limit. more reports that there are more. A job that no process has yet moved to the owner's rows comes after all of these.
// Both are zero for a job that does not exist, or does not wait to be taken.
func (q *Queue) DueBefore(tx kv.ReadTransaction, id string, limit int) (n int, more bool, err error) {
	row, err := awaitRow(q.readRow(tx, id))
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
