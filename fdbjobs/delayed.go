package fdbjobs

import (
	"context"
	"math"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// Claimers that wait for jobs watch the key ready of the queue. A transaction that makes a job ready changes it. A transaction
// that delays a job changes it only if delayed has no row for an earlier time, or the same one. So a job that is due in
// an hour does not wake all claimers.
//
// The rule is safe because each waiting claimer will wake by the time of the first row in delayed:
//
//   - This is true when a claimer begins to wait. It has read the first row at the version from which it watches.
//   - It remains true when a row is removed.
//   - It remains true when a row is added. Either the key changes, or there is a row for an earlier time, by which all
//     claimers will wake.
//
// The earlier row must exist until the commit. Otherwise a claimer could begin to wait after the removal of that row and
// before the commit, and see neither. So the transaction conflicts with every removal of the row by another. It may
// remove the row itself: it has then read the job's own row, which each removal changes too. If it has added the row
// itself, it has followed the rule for that row.
//
// Rows for the past and for the next seconds do not count as earlier rows. Claimers pass over rows that are older than a
// minute by their clocks. A row that is about to be promoted would cause a conflict. If two clocks differ by more than a
// minute, a claimer may still pass over the earlier row. It sees the new one when it reads again, within 30 seconds
// ([kv.AwaitChange]).

// soon is the time from now on, in seconds, whose rows in delayed do not count as earlier rows.
const soon = 2

// wantFirst starts reading the first row in delayed that counts.
func (b *batch) wantFirst(now int64) {
	if b.reading == nil {
		delayed := b.queue.keys.delayed
		b.reading = b.tx.Snapshot().GetRange(rows.From(delayed, delayed.Pack(now+soon)), kv.RangeOptions{Limit: 1})
	}
}

// delay wakes the claimers for a job that is delayed until a time, unless there is an earlier row.
func (b *batch) delay(scheduled int64) error {
	if !b.read {
		b.wantFirst(b.queue.layer.now().Unix())
		pairs, err := b.reading.Slice()
		if err != nil {
			return err
		}
		b.read, b.first = true, math.MaxInt64
		if len(pairs) > 0 {
			if b.first, _, err = b.queue.parseDelayed(pairs[0].Key); err != nil {
				return err
			}
			b.tx.AddReadConflictKey(pairs[0].Key)
		}
	}
	if scheduled < b.first {
		b.tx.Add(b.queue.keys.watchReady, 1)
		b.first = math.MinInt64 // once is enough
	}
	return nil
}

// promoteBatch is the number of due jobs that one transaction moves to ready.
const promoteBatch = 100

// promote moves due jobs to ready that are scheduled from begin on. It prefers jobs in partition. When its transaction
// runs again, another claimer has probably moved the same jobs without having written a heartbeat. So it chooses others at
// random.
func (q *Queue) promote(ctx context.Context, begin int64, partition partition) error {
	random, runs := q.layer.draw(), 0
	return q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if runs++; runs > 1 {
			claimers := min(2*partition.claimers, maxPartitions)
			partition = partitionOf(random.IntN(claimers), claimers)
		}
		now := q.layer.now().Unix()
		due := kv.KeyRange{Begin: q.keys.delayed.Pack(begin), End: q.keys.delayed.Pack(now + 1)}
		pairs, err := tx.Snapshot().GetRange(due, kv.RangeOptions{Limit: min(promoteBatch*partition.claimers, maxWindow)}).Slice()
		if err != nil {
			return err
		}
		owners := make(map[string]string, len(pairs)) // by key
		for _, pair := range pairs {
			owners[string(pair.Key)] = string(pair.Value)
		}
		keys, others := partition.split(pairs)
		if len(keys) == 0 {
			keys = others
			random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		}
		keys = keys[:min(len(keys), promoteBatch)]
		ids, batch := make([]string, len(keys)), q.batch(tx)
		for i, key := range keys {
			if _, ids[i], err = q.parseDelayed(key); err != nil {
				return err
			}
			batch.wantOwner(owners[string(key)])
		}
		_, err = batch.putAll(ids, func(i int, old *row) *row {
			if !old.waits() {
				return nil
			}
			next := queued(*old, old.scheduled, now, uint16(i))
			if next.tag = old.tag; !q.derivation.tagDue(next) {
				next.tag = ""
			}
			return next
		})
		return err
	})
}

// parseDelayed returns the time and the job id of a key in delayed.
func (q *Queue) parseDelayed(key []byte) (scheduled int64, id string, err error) {
	err = rows.ScanKey("the key of a delayed job", q.keys.delayed, key, &scheduled, &id)
	return scheduled, id, err
}
