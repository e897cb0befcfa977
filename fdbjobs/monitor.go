package fdbjobs

import (
	"bytes"
	"cmp"
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
	// requeueBatch is the number of jobs that one transaction takes from their holders. It is more than the number of stripes.
	requeueBatch = 50
	// sweepBatch is the number of owners that a monitor checks for jobs in one look.
	sweepBatch = 300
)

// RunMonitor is the activity monitor. Until ctx ends it queues jobs again that were not updated for the queue's timeout,
// at most a sixth of the timeout late. Any number of monitors may run, in any processes, and
// at least one should. It returns ctx's error.
//
// After each look it calls looked, if that is not nil, with the ids of the jobs that it has taken from their holders, the
// time until the next look, and an error of the store, after which it continues. The ids may lack jobs of a commit whose
// result was unknown.
//
// It compares commits with commits: a job is overdue if it was last updated before a version that was current a timeout
// ago, by this process's own monotonic clock. No two clocks are compared.
func (q *Queue) RunMonitor(ctx context.Context, looked func(requeued []string, next time.Duration, err error)) error {
	m := newMonitor(q)
	for {
		timeout, requeued, err := m.runOnce(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Rounded up: six looks from now, this one must be a whole timeout ago.
		next := (timeout + monitorParts - 1) / monitorParts
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

// activePart is what a monitor knows of a part of active.
type activePart struct {
	rows    tuple.Subspace
	head    []byte        // lower bound of the rows that may be overdue
	longest time.Duration // timeout of the rows that were not yet overdue
}

type monitor struct {
	queue   *Queue
	samples []sample // the oldest first
	parts   []*activePart
	timeout time.Duration // the queue's, at the last read
	swept   string        // the last owner of the latest sweep, unless that was the last of all
}

func newMonitor(q *Queue) *monitor {
	m := &monitor{queue: q}
	for i := range stripes {
		part := q.keys.active.Sub(i)
		m.parts = append(m.parts, &activePart{rows: part, head: part.Pack(tuple.Versionstamp{})})
	}
	return m
}

// runOnce looks once. It returns the queue's timeout, even with an error.
func (m *monitor) runOnce(ctx context.Context) (timeout time.Duration, requeued []string, err error) {
	current, err := kv.TransactValue(ctx, m.queue.layer.db, func(tx kv.Transaction) (sample, error) {
		version := tx.ReadVersion()
		var err error
		if timeout, err = m.queue.Timeout(tx.Snapshot()); err != nil {
			return sample{}, err
		}
		v, err := version.Await()
		return sample{v, time.Now()}, err
	})
	if err != nil {
		return cmp.Or(m.timeout, DefaultTimeout), nil, err
	}
	m.timeout = timeout
	m.samples = append(m.samples, current)
	if requeued, err = m.requeueOverdue(ctx, current.at); err != nil {
		return m.timeout, requeued, err
	}
	m.forget(current.at)
	return m.timeout, requeued, m.sweep(ctx)
}

// sweep forgets owners without jobs among the next ones, and old heartbeats.
func (m *monitor) sweep(ctx context.Context) error {
	last, err := kv.TransactValue(ctx, m.queue.layer.db, func(tx kv.Transaction) (string, error) {
		claimers := tx.Snapshot().GetRange(rows.Range(m.queue.keys.claimers), kv.RangeOptions{Limit: claimersAtOnce})
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

// forget drops samples that are no longer needed.
func (m *monitor) forget(now time.Time) {
	longest := m.timeout
	for _, part := range m.parts {
		longest = max(longest, part.longest)
	}
	needed := now.Add(-longest)
	for len(m.samples) > 1 && !m.samples[1].at.After(needed) {
		m.samples = m.samples[1:]
	}
}

// requeueOverdue queues jobs again that were last updated a timeout ago. The timeout is the queue's or the one that the
// holder uses and has written with its update, if that is longer. So a timeout can be shortened at any time, and a
// monitor need not know the previous one.
func (m *monitor) requeueOverdue(ctx context.Context, now time.Time) (requeued []string, err error) {
	version, ok := m.versionAt(now.Add(-m.timeout))
	if !ok {
		return nil, nil
	}
	ranges := make([]*overdue, len(m.parts))
	for i, part := range m.parts {
		// If the timeout has grown, it ends before it begins: what is overdue lies further back.
		ranges[i] = &overdue{rest: kv.KeyRange{Begin: part.head, End: part.rows.Pack(stampAfter(version))}}
	}
	requeued, err = m.queue.requeueAll(ctx, ranges, func(stamp tuple.Versionstamp, value []byte) (time.Duration, error) {
		timeout, err := parseTimeout(value)
		if err != nil || timeout <= m.timeout {
			return 0, err
		}
		if version, ok := m.versionAt(now.Add(-timeout)); ok && stampVersion(stamp) <= version {
			return 0, nil
		}
		return timeout, nil
	})
	if err != nil {
		return requeued, err
	}
	for i, part := range m.parts {
		switch r := ranges[i]; {
		case r.left != nil:
			part.head, part.longest = r.left, r.longest
		case bytes.Compare(part.head, r.rest.End) < 0:
			part.head, part.longest = r.rest.End, 0
		}
	}
	return requeued, nil
}

// overdue is a range of active whose jobs are queued.
type overdue struct {
	rest    kv.KeyRange   // that was not yet read
	left    []byte        // the first row that stays
	longest time.Duration // timeout of the rows that stay
}

// requeueAll queues the jobs of some ranges of active, at most requeueBatch of them in each transaction. A job stays whose
// timeout stays returns for its row. It returns 0 for the others.
func (q *Queue) requeueAll(
	ctx context.Context, ranges []*overdue, stays func(stamp tuple.Versionstamp, value []byte) (time.Duration, error),
) (moved []string, err error) {
	read := func(o *overdue) bool { return bytes.Compare(o.rest.Begin, o.rest.End) >= 0 }
	for {
		ranges = slices.DeleteFunc(slices.Clone(ranges), read)
		if len(ranges) == 0 {
			return moved, nil
		}
		var after []overdue
		some, err := kv.TransactValue(ctx, q.layer.db, func(tx kv.Transaction) (ids []string, err error) {
			after, ids, err = q.requeueSome(tx, ranges, stays)
			return ids, err
		})
		if err != nil {
			return moved, err
		}
		moved = append(moved, some...)
		for i, o := range ranges {
			*o = after[i]
		}
	}
}

// requeueSome is requeueAll for one transaction. It returns the ranges as they are after it. A job whose row has moved
// meanwhile stays.
func (q *Queue) requeueSome(
	tx kv.Transaction, ranges []*overdue, stays func(stamp tuple.Versionstamp, value []byte) (time.Duration, error),
) (after []overdue, moved []string, err error) {
	limit := requeueBatch / len(ranges)
	reads := make([]kv.RangeResult, len(ranges))
	for i, o := range ranges {
		reads[i] = tx.Snapshot().GetRange(o.rest, kv.RangeOptions{Limit: limit})
	}
	var stamps []tuple.Versionstamp
	var ids []string
	for i, o := range ranges {
		pairs, err := reads[i].Slice()
		if err != nil {
			return nil, nil, err
		}
		next := *o
		if next.rest.Begin = next.rest.End; len(pairs) == limit {
			next.rest.Begin = kv.KeyAfter(pairs[limit-1].Key)
		}
		for _, pair := range pairs {
			stamp, id, err := stampAndID(q.keys.active, pair.Key)
			if err != nil {
				return nil, nil, err
			}
			timeout, err := stays(stamp, pair.Value)
			switch {
			case err != nil:
				return nil, nil, err
			case timeout == 0:
				stamps, ids = append(stamps, stamp), append(ids, id)
			case next.left == nil:
				next.left = pair.Key
			}
			next.longest = max(next.longest, timeout)
		}
		after = append(after, next)
	}
	batch := q.batch(tx)
	put, err := batch.putAll(ids, func(i int, old *row) *row {
		if old.status != Running || *old.sequence != stamps[i] {
			return nil
		}
		return q.requeued(old, uint16(i))
	})
	for i := range put {
		if put[i] {
			moved = append(moved, ids[i])
		}
	}
	if batch.full() { // the same ranges have the rest
		for i, o := range ranges {
			after[i] = *o
		}
	}
	return after, moved, err
}
