package optimistic

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/kv"
)

// view is a snapshot of the storage and its version. Its users are counted: the published view has one, and so does
// each transaction and each pending read that uses it.
type view struct {
	version  int64
	metadata kv.Versionstamp // the metadata version
	snapshot Snapshot
	users    atomic.Int64
}

// newView returns a view with one user.
func newView(version int64, metadata kv.Versionstamp, snapshot Snapshot) *view {
	v := &view{version: version, metadata: metadata, snapshot: snapshot}
	v.users.Store(1)
	return v
}

// keep adds a user. The view must have a user that stays meanwhile.
func (v *view) keep() { v.users.Add(1) }

func (v *view) release() {
	if v.users.Add(-1) == 0 {
		// A snapshot only pins what it shows: an error of closing it has no effect.
		_ = v.snapshot.Close()
	}
}

// views are the published view and the transactions that read.
type views struct {
	viewMu sync.Mutex
	view   *view // the published one
	// readers are the transactions that hold a view, the oldest first.
	readers list.List
	// expiry calls expire when the oldest reader will be too old. It is nil without readers.
	expiry   *time.Timer
	expiring sync.WaitGroup
}

// publish makes the current state of the storage visible to new transactions.
func (db *DB) publish(version int64, metadata kv.Versionstamp) {
	next := newView(version, metadata, db.storage.Snapshot())
	db.viewMu.Lock()
	old := db.view
	db.view = next
	db.viewMu.Unlock()
	old.release()
}

// published returns the published view, with a use counted for the caller.
func (db *DB) published() *view {
	db.viewMu.Lock()
	defer db.viewMu.Unlock()
	db.view.keep()
	return db.view
}

// beginReading draws the view of tx. The caller holds tx.mu.
func (db *DB) beginReading(tx *transaction) {
	db.viewMu.Lock()
	defer db.viewMu.Unlock()
	// The time is taken first: the history then keeps at least what the transaction can conflict with.
	tx.began, tx.start = true, db.now()
	db.view.keep()
	tx.view, tx.readVersion = db.view, db.view.version
	tx.reader = db.readers.PushBack(tx)
	if db.expiry == nil && !db.inline {
		db.expiring.Add(1)
		db.expiry = time.AfterFunc(kv.MaxTransactionAge, db.expire)
	}
}

// endReading removes tx from the readers. The caller holds tx.mu.
func (db *DB) endReading(tx *transaction) {
	db.viewMu.Lock()
	defer db.viewMu.Unlock()
	if tx.reader != nil {
		db.readers.Remove(tx.reader)
		tx.reader = nil
	}
}

// expireReaders releases the views of transactions that are too old to read, so that a transaction whose function hangs
// pins nothing. It returns the time until the oldest of the others is too old.
func (db *DB) expireReaders() time.Duration {
	for {
		db.viewMu.Lock()
		oldest := db.readers.Front()
		if oldest == nil {
			db.viewMu.Unlock()
			return 0
		}
		tx := oldest.Value.(*transaction)
		left := kv.MaxTransactionAge - db.now().Sub(tx.start)
		if left >= 0 {
			db.viewMu.Unlock()
			return left + 1
		}
		db.readers.Remove(oldest)
		tx.reader = nil
		db.viewMu.Unlock()
		tx.expire()
	}
}

// expire is called by the timer.
func (db *DB) expire() {
	defer db.expiring.Done()
	left := db.expireReaders()
	db.viewMu.Lock()
	defer db.viewMu.Unlock()
	if db.readers.Len() == 0 {
		db.expiry = nil
		return
	}
	db.expiring.Add(1)
	db.expiry.Reset(max(left, time.Millisecond))
}

// stopExpiry stops the timer, because there are no readers.
func (db *DB) stopExpiry() {
	db.viewMu.Lock()
	if db.expiry != nil && db.expiry.Stop() {
		db.expiring.Done()
	}
	db.viewMu.Unlock()
	db.expiring.Wait()
}
