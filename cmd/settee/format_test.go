package main

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/pkg/tuple"
)

func TestCheckStore(t *testing.T) {
	open := func(t *testing.T, write func(kv.Transaction)) kv.Database {
		db, err := memkv.Open(memkv.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			write(tx)
			return nil
		}))
		return db
	}
	t.Run("new, then known", func(t *testing.T) {
		db := open(t, func(kv.Transaction) {})
		require.NoError(t, checkStore(t.Context(), db))
		require.NoError(t, checkStore(t.Context(), db))
	})
	t.Run("newer format", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, tuple.Tuple{sealedFormat + 1}.Pack()) })
		require.ErrorContains(t, checkStore(t.Context(), db), "has format 6")
	})
	t.Run("older format", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, tuple.Tuple{format - 1}.Pack()) })
		require.ErrorContains(t, checkStore(t.Context(), db), "has format 3, and this version of settee knows 4 and 5 only")
	})
	t.Run("something else's", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, []byte("hello")) })
		require.ErrorContains(t, checkStore(t.Context(), db), "something else")
	})
	t.Run("versions that went back", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) {
			tx.Set(metaStamp, append(binary.BigEndian.AppendUint64(nil, 1<<50), 0, 0))
		})
		require.ErrorContains(t, checkStore(t.Context(), db), "advanceversion")
	})
}
