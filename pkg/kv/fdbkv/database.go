//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

// database is a kv.Database in a cluster.
type database struct {
	connection *connection
	keys       keySpace
	watches    watches

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// enter counts a running transaction, unless the database is closed.
func (db *database) enter() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return false
	}
	db.running.Add(1)
	return true
}

// Close implements kv.Database.
func (db *database) Close() error {
	db.mu.Lock()
	wasClosed := db.closed
	db.closed = true
	db.mu.Unlock()
	if wasClosed {
		return kv.ErrClosed
	}
	db.running.Wait()
	db.watches.close()
	db.connection.release()
	return nil
}

// Transact implements kv.Database.
func (db *database) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if !db.enter() {
		return kv.ErrClosed
	}
	defer db.running.Done()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r, err := db.begin(ctx)
	if err != nil {
		return err
	}
	defer r.end()
	var unknown error
	for ctx.Err() == nil {
		err := r.attempt(fn)
		if errors.Is(err, kv.ErrCommitUnknown) {
			unknown = err
		}
		if err == nil || !r.again(err) {
			if unknown != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return errors.Join(unknown, err) // of an earlier attempt
			}
			return err
		}
	}
	if unknown != nil {
		return errors.Join(unknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// run is one call of Transact: a transaction of the client that is used for one
// attempt after the other, since it knows how long to wait between them.
type run struct {
	ctx context.Context
	db  *database
	tr  fdb.Transaction
	end func()
}

func (db *database) begin(ctx context.Context) (*run, error) {
	tr, err := db.connection.CreateTransaction()
	if err != nil {
		return nil, asKV(err)
	}
	r := &run{ctx: ctx, db: db, tr: tr}
	if err := r.limit(); err != nil {
		return nil, err
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		// All futures of the transaction end, and with them whoever awaits one.
		tr.Cancel()
		// A client with several libraries that has no connection yet has no
		// transaction to cancel either, but it heeds the time-out. There is
		// nobody to tell of an error, and the option's range is known.
		_ = tr.Options().SetTimeout(1)
	})
	r.end = func() {
		if !stop() {
			<-cancelled
		}
		// The binding leaves its transactions to the garbage collector, which
		// does not see how much memory of the client they hold. This frees it,
		// and ends reads that nobody waited for. Watches that are armed stay.
		tr.Reset()
	}
	return r, nil
}

// limit makes the client give up when ctx's deadline has passed. Without one it
// goes on until ctx is cancelled; the number of retries has no limit.
func (r *run) limit() error {
	deadline, ok := r.ctx.Deadline()
	if !ok {
		return nil
	}
	left := max(time.Until(deadline).Milliseconds(), 0) + 1 // rounded up: 0 would be no time-out
	if left > math.MaxInt32 {
		return nil
	}
	if err := r.tr.Options().SetTimeout(left); err != nil {
		return asKV(err)
	}
	return nil
}

// again waits as long as the client wants after err and reports whether the
// function is to be run again. After the end of ctx it only reports.
func (r *run) again(err error) bool {
	var e *kv.Error
	if !errors.As(err, &e) {
		return false
	}
	if r.ctx.Err() != nil {
		return kv.Retryable(err)
	}
	if r.tr.OnError(fdb.Error{Code: e.Code}).Get() == nil {
		return true
	}
	if !kv.Retryable(err) {
		return false
	}
	// ctx has ended meanwhile, which the caller looks at, or the code is one that
	// this set-up of the client never has itself and so does not know, such as
	// cluster_version_changed without further libraries.
	r.tr.Reset()
	return r.limit() == nil
}

// attempt runs fn once and commits.
func (r *run) attempt(fn func(kv.Transaction) error) error {
	tx := &transaction{run: r, keys: r.db.keys, tr: r.tr}
	defer tx.end()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.finish(); err != nil {
		return err
	}
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if err := r.tr.Commit().Get(); err != nil {
		return tx.notCommitted(r.commitFailure(err))
	}
	tx.committed()
	return nil
}

// commitFailure returns the error for a commit that failed with err.
func (r *run) commitFailure(err error) error {
	if r.gaveUp(err) {
		return kv.ErrCommitUnknown
	}
	return asKV(err)
}

// readFailure returns the error for a read that failed with err.
func (r *run) readFailure(err error) error {
	if r.gaveUp(err) {
		return context.Cause(r.ctx)
	}
	return asKV(err)
}

// gaveUp reports whether an operation failed with err because ctx has ended.
func (r *run) gaveUp(err error) bool {
	if hasCode(err, codeTransactionTimedOut) {
		<-r.ctx.Done() // its deadline, by another clock
	}
	return r.ctx.Err() != nil && hasCode(err, codeTransactionTimedOut, codeTransactionCancelled, codeOperationCancelled)
}
