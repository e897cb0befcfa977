package main

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

func TestCheckStore(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, write func(kv.Transaction)) kv.Database {
		db := enginetest.Memory(t)
		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			write(tx)
			return nil
		}))
		return db
	}
	t.Run("new, then known", func(t *testing.T) {
		db := open(t, func(kv.Transaction) {})
		require.NoError(t, checked(t, db))
		require.NoError(t, checked(t, db))
	})
	t.Run("another format", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, tuple.Tuple{format + 1}.Pack()) })
		require.ErrorContains(t, checked(t, db), "the store has format 2, but this version of settee knows only 1")
	})
	t.Run("something else's", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, []byte("hello")) })
		require.ErrorContains(t, checked(t, db), "something else")
	})
	t.Run("versions that went back", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) {
			tx.Set(metaStamp, append(binary.BigEndian.AppendUint64(nil, 1<<50), 0, 0))
		})
		require.ErrorContains(t, checked(t, db), "advanceversion")
	})
}

// checked is checkStore, for tests that need only its error.
func checked(t *testing.T, db kv.Database) error {
	_, err := checkStore(t.Context(), db, nil)
	return err
}
