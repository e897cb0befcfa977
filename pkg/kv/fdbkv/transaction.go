//go:build fdb

package fdbkv

import (
	"encoding/binary"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// transaction is one attempt of a run.
type transaction struct {
	run  *run
	keys keySpace

	// mu guards the fields below. It is held during calls of tr, so that nothing of this attempt gets into the next
	// one, which uses the same tr. No call of tr waits for the cluster.
	mu      sync.Mutex
	tr      fdb.Transaction
	ended   bool
	failed  error // of a write, reported by the next read or the commit
	watches []*watch
}

// use returns an error if the transaction cannot be used. check is the result of checking the arguments. The caller
// holds mu.
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

// committed arms the watches.
func (tx *transaction) committed() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for _, w := range tx.watches {
		tx.run.db.watches.arm(w)
	}
	tx.watches = nil
}

// end discards what has not been committed.
func (tx *transaction) end() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	for _, w := range tx.watches {
		w.Cancel()
	}
	tx.watches = nil
}

// future is a pending read.
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

func (tx *transaction) Get(key []byte) kv.Future[[]byte] { return tx.get(tx.tr, key) }

func (tx *transaction) get(view fdb.ReadTransaction, key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(tx.keys.checkKey(key)); err != nil {
		return engine.Known[[]byte]{Err: err}
	}
	return future[[]byte]{tx.run, view.Get(tx.keys.key(key)).Get}
}

func (tx *transaction) ReadVersion() kv.Future[int64] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(nil); err != nil {
		return engine.Known[int64]{Err: err}
	}
	return future[int64]{tx.run, tx.tr.GetReadVersion().Get}
}

// metadataVersionKey is the cluster's metadata version. The client takes its value from the answer with the read
// version, and refuses other writes than the write of a versionstamp
// (https://github.com/apple/foundationdb/blob/7.3.79/fdbclient/NativeAPI.actor.cpp, Transaction::get).
var metadataVersionKey = fdb.Key("\xff/metadataVersion")

func (tx *transaction) MetadataVersion() kv.Future[kv.Versionstamp] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.use(nil); err != nil {
		return engine.Known[kv.Versionstamp]{Err: err}
	}
	value := tx.tr.Snapshot().Get(metadataVersionKey)
	return future[kv.Versionstamp]{tx.run, func() (version kv.Versionstamp, err error) {
		stored, err := value.Get()
		copy(version[:], stored)
		return version, err
	}}
}

// snapshot reads a transaction without read conflicts.
type snapshot struct{ tx *transaction }

func (tx *transaction) Snapshot() kv.ReadTransaction { return snapshot{tx} }

func (s snapshot) Get(key []byte) kv.Future[[]byte] { return s.tx.get(s.tx.tr.Snapshot(), key) }

func (s snapshot) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return s.tx.getRange(s.tx.tr.Snapshot(), r, opts)
}

func (s snapshot) ReadVersion() kv.Future[int64] { return s.tx.ReadVersion() }

func (s snapshot) MetadataVersion() kv.Future[kv.Versionstamp] { return s.tx.MetadataVersion() }

// write calls apply unless the transaction has failed, and keeps the first error of a check.
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

func (tx *transaction) Add(key []byte, n int64) {
	tx.write(tx.keys.checkKey(key), func() error {
		tx.tr.Add(tx.keys.key(key), binary.LittleEndian.AppendUint64(nil, uint64(n)))
		return nil
	})
}

func (tx *transaction) AddOrClear(key []byte, n int64) {
	tx.write(tx.keys.checkKey(key), func() error {
		key := tx.keys.key(key)
		tx.tr.Add(key, binary.LittleEndian.AppendUint64(nil, uint64(n)))
		tx.tr.CompareAndClear(key, make([]byte, 8))
		return nil
	})
}

func (tx *transaction) SetVersionstampedKey(key, value []byte) {
	err := tx.keys.checkPair(key, value)
	if err == nil && !engine.HasRoomForStamp(key) {
		err = kv.ErrInvalidOperation
	}
	tx.write(err, func() error {
		tx.tr.SetVersionstampedKey(tx.keys.stampedKey(key), value)
		return nil
	})
}

func (tx *transaction) SetVersionstampedValue(key, value []byte) {
	err := tx.keys.checkPair(key, value)
	if err == nil && !engine.HasRoomForStamp(value) {
		err = kv.ErrInvalidOperation
	}
	tx.write(err, func() error {
		tx.tr.SetVersionstampedValue(tx.keys.key(key), value)
		return nil
	})
}

func (tx *transaction) ChangeMetadataVersion() {
	tx.write(nil, func() error {
		tx.tr.SetVersionstampedValue(metadataVersionKey, make([]byte, len(kv.Versionstamp{})+engine.OffsetSize))
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
