package optimistic

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"time"

	"settee/pkg/kv"
)

// maxGroupBytes bounds the writes of one group, and so the memory of its batch.
const maxGroupBytes = 4 * kv.MaxTransactionSize

// commit is a transaction that asks to be committed.
type commit struct {
	readVersion int64
	start       time.Time // of the first read; zero when nothing was read
	reads       []span
	conflicts   []span
	log         []mutation
	size        int

	// done is closed when err and stamp are set.
	done  chan struct{}
	err   error
	stamp kv.Versionstamp
}

// committer orders commits. See the package comment.
type committer struct {
	mu     sync.Mutex
	queue  []*commit
	active bool // someone is in commitQueue

	// Touched in commitQueue alone.
	history history
	failed  error // of the storage: it takes no more writes
}

// submit waits for the result of c.
func (db *DB) submit(ctx context.Context, c *commit) error {
	cs := &db.commits
	cs.mu.Lock()
	cs.queue = append(cs.queue, c)
	start := !cs.active
	cs.active = true
	cs.mu.Unlock()
	switch {
	case start && db.inline:
		db.commitQueue()
	case start:
		// Whoever waits must be able to give up while the disk is slow, so the
		// commit has a goroutine to itself. It ends with the queue.
		db.running.Go(db.commitQueue)
	}
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return kv.ErrCommitUnknown
	}
}

// commitQueue commits group after group until nothing waits.
func (db *DB) commitQueue() {
	for group := db.commits.take(); len(group) > 0; group = db.commits.take() {
		db.commitGroup(group)
		for _, c := range group {
			close(c.done)
		}
	}
}

// take removes the next group from the queue; when it is empty, the committer is
// no longer active.
func (cs *committer) take() []*commit {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	n, size := 0, 0
	for n < len(cs.queue) && n < math.MaxUint16 && (n == 0 || size+cs.queue[n].size <= maxGroupBytes) {
		size += cs.queue[n].size
		n++
	}
	group := cs.queue[:n:n]
	cs.queue = cs.queue[n:]
	if len(cs.queue) == 0 {
		cs.queue = nil
	}
	cs.active = n > 0
	return group
}

// commitGroup decides every commit of the group.
func (db *DB) commitGroup(group []*commit) {
	cs := &db.commits
	now := db.now()
	limit := now.Add(-kv.MaxTransactionAge)
	cs.history.expire(limit)
	version := db.view.version + 1 // only this goroutine publishes
	var accepted []*commit
	for _, c := range group {
		if c.err = cs.check(c, limit); c.err != nil {
			continue
		}
		binary.BigEndian.PutUint64(c.stamp[:8], uint64(version))
		binary.BigEndian.PutUint16(c.stamp[8:], uint16(len(accepted)))
		for i, m := range c.log {
			c.log[i] = m.stamped(c.stamp)
			if m.kind == mutationStampKey {
				c.conflicts = append(c.conflicts, pointSpan(string(c.log[i].key)))
			}
		}
		for _, s := range c.conflicts {
			cs.history.wrote(s.begin, s.end, version)
		}
		accepted = append(accepted, c)
	}
	if len(accepted) == 0 {
		return
	}
	if err := db.apply(accepted, version); err != nil {
		// What was recorded in the history only makes for more conflicts.
		cs.failed = err
		for _, c := range accepted {
			c.err = err
		}
		return
	}
	db.publish(version)
	// The time is taken after the publication: who begins later reads at this
	// version or above, which is what expire relies on.
	cs.history.committed(version, db.now())
	for _, c := range accepted {
		for _, m := range c.log {
			db.watches.written(m.span())
		}
	}
}

// check decides whether c may be committed after all commits so far.
func (cs *committer) check(c *commit, limit time.Time) error {
	if cs.failed != nil {
		return cs.failed
	}
	if len(c.reads) == 0 {
		return nil
	}
	if !c.start.IsZero() && c.start.Before(limit) {
		return kv.ErrTransactionTooOld
	}
	if c.start.IsZero() {
		// Only explicit read conflicts: with no read version there is nothing
		// they could conflict with.
		return nil
	}
	for _, s := range c.reads {
		if cs.history.writtenSince(s.begin, s.end, c.readVersion) {
			return kv.ErrNotCommitted
		}
	}
	return nil
}

// span returns the keys that the mutation writes.
func (m mutation) span() span {
	if m.kind == mutationClearRange {
		return span{string(m.key), string(m.value)}
	}
	return pointSpan(string(m.key))
}

// apply writes the accepted commits durably.
func (db *DB) apply(accepted []*commit, version int64) (err error) {
	batch := db.storage.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
	for _, c := range accepted {
		for _, m := range c.log {
			if err := m.applyTo(batch); err != nil {
				return err
			}
		}
	}
	if err := batch.Set([]byte(versionKey), binary.BigEndian.AppendUint64(nil, uint64(version))); err != nil {
		return err
	}
	return batch.Apply()
}

func (m mutation) applyTo(batch Batch) error {
	switch m.kind {
	case mutationClear:
		return batch.Clear(m.key)
	case mutationClearRange:
		return batch.ClearRange(m.key, m.value)
	case mutationAtomic:
		old, err := batch.Get(m.key)
		if err != nil {
			return err
		}
		return batch.Set(m.key, mutate(m.op, old, m.value))
	default:
		return batch.Set(m.key, m.value)
	}
}
