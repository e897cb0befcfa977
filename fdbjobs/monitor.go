package fdbjobs

import (
	"bytes"
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

const (
	// monitorParts is the number of a monitor's looks per timeout.
	monitorParts = 6
	// activeAtOnce is the number of running jobs that one transaction of a look reads.
	activeAtOnce = 5_000
	// requeueBatch is the number of jobs that one transaction takes from their holders.
	requeueBatch = 50
	// sweepBatch is the number of owners that a monitor checks for jobs in one look.
	sweepBatch = 300
)

// RunMonitor is the activity monitor. Until ctx ends it queues jobs again that were not updated for the timeout ([Options]),
// at most a sixth of the timeout late. Any number of monitors may run, in any processes, and at least one should. One of
// them looks for all. If that one ends, another one that has run for a timeout looks after a third of the timeout, so a job
// may be queued half of the timeout late. A monitor that runs for less than a timeout queues no jobs. RunMonitor returns ctx's
// error.
//
// After each look it calls looked, if that is not nil, with the ids of the jobs that it has taken from their holders, the
// time until the next look, and an error of the store, after which it continues. The ids may lack jobs of a commit whose
// result was unknown.
//
// It compares commits with commits: a job is overdue if it was last updated before a version that was current a timeout
// ago, by this process's own monotonic clock. No two clocks are compared.
func (q *Queue) RunMonitor(ctx context.Context, looked func(requeued []string, next time.Duration, err error)) error {
	m := newMonitor(q)
	// Rounded up: six looks from now, this one must be a whole timeout ago.
	next := (q.Timeout() + monitorParts - 1) / monitorParts
	for {
		requeued, err := m.runOnce(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if looked != nil {
			looked(requeued, next, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(next):
		}
		q.layer.pass(ctx)
	}
}

// sample is a version of the store and the time when it was current.
type sample struct {
	version int64
	at      time.Time
}

type monitor struct {
	queue   *Queue
	id      string
	samples []sample      // the oldest first
	longest time.Duration // timeout of a holder that it has read, or its own
	swept   string        // the last owner of the latest sweep, unless that was the last of all

	looks int64  // number of its looks
	lease []byte // of another monitor, at the latest look
	stale int    // number of looks since then that have found the same lease
}

func newMonitor(q *Queue) *monitor {
	return &monitor{queue: q, id: newID(q.layer.draw()), longest: q.Timeout()}
}

// staleLooks is the number of looks in which a monitor finds the same lease before it looks itself. The monitor that looks
// writes the lease in each of its looks, which may take a little longer than another one's.
const staleLooks = 2

// leads decides in a transaction whether this monitor looks for all, and writes its lease then. It looks if no other one does.
// That saves reads, and is no lock: two may look at the same time. A monitor that has not run for a timeout cannot find
// overdue jobs yet, so it leaves the lead to those that can.
func (m *monitor) leads(tx kv.Transaction, lease []byte) bool {
	of, err := parseLease(lease)
	if lease != nil && (err != nil || of != m.id) {
		_, knows := m.versionAt(time.Now().Add(-m.queue.Timeout()))
		if stale := bytes.Equal(lease, m.lease) && m.stale+1 >= staleLooks; !stale || !knows {
			return false
		}
	}
	tx.Set(m.queue.keys.monitor, tuple.Tuple{m.id, m.looks}.Pack())
	return true
}

// saw notes the lease that a look has found.
func (m *monitor) saw(lease []byte) {
	if m.looks++; bytes.Equal(lease, m.lease) {
		m.stale++
	} else {
		m.lease, m.stale = lease, 0
	}
}

// parseLease returns the id of the monitor that has a lease.
func parseLease(value []byte) (id string, err error) {
	var look int64
	err = rows.Scan("which monitor looks", value, &id, &look)
	return id, err
}

// runOnce looks once, if no other monitor does.
func (m *monitor) runOnce(ctx context.Context) (requeued []string, err error) {
	var lease []byte
	leads := false
	current, err := kv.TransactValue(ctx, m.queue.layer.db, func(tx kv.Transaction) (sample, error) {
		version, reading := tx.ReadVersion(), tx.Get(m.queue.keys.monitor)
		var err error
		if lease, err = reading.Await(); err != nil {
			return sample{}, err
		}
		leads = m.leads(tx, lease)
		v, err := version.Await()
		return sample{v, time.Now()}, err
	})
	if err != nil {
		return nil, err
	}
	m.saw(lease)
	m.samples = append(m.samples, current)
	if leads {
		requeued, err = m.queue.requeueAll(ctx, func(renewed int64, timeout time.Duration) bool {
			m.longest = max(m.longest, timeout)
			return m.overdue(current.at, renewed, timeout)
		})
	}
	m.forget(current.at.Add(-m.longest))
	if leads && err == nil {
		err = m.sweep(ctx)
	}
	return requeued, err
}

// sweep forgets owners without jobs among the next ones, and old heartbeats.
func (m *monitor) sweep(ctx context.Context) error {
	last, err := kv.TransactValue(ctx, m.queue.layer.db, func(tx kv.Transaction) (string, error) {
		claimers := m.queue.readHeartbeats(tx)
		owners, err := m.queue.share.owners(tx.Snapshot(), m.swept, sweepBatch)
		if err != nil {
			return "", err
		}
		if err := m.queue.forgetIdle(tx, owners); err != nil {
			return "", err
		}
		if err := m.queue.dropClaimers(tx, claimers); err != nil || len(owners) < sweepBatch {
			return "", err
		}
		return owners[len(owners)-1], nil
	})
	if err == nil {
		m.swept = last
	}
	return err
}

// versionAt returns the latest version that was current at a time or before.
func (m *monitor) versionAt(at time.Time) (int64, bool) {
	for _, s := range slices.Backward(m.samples) {
		if !s.at.After(at) {
			return s.version, true
		}
	}
	return 0, false
}

// forget drops samples that are no longer needed: those before the one that was current at a time.
func (m *monitor) forget(needed time.Time) {
	for len(m.samples) > 1 && !m.samples[1].at.After(needed) {
		m.samples = m.samples[1:]
	}
}

// overdue reports whether a hold was renewed for the last time a timeout ago: the timeout of the holder, which it has
// written with its renewal.
func (m *monitor) overdue(now time.Time, renewed int64, timeout time.Duration) bool {
	version, known := m.versionAt(now.Add(-timeout))
	return known && renewed <= version
}

// requeueAll queues the running jobs again that are overdue, by the version of the last renewal of their hold and the timeout
// of their holder. It reads all of active, a page in each transaction.
func (q *Queue) requeueAll(ctx context.Context, overdue func(renewed int64, timeout time.Duration) bool) (moved []string, err error) {
	for rest := rows.Range(q.keys.active); rest.Begin != nil; {
		var after []byte
		some, err := kv.TransactValue(ctx, q.layer.db, func(tx kv.Transaction) (ids []string, err error) {
			after, ids, err = q.requeueSome(tx, rest, overdue)
			return ids, err
		})
		if err != nil {
			return moved, err
		}
		moved, rest.Begin = append(moved, some...), after
	}
	return moved, nil
}

// requeueSome is requeueAll for one transaction. It returns where the next one begins, nil after the last. A renewal
// conflicts with it, but only of a job that is overdue.
func (q *Queue) requeueSome(
	tx kv.Transaction, rest kv.KeyRange, overdue func(renewed int64, timeout time.Duration) bool,
) (after []byte, moved []string, err error) {
	pairs, err := tx.Snapshot().GetRange(rest, kv.RangeOptions{Limit: activeAtOnce}).Slice()
	if err != nil {
		return nil, nil, err
	}
	if len(pairs) == activeAtOnce {
		after = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	var ids []string
	for _, pair := range pairs {
		renewed, timeout, err := parseActive(pair.Value)
		if err != nil {
			return nil, nil, err
		}
		if !overdue(stampVersion(renewed), timeout) {
			continue
		}
		id, err := rows.LastString(q.keys.active, pair.Key)
		if err != nil {
			return nil, nil, err
		}
		tx.AddReadConflictKey(pair.Key)
		if ids = append(ids, id); len(ids) == requeueBatch {
			after = kv.KeyAfter(pair.Key)
			break
		}
	}
	batch := q.batch(tx)
	put, err := batch.putAll(ids, func(_ int, old *row) *row {
		if old.status != Running {
			return nil
		}
		return q.requeued(old)
	})
	for i := range put {
		if put[i] {
			moved = append(moved, ids[i])
		}
	}
	if batch.full() { // the same rows have the rest
		after = rest.Begin
	}
	return after, moved, err
}
