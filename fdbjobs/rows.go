package fdbjobs

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// put replaces a job's row, and updates everything that depends on it: its place, and the entries and tallies that
// follow from it by the layer's own derivation (own.go) and by the queue's [Derivation]. All writes of rows go through it. old is the row that the transaction read, or nil if there is
// no job. next is the row to write, or nil to remove the job.
//
// What stays the same is not written. If the whole row does, only its key conflicts with other transactions, because the
// caller writes the state or the args: who reads one of them with the row relies on that. A renewal of the hold then writes
// the job's key in active alone, so nobody who watches the row wakes.
//
// Tallies change only with a row that this transaction read, so a repeated transaction does not count its own work
// twice. A tally does not become 0 by an addition, so only a subtraction looks for that.
//
// It returns the errors of [batch.addWaiting] and [batch.delay]. For a checked row it also returns ErrTooLarge and ErrInvalid, before
// it writes anything. If the row is not checked, entries over a limit are left out.
func (b *batch) put(id string, old, next *row) error {
	err := b.gather(id, old, next)
	b.writeTallies()
	return err
}

// gather is put, except that it does not write tallies: writeTallies writes the changes by all rows that were gathered. Jobs
// of one owner change the same tallies.
func (b *batch) gather(id string, old, next *row) error {
	q, tx := b.queue, b.tx
	if next.equals(old) {
		tx.AddWriteConflictKey(q.keys.data.Pack(id))
		if next != nil && next.renews {
			q.derive(id, next).set(tx)
		}
		return nil
	}
	if next != nil && old != nil {
		next.entered = old.entered
	}
	if next != nil && next.sequence != nil && !next.sequence.IsComplete() {
		next.sequence = stamp(b.queued)
		b.queued++
	}
	if next != nil && (old == nil || old.status != next.status) {
		*next.entered.of(next.status)++
	}
	had, has, err := q.bothEntries(id, old, next)
	if err != nil {
		return err
	}
	before, after := q.derive(id, old), q.derive(id, next)
	if !before.samePlace(after) {
		if err := b.queues(next); err != nil {
			return err
		}
		before.clear(tx, after)
		after.set(tx)
		if after.ready {
			tx.Add(q.keys.watchReady, 1)
		}
	}
	q.setRow(tx, id, next)
	q.putEntries(tx, id, q.ownEntries(old), q.ownEntries(next), &b.tallies)
	b.written += q.putEntries(tx, id, had, has, &b.tallies)
	return nil
}

// queues wakes the claimers for a pending job that gets a place, and makes its owner wait if the job is ready.
func (b *batch) queues(next *row) error {
	switch {
	case next == nil || next.status != Pending:
		return nil
	case next.waits():
		return b.delay(next.scheduled)
	}
	return b.addWaiting(next.owner)
}

// equals reports whether a row is the same as the one that was read.
func (r *row) equals(old *row) bool {
	if r == nil || old == nil || r == old {
		return r == old
	}
	stored := *r
	stored.checked, stored.renews = old.checked, old.renews
	return stored == *old
}

// derived are the keys that follow from a job's row.
type derived struct {
	// place is the key by which the job is found, in delayed, ready or active, with its value. A finished job has none.
	place   tuple.Subspace
	rest    tuple.Tuple // the elements of the key behind place; nil without a place
	value   []byte
	timeout time.Duration // of a hold that begins or is renewed: the value has the stamp of the transaction, and the timeout
	ready   bool          // claimers wait for it
}

// derive returns the keys of a job, none of nil.
func (q *Queue) derive(id string, r *row) derived {
	if r == nil {
		return derived{}
	}
	var d derived
	switch {
	case r.waits():
		d.place, d.rest, d.value = q.keys.delayed, tuple.Tuple{r.scheduled, id}, []byte(r.owner)
	case r.status == Pending:
		d.place, d.rest, d.ready = q.keys.ready.Sub(r.owner), tuple.Tuple{*r.sequence, id}, true
	case r.status == Running:
		d.place, d.rest = q.keys.activeOf(r.owner, r.label), tuple.Tuple{id}
		if r.renews {
			d.timeout = q.Timeout()
		}
	}
	return d
}

// key returns the key of the place, or nil if there is none. A sequence must be complete.
func (d derived) key() []byte {
	if d.rest == nil {
		return nil
	}
	return d.place.Pack(d.rest...)
}

