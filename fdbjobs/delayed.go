package fdbjobs

import (
	"context"
	"math"
	"slices"

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
		b.reading = b.queue.firstDelayed(b.tx.Snapshot(), now+soon)
	}
}

// delay wakes the claimers for a job that is delayed until a time, unless there is an earlier row.
func (b *batch) delay(scheduled int64) error {
	if !b.read {
		b.wantFirst(b.queue.layer.now().Unix())
		found, err := b.reading.Await()
		if err != nil {
			return err
		}
		b.read, b.first = true, math.MaxInt64
		for _, d := range found { // one
			b.first = d.scheduled
			b.tx.AddReadConflictKey(d.key)
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
		opts := kv.RangeOptions{Limit: min(promoteBatch*partition.claimers, maxWindow)}
		all, err := readAll(tx.Snapshot(), due, opts, q.parseDelayed).Await()
		if err != nil {
			return err
		}
		jobs := slices.DeleteFunc(slices.Clone(all), func(d delayedJob) bool { return !partition.has(d.key) })
		if len(jobs) == 0 {
			jobs = all
			random.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
		}
		jobs = jobs[:min(len(jobs), promoteBatch)]
		ids, batch := make([]string, len(jobs)), q.batch(tx)
		for i, d := range jobs {
			ids[i] = d.id
			batch.wantOwner(d.owner)
		}
		_, err = batch.putAll(ids, func(_ int, old *row) *row {
			if !old.waits() {
				return nil
			}
			next := queued(*old, old.scheduled, now)
			if next.tag = old.tag; !q.derivation.tagDue(next) {
				next.tag = ""
			}
			return next
		})
		return err
	})
}

// delayedJob is a row of delayed.
type delayedJob struct {
	key       []byte
	scheduled int64
	id        string
	owner     string
}

func (q *Queue) parseDelayed(pair kv.KeyValue) (d delayedJob, err error) {
	d.key, d.owner = pair.Key, string(pair.Value)
	err = rows.ScanKey("the key of a delayed job", q.keys.delayed, pair.Key, &d.scheduled, &d.id)
	return d, err
}

// firstDelayed starts reading the first row of delayed from a time on, if there is any.
func (q *Queue) firstDelayed(tx kv.ReadTransaction, from int64) kv.Future[[]delayedJob] {
	return readAll(tx, rows.From(q.keys.delayed, q.keys.delayed.Pack(from)), kv.RangeOptions{Limit: 1}, q.parseDelayed)
}
