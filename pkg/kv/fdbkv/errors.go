//go:build fdb

package fdbkv

import (
	"errors"
	"strings"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

// Codes of the client that tell that an operation was given up here, and not
// what became of it.
const (
	codeTransactionCancelled = 1025
	codeTransactionTimedOut  = 1031
	codeOperationCancelled   = 1101
)

// asKV returns an error of the client as one of package kv with the same code.
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
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}
