package fdbjobs

import (
	"context"
	"errors"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// MaxClaim is the maximum number of jobs of one claim.
const MaxClaim = maxClaim

// The limits of what follows from a job.
const (
	MaxFactsSize = maxFactsSize
	MaxEntries   = maxEntries
)

// The sizes at which args and transactions of Reseal are split.
const (
	ArgsChunk    = rows.ChunkSize
	ResealAtOnce = resealAtOnce
)

// Parts returns, for each status, the part without label and tag.
func Parts(statuses ...Status) []Part {
	parts := make([]Part, len(statuses))
	for i, status := range statuses {
		parts[i].Status = status
	}
	return parts
}

// Count returns the number of selected jobs.
func (q *Queue) Count(tx kv.ReadTransaction, s Selection) (all int64, err error) {
	jobs, _, err := q.Counts(tx, s)
	for _, n := range jobs {
		all += n
	}
	return all, err
}

// ShareAtOnce sets the number of transactions that are under way before a call of a Held waits for one to share.
func (q *Queue) ShareAtOnce(n int) { q.writer.atOnce = n }

// StopTimer stops the timer that ends Context, as in a process that was stopped.
func (h *Held) StopTimer() { h.timer.Stop() }

// Generation returns how often the job was added again while it ran.
func (j *Job) Generation() int64 { return j.generation }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// LockOf returns the lock in the row of a job, or "".
func (q *Queue) LockOf(tx kv.ReadTransaction, id string) (string, error) {
	r, err := q.readRow(tx, id).Await()
	if err != nil || r == nil {
		return "", err
	}
	return r.lock, nil
}

// OwnerKeys returns the number of keys of owners, without the keys of weights.
func (q *Queue) OwnerKeys(tx kv.ReadTransaction) (n int, err error) {
	for _, s := range []tuple.Subspace{q.share.waiting, q.share.accounts, q.share.ranks, q.share.charges} {
		err = errors.Join(err, each(tx, s, func(tuple.Tuple, []byte) error {
			n++
			return nil
		}))
	}
	return n, err
}

// WaitingOwners returns the names of the waiting owners, the next to be served first.
func (q *Queue) WaitingOwners(tx kv.ReadTransaction) (owners []string, err error) {
	err = each(tx, q.share.ranks.Sub(rankWaiting), func(k tuple.Tuple, _ []byte) error {
		owners = append(owners, k[1].(string))
		return nil
	})
	return owners, err
}

// Claimers returns the ids of the claimers with a heartbeat.
func (q *Queue) Claimers(tx kv.ReadTransaction) (ids []string, err error) {
	err = each(tx, q.keys.claimers, func(k tuple.Tuple, _ []byte) error {
		ids = append(ids, k[0].(string))
		return nil
	})
	return ids, err
}

// AddClaimer adds the heartbeat of a claimer that died at a time.
func (q *Queue) AddClaimer(tx kv.Transaction, id string, at time.Time) {
	tx.Set(q.keys.claimers.Pack(id), tuple.Tuple{at.Unix()}.Pack())
}

// Partitions returns the number of partitions that the queue's claimer knows of.
func (q *Queue) Partitions() int { return q.claimer.partition.claimers }

func each(tx kv.ReadTransaction, s tuple.Subspace, f func(key tuple.Tuple, value []byte) error) error {
	for pair, err := range tx.GetRange(rows.Range(s), kv.RangeOptions{}).All() {
		if err != nil {
			return err
		}
		key, err := s.Unpack(pair.Key)
		if err == nil {
			err = f(key, pair.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Delay adds a job as a process whose clock is behind does.
func (q *Queue) Delay(tx kv.Transaction, id string, scheduled time.Time) error {
	old, err := q.readRow(tx, id).Await()
	if err != nil {
		return err
	}
	q.setState(tx, id, nil)
	return q.batch(tx).put(id, old, queued(row{}, scheduled.Unix(), scheduled.Unix()-1))
}

// Looker returns a look of a new monitor.
func (q *Queue) Looker() func(context.Context) error {
	m := newMonitor(q)
	return func(ctx context.Context) error {
		_, err := m.runOnce(ctx)
		return err
	}
}

// Promote moves some due jobs to ready.
func (q *Queue) Promote(ctx context.Context) error {
	return q.promote(ctx, 0, q.claimer.partition)
}

// A derivation of a test whose entries are over a limit is wrong, unless the test says so.
func init() { LeaveOut(nil) }

// LeaveOut sets a function that is called with the reason when entries are left out. nil panics with it.
func LeaveOut(f func(error)) {
	leftOut = f
	if f == nil {
		leftOut = func(err error) { panic(err) }
	}
}

// WholeRow is what a job has, for a derivation from scratch.
type WholeRow struct {
	Version       int64
	Facts         Facts
	State, Listed []byte // Listed is nil if there is none
	Expires       *int64 // nil if it does not
}

// EachRow calls f with all jobs.
func (q *Queue) EachRow(tx kv.ReadTransaction, f func(WholeRow)) error {
	return each(tx, q.keys.data, func(k tuple.Tuple, value []byte) error {
		r, err := parseRow(value)
		if err != nil {
			return err
		}
		id := k[0].(string)
		w := WholeRow{Version: r.version, Facts: r.of(id), Expires: r.expires}
		if w.State, err = tx.Get(q.keys.state.Pack(id)).Await(); err != nil {
			return err
		}
		w.Listed, err = tx.Get(q.keys.listed.Pack(id)).Await()
		f(w)
		return err
	})
}

// Stale makes the next update renew the hold.
func (h *Held) Stale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = h.began.Add(-h.queue.Timeout() / 5)
}
