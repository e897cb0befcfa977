package faultkv

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"settee/pkg/kv"
)

// DB is a kv.Database with faults. It is safe for concurrent use.
type DB struct {
	inner kv.Database
	opts  Options

	mu           sync.Mutex // guards what follows
	random       *rand.Rand
	transactions int
	calls        [ops]int
	hits         [faults]int

	runMu   sync.RWMutex
	closed  bool
	running sync.WaitGroup

	// life ends with kv.ErrClosed when the database is closed.
	life context.Context
	end  context.CancelCauseFunc
}

var _ kv.Database = (*DB)(nil)

// Wrap returns a database that passes everything on to inner, apart from the faults
// that it makes. It panics when opts contradict themselves.
//
// Several may share an inner, each a process with faults of its own. One that is
// not closed holds nothing but memory.
func Wrap(inner kv.Database, opts Options) *DB {
	db := &DB{
		inner:  inner,
		opts:   opts.withDefaults(),
		random: rand.New(rand.NewPCG(opts.Seed, 0)),
	}
	db.life, db.end = context.WithCancelCause(context.Background())
	return db
}

// Unwrap returns the inner database: see kv.Writable.
func (db *DB) Unwrap() kv.Database { return db.inner }

// Transact implements kv.Database.
func (db *DB) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if !db.enter() {
		return kv.ErrClosed
	}
	defer db.running.Done()
	t := &transact{db: db, ctx: ctx, fn: fn}
	db.mu.Lock()
	db.transactions++
	t.number = db.transactions
	db.mu.Unlock()
	return kv.Retrier{Pause: db.opts.Pause}.Retry(ctx, t.attempt)
}

// enter counts a running transaction, unless the database is closed.
func (db *DB) enter() bool {
	db.runMu.RLock()
	defer db.runMu.RUnlock()
	if db.closed {
		return false
	}
	db.running.Add(1)
	return true
}

// Close implements kv.Database. It closes the inner database too.
func (db *DB) Close() error {
	db.runMu.Lock()
	wasClosed := db.closed
	db.closed = true
	db.runMu.Unlock()
	if wasClosed {
		return kv.ErrClosed
	}
	// Between two of its attempts a transaction is not the inner database's to
	// wait for.
	db.running.Wait()
	err := db.inner.Close()
	db.end(kv.ErrClosed)
	return err
}

// transact is one call of Transact.
//
// A fault before the commit is an error of the function that the inner database
// runs: it does with it what it does with its own, and what it retries by itself is
// another run here. After a commit it is no longer asked: one that is reported
// unknown is followed by an attempt in another of its transactions.
type transact struct {
	db      *DB
	ctx     context.Context
	fn      func(kv.Transaction) error
	number  int
	runs    int
	unknown int          // commits reported unknown
	last    *transaction // of the present attempt
}

// attempt runs one transaction of the inner database, and returns
// kv.ErrCommitUnknown when it was committed and that is not to be heard.
func (t *transact) attempt() error {
	t.last = nil
	heard := false
	defer func() {
		if t.last != nil && !heard {
			t.last.discard(nil)
		}
	}()
	if err := t.db.inner.Transact(t.ctx, t.run); err != nil {
		return t.failed(err)
	}
	if err := t.last.answer(); err != nil {
		t.last.discard(err)
		return err
	}
	t.last.arm()
	heard = true
	return nil
}

// run is one run of the function, in a transaction of the inner database.
func (t *transact) run(inner kv.Transaction) error {
	if t.last != nil {
		t.last.discard(nil)
	}
	t.runs++
	tx := newTransaction(t, inner)
	t.last = tx
	err := t.fn(tx)
	tx.finish()
	if err != nil {
		return err
	}
	if err := tx.ask(); err != nil {
		tx.discard(err)
		return err
	}
	return nil
}

// failed returns what an attempt ends with that the inner database gave up with
// err.
func (t *transact) failed(err error) error {
	if errors.Is(err, kv.ErrCommitUnknown) {
		t.unknown++
		return err
	}
	if t.unknown > 0 && t.ctx.Err() != nil && (errors.Is(err, t.ctx.Err()) || errors.Is(err, context.Cause(t.ctx))) {
		// This attempt committed nothing, but an earlier run may have, which kv.Retry says together with ctx's
		// error. The error may be the function's: that of a read of its.
		return kv.ErrCommitUnknown
	}
	return err
}
