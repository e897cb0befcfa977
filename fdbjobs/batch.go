package fdbjobs

import (
	"settee/pkg/kv"
)

// writtenAtOnce is the size of entries and tallies that a transaction writes for several jobs, in bytes: a tenth of what it
// may have. Few jobs have so many.
const writtenAtOnce = 1_000_000

// batch is the jobs whose rows one transaction writes.
//
// A transaction that makes a job ready conflicts on the owner's key in waiting, which is written only when an owner
// begins or ceases to wait. So transactions that add jobs of one owner do not conflict, and neither do changes of its
// usage.
type batch struct {
	queue *Queue
	tx    kv.Transaction

	waiting map[string]kv.Future[[]byte] // the keys of owners; a nil future means that the owner waits

	reading kv.Future[[]delayedJob] // the first row in delayed that counts; nil before the read is started
	read    bool                    // first is set
	first   int64                   // the time from which on a delayed job wakes no claimer

	tallies tallying // the changes that are not yet written
	version *int64   // of rows that are added; nil before it is known
	written int      // the size of entries and tallies that were written, in bytes
	queued  uint16   // the number of rows that have become ready: jobs are taken in this order
}

func (q *Queue) batch(tx kv.Transaction) *batch {
	return &batch{queue: q, tx: tx}
}

// full reports whether other jobs are for another transaction.
func (b *batch) full() bool { return b.written+b.tallies.size >= writtenAtOnce }

// writeTallies writes the changes of tallies by the rows that were gathered.
func (b *batch) writeTallies() {
	b.tallies.write(b.tx)
	b.written += b.tallies.size
	b.tallies = tallying{}
}

// want starts reading what put needs for a job of an owner, which is scheduled for a time.
func (b *batch) want(owner string, scheduled int64) {
	if now := b.queue.layer.now().Unix(); scheduled > now {
		b.wantFirst(now)
	} else {
		b.wantOwner(owner)
	}
}

// wantOwner starts reading whether an owner waits.
func (b *batch) wantOwner(owner string) {
	if _, ok := b.waiting[owner]; !ok {
		if b.waiting == nil {
			b.waiting = map[string]kv.Future[[]byte]{}
		}
		b.waiting[owner] = b.tx.Get(b.queue.share.waiting.Pack(owner))
	}
}

// addWaiting makes the owner of a job that becomes ready wait. It is called before that job's put. An owner without
// jobs begins with the lowest usage of the others: its earlier use, or lack of use, does not count.
func (b *batch) addWaiting(owner string) error {
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
			if err := b.gather(ids[i], olds[i], next); err != nil {
				return nil, err
			}
		}
	}
	b.writeTallies()
	return put, nil
}
