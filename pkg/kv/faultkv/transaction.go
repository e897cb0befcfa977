package faultkv

import (
	"sync"

	"settee/pkg/kv"
)

// transaction is one run of a function.
type transaction struct {
	reads
	transact *transact
	inner    kv.Transaction
	run      int
	unknown  int // commits of earlier runs that were reported unknown

	commit plan // set before the commit

	mu        sync.Mutex // guards the fields below
	ended     bool       // the function has returned
	wrote     bool       // there is something to commit
	conflicts bool       // it has read something that can conflict
	tooOld    bool
	outcome   error // of this run, if a fault caused it
	watches   []*watch
}

func newTransaction(t *transact, inner kv.Transaction) *transaction {
	tx := &transaction{transact: t, inner: inner, run: t.runs, unknown: t.unknown}
	tx.reads = reads{tx: tx, inner: inner, conflicts: true}
	return tx
}

// call returns the description of a call of this run.
func (tx *transaction) call(op Op, key []byte) Call {
	return Call{Op: op, Transaction: tx.transact.number, Run: tx.run, Unknown: tx.unknown, Key: key}
}

// finish ends the use of the transaction by the function.
func (tx *transaction) finish() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
}

// ask is called on the way of the commit to the store. A fault here happens before the commit is made.
func (tx *transaction) ask() error {
	tx.mu.Lock()
	wrote, conflicts, tooOld := tx.wrote, tx.conflicts, tx.tooOld
	tx.mu.Unlock()
	if !wrote {
		return nil
	}
	if conflicts && tooOld {
		return kv.ErrTransactionTooOld
	}
	t := tx.transact
	tx.commit = t.db.decide(tx.call(Commit, nil))
	if before, _ := tx.commit.split(); before > 0 {
		if t.db.opts.Sleep(t.ctx, before); t.ctx.Err() != nil {
			t.unknown++
			return kv.ErrCommitUnknown
		}
	}
	var err error
	switch fault := tx.commit.fault; {
	case fault == Conflict && conflicts:
		err = kv.ErrNotCommitted
	case fault == TooOld && conflicts:
		err = kv.ErrTransactionTooOld
	case fault == UnknownNotCommitted:
		t.unknown++
		err = kv.ErrCommitUnknown
	default:
		return nil
	}
	t.db.hit(tx.commit.call, tx.commit.fault, 0)
	return err
}

// answer is called on the way back from a commit that was made. There is no fault for a transaction with nothing to
// commit.
func (tx *transaction) answer() error {
	t := tx.transact
	if _, after := tx.commit.split(); after > 0 {
		if t.db.opts.Sleep(t.ctx, after); t.ctx.Err() != nil {
			t.unknown++
			return kv.ErrCommitUnknown
		}
	}
	if tx.commit.fault != UnknownCommitted {
		return nil
	}
	t.unknown++
	t.db.hit(tx.commit.call, UnknownCommitted, 0)
	return kv.ErrCommitUnknown
}

// arm arms the watches of the run whose result the caller gets.
func (tx *transaction) arm() {
	tx.mu.Lock()
	watches := tx.watches
	tx.watches = nil
	tx.mu.Unlock()
	for _, w := range watches {
		close(w.armed)
	}
}

// discard ends a run whose result the caller does not get. err is the fault's, or nil if the inner transaction has its
// own error. The first error counts.
func (tx *transaction) discard(err error) {
	tx.mu.Lock()
	if tx.outcome == nil {
		tx.outcome = err
	}
	tx.ended = true
	watches := tx.watches
	tx.watches = nil
	tx.mu.Unlock()
	for _, w := range watches {
		w.discard()
	}
}

// write reports whether the transaction can still be written to. If so, it records that there is something to commit.
func (tx *transaction) write() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		return false
	}
	tx.wrote = true
	return true
}

// conflict is write for an explicit read conflict.
func (tx *transaction) conflict() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		return false
	}
	tx.conflicts = true
	return true
}

func (tx *transaction) Set(key, value []byte) {
	if tx.write() {
		tx.inner.Set(key, value)
	}
}

func (tx *transaction) Clear(key []byte) {
	if tx.write() {
		tx.inner.Clear(key)
	}
}

func (tx *transaction) ClearRange(r kv.KeyRange) {
	if string(r.Begin) == string(r.End) {
		return // writes nothing
	}
	if tx.write() {
		tx.inner.ClearRange(r)
	}
}

func (tx *transaction) Add(key []byte, n int64) {
	if tx.write() {
		tx.inner.Add(key, n)
	}
}

func (tx *transaction) AddOrClear(key []byte, n int64) {
	if tx.write() {
		tx.inner.AddOrClear(key, n)
	}
}

func (tx *transaction) SetVersionstampedKey(key, value []byte) {
	if tx.write() {
		tx.inner.SetVersionstampedKey(key, value)
	}
}

func (tx *transaction) SetVersionstampedValue(key, value []byte) {
	if tx.write() {
		tx.inner.SetVersionstampedValue(key, value)
	}
}

func (tx *transaction) ChangeMetadataVersion() {
	if tx.write() {
		tx.inner.ChangeMetadataVersion()
	}
}

func (tx *transaction) AddReadConflictKey(key []byte) {
	if tx.conflict() {
		tx.inner.AddReadConflictKey(key)
	}
}

func (tx *transaction) AddReadConflictRange(r kv.KeyRange) {
	if tx.conflict() {
		tx.inner.AddReadConflictRange(r)
	}
}

func (tx *transaction) AddWriteConflictKey(key []byte) {
	if tx.write() {
		tx.inner.AddWriteConflictKey(key)
	}
}