// stamped reports whether the key of the place gets the stamp of the transaction that writes it.
func (d derived) stamped() bool {
	if d.rest == nil {
		return false
	}
	stamp, ok := d.rest[0].(tuple.Versionstamp)
	return ok && !stamp.IsComplete()
}

// samePlace reports whether the place of a row that was read stays as it is with the next row.
func (d derived) samePlace(next derived) bool {
	if d.rest == nil || next.rest == nil {
		return d.rest == nil && next.rest == nil
	}
	return !next.stamped() && next.timeout == 0 && bytes.Equal(d.key(), next.key()) && bytes.Equal(d.value, next.value)
}

// clear removes the place, unless the next one has its key.
func (d derived) clear(tx kv.Transaction, next derived) {
	if d.rest != nil && (next.stamped() || !bytes.Equal(d.key(), next.key())) {
		tx.Clear(d.key())
	}
}

// set writes the place. A sequence that is not complete becomes the stamp of the transaction.
func (d derived) set(tx kv.Transaction) {
	switch {
	case d.rest == nil:
	case d.timeout > 0:
		tx.SetVersionstampedValue(d.key(), must(tuple.Tuple{*stamp(0), d.timeout.Seconds()}.PackWithVersionstamp(nil)))
	case d.stamped():
		tx.SetVersionstampedKey(must(d.place.PackWithVersionstamp(d.rest...)), d.value)
	default:
		tx.Set(d.key(), d.value)
	}
}

// setRow writes a row, or clears it if it is nil.
func (q *Queue) setRow(tx kv.Transaction, id string, r *row) {
	switch {
	case r == nil:
		tx.Clear(q.keys.data.Pack(id))
		return
	case r.sequence == nil || r.sequence.IsComplete():
		tx.Set(q.keys.data.Pack(id), r.tuple().Pack())
		return
	}
	tx.SetVersionstampedValue(q.keys.data.Pack(id), must(r.tuple().PackWithVersionstamp(nil)))
}

// must returns what PackWithVersionstamp has packed. That fails only without exactly one incomplete stamp.
func must(packed []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return packed
}

// parseActive reads the value of a key in active: the commit that renewed the hold last, and the timeout of the holder.
func parseActive(value []byte) (renewed tuple.Versionstamp, timeout time.Duration, err error) {
	var seconds float64
	err = rows.Scan("a running job", value, &renewed, &seconds)
	if err == nil && !(seconds > 0) {
		err = fmt.Errorf("reading a running job: %w: a timeout of %v seconds", tuple.ErrMalformed, seconds)
	}
	return renewed, time.Duration(math.Round(seconds * float64(time.Second))), err
}

// queued returns the row of a job that waits until scheduled, or is ready if that time has passed.
func queued(r row, scheduled, now int64) *row {
	r.status, r.tag = Pending, ""
	r.scheduled = scheduled
	r.resubmit, r.again = nil, ""
	r.expires = nil
	r.sequence = nil
	if scheduled <= now {
		r.sequence = stamp(0)
	}
	return &r
}

// requeued returns the row of a running job that is taken from its holder. If the job was added meanwhile, it waits as it was
// added.
func (q *Queue) requeued(r *row) *row {
	now := q.layer.now().Unix()
	next, at := *r, now
	next.lock = ""
	if r.resubmit != nil {
		at = *r.resubmit
	}
	again := queued(next, at, now)
	again.tag = r.again
	if !again.waits() && !q.derivation.tagDue(again) {
		again.tag = ""
	}
	return again
}

func stamp(order uint16) *tuple.Versionstamp {
	s := tuple.IncompleteVersionstamp(order)
	return &s
}

// readRow starts reading a job's row. Its result is nil if there is no job.
func (q *Queue) readRow(tx kv.ReadTransaction, id string) kv.Future[*row] {
	return kv.Map(tx.Get(q.keys.data.Pack(id)), ifAny(nil, parseRow))
}

// readRows reads the rows of several jobs together.
func (q *Queue) readRows(tx kv.ReadTransaction, ids []string) ([]*row, error) {
	reads := make([]kv.Future[*row], len(ids))
	for i, id := range ids {
		reads[i] = q.readRow(tx, id)
	}
	return kv.All(reads)
}
