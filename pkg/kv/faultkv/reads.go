package faultkv

import (
	"iter"
	"time"

	"settee/pkg/kv"
)

// reads are the reads of a transaction or its snapshot.
type reads struct {
	tx        *transaction
	inner     kv.ReadTransaction
	conflicts bool
}

var _ kv.ReadTransaction = reads{}

// Snapshot implements kv.Transaction.
func (tx *transaction) Snapshot() kv.ReadTransaction {
	return reads{tx: tx, inner: tx.inner.Snapshot()}
}

func (r reads) Get(key []byte) kv.Future[[]byte] {
	return point(r, key, func() kv.Future[[]byte] { return r.inner.Get(key) })
}

// ReadVersion is never too old: a known version needs no read, and a new one is current.
func (r reads) ReadVersion() kv.Future[int64] { return version(r, r.inner.ReadVersion) }

// MetadataVersion is never too old either: it comes with the read version.
func (r reads) MetadataVersion() kv.Future[kv.Versionstamp] {
	return version(r, r.inner.MetadataVersion)
}

// version issues the read of a version, which can only be delayed.
func version[T any](r reads, issue func() kv.Future[T]) kv.Future[T] {
	if err := r.usable(false); err != nil {
		return future[T]{tx: r.tx, err: err}
	}
	p := r.tx.transact.db.decide(r.tx.call(Read, nil))
	return future[T]{tx: r.tx, ready: r.tx.ready(p), inner: issue()}
}

// usable returns an error if the transaction can no longer read.
func (r reads) usable(reading bool) error {
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	switch {
	case r.tx.ended:
		return kv.ErrUsedAfterEnd
	case reading:
		r.tx.conflicts = r.tx.conflicts || r.conflicts
		if r.tx.tooOld {
			return kv.ErrTransactionTooOld
		}
	}
	return nil
}

// age makes the transaction too old to read.
func (tx *transaction) age(call Call) error {
	tx.mu.Lock()
	tx.tooOld = true
	tx.mu.Unlock()
	tx.transact.db.hit(call, TooOld, 0)
	return kv.ErrTransactionTooOld
}

// ready returns the time at which the result of a read arrives, or the zero time without a delay. Reads that are issued
// together are delayed at the same time.
func (tx *transaction) ready(p plan) time.Time {
	if p.delay == 0 {
		return time.Time{}
	}
	return tx.transact.db.opts.Now().Add(p.delay)
}

// await waits until a result arrives, or until ctx ends. The commit handles the end of ctx.
func (tx *transaction) await(ready time.Time) {
	if ready.IsZero() {
		return
	}
	opts := &tx.transact.db.opts
	if d := ready.Sub(opts.Now()); d > 0 {
		opts.Sleep(tx.transact.ctx, d)
	}
}

// point issues the read of a single value.
func point[T any](r reads, key []byte, issue func() kv.Future[T]) kv.Future[T] {
	if err := r.usable(true); err != nil {
		return future[T]{tx: r.tx, err: err}
	}
	p := r.tx.transact.db.decide(r.tx.call(Read, key))
	if p.fault == TooOld {
		return future[T]{tx: r.tx, ready: r.tx.ready(p), err: r.tx.age(p.call)}
	}
	return future[T]{tx: r.tx, ready: r.tx.ready(p), inner: issue()}
}

// future is the pending read of a single value.
type future[T any] struct {
	tx    *transaction
	ready time.Time
	inner kv.Future[T]
	err   error // returned instead of a result
}

func (f future[T]) Await() (T, error) {
	f.tx.await(f.ready)
	if f.err != nil {
		var zero T
		return zero, f.err
	}
	return f.inner.Await()
}

func (r reads) GetRange(of kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	if err := r.usable(false); err != nil {
		return failedRange{err}
	}
	p := r.tx.transact.db.decide(r.tx.call(Read, of.Begin))
	return rangeResult{reads: r, plan: p, ready: r.tx.ready(p), inner: r.inner.GetRange(of, opts)}
}

// rangeResult is the result of a range read.
type rangeResult struct {
	reads reads
	plan  plan
	ready time.Time
	inner kv.RangeResult
}

// All yields the pairs before the one at which the read fails. A fault comes at the latest after the last pair, so only
// a reader that stops earlier misses it.
func (r rangeResult) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		r.reads.tx.await(r.ready)
		left := r.plan.pairs()
		for pair, err := range r.inner.All() {
			if err == nil {
				err = r.step(left == 0)
			}
			if err != nil {
				yield(kv.KeyValue{}, err)
				return
			}
			if !yield(pair, nil) {
				return
			}
			left--
		}
		if err := r.step(true); err != nil {
			yield(kv.KeyValue{}, err)
		}
	}
}

// step returns the error at a pair or at the end: the fault's error if this is its place, or the error of a
// transaction that another read has aged.
func (r rangeResult) step(place bool) error {
	if err := r.reads.usable(true); err != nil {
		return err
	}
	if place && r.plan.fault == TooOld {
		return r.reads.tx.age(r.plan.call)
	}
	return nil
}

func (r rangeResult) Slice() ([]kv.KeyValue, error) {
	var pairs []kv.KeyValue
	for pair, err := range r.All() {
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// failedRange is a range read that was not issued.
type failedRange struct{ err error }

func (f failedRange) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) { yield(kv.KeyValue{}, f.err) }
}

func (f failedRange) Slice() ([]kv.KeyValue, error) { return nil, f.err }
