//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// database is a kv.Database in a cluster.
type database struct {
	connection *connection
	keys       keySpace
	opts       kv.Options
	watches    watches
	gate       engine.Gate
}

// Close implements kv.Database.
func (db *database) Close() error {
	if !db.gate.Close() {
		return kv.ErrClosed
	}
	db.watches.close()
	db.connection.release()
	return nil
}

// Transact implements kv.Database.
func (db *database) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if !db.gate.Enter() {
		return kv.ErrClosed
	}
	defer db.gate.Leave()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r, err := db.begin(ctx)
	if err != nil {
		return err
	}
	defer r.end()
	var unknown error
	runs := db.opts.Runs()
	for ctx.Err() == nil {
		err := r.attempt(fn)
		if errors.Is(err, kv.ErrCommitUnknown) {
			unknown = err
		}
		if err == nil || !r.again(err) {
			if unknown != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return errors.Join(unknown, err) // from an earlier attempt
			}
			return err
		}
		runs.Failed(err)
	}
	if unknown != nil {
		return errors.Join(unknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// run is one call of Transact. All attempts use one transaction of the client, because it determines the time between
// them.
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
		// All futures of the transaction end, and with them each Await.
		tr.Cancel()
		// A client with several libraries and no connection yet has no transaction to cancel, but it observes the
		// time-out. An error could not be reported, and the option's range is known.
		_ = tr.Options().SetTimeout(1)
	})
	r.end = func() {
		if !stop() {
			<-cancelled
		}
		// The binding leaves its transactions to the garbage collector, which does not see the client's memory that
		// they hold. Reset frees it, and ends reads that were not awaited. Armed watches stay.
		tr.Reset()
	}
	return r, nil
}

// limit sets the client's time-out to ctx's deadline. Without a deadline the client continues until ctx is cancelled.
// The number of retries has no limit.
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

// again waits as long as the client asks for after err, and reports whether to run the function again. After the end of
// ctx it does not wait.
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
	// Either ctx has ended meanwhile, which the caller checks, or the client does not know the code because it never
	// produces it in this configuration, such as cluster_version_changed without further libraries.
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
		return r.commitFailure(err)
	}
	tx.committed()
	return nil
}

// commitFailure returns the error for a commit that failed with err.
func (r *run) commitFailure(err error) error {
	if r.gaveUp(err) || hasCode(err, codeClusterVersionChanged) {
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
		<-r.ctx.Done() // the client's clock may be ahead of ctx's deadline
	}
	return r.ctx.Err() != nil && hasCode(err, codeTransactionTimedOut, codeTransactionCancelled, codeOperationCancelled)
}
