package kv

import (
	"errors"
	"fmt"
)

// Error is an error of a store, with FoundationDB's number for it
// (https://apple.github.io/foundationdb/api-error-codes.html).
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("kv: %s (%d)", e.Text, e.Code) }

// Is reports whether target is an Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// The errors that callers decide on.
var (
	// ErrTransactionTooOld: the transaction read more than MaxTransactionAge
	// after its read version was drawn. Retryable.
	ErrTransactionTooOld = &Error{1007, "transaction is too old to perform reads or be committed"}
	// ErrNotCommitted: something that was read has been written since.
	// Retryable.
	ErrNotCommitted = &Error{1020, "transaction not committed due to conflict with another transaction"}
	// ErrCommitUnknown: the commit may or may not have happened, or may still
	// happen. Retryable.
	ErrCommitUnknown = &Error{1021, "transaction may or may not have committed"}
	// ErrWatchCancelled: the watch was cancelled, or its transaction was not
	// committed.
	ErrWatchCancelled = &Error{1025, "operation aborted because the transaction was cancelled"}
	// ErrTooManyWatches: max_watches are armed.
	ErrTooManyWatches = &Error{1032, "too many watches set"}
	// ErrUnreadable: the transaction wrote the key with a versionstamp.
	ErrUnreadable = &Error{1036, "read or wrote an unreadable key"}
	// ErrInvalidOperation: the arguments of an operation make no sense.
	ErrInvalidOperation = &Error{2000, "invalid API call"}
	// ErrKeyOutsideLegalRange: the key begins with \xff.
	ErrKeyOutsideLegalRange = &Error{2004, "key outside legal range"}
	// ErrInvertedRange: a range's begin lies behind its end.
	ErrInvertedRange = &Error{2005, "range begin key larger than end key"}
	// ErrUsedAfterEnd: the transaction was used after its function returned.
	ErrUsedAfterEnd = &Error{2017, "operation issued while a commit was outstanding"}
	// ErrNoCommitVersion: a transaction that wrote nothing has no versionstamp.
	ErrNoCommitVersion = &Error{2021, "transaction is read-only and therefore does not have a commit version"}
	// ErrTransactionTooLarge: more than MaxTransactionSize.
	ErrTransactionTooLarge = &Error{2101, "transaction exceeds byte limit"}
	// ErrKeyTooLarge: more than MaxKeySize.
	ErrKeyTooLarge = &Error{2102, "key length exceeds limit"}
	// ErrValueTooLarge: more than MaxValueSize.
	ErrValueTooLarge = &Error{2103, "value length exceeds limit"}
)

// ErrClosed is returned by a store that was closed.
var ErrClosed = errors.New("kv: the store is closed")

// retryableCodes are the codes for which FoundationDB's on_error runs a
// transaction again.
var retryableCodes = map[int]bool{
	1007: true, // transaction_too_old
	1009: true, // future_version
	1020: true, // not_committed
	1021: true, // commit_unknown_result
	1037: true, // process_behind
	1038: true, // database_locked
	1039: true, // cluster_version_changed
	1042: true, // commit_proxy_memory_limit_exceeded
	1051: true, // batch_transaction_throttled
	1078: true, // grv_proxy_memory_limit_exceeded
	1213: true, // tag_throttled
	1223: true, // proxy_tag_throttled
}

// Retryable reports whether err, or an error it wraps, is one for which a
// transaction is run again.
func Retryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && retryableCodes[e.Code]
}
