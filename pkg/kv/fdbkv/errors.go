//go:build fdb

package fdbkv

import (
	"errors"
	"slices"
	"strings"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

// Codes of the client for operations that were given up here, whose result is not known.
const (
	codeTransactionCancelled = 1025
	codeTransactionTimedOut  = 1031
	codeOperationCancelled   = 1101
)

// codeClusterVersionChanged is the code of what was under way when the client changed its library, because the cluster
// was upgraded. A commit may have happened (fdb_error_predicate, FDB_ERROR_PREDICATE_MAYBE_COMMITTED).
const codeClusterVersionChanged = 1039

// asKV returns the error of package kv with the code of a client's error.
func asKV(err error) error {
	var e fdb.Error
	if !errors.As(err, &e) {
		return err
	}
	// "FoundationDB error code 1007 (Transaction is too old to ...)"
	_, text, found := strings.Cut(e.Error(), "(")
	if !found {
		text = e.Error()
	}
	return &kv.Error{Code: e.Code, Text: strings.TrimSuffix(text, ")")}
}

// hasCode reports whether err is an error of the client with one of the codes.
func hasCode(err error, codes ...int) bool {
	var e fdb.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}
