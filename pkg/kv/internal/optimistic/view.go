package optimistic

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/kv"
)

// view is a snapshot of the storage and its version. It is counted: by being
// the published one, by each transaction that reads at it, and by each read
// under way.
type view struct {
	version  int64
	snapshot Snapshot
	users    atomic.Int64
}

// newView returns a view with one user.
func newView(version int64, snapshot Snapshot) *view {
	v := &view{version: version, snapshot: snapshot}
	v.users.Store(1)
	return v
}

// keep adds a user. The caller knows of one that stays meanwhile.
func (v *view) keep() { v.users.Add(1) }

func (v *view) release() {
	if v.users.Add(-1) == 0 {
		// A snapshot only pins what it shows: an error of its end is nobody's.
		_ = v.snapshot.Close()
	}
}

// views are the published view and the transactions that read.
type views struct {
	viewMu sync.Mutex
	view   *view // the published one
	// readers are the transactions that hold a view, the oldest first.
	readers list.List
	// expiry runs expireReaders when the oldest reader will be too old; it is
	// nil while there are no readers.
	expiry   *time.Timer
	expiring sync.WaitGroup
}

// publish makes the storage's present state what new transactions see.
func (db *DB) publish(version int64) {
	next := newView(version, db.storage.Snapshot())
	db.viewMu.Lock()
	old := db.view
	db.view = next
	db.viewMu.Unlock()
	old.release()
}

// published returns the published view, kept for the caller.
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
	// The time is taken first: the history keeps what a transaction that began
	// at this time can conflict with, which is never too little.
	tx.began, tx.start = true, db.now()
	db.view.keep()
	tx.view, tx.readVersion = db.view, db.view.version
	tx.reader = db.readers.PushBack(tx)
	if db.expiry == nil && !db.inline {
		db.expiring.Add(1)
		db.expiry = time.AfterFunc(kv.MaxTransactionAge, db.expire)
	}
}

// endReading forgets tx as a reader. The caller holds tx.mu.
func (db *DB) endReading(tx *transaction) {
	db.viewMu.Lock()
	defer db.viewMu.Unlock()
	if tx.reader != nil {
		db.readers.Remove(tx.reader)
		tx.reader = nil
	}
}

// expireReaders releases the views of transactions that are too old to read, so
// that one whose function hangs pins nothing. It returns how long the oldest of
// the others has left.
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

// expire is what the timer runs.
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

// stopExpiry stops the timer. There are no readers any more.
func (db *DB) stopExpiry() {
	db.viewMu.Lock()
	if db.expiry != nil && db.expiry.Stop() {
		db.expiring.Done()
	}
	db.viewMu.Unlock()
	db.expiring.Wait()
}
