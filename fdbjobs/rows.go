package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// put replaces a job's row, and updates everything that depends on it: its place, index and counter. old is
// the row that the transaction read, or nil if there is no job. next is the row to write, or nil to remove the job. If
// next belongs in ready or active, its sequence is an incomplete versionstamp whose order is unique within the
// transaction. Pending jobs are put by [batch.put].
//
// Counts change only with a status that this transaction read, so a repeated transaction does not count its own work
// twice.
func (q *Queue) put(tx kv.Transaction, id string, old, next *row) {
	if old != nil {
		if place := q.place(id, old); place != nil {
			tx.Clear(place)
		}
	}
	before, after := statusOf(old), statusOf(next)
	if next == nil {
		tx.Clear(q.keys.data.Pack(id))
	} else {
		if old != nil {
			next.entered = old.entered
		}
		if before != after {
			*next.entered.of(after)++
		}
		q.setPlace(tx, id, next)
		q.setRow(tx, id, next)
	}
	if before != after || next != nil && (old.owner != next.owner || old.part() != next.part()) {
		if old != nil {
			q.index(tx, id, old, -1)
		}
		if next != nil {
			q.index(tx, id, next, 1)
		}
	}
}

func statusOf(r *row) Status {
	if r == nil {
		return removed
	}
	return r.status
}

// place returns the key of a job's place: its row in delayed, ready, active or expiry. It is nil for a finished job that
// does not expire.
func (q *Queue) place(id string, r *row) []byte {
	switch {
	case r.waits():
		return q.keys.delayed.Pack(r.scheduled, id)
	case r.status == Pending:
		return q.keys.ready.Pack(r.owner, *r.sequence, id)
	case r.status == Running:
		return q.keys.activeOf(id).Pack(*r.sequence, id)
	case r.expires != nil:
		return q.keys.expiry.Pack(*r.expires, id)
	}
	return nil
}

// setPlace writes a job's place. A place in ready or active is at the stamp of the transaction.
func (q *Queue) setPlace(tx kv.Transaction, id string, r *row) {
	switch {
	case r.waits():
		tx.Set(q.keys.delayed.Pack(r.scheduled, id), []byte(r.owner))
	case r.status == Pending:
		q.stamped(tx, q.keys.ready.Sub(r.owner), r.sequence.UserVersion, id, "")
		tx.Add(q.keys.watchReady, 1)
	case r.status == Running:
		q.stamped(tx, q.keys.activeOf(id), r.sequence.UserVersion, id, string(packTimeout(r.timeout)))
	case r.expires != nil:
		tx.Set(q.keys.expiry.Pack(*r.expires, id), nil)
	}
}

func (q *Queue) setRow(tx kv.Transaction, id string, r *row) {
	if r.sequence == nil {
		tx.Set(q.keys.data.Pack(id), r.tuple().Pack())
		return
	}
	// PackWithVersionstamp fails only without exactly one incomplete stamp, and sequence is one.
	value, err := r.tuple().PackWithVersionstamp(nil)
	if err != nil {
		panic(err)
	}
	tx.SetVersionstampedValue(q.keys.data.Pack(id), value)
}

// index adds the job to its owner's index and counters, or removes it if n is -1.
func (q *Queue) index(tx kv.Transaction, id string, r *row, n int64) {
	if key := q.indexKey(id, r); n > 0 {
		tx.Set(key, nil)
	} else {
		tx.Clear(key)
	}
	tx.AddOrClear(q.keys.counterOf(r), n)
}

// indexKey returns the job's key in owned.
func (q *Queue) indexKey(id string, r *row) []byte {
	return q.keys.owned.Pack(r.owner, string(r.status), r.label, r.tag, id)
}

// stamped sets the key (stamp, id) of s.
func (q *Queue) stamped(tx kv.Transaction, s tuple.Subspace, order uint16, id, value string) {
	key, err := s.PackWithVersionstamp(tuple.IncompleteVersionstamp(order), id)
	if err != nil {
		panic(err) // as in setRow
	}
	tx.SetVersionstampedKey(key, []byte(value))
}

// queued returns the row of a job that waits until scheduled, or is ready if that time has passed.
func queued(r row, scheduled, now int64, order uint16) *row {
	r.status, r.tag = Pending, ""
	r.scheduled = scheduled
	r.resubmit = nil
	r.expires = nil
	r.sequence = nil
	if scheduled <= now {
		r.sequence = stamp(order)
	}
	return &r
}

func stamp(order uint16) *tuple.Versionstamp {
	s := tuple.IncompleteVersionstamp(order)
	return &s
}

func (q *Queue) readRow(tx kv.ReadTransaction, id string) kv.Future[[]byte] {
	return tx.Get(q.keys.data.Pack(id))
}

// awaitRow returns the row that readRow reads, or nil if there is no job.
func awaitRow(f kv.Future[[]byte]) (*row, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return nil, err
	}
	return parseRow(value)
}
