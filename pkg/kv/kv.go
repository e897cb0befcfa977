package kv

import (
	"context"
	"iter"
	"time"
)

// FoundationDB's limits, which every engine has (https://apple.github.io/foundationdb/known-limitations.html).
const (
	MaxKeySize         = 10_000          // bytes
	MaxValueSize       = 100_000         // bytes
	MaxTransactionSize = 10_000_000      // bytes, plus 44 for each write and 24 for each conflict range
	MaxTransactionAge  = 5 * time.Second // from the read version to the commit
)

// DefaultMaxWatches is the default limit of armed watches in a process.
const DefaultMaxWatches = 10_000

// Database is a store. It is safe for concurrent use.
type Database interface {
	// Transact runs fn in a transaction and commits it. On a retryable error of fn or of the commit (see [Retryable])
	// it waits a little and runs fn again in a new transaction, until ctx ends. If fn returns an error that is not
	// retryable, Transact returns it and commits nothing.
	//
	// If ctx ends during a commit, the error is [ErrCommitUnknown]: that commit may still happen. If it ends at any
	// other time, the error is ctx's, and nothing of the last run was or will be committed.
	Transact(ctx context.Context, fn func(Transaction) error) error

	// Close releases the store. It waits for running transactions. Armed watches end with [ErrClosed].
	Close() error
}

// ReadTransaction is the reading part of a transaction.
type ReadTransaction interface {
	// Get reads the value of key, or nil if it has none. An empty value is an empty slice that is not nil.
	Get(key []byte) Future[[]byte]

	// GetRange reads the pairs of r in key order. An inverted range has none. Reading starts at once, but only pairs
	// taken from the result conflict with other transactions.
	GetRange(r KeyRange, opts RangeOptions) RangeResult

	// ReadVersion returns the version at which this transaction reads: it sees all commits up to this version and none
	// after it.
	ReadVersion() Future[int64]

	// MetadataVersion returns the versionstamp of the last commit up to the read version that called
	// ChangeMetadataVersion, or the zero value if there was none. It needs no round trip besides the one for the read
	// version. The stores of a FoundationDB cluster share it, so it may also change for another store. Reading it
	// conflicts with nothing: see "The metadata version" in the package's doc comment.
	MetadataVersion() Future[Versionstamp]
}

// Transaction is one run of the function passed to [Database.Transact]. Several goroutines may use it, until the
// function returns. It copies the slices passed to it. The slices that it returns belong to the caller.
type Transaction interface {
	ReadTransaction

	// Snapshot returns the same view for reads without conflicts.
	Snapshot() ReadTransaction

	Set(key, value []byte)
	Clear(key []byte)
	// ClearRange removes the keys from begin (inclusive) to end (exclusive).
	ClearRange(r KeyRange)
	// Add adds n to the value of key, a little-endian integer of 8 bytes. A missing value counts as 0. A value of
	// another length is first cut, or extended with zero bytes. Add does not read the value, so there is no read
	// conflict.
	Add(key []byte, n int64)
	// AddOrClear is Add, and clears the key if the sum is 0. It does not read the value either.
	AddOrClear(key []byte, n int64)

	// SetVersionstampedKey sets a key that contains the commit's versionstamp. The last 4 bytes of key are a
	// little-endian offset. They are cut off, and the 10 bytes at the offset are replaced by the stamp.
	SetVersionstampedKey(key, value []byte)
	// SetVersionstampedValue does the same for a value.
	SetVersionstampedValue(key, value []byte)

	// ChangeMetadataVersion sets the metadata version to the commit's versionstamp. After it, this transaction can no
	// longer read the metadata version: the error is [ErrUnreadable].
	ChangeMetadataVersion()

	AddReadConflictKey(key []byte)
	AddReadConflictRange(r KeyRange)
	AddWriteConflictKey(key []byte)

	// Watch returns a watch on key, which is armed when this transaction commits. It ends when the value differs from
	// what this transaction would read.
	Watch(key []byte) Watch
}

// Versionstamp is the position of a commit among all commits: 8 bytes of version and 2 bytes of order within it,
// big-endian.
type Versionstamp [10]byte

// KeyValue is a pair of a range read.
type KeyValue struct {
	Key, Value []byte
}

// RangeOptions says how a range is read.
type RangeOptions struct {
	// Limit is the maximum number of pairs. 0 is no limit.
	Limit int
	// Reverse reads from the end of the range to its beginning.
	Reverse bool
}

// RangeResult is the result of a range read. It arrives in batches of the largest size that fits: a reader of less than
// the whole range sets a limit.
type RangeResult interface {
	// All yields the pairs as they arrive. It yields an error with an empty pair and then stops. It may be called once.
	All() iter.Seq2[KeyValue, error]
	// Slice returns all pairs.
	Slice() ([]KeyValue, error)
}

// Watch waits for a change of one key.
type Watch interface {
	// Wait returns nil when the key has (or may have) changed, ctx's error if ctx ended first, [ErrClosed] if the store
	// was closed, [ErrWatchCancelled] after Cancel or if the transaction did not commit, and [ErrTooManyWatches] if the
	// watch could not be armed.
	Wait(ctx context.Context) error
	// Cancel ends the watch, so that it no longer counts towards max_watches.
	Cancel()
}

// TransactValue is [Database.Transact] for a function with a result. It returns the result of the committed run, so
// that no variable keeps results of earlier runs.
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
