package kv

import (
	"errors"
	"fmt"
	"time"
)

// Error is an error of a store, with FoundationDB's code (https://apple.github.io/foundationdb/api-error-codes.html).
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
	// ErrTransactionTooOld: the transaction read more than MaxTransactionAge after its read version was drawn.
	// Retryable.
	ErrTransactionTooOld = &Error{1007, "transaction is too old to perform reads or be committed"}
	// ErrNotCommitted: something that the transaction read has been written since. Retryable.
	ErrNotCommitted = &Error{1020, "transaction not committed due to conflict with another transaction"}
	// ErrCommitUnknown: the commit may or may not have happened, or may still happen. Retryable.
	ErrCommitUnknown = &Error{1021, "transaction may or may not have committed"}
	// ErrWatchCancelled: the watch was cancelled, or its transaction was not committed.
	ErrWatchCancelled = &Error{1025, "operation aborted because the transaction was cancelled"}
	// ErrTooManyWatches: max_watches are armed.
	ErrTooManyWatches = &Error{1032, "too many watches set"}
	// ErrUnreadable: the transaction wrote the key with a versionstamp.
	ErrUnreadable = &Error{1036, "read or wrote an unreadable key"}
	// ErrInvalidOperation: the arguments of an operation are not valid.
	ErrInvalidOperation = &Error{2000, "invalid API call"}
	// ErrKeyOutsideLegalRange: the key begins with \xff.
	ErrKeyOutsideLegalRange = &Error{2004, "key outside legal range"}
	// ErrInvertedRange: a range's begin lies after its end.
	ErrInvertedRange = &Error{2005, "range begin key larger than end key"}
	// ErrUsedAfterEnd: the transaction was used after its function returned.
	ErrUsedAfterEnd = &Error{2017, "operation issued while a commit was outstanding"}
	// ErrTransactionTooLarge: the transaction has more than MaxTransactionSize bytes.
	ErrTransactionTooLarge = &Error{2101, "transaction exceeds byte limit"}
	// ErrKeyTooLarge: the key has more than MaxKeySize bytes.
	ErrKeyTooLarge = &Error{2102, "key length exceeds limit"}
	// ErrValueTooLarge: the value has more than MaxValueSize bytes.
	ErrValueTooLarge = &Error{2103, "value length exceeds limit"}
)

// ErrClosed is returned by a closed store.
var ErrClosed = errors.New("kv: the store is closed")

// ErrSlow ends a transaction whose function takes too long: see [InTime].
var ErrSlow = errors.New("kv: the work takes too long for one transaction")

// TooMuch reports whether a transaction failed with err because its writes are too large, or its work takes too long.
// It would fail again, but the parts of its work may succeed in transactions of their own.
func TooMuch(err error) bool {
	return errors.Is(err, ErrTransactionTooLarge) || errors.Is(err, ErrSlow)
}

// InTime returns the error of a transaction's function, whose work can be divided. It is err, or ErrSlow if until has
// passed and err is nil or ErrTransactionTooOld: a store would repeat the same work until it is in time, which may be
// never. A zero until does not pass. The commit must also come before MaxTransactionAge, so until is well before that.
func InTime(until time.Time, err error) error {
	slow := !until.IsZero() && time.Now().After(until)
	if slow && (err == nil || errors.Is(err, ErrTransactionTooOld)) {
		return ErrSlow
	}
	return err
}

// retryableCodes are the codes after which FoundationDB's on_error runs a transaction again.
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

// Retryable reports whether a transaction is run again after err, or an error that it wraps.
func Retryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && retryableCodes[e.Code]
}
