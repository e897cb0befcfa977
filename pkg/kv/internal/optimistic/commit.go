package optimistic

import (
	"container/list"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"settee/pkg/kv"
)

// maxGroupBytes bounds the writes of one group, and so the memory of its batch.
const maxGroupBytes = 4 * kv.MaxTransactionSize

// commit is a transaction that asks to be committed.
type commit struct {
	began       bool      // something was read, at readVersion
	start       time.Time // when that version was drawn
	readVersion int64
	reads       []span
	conflicts   []span
	log         []mutation
	size        int

	// place is its place in the queue, nil once it was taken out.
	place *list.Element
	// done is closed when err and stamp are set, givenUp when the caller did
	// not wait for that.
	done, givenUp chan struct{}
	err           error
	stamp         kv.Versionstamp
}

// committer orders commits. See the package comment.
type committer struct {
	mu     sync.Mutex
	queue  list.List // of the commits whose callers wait
	active bool      // someone is in commitQueue

	// Touched by one committing goroutine at a time.
	history history
	failed  error // of the storage: it takes no more writes
}

// submit waits for the result of c.
func (db *DB) submit(ctx context.Context, c *commit) error {
	cs := &db.commits
	cs.mu.Lock()
	if db.inline {
		// Storage that never waits needs no queue.
		defer cs.mu.Unlock()
		db.commitGroup([]*commit{c})
		close(c.done)
		return c.err
	}
	c.place = cs.queue.PushBack(c)
	start := !cs.active
	cs.active = true
	cs.mu.Unlock()
	if start {
		// Whoever waits must be able to give up while the disk is slow, so the
		// commit has a goroutine to itself. It ends with the queue.
		db.running.Go(db.commitQueue)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return cs.giveUp(ctx, c)
	}
}

// giveUp takes c out of the queue if it is still there, so that the queue is
// never longer than there are callers, and returns what the caller knows of it.
func (cs *committer) giveUp(ctx context.Context, c *commit) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.place != nil {
		cs.queue.Remove(c.place)
		c.err = context.Cause(ctx)
		close(c.done)
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	default:
		close(c.givenUp)
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
	var group []*commit
	size := 0
	for cs.queue.Len() > 0 && len(group) < math.MaxUint16 {
		c := cs.queue.Front().Value.(*commit)
		if size += c.size; size > maxGroupBytes && len(group) > 0 {
			break
		}
		cs.queue.Remove(c.place)
		c.place = nil
		group = append(group, c)
	}
	cs.active = len(group) > 0
	return group
}

// commitGroup decides every commit of the group.
func (db *DB) commitGroup(group []*commit) {
	cs := &db.commits
	db.expireReaders()
	limit := db.now().Add(-kv.MaxTransactionAge)
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
			if m.kind == mutationClearRange {
				cs.history.wrote(string(m.key), string(m.value), version)
			} else {
				cs.history.wrotePoint(c.log[i].key, version)
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
	switch {
	case cs.failed != nil:
		return fmt.Errorf("the store takes no more writes after a failure: %w", cs.failed)
	case len(c.reads) == 0:
		return nil
	case !c.began:
		// Only explicit read conflicts: with no read version there is nothing
		// they could conflict with.
		return nil
	case c.start.Before(limit):
		return kv.ErrTransactionTooOld
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
	return pointSpanOf(m.key)
}

// apply writes the accepted commits durably. When that fails after a batch was
// handed over, the storage takes no more writes.
func (db *DB) apply(accepted []*commit, version int64) error {
	batch := db.storage.NewBatch()
	defer batch.Close()
	w := newWriter(db.view.snapshot, batch, accepted)
	for _, c := range accepted {
		for _, m := range c.log {
			if err := w.write(m); err != nil {
				return err
			}
		}
	}
	if err := w.finish(); err != nil {
		return err
	}
	if err := batch.Set([]byte(versionKey), binary.BigEndian.AppendUint64(nil, uint64(version))); err != nil {
		return err
	}
	db.commits.failed = batch.Apply()
	return db.commits.failed
}

// writer fills a batch. The keys of atomic operations it follows itself until the end
// of the group, so that the batch need not be read, and a counter that each commit of
// the group changes is read and written once.
type writer struct {
	below   Reader // what was before the group
	batch   Batch
	atomics map[string]*atomicKey
}

// atomicKey is a key that an atomic operation of the group changes.
type atomicKey struct {
	known   bool   // value is what the group has made of the key so far
	value   []byte // nil: there is none
	changed bool   // by an atomic operation
}

func newWriter(below Reader, batch Batch, group []*commit) writer {
	w := writer{below: below, batch: batch, atomics: map[string]*atomicKey{}}
	for _, c := range group {
		for _, m := range c.log {
			if m.kind == mutationAtomic {
				w.atomics[string(m.key)] = &atomicKey{}
			}
		}
	}
	return w
}

// follow notes that a mutation which is no atomic operation leaves value in the key.
func (w writer) follow(key, value []byte) {
	if k := w.atomics[string(key)]; k != nil {
		*k = atomicKey{known: true, value: value}
	}
}

func (w writer) write(m mutation) error {
	switch m.kind {
	case mutationClear:
		w.follow(m.key, nil)
		return w.batch.Clear(m.key)
	case mutationClearRange:
		cleared := m.span()
		for key, k := range w.atomics {
			if cleared.has(key) {
				*k = atomicKey{known: true}
			}
		}
		return w.batch.ClearRange(m.key, m.value)
	case mutationAtomic:
		k := w.atomics[string(m.key)]
		if !k.known {
			var err error
			if k.value, err = w.below.Get(m.key); err != nil {
				return err
			}
			k.known = true
		}
		k.value, k.changed = mutate(m.op, k.value, m.value), true
		return nil
	default:
		w.follow(m.key, notNil(m.value))
		return w.batch.Set(m.key, m.value)
	}
}

// finish writes what atomic operations have left.
func (w writer) finish() error {
	for key, k := range w.atomics {
		if !k.changed {
			continue
		}
		if err := w.batch.Set([]byte(key), k.value); err != nil {
			return err
		}
	}
	return nil
}
