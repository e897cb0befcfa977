package fdbjobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

const (
	// monitorParts is how many times per timeout a monitor looks.
	monitorParts = 6
	// requeueBatch is how many jobs one transaction takes from their holders.
	requeueBatch = 50
	// sweepBatch is how many owners' counts a monitor looks at each time.
	sweepBatch = 300
	// keepTransitions is for how long a transition stays, at least, for subscribers that
	// were away to find.
	keepTransitions = 2 * time.Minute
)

// MonitorOptions are the options of [Type.RunMonitor]. The zero value works.
type MonitorOptions struct {
	// Requeued, if not nil, is told which jobs were taken from their holders. Of a
	// commit whose result was unknown it may not hear.
	Requeued func(ids []string)
	// Failed, if not nil, is told of an error of the store. The monitor goes on.
	Failed func(error)
}

// RunMonitor is the activity monitor: until ctx ends it queues the jobs again that
// were not updated for the type's timeout, within a sixth of it, and trims old
// transitions. Any number of them may run, in any processes, and at least one
// should. It returns ctx's error.
//
// It compares commits with commits: what was last updated before a version that
// was current a timeout ago, by this process's own monotonic clock, is overdue. No
// two clocks are compared.
func (t *Type) RunMonitor(ctx context.Context, opts MonitorOptions) error {
	m := monitor{typ: t}
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		// Rounded up: the sixth look from now is to find this one a whole timeout ago.
		case <-time.After((timeout + monitorParts - 1) / monitorParts):
		}
		t.layer.pass(ctx)
	}
}

// sample is a version of the store and when it was the current one.
type sample struct {
	version int64
	at      time.Time
}

type monitor struct {
	typ     *Type
	samples []sample      // the oldest first
	head    []byte        // of active: nothing that may be overdue lies below
	timeout time.Duration // the type's, when it was last read
	longest time.Duration // timeout of the rows that were passed over as not yet overdue
	trimmed time.Time
	counts  []byte // where in the owners' counts the next look begins
}

