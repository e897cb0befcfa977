package kv

import (
	"context"
	"iter"
	"time"
)

// FoundationDB's limits, which every engine keeps
// (https://apple.github.io/foundationdb/known-limitations.html).
const (
	MaxKeySize         = 10_000          // bytes
	MaxValueSize       = 100_000         // bytes
	MaxTransactionSize = 10_000_000      // bytes; 44 for each write and 24 for each conflict range are counted, too
	MaxTransactionAge  = 5 * time.Second // from the read version to the commit
)

// DefaultMaxWatches is how many watches a process may have armed at once unless
// its engine was opened with another limit.
const DefaultMaxWatches = 10_000

// Database is a store. It is safe for concurrent use.
type Database interface {
	// Transact runs fn in a transaction and commits it. On a retryable error of
	// fn or of the commit (see [Retryable]) it waits a little and runs fn again
	// in a new transaction, until ctx ends. An error of fn that is not
	// retryable is returned as it is, and nothing is committed.
	//
	// When ctx ends during a commit the error is [ErrCommitUnknown]: that
	// commit may still happen. When it ends at any other time the error is
	// ctx's, and nothing of the last run was or will be committed.
	Transact(ctx context.Context, fn func(Transaction) error) error

	// Close releases the store. It waits for running transactions; watches
	// that are still armed end with [ErrClosed].
	Close() error
}

// ReadTransaction is the reading part of a transaction.
type ReadTransaction interface {
	// Get reads the value of key, nil when there is none. A stored value of no
	// bytes is an empty slice that is not nil.
	Get(key []byte) Future[[]byte]

	// GetKey reads the key that sel selects: "" when it lies before the first
	// key, "\xff" when it lies behind the last.
	GetKey(sel KeySelector) Future[[]byte]

	// GetRange reads the pairs of r in the order of their keys. Reading starts
	// at once; only what has been taken from the result conflicts with other
	// transactions.
	GetRange(r Range, opts RangeOptions) RangeResult

	// ReadVersion is the version at which this transaction reads: it sees all
	// commits up to it and none after.
	ReadVersion() Future[int64]
}

// Transaction is one run of the function given to [Database.Transact]. It may
// be used by several goroutines, and not after the function has returned.
//
// Slices passed in are copied; slices handed out belong to the caller.
type Transaction interface {
	ReadTransaction

	// Snapshot returns the same view for reads that do not conflict.
	Snapshot() ReadTransaction

	Set(key, value []byte)
	Clear(key []byte)
	// ClearRange removes the keys from begin (inclusive) to end (exclusive).
	ClearRange(r KeyRange)
	// Atomic changes the value of key without reading it here, and so without
	// a read conflict.
	Atomic(op MutationType, key, operand []byte)

	// SetVersionstampedKey sets a key that holds the commit's versionstamp. The
	// last 4 bytes of key are a little-endian offset: the 10 bytes there are
	// replaced by the stamp, and the offset is cut off.
	SetVersionstampedKey(key, value []byte)
	// SetVersionstampedValue does the same with a value.
	SetVersionstampedValue(key, value []byte)

	AddReadConflictKey(key []byte)
	AddReadConflictRange(r KeyRange)
	AddWriteConflictKey(key []byte)
	AddWriteConflictRange(r KeyRange)

	// Watch returns a watch on key, which is armed when this transaction
	// commits. It ends when the value differs from what this transaction
	// would read.
	Watch(key []byte) Watch

	// Versionstamp returns the stamp of this transaction's commit. It is
	// awaited after Transact has returned; a transaction that wrote nothing has
	// none ([ErrNoCommitVersion]), and that of a run whose result is unknown is
	// not known either ([ErrCommitUnknown]).
	Versionstamp() Future[Versionstamp]
}

// Future is the result of a read that may still be under way. Await waits for
// it; it may be called several times.
type Future[T any] interface {
	Await() (T, error)
}

// Versionstamp is the place of a commit among all commits: 8 bytes of version
// and 2 bytes of order within it, big-endian.
type Versionstamp [10]byte

// KeyValue is a pair of a range read.
type KeyValue struct {
	Key, Value []byte
}

// RangeOptions says how a range is read.
type RangeOptions struct {
	// Limit is the largest number of pairs; 0 is no limit.
	Limit int
	// Reverse reads from the end of the range to its beginning.
	Reverse bool
	// Mode says how much to fetch per round trip.
	Mode StreamingMode
}

// StreamingMode is a hint for the size of the batches in which a range arrives.
type StreamingMode int

const (
	// StreamIterator begins with small batches that grow: for a reader that
	// may stop early.
	StreamIterator StreamingMode = iota
	// StreamWantAll fetches as much as fits: for a reader that takes it all.
	StreamWantAll
)

// RangeResult is the result of a range read.
type RangeResult interface {
	// All yields the pairs one by one as they arrive. After an error, which
	// comes with an empty pair, it stops. It reads the range once.
	All() iter.Seq2[KeyValue, error]
	// Slice returns all pairs.
	Slice() ([]KeyValue, error)
}

// Watch waits for a change of one key.
type Watch interface {
	// Wait returns nil when the key has (or may have) changed, ctx's error when
	// that ended first, [ErrClosed] when the store was closed,
	// [ErrWatchCancelled] after Cancel or when the transaction did not commit,
	// and [ErrTooManyWatches] when it could not be armed.
	Wait(ctx context.Context) error
	// Cancel gives the watch up and frees its place among the max_watches.
	Cancel()
}

// MutationType is an atomic operation. Operands and values are little-endian
// unsigned integers for Add, Min and Max: an existing value is cut or
// zero-extended to the operand's length first. They are byte strings for the
// other two, which leave or replace the value as it is. A missing value becomes
// the operand.
type MutationType int

// The atomic operations.
const (
	MutationAdd MutationType = iota
	MutationMin
	MutationMax
	MutationByteMin
	MutationByteMax
)

// TransactValue is [Database.Transact] for a function with a result. It returns
// the result of the run that was committed, so that nothing of an earlier run
// is left in a variable.
func TransactValue[T any](ctx context.Context, db Database, fn func(Transaction) (T, error)) (T, error) {
	var result T
	err := db.Transact(ctx, func(tx Transaction) error {
		var err error
		result, err = fn(tx)
		return err
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return result, nil
}
