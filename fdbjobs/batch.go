package fdbjobs

import (
	"math"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// Claimers that wait for jobs watch the key watch_ready. A transaction that makes a job ready changes it. A transaction
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

// writtenAtOnce is the size of entries and tallies that a transaction writes for several jobs, in bytes: a tenth of what it
// may have. Few jobs have so many.
const writtenAtOnce = 1_000_000

// batch is the jobs whose rows one transaction writes.
//
// A transaction that makes a job ready conflicts on the owner's key in waiting, which is written only when an owner
// enters or leaves the line. So transactions that add jobs of one owner do not conflict, and neither do changes of its
// usage.
type batch struct {
	queue *Queue
	tx    kv.Transaction

	waiting map[string]kv.Future[[]byte] // the keys of owners; a nil future means that the owner is in line

	reading kv.RangeResult // the first row in delayed that counts; nil before the read is started
	read    bool           // first is set
	first   int64          // the time from which on a delayed job wakes no claimer

	version *int64 // of rows that are added; nil before it is known
	written int    // the size of entries and tallies that were written, in bytes
}

func (q *Queue) batch(tx kv.Transaction) *batch {
	return &batch{queue: q, tx: tx}
}

// full reports whether other jobs are for another transaction.
func (b *batch) full() bool { return b.written >= writtenAtOnce }

// want starts reading what put needs for a job of an owner, which is scheduled for a time.
func (b *batch) want(owner string, scheduled int64) {
	if now := b.queue.layer.now().Unix(); scheduled > now {
		b.wantFirst(now)
	} else {
		b.wantOwner(owner)
	}
}

// wantOwner starts reading whether an owner is in the line.
func (b *batch) wantOwner(owner string) {
	if _, ok := b.waiting[owner]; !ok {
		if b.waiting == nil {
			b.waiting = map[string]kv.Future[[]byte]{}
		}
		b.waiting[owner] = b.tx.Get(b.queue.share.waiting.Pack(owner))
	}
}

// enterLine puts the owner of a job that becomes ready into the line. It is called before that job's put. An owner without
// jobs begins with the lowest usage of the others: its earlier use, or lack of use, does not count.
func (b *batch) enterLine(owner string) error {
	b.wantOwner(owner)
	if b.waiting[owner] == nil {
		return nil
	}
	value, err := b.waiting[owner].Await()
	if err == nil && value == nil {
		err = b.queue.share.enter(b.tx, owner, rankWaiting)
	}
	if err == nil {
		b.waiting[owner] = nil
	}
	return err
}

// wantFirst starts reading the first row in delayed that counts.
func (b *batch) wantFirst(now int64) {
	if b.reading == nil {
		delayed := b.queue.keys.delayed
		b.reading = b.tx.Snapshot().GetRange(rows.From(delayed, delayed.Pack(now+soon)), kv.RangeOptions{Limit: 1})
	}
}

// putAll puts the rows that next returns for the rows of jobs, unless it returns nil, until the batch is full. It reports for
// each id whether it did. The ids must differ.
func (b *batch) putAll(ids []string, next func(i int, old *row) *row) (put []bool, err error) {
	olds, err := b.queue.readRows(b.tx, ids)
	if err != nil {
		return nil, err
	}
	nexts, put := make([]*row, len(ids)), make([]bool, len(ids))
	for i, old := range olds {
		if old != nil {
			nexts[i] = next(i, old)
		}
		if nexts[i] != nil {
			b.want(old.owner, nexts[i].scheduled)
		}
	}
	for i, next := range nexts {
		if put[i] = next != nil && !b.full(); put[i] {
			if err := b.put(ids[i], olds[i], next); err != nil {
				return nil, err
			}
		}
	}
	return put, nil
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
