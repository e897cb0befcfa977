//go:build fdb

package fdbkv

import (
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

// transaction is one attempt of a run.
type transaction struct {
	run  *run
	keys keySpace

	// mu guards the fields below, and is held while tr is called, so that
	// nothing of this attempt gets into the next one, which has the same tr. No
	// call of tr waits for the cluster.
	mu      sync.Mutex
	tr      fdb.Transaction
	ended   bool
	failed  error // of a write, reported by the next read or the commit
	watches []*watch

	stamped fdb.FutureKey // nil unless the versionstamp was asked for
	stamp   kv.Versionstamp
	noStamp error // why there is no stamp
}

// use checks whether the transaction may be used, given what the arguments'
// check said. The caller holds mu.
func (tx *transaction) use(check error) error {
	switch {
	case tx.ended:
		return kv.ErrUsedAfterEnd
	case tx.failed != nil:
		return tx.failed
	}
	return check
}

// finish ends the use of the transaction before its commit.
func (tx *transaction) finish() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	return tx.failed
}

// committed takes over what a commit brings.
func (tx *transaction) committed() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for _, w := range tx.watches {
		tx.run.db.watches.arm(w)
	}
	tx.watches = nil
	if tx.stamped == nil {
		return
	}
	stamp, err := tx.stamped.Get() // it is there since the commit
	tx.noStamp = nil
	if err != nil {
		tx.noStamp = asKV(err)
	}
	copy(tx.stamp[:], stamp)
}

// notCommitted remembers why there is no versionstamp.
func (tx *transaction) notCommitted(err error) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.noStamp = err
	return err
}

// end gives up what has not been committed.
func (tx *transaction) end() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	for _, w := range tx.watches {
		w.Cancel()
	}
	tx.watches = nil
}

// future is a read under way.
type future[T any] struct {
	run *run
	get func() (T, error) // of the client's future
}

func (f future[T]) Await() (T, error) {
	value, err := f.get()
	if err != nil {
		var zero T
		return zero, f.run.readFailure(err)
	}
	return value, nil
}

// done is a future whose result is known.
type done[T any] struct {
	value T
	err   error
}

func (f done[T]) Await() (T, error) { return f.value, f.err }

func (tx *transaction) Get(key []byte) kv.Future[[]byte] { return tx.get(tx.tr, key) }

func (tx *transaction) get(view fdb.ReadTransaction, key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(tx.keys.checkKey(key)); err != nil {
		return done[[]byte]{err: err}
	}
	return future[[]byte]{tx.run, view.Get(tx.keys.key(key)).Get}
}

func (tx *transaction) ReadVersion() kv.Future[int64] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(nil); err != nil {
		return done[int64]{err: err}
	}
	return future[int64]{tx.run, tx.tr.GetReadVersion().Get}
}

// snapshot reads a transaction without read conflicts.
type snapshot struct{ tx *transaction }

func (tx *transaction) Snapshot() kv.ReadTransaction { return snapshot{tx} }

func (s snapshot) Get(key []byte) kv.Future[[]byte] { return s.tx.get(s.tx.tr.Snapshot(), key) }

func (s snapshot) GetKey(sel kv.KeySelector) kv.Future[[]byte] {
	return s.tx.getKey(s.tx.tr.Snapshot(), sel)
}

func (s snapshot) GetRange(r kv.Range, opts kv.RangeOptions) kv.RangeResult {
	return s.tx.getRange(s.tx.tr.Snapshot(), r, opts)
}

func (s snapshot) ReadVersion() kv.Future[int64] { return s.tx.ReadVersion() }

// write calls apply unless the transaction has failed, and keeps the first error
// that checks find.
func (tx *transaction) write(check error, apply func() error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(check); err != nil {
		tx.failed = err
		return
	}
	if err := apply(); err != nil {
		tx.failed = asKV(err)
	}
}

func (tx *transaction) Set(key, value []byte) {
	tx.write(tx.keys.checkPair(key, value), func() error {
		tx.tr.Set(tx.keys.key(key), value)
		return nil
	})
}

