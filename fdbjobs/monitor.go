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
	// requeueBatch is the number of jobs that one transaction takes from their holders.
	requeueBatch = 50
	// sweepBatch is the number of owners that a monitor checks for jobs in one look.
	sweepBatch = 300
)

// MonitorOptions are the options of [Queue.RunMonitor]. The zero value works.
type MonitorOptions struct {
	// Requeued, if not nil, is called with the ids of jobs that were taken from their holders. It may miss jobs of a
	// commit whose result was unknown.
	Requeued func(ids []string)
	// Failed, if not nil, is called with an error of the store. The monitor continues.
	Failed func(error)
	// Looked, if not nil, is called after each look without an error, with the time until the next one.
	Looked func(next time.Duration)
}

// RunMonitor is the activity monitor. Until ctx ends it queues jobs again that were not updated for the queue's timeout,
// at most a sixth of the timeout late. Any number of monitors may run, in any processes, and
// at least one should. It returns ctx's error.
//
// It compares commits with commits: a job is overdue if it was last updated before a version that was current a timeout
// ago, by this process's own monotonic clock. No two clocks are compared.
func (q *Queue) RunMonitor(ctx context.Context, opts MonitorOptions) error {
	m := newMonitor(q)
	for {
		timeout, requeued, err := m.runOnce(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && opts.Failed != nil {
			opts.Failed(err)
		}
		if len(requeued) > 0 && opts.Requeued != nil {
			opts.Requeued(requeued)
		}
		// Rounded up: six looks from now, this one must be a whole timeout ago.
		next := (timeout + monitorParts - 1) / monitorParts
		if err == nil && opts.Looked != nil {
			opts.Looked(next)
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
		m.parts = append(m.parts, &activePart{rows: q.keys.active.Sub(i)})
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
	ranges := make([]kv.KeyRange, len(m.parts))
	for i, part := range m.parts {
		ranges[i] = kv.KeyRange{Begin: part.head, End: part.rows.Pack(stampAfter(version))}
		if part.head == nil {
			ranges[i].Begin = part.rows.Pack(tuple.Versionstamp{})
		}
	}
	there, err := m.notEmpty(ctx, ranges)
	if err != nil {
		return nil, err
	}
	for i, part := range m.parts {
		switch {
		case there[i]:
			moved, err := m.requeuePart(ctx, part, ranges[i], now)
			requeued = append(requeued, moved...)
			if err != nil {
				return requeued, err
			}
		case bytes.Compare(part.head, ranges[i].End) < 0:
			part.head, part.longest = ranges[i].End, 0
		}
	}
	return requeued, nil
}

// notEmpty reads which ranges have rows. One that ends before it begins has none: the timeout has grown then, and what is
// overdue lies further back.
func (m *monitor) notEmpty(ctx context.Context, ranges []kv.KeyRange) ([]bool, error) {
	return kv.TransactValue(ctx, m.queue.layer.db, func(tx kv.Transaction) ([]bool, error) {
		there := make([]kv.Future[bool], len(ranges))
		for i, r := range ranges {
			if there[i] = kv.Known(false); bytes.Compare(r.Begin, r.End) < 0 {
				first := tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: 1})
				there[i] = kv.Map(kv.Func[[]kv.KeyValue](first.Slice), func(pairs []kv.KeyValue) (bool, error) { return len(pairs) > 0, nil })
			}
		}
		return kv.All(there)
	})
}

// requeuePart queues the overdue jobs of a part of active.
func (m *monitor) requeuePart(ctx context.Context, part *activePart, overdue kv.KeyRange, now time.Time) (moved []string, err error) {
	found, err := m.queue.requeueRange(ctx, overdue, func(stamp tuple.Versionstamp, value []byte) (time.Duration, error) {
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
		return found.moved, err
	}
	if part.head, part.longest = found.left, found.longest; part.head == nil {
		part.head = overdue.End
	}
	return found.moved, nil
}

// requeued is what became of some rows of active.
type requeued struct {
	moved   []string      // the jobs that were queued
	left    []byte        // the first row that stays
	longest time.Duration // timeout of the rows that stay
}

// requeueRange queues the jobs of a range of active, requeueBatch of them in each transaction. A job stays whose timeout
// stays returns for its row. It returns 0 for the others.
func (q *Queue) requeueRange(
	ctx context.Context, r kv.KeyRange, stays func(stamp tuple.Versionstamp, value []byte) (time.Duration, error),
) (all requeued, err error) {
	for r.Begin != nil {
		var next []byte
		some, err := kv.TransactValue(ctx, q.layer.db, func(tx kv.Transaction) (requeued, error) {
			pairs, err := tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: requeueBatch}).Slice()
			if err != nil {
				return requeued{}, err
			}
			if next = nil; len(pairs) == requeueBatch {
				next = kv.KeyAfter(pairs[len(pairs)-1].Key)
			}
			return q.requeueRows(tx, pairs, stays)
		})
		if err != nil {
			return all, err
		}
		all.moved, all.longest = append(all.moved, some.moved...), max(all.longest, some.longest)
		if all.left == nil {
			all.left = some.left
		}
		r.Begin = next
	}
	return all, nil
}

// requeueRows is requeueRange for some rows. A job whose row has moved meanwhile stays.
func (q *Queue) requeueRows(
	tx kv.Transaction, pairs []kv.KeyValue, stays func(stamp tuple.Versionstamp, value []byte) (time.Duration, error),
) (out requeued, err error) {
	var stamps []tuple.Versionstamp
	var ids []string
	for _, pair := range pairs {
		stamp, id, err := stampAndID(q.keys.active, pair.Key)
		if err != nil {
			return out, err
		}
		timeout, err := stays(stamp, pair.Value)
		if err != nil {
			return out, err
		}
		if timeout == 0 {
			stamps, ids = append(stamps, stamp), append(ids, id)
			continue
		}
		if out.longest = max(out.longest, timeout); out.left == nil {
			out.left = pair.Key
		}
	}
	rows, err := q.readRows(tx, ids)
	if err != nil {
		return out, err
	}
	there := func(i int) bool { return rows[i] != nil && rows[i].status == Running && *rows[i].sequence == stamps[i] }
	batch := q.batch(tx)
	for i, row := range rows {
		if there(i) {
			batch.wantOwner(row.owner)
		}
	}
	for i, row := range rows {
		if !there(i) {
			continue
		}
		if err := q.requeue(batch, ids[i], row, uint16(i)); err != nil {
			return out, err
		}
		out.moved = append(out.moved, ids[i])
	}
	return out, nil
}
