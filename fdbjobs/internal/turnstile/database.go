package turnstile

import (
	"context"
	"iter"

	"settee/pkg/kv"
)

// Wrap returns inner with a turnstile in each of its calls: before each run of a transaction's function, at a share of
// its reads, before the commit, when Transact returns, and when a watch ends. Contexts must have the name of the
// calling goroutine. A transaction is used only by that goroutine.
func (t *Turnstile) Wrap(inner kv.Database) kv.Database { return &database{inner, t} }

type database struct {
	kv.Database
	turnstile *Turnstile
}

// Unwrap returns the inner database: see kv.Writable.
func (db *database) Unwrap() kv.Database { return db.Database }

// Transact implements kv.Database.
func (db *database) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	err := db.Database.Transact(ctx, func(inner kv.Transaction) error {
		Pass(ctx, "run")
		tx := &transaction{Transaction: inner}
		tx.reads = reads{inner: inner, ctx: ctx, turnstile: db.turnstile}
		err := fn(tx)
		Pass(ctx, "commit")
		return err
	})
	Pass(ctx, "transaction")
	return err
}

type transaction struct {
	kv.Transaction
	reads reads
}

func (tx *transaction) Get(key []byte) kv.Future[[]byte] { return tx.reads.Get(key) }

func (tx *transaction) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return tx.reads.GetRange(r, opts)
}

func (tx *transaction) ReadVersion() kv.Future[int64] { return tx.reads.ReadVersion() }

func (tx *transaction) MetadataVersion() kv.Future[kv.Versionstamp] {
	return tx.reads.MetadataVersion()
}

func (tx *transaction) Snapshot() kv.ReadTransaction {
	r := tx.reads
	r.inner = tx.Transaction.Snapshot()
	return r
}

func (tx *transaction) Watch(key []byte) kv.Watch {
	return watch{tx.Transaction.Watch(key), identityOf(tx.reads.ctx).process}
}

// reads are the reads of a transaction or its snapshot.
type reads struct {
	inner     kv.ReadTransaction
	ctx       context.Context
	turnstile *Turnstile
}

func (r reads) pass() {
	if r.turnstile.share(r.turnstile.opts.Reads) {
		Pass(r.ctx, "read")
	}
}

func (r reads) Get(key []byte) kv.Future[[]byte] { return future[[]byte]{r.inner.Get(key), r} }

func (r reads) ReadVersion() kv.Future[int64] { return future[int64]{r.inner.ReadVersion(), r} }

func (r reads) MetadataVersion() kv.Future[kv.Versionstamp] {
	return future[kv.Versionstamp]{r.inner.MetadataVersion(), r}
}

func (r reads) GetRange(of kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return rangeResult{r.inner.GetRange(of, opts), r}
}

type future[T any] struct {
	inner kv.Future[T]
	reads reads
}

func (f future[T]) Await() (T, error) {
	value, err := f.inner.Await()
	f.reads.pass()
	return value, err
}

type rangeResult struct {
	inner kv.RangeResult
	reads reads
}

func (r rangeResult) Slice() ([]kv.KeyValue, error) {
	pairs, err := r.inner.Slice()
	r.reads.pass()
	return pairs, err
}

func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		r.reads.pass()
		r.inner.All()(yield)
	}
}

type watch struct {
	kv.Watch
	process *Process
}

// Wait passes under a name of its own, because its caller may wait for other things too.
func (w watch) Wait(ctx context.Context) error {
	ctx = w.process.Name(ctx, "watch")
	err := w.Watch.Wait(ctx)
	Pass(ctx, "watch")
	return err
}
