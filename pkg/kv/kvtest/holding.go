package kvtest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// Holding returns the number of pairs below a prefix with a text in their key or value. It reads them in one
// transaction.
func Holding(t testing.TB, db kv.Database, prefix []byte, text string) (n int) {
	t.Helper()
	pairs, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.Snapshot().GetRange(kv.PrefixRange(prefix), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	for _, pair := range pairs {
		if bytes.Contains(pair.Key, []byte(text)) || bytes.Contains(pair.Value, []byte(text)) {
			n++
		}
	}
	return n
}
