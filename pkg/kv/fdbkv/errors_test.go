//go:build fdb

package fdbkv

import (
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// TestCommitFailure: after which errors of a commit it may have happened.
func TestCommitFailure(t *testing.T) {
	t.Parallel()
	r := run{ctx: t.Context()}
	for code, want := range map[int]error{
		1007: kv.ErrTransactionTooOld, 1020: kv.ErrNotCommitted,
		1021: kv.ErrCommitUnknown, codeClusterVersionChanged: kv.ErrCommitUnknown,
	} {
		require.ErrorIs(t, r.commitFailure(fdb.Error{Code: code}), want)
	}
	require.NotErrorIs(t, r.readFailure(fdb.Error{Code: codeClusterVersionChanged}), kv.ErrCommitUnknown)
}
