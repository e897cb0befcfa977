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

// maxGroupBytes limits the writes of one group, and so the memory of its batch.
const maxGroupBytes = 4 * kv.MaxTransactionSize

// commit is a transaction to be committed.
type commit struct {
	began       bool      // something was read, at readVersion
	start       time.Time // when readVersion was drawn
	readVersion int64
	reads       []span
	conflicts   []span
	log         []mutation
	size        int

	// place is the commit's place in the queue, nil once it was removed.
	place *list.Element
	// done is closed when err is set.
	done chan struct{}
	err  error
}

// committer orders commits. See the package's doc comment.
type committer struct {
	mu     sync.Mutex
	queue  list.List // of the commits whose callers wait
	active bool      // commitQueue is running

	working sync.WaitGroup // commitQueue, which may outlive the transactions of its commits

	// The fields below are used by one committing goroutine at a time.
	history history
	failed  error // of the storage, which is no longer written to
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
		// The caller must be able to give up while the disk is slow, so commitQueue has its own goroutine. It ends when
		// the queue is empty.
		cs.working.Go(db.commitQueue)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return cs.giveUp(ctx, c)
	}
}

// giveUp removes c from the queue if it is still there, and returns what is known of its result. So the queue is never
// longer than the number of callers.
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
		return kv.ErrCommitUnknown
	}
}

// commitQueue commits groups until the queue is empty.
func (db *DB) commitQueue() {
	for group := db.commits.take(); len(group) > 0; group = db.commits.take() {
		db.commitGroup(group)
		for _, c := range group {
			close(c.done)
		}
	}
}

// take removes the next group from the queue. If it is empty, the committer is no longer active.
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
	version, metadata := db.view.version+1, db.view.metadata // only this goroutine publishes
	var accepted []*commit
	for _, c := range group {
		if c.err = cs.check(c, limit); c.err != nil {
			continue
		}
		var stamp kv.Versionstamp
		binary.BigEndian.PutUint64(stamp[:8], uint64(version))
		binary.BigEndian.PutUint16(stamp[8:], uint16(len(accepted)))
		for i, m := range c.log {
			c.log[i] = m.stamped(stamp)
			if string(m.key) == metadataKey {
				metadata = stamp
			}
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
		// What was already recorded in the history only causes more conflicts.
		for _, c := range accepted {
			c.err = err
		}
		return
	}
	db.publish(version, metadata)
	// The time is taken after the publication: a transaction that begins later reads at this version or above, which
	// expire relies on.
	cs.history.committed(version, db.now())
	for _, c := range accepted {
		for _, m := range c.log {
			db.watches.written(m.span())
		}
	}
}

// check returns an error if c conflicts with the commits so far, or is too old.
func (cs *committer) check(c *commit, limit time.Time) error {
	switch {
	case cs.failed != nil:
		return fmt.Errorf("the store no longer accepts writes after a failure: %w", cs.failed)
	case len(c.reads) == 0:
		return nil
	case !c.began:
		// Only explicit read conflicts: without a read version there is nothing that they could conflict with.
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
	return pointSpan(m.key)
}

// apply writes the accepted commits durably. If a batch fails, the storage is no longer written to.
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

// writer fills a batch. It tracks the keys that the group adds to, so that the batch need not be read, and a counter
// that each commit of the group changes is read and written once. It also tracks the keys that are set in ranges that
// the group clears.
type writer struct {
	below     Snapshot // the state before the group
	batch     Batch
	counters  map[string]*counter
	clearings []clearing // sorted
}

// counter is a key that the group adds to.
type counter struct {
	known bool   // value is the current value
	value []byte // nil if there is none
	added bool   // the last change is an addition, which is not in the batch
}

func newWriter(below Snapshot, batch Batch, group []*commit) writer {
	w := writer{below: below, batch: batch, counters: map[string]*counter{}, clearings: clearings(group)}
	for _, c := range group {
		for _, m := range c.log {
			if m.adds() {
				w.counters[string(m.key)] = &counter{}
			}
		}
	}
	return w
}

// follow records that a mutation other than an addition leaves value in the key.
func (w writer) follow(key, value []byte) {
	if k := w.counters[string(key)]; k != nil {
		*k = counter{known: true, value: value}
	}
}

func (w writer) write(m mutation) error {
	switch m.kind {
	case mutationClear:
		w.follow(m.key, nil)
		return w.batch.Clear(m.key)
	case mutationClearRange:
		cleared := m.span()
		for key, k := range w.counters {
			if cleared.has(key) {
				*k = counter{known: true}
			}
		}
		return w.clearRange(cleared)
	case mutationAdd, mutationAddOrClear:
		k := w.counters[string(m.key)]
		if !k.known {
			var err error
			if k.value, err = w.below.Get(m.key); err != nil {
				return err
			}
			k.known = true
		}
		k.value, k.added = m.addend().to(k.value), true
		return nil
	default:
		w.follow(m.key, notNil(m.value))
		return w.set(m.key, m.value)
	}
}

func (w writer) set(key, value []byte) error {
	if len(w.clearings) > 0 {
		if c := w.around(string(key)); c != nil {
			c.set = append(c.set, string(key))
		}
	}
	return w.batch.Set(key, value)
}

// finish writes the results of additions.
func (w writer) finish() error {
	for key, k := range w.counters {
		var err error
		switch {
		case !k.added:
		case k.value == nil:
			err = w.batch.Clear([]byte(key))
		default:
			err = w.batch.Set([]byte(key), k.value) // at the end: nothing is cleared any more
		}
		if err != nil {
			return err
		}
	}
	return nil
}
