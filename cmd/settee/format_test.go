package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
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
	t.Run("newer format", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, tuple.Tuple{leveledFormat + 1}.Pack()) })
		require.ErrorContains(t, checked(t, db), "has format 15, but this version of settee knows only 4, 5 and 8 to 14")
	})
	t.Run("older format", func(t *testing.T) {
		db := open(t, func(tx kv.Transaction) { tx.Set(metaFormat, tuple.Tuple{int64(3)}.Pack()) })
		require.ErrorContains(t, checked(t, db), "has format 3")
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

// A store of an earlier format is converted, if no node of that version uses it.
func TestConvertStore(t *testing.T) {
	t.Parallel()
	for earlier, next := range converted {
		convert := func(t *testing.T, db kv.Database) (int64, error) {
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				tx.Set(metaFormat, tuple.Tuple{earlier}.Pack())
				noteVersion(tx)
				return nil
			}))
			err := checked(t, db)
			value, readErr := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]byte, error) { return tx.Get(metaFormat).Await() })
			require.NoError(t, readErr)
			elements, readErr := tuple.Unpack(value)
			require.NoError(t, readErr)
			return elements[0].(int64), err
		}
		testkit.RunBubble(t, fmt.Sprint("a process's own, of ", earlier), func(t *testing.T) {
			began := time.Now()
			now, err := convert(t, own{enginetest.Memory(t)})
			require.NoError(t, err)
			assert.Equal(t, next, now)
			assert.Zero(t, time.Since(began))
		})
		testkit.RunBubble(t, fmt.Sprint("a cluster's, of ", earlier), func(t *testing.T) {
			now, err := convert(t, enginetest.Memory(t))
			require.NoError(t, err)
			assert.Equal(t, next, now)
		})
		testkit.RunBubble(t, fmt.Sprint("one in use, of ", earlier), func(t *testing.T) {
			db := enginetest.Memory(t)
			n := &node{db: db}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { n.noteVersions(ctx) })
			now, err := convert(t, db)
			cancel()
			running.Wait()
			require.ErrorContains(t, err, "stop all of them")
			assert.Equal(t, earlier, now)
		})
	}
}

// own is a store that no other process can have open.
type own struct{ kv.Database }

// Exclusive makes it one: see kv.Exclusive.
func (own) Exclusive() {}

// checked is checkStore, for tests that need only its error.
func checked(t *testing.T, db kv.Database) error {
	_, err := checkStore(t.Context(), db, nil)
	return err
}
