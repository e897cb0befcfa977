package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// put moves a job from one row to another, and with it everything else that says
// where the job is: queues, indexes, counts, transitions. old is what the
// transaction read, nil for a job that is not there; next is what shall be, nil
// for a job that is to go. A next that is to have a row in ready or active has an
// incomplete versionstamp as its sequence; no two jobs of one transaction have
// the same order. A job that becomes ready needs its owner in line: see [Type.enlist].
//
// Counts and transitions change only with a status that this transaction read,
// so that a repeated transaction finds its own work and does not do it twice.
func (t *Type) put(tx kv.Transaction, id string, old, next *row, order uint16) {
	if old != nil {
		t.clearPlace(tx, id, old)
	}
	if next == nil {
		tx.Clear(t.keys.data.Pack(id))
	} else {
		t.setPlace(tx, id, next)
		t.setRow(tx, id, next)
	}
	before, after := statusOf(old), statusOf(next)
	if before != after || next != nil && (old.owner != next.owner || old.part() != next.part()) {
		if old != nil {
			t.index(tx, id, old, -1)
		}
		if next != nil {
			t.index(tx, id, next, 1)
		}
	}
	if before != after {
		t.transition(tx, id, after, order)
	}
}

func statusOf(r *row) Status {
	if r == nil {
		return removed
	}
	return r.status
}

// clearPlace removes the job's row in delayed, ready, active or expiry.
func (t *Type) clearPlace(tx kv.Transaction, id string, r *row) {
	switch {
	case r.waits():
		tx.Clear(t.keys.delayed.Pack(r.scheduled, id))
	case r.status == Pending:
		tx.Clear(t.keys.ready.Pack(r.owner, *r.sequence, id))
	case r.status == Running:
		tx.Clear(t.keys.active.Pack(*r.sequence, id))
	case r.expires != nil:
		tx.Clear(t.keys.expiry.Pack(*r.expires, id))
	}
}

// setPlace writes the job's row in delayed, ready, active or expiry.
func (t *Type) setPlace(tx kv.Transaction, id string, r *row) {
	switch {
	case r.waits():
		tx.Set(t.keys.delayed.Pack(r.scheduled, id), []byte(r.owner))
		tx.Atomic(kv.MutationAdd, t.keys.watchReady, littleEndian(1))
	case r.status == Pending:
		t.stamped(tx, t.keys.ready.Sub(r.owner), r.sequence.UserVersion, id, "")
		tx.Atomic(kv.MutationAdd, t.keys.watchReady, littleEndian(1))
	case r.status == Running:
		t.stamped(tx, t.keys.active, r.sequence.UserVersion, id, string(packTimeout(r.timeout)))
	case r.expires != nil:
		tx.Set(t.keys.expiry.Pack(*r.expires, id), nil)
	}
}

func (t *Type) setRow(tx kv.Transaction, id string, r *row) {
	if r.sequence == nil {
		tx.Set(t.keys.data.Pack(id), r.tuple().Pack())
		return
	}
	// The only error is that of a tuple without exactly one incomplete stamp, and
	// sequence is one.
	value, err := r.tuple().PackWithVersionstamp(nil)
	if err != nil {
		panic(err)
	}
	tx.SetVersionstampedValue(t.keys.data.Pack(id), value)
}

// index adds the job to the indexes and counts, or with n = -1 takes it out.
func (t *Type) index(tx kv.Transaction, id string, r *row, n int64) {
	for _, key := range t.indexKeys(id, r) {
		if n > 0 {
			tx.Set(key, nil)
		} else {
			tx.Clear(key)
		}
	}
	tx.Atomic(kv.MutationAdd, t.keys.count.Pack(r.part().elements()...), littleEndian(n))
	tx.Atomic(kv.MutationAdd, t.keys.ownedCount.Pack(r.owner, string(r.status)), littleEndian(n))
	if r.tag != "" {
		tx.Atomic(kv.MutationAdd, t.keys.ownedTagged.Pack(r.owner, string(r.status), r.tag), littleEndian(n))
	}
}

// indexKeys are the job's in status and owned.
func (t *Type) indexKeys(id string, r *row) [2][]byte {
	p := r.part()
	return [2][]byte{
		t.keys.status.Pack(string(p.Status), p.Label, p.Tag, id),
		t.keys.owned.Pack(r.owner, string(p.Status), p.Label, p.Tag, id),
	}
}

// transition tells those who follow the job.
func (t *Type) transition(tx kv.Transaction, id string, after Status, order uint16) {
	t.stamped(tx, t.keys.transitions, order, id, string(after))
	tx.Atomic(kv.MutationAdd, t.keys.watchTransitions, littleEndian(1))
}

// stamped sets the key (stamp, id) of s.
func (t *Type) stamped(tx kv.Transaction, s tuple.Subspace, order uint16, id, value string) {
	key, err := s.PackWithVersionstamp(tuple.IncompleteVersionstamp(order), id)
	if err != nil {
		panic(err) // as in setRow
	}
	tx.SetVersionstampedKey(key, []byte(value))
}

// queued is the row of a job that is to wait until scheduled, or whose time has
// come.
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

// queue is put for a job that is to wait, and brings its owner into line if it is ready.
func (t *Type) queue(tx kv.Transaction, line *line, id string, old, next *row, order uint16) error {
	if !next.waits() {
		if err := line.enlist(next.owner); err != nil {
			return err
		}
	}
	t.put(tx, id, old, next, order)
	return nil
}

func stamp(order uint16) *tuple.Versionstamp {
	s := tuple.IncompleteVersionstamp(order)
	return &s
}

// readRow starts reading a job's row.
func (t *Type) readRow(tx kv.ReadTransaction, id string) kv.Future[[]byte] {
	return tx.Get(t.keys.data.Pack(id))
}

// awaitRow returns the row that readRow reads, nil if there is no such job.
func awaitRow(f kv.Future[[]byte]) (*row, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return nil, err
	}
	return parseRow(value)
}