// runOnce looks once. It returns the type's timeout, also with an error.
func (m *monitor) runOnce(ctx context.Context) (timeout time.Duration, requeued []string, err error) {
	current, err := kv.TransactValue(ctx, m.typ.layer.db, func(tx kv.Transaction) (sample, error) {
		version := tx.ReadVersion()
		var err error
		if timeout, err = m.typ.Timeout(tx.Snapshot()); err != nil {
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
	if old, ok := m.versionAt(current.at.Add(-keepTransitions)); ok && current.at.Sub(m.trimmed) > keepTransitions/monitorParts {
		if err = m.trim(ctx, old); err == nil {
			m.trimmed = current.at
		}
	}
	m.forget(current.at)
	return m.timeout, requeued, errors.Join(err, m.sweep(ctx))
}

// sweep looks at the counts of some owners, further on each time, and forgets those
// without jobs; and the claimers that are long gone.
func (m *monitor) sweep(ctx context.Context) error {
	counts := m.typ.keys.ownedCount
	next, err := kv.TransactValue(ctx, m.typ.layer.db, func(tx kv.Transaction) ([]byte, error) {
		claimers := tx.Snapshot().GetRange(keyRange(m.typ.keys.claimers), kv.RangeOptions{Limit: claimersAtOnce})
		pairs, err := tx.Snapshot().GetRange(from(counts, m.counts), kv.RangeOptions{Limit: sweepBatch, Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return nil, err
		}
		var idle []string
		for _, pair := range pairs {
			key, err := counts.Unpack(pair.Key)
			if err != nil {
				return nil, fmt.Errorf("reading an owner's count: %w", err)
			}
			var owner string
			if len(key) != 2 || !as(key[0], &owner) {
				return nil, fmt.Errorf("reading an owner's count: unknown form %v", key)
			}
			if !slices.ContainsFunc(pair.Value, func(b byte) bool { return b != 0 }) && !slices.Contains(idle, owner) {
				idle = append(idle, owner)
			}
		}
		if err := m.typ.settle(tx, idle); err != nil {
			return nil, err
		}
		if err := m.typ.dropClaimers(tx, claimers); err != nil || len(pairs) < sweepBatch {
			return nil, err
		}
		return kv.KeyAfter(pairs[len(pairs)-1].Key), nil
	})
	if err == nil {
		m.counts = next
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

// forget drops samples that no later look can need.
func (m *monitor) forget(now time.Time) {
	needed := now.Add(-max(m.timeout, m.longest, keepTransitions))
	for len(m.samples) > 1 && !m.samples[1].at.After(needed) {
		m.samples = m.samples[1:]
	}
}

// requeueOverdue queues the jobs again that were last updated a timeout ago: the type's,
// or, if that is longer, the one by which their holder counts its patience, which it has
// written beside its update. So a timeout can be shortened at any time, and no monitor
// need know what it was before.
func (m *monitor) requeueOverdue(ctx context.Context, now time.Time) (requeued []string, err error) {
	version, ok := m.versionAt(now.Add(-m.timeout))
	if !ok {
		return nil, nil
	}
	active := m.typ.keys.active
	overdue := from(active, m.head)
	overdue.End = active.Pack(stampAfter(version))
	if bytes.Compare(overdue.Begin, overdue.End) >= 0 {
		return nil, nil // the timeout has grown, and what is overdue lies further back
	}
	var left []byte // the first row that stays
	longest := time.Duration(0)
	for overdue.Begin != nil {
		batch, err := m.requeueBatch(ctx, overdue, now)
		requeued = append(requeued, batch.moved...)
		if err != nil {
			return requeued, err
		}
		if left == nil {
			left = batch.left
		}
		longest = max(longest, batch.longest)
		overdue.Begin = batch.next
	}
	if left == nil {
		left = overdue.End
	}
	m.head, m.longest = left, longest
	return requeued, nil
}

// requeued is what a transaction did with some rows of active.
type requeued struct {
	moved   []string      // the jobs it queued
	left    []byte        // the first row that it left
	longest time.Duration // timeout of those
	next    []byte        // where to go on; nil: there are no more
}

func (m *monitor) requeueBatch(ctx context.Context, overdue kv.KeyRange, now time.Time) (requeued, error) {
	return kv.TransactValue(ctx, m.typ.layer.db, func(tx kv.Transaction) (out requeued, err error) {
		pairs, err := tx.Snapshot().GetRange(overdue, kv.RangeOptions{Limit: requeueBatch, Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return out, err
		}
		if len(pairs) == requeueBatch {
			out.next = kv.KeyAfter(pairs[len(pairs)-1].Key)
		}
		return out, m.requeueRows(tx, pairs, now, &out)
	})
}

// requeueRows queues those jobs of rows in active that are overdue.
func (m *monitor) requeueRows(tx kv.Transaction, pairs []kv.KeyValue, now time.Time, out *requeued) error {
	reads := make([]kv.Future[[]byte], len(pairs))
	stamps, ids := make([]tuple.Versionstamp, len(pairs)), make([]string, len(pairs))
	for i, pair := range pairs {
		var err error
		if stamps[i], ids[i], err = stampAndID(m.typ.keys.active, pair.Key); err != nil {
			return err
		}
		timeout, err := parseTimeout(pair.Value)
		if err != nil {
			return err
		}
		if version, ok := m.versionAt(now.Add(-timeout)); timeout > m.timeout && (!ok || stampVersion(stamps[i]) > version) {
			out.longest = max(out.longest, timeout)
			if out.left == nil {
				out.left = pair.Key
			}
			continue
		}
		reads[i] = m.typ.readRow(tx, ids[i])
	}
	rows, line := make([]*row, len(pairs)), m.typ.line(tx)
	for i, read := range reads {
		if read == nil {
			continue
		}
		row, err := awaitRow(read)
		if err != nil {
			return err
		}
		if row != nil && row.status == Running && *row.sequence == stamps[i] {
			rows[i] = row
			line.want(row.owner)
		}
	}
	for i, row := range rows {
		if row == nil {
			continue
		}
		if err := m.typ.requeue(tx, line, ids[i], row, uint16(i)); err != nil {
			return err
		}
		out.moved = append(out.moved, ids[i])
	}
	return nil
}

// trim removes the transitions up to a version, and says so.
func (m *monitor) trim(ctx context.Context, version int64) error {
	return m.typ.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		trimmed, err := awaitTrimmed(tx.Snapshot().Get(m.typ.keys.trimmed))
		if err != nil || trimmed >= version {
			return err
		}
		old := keyRange(m.typ.keys.transitions)
		old.End = m.typ.keys.transitions.Pack(stampAfter(version))
		tx.ClearRange(old)
		// Of two that trim at a time the higher version has to stay.
		tx.Atomic(kv.MutationMax, m.typ.keys.trimmed, littleEndian(version))
		return nil
	})
}