func (tx *transaction) Clear(key []byte) {
	tx.write(tx.keys.checkKey(key), func() error {
		tx.tr.Clear(tx.keys.key(key))
		return nil
	})
}

func (tx *transaction) ClearRange(r kv.KeyRange) {
	if string(r.Begin) == string(r.End) {
		return
	}
	tx.write(tx.keys.checkRange(r), func() error {
		tx.tr.ClearRange(tx.keys.keyRange(r))
		return nil
	})
}

// atomics are the client's calls for the atomic operations.
var atomics = map[kv.MutationType]func(tr fdb.Transaction, key fdb.KeyConvertible, operand []byte){
	kv.MutationAdd:     fdb.Transaction.Add,
	kv.MutationMin:     fdb.Transaction.Min,
	kv.MutationMax:     fdb.Transaction.Max,
	kv.MutationByteMin: fdb.Transaction.ByteMin,
	kv.MutationByteMax: fdb.Transaction.ByteMax,
}

func (tx *transaction) Atomic(op kv.MutationType, key, operand []byte) {
	err := tx.keys.checkPair(key, operand)
	mutate, known := atomics[op]
	if err == nil && !known {
		err = kv.ErrInvalidOperation
	}
	tx.write(err, func() error {
		mutate(tx.tr, tx.keys.key(key), operand)
		return nil
	})
}

func (tx *transaction) SetVersionstampedKey(key, value []byte) {
	err := tx.keys.checkPair(key, value)
	if err == nil && !hasRoomForStamp(key) {
		err = kv.ErrInvalidOperation
	}
	tx.write(err, func() error {
		tx.tr.SetVersionstampedKey(tx.keys.stampedKey(key), value)
		return nil
	})
}

func (tx *transaction) SetVersionstampedValue(key, value []byte) {
	err := tx.keys.checkPair(key, value)
	if err == nil && !hasRoomForStamp(value) {
		err = kv.ErrInvalidOperation
	}
	tx.write(err, func() error {
		tx.tr.SetVersionstampedValue(tx.keys.key(key), value)
		return nil
	})
}

func (tx *transaction) AddReadConflictKey(key []byte) {
	tx.write(tx.keys.checkKey(key), func() error { return tx.tr.AddReadConflictKey(tx.keys.key(key)) })
}

func (tx *transaction) AddReadConflictRange(r kv.KeyRange) {
	tx.write(tx.keys.checkRange(r), func() error { return tx.tr.AddReadConflictRange(tx.keys.keyRange(r)) })
}

func (tx *transaction) AddWriteConflictKey(key []byte) {
	tx.write(tx.keys.checkKey(key), func() error { return tx.tr.AddWriteConflictKey(tx.keys.key(key)) })
}

func (tx *transaction) AddWriteConflictRange(r kv.KeyRange) {
	tx.write(tx.keys.checkRange(r), func() error { return tx.tr.AddWriteConflictRange(tx.keys.keyRange(r)) })
}

func (tx *transaction) Watch(key []byte) kv.Watch {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(tx.keys.checkKey(key)); err != nil {
		return failedWatch(err)
	}
	w := newWatch(tx.tr.Watch(tx.keys.key(key)))
	tx.watches = append(tx.watches, w)
	return w
}

func (tx *transaction) Versionstamp() kv.Future[kv.Versionstamp] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(nil); err != nil {
		return done[kv.Versionstamp]{err: err}
	}
	if tx.stamped == nil {
		tx.stamped, tx.noStamp = tx.tr.GetVersionstamp(), kv.ErrNoCommitVersion
	}
	return stampFuture{tx}
}

// stampFuture is the versionstamp of a commit.
type stampFuture struct{ tx *transaction }

func (f stampFuture) Await() (kv.Versionstamp, error) {
	f.tx.mu.Lock()
	defer f.tx.mu.Unlock()
	return f.tx.stamp, f.tx.noStamp
}
