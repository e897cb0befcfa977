package faultkv

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// DB is a kv.Database with faults. It is safe for concurrent use.
type DB struct {
	inner kv.Database
	opts  Options

	mu           sync.Mutex // guards the fields below
	random       *rand.Rand
	transactions int
	calls        [ops]int
	hits         [faults]int

	gate engine.Gate

	// life ends with kv.ErrClosed when the database is closed.
	life context.Context
	end  context.CancelCauseFunc
}

var _ kv.Database = (*DB)(nil)

// Wrap returns a database that passes all calls on to inner and adds faults. It panics if opts contradict each other.
//
// Several databases may share one inner, each as a process with its own faults. A database that is not closed holds
// only memory.
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
	if !db.gate.Enter() {
		return kv.ErrClosed
	}
	defer db.gate.Leave()
	t := &transact{db: db, ctx: ctx, fn: fn}
	db.mu.Lock()
	db.transactions++
	t.number = db.transactions
	db.mu.Unlock()
	return kv.Retrier{Pause: db.opts.Pause}.Retry(ctx, t.attempt)
}

// Close implements kv.Database. It closes the inner database too.
func (db *DB) Close() error {
	// Between two attempts of a transaction the inner database does not wait for it.
	if !db.gate.Close() {
		return kv.ErrClosed
	}
	err := db.inner.Close()
	db.end(kv.ErrClosed)
	return err
}

// transact is one call of Transact.
//
// A fault before the commit is an error of the function that the inner database runs. If the inner database retries it,
// that is another run here. After a commit the inner database is not asked again: a commit that is reported unknown is
// followed by an attempt in another of its transactions.
type transact struct {
	db      *DB
	ctx     context.Context
	fn      func(kv.Transaction) error
	number  int
	runs    int
	unknown int          // commits reported unknown
	last    *transaction // of the current attempt
}

// attempt runs one transaction of the inner database. It returns kv.ErrCommitUnknown if the transaction was committed
// and a fault hides that.
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

// failed returns the error of an attempt that the inner database ended with err.
func (t *transact) failed(err error) error {
	if errors.Is(err, kv.ErrCommitUnknown) {
		t.unknown++
		return err
	}
	if t.unknown > 0 && t.ctx.Err() != nil && (errors.Is(err, t.ctx.Err()) || errors.Is(err, context.Cause(t.ctx))) {
		// This attempt committed nothing, but an earlier run may have. kv.Retrier adds that to ctx's error. The error
		// may also be from a read of the function.
		return kv.ErrCommitUnknown
	}
	return err
}
