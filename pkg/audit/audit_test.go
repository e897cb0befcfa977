package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/audit"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/kvtest"
	"settee/pkg/tuple"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

func all(*audit.Entry) bool { return true }

// list returns the keys of the settings of entries.
func list(t *testing.T, db kv.Database, limit int, keep func(*audit.Entry) bool) (keys []string) {
	t.Helper()
	found, err := audit.List(t.Context(), db, limit, keep)
	require.NoError(t, err)
	for _, e := range found {
		keys = append(keys, e.Key)
	}
	return keys
}

func record(ctx context.Context, t *testing.T, db kv.Database, keys ...string) {
	t.Helper()
	var made []audit.Entry
	for _, key := range keys {
		e := audit.New(ctx, audit.Set)
		e.Section, e.Key, e.New = "s", key, strings.Repeat("ü", 1000)
		made = append(made, e)
	}
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		for _, e := range made {
			if err := e.Record(tx); err != nil {
				return err
			}
		}
		return nil
	}))
}

// A change is recorded once, also if its commit is reported unknown, with its transaction only, and only if it has a user.
func TestRecord(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		db = enginetest.UnknownOnce(db)
		ann := audit.By(t.Context(), "ann")
		record(ann, t, db, "a")
		record(t.Context(), t, db, "of nobody")
		record(ann, t, db, "b")
		no := errors.New("no")
		require.ErrorIs(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			return errors.Join(audit.New(ann, audit.Ran).Record(tx), no)
		}), no)
		require.Equal(t, []string{"b", "a"}, list(t, db, audit.Kept, all))
		require.Equal(t, []string{"b"}, list(t, db, 1, all))
		require.Equal(t, []string{"a"}, list(t, db, 1, func(e *audit.Entry) bool { return e.Key == "a" }))
		found, err := audit.List(t.Context(), db, 1, all)
		require.NoError(t, err)
		require.Equal(t, []any{"ann", audit.Set, 203}, []any{found[0].User, found[0].Action, len(found[0].New)})
	})
}

// All but the latest entries go, also of one time.
func TestTrim(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		ann := audit.By(t.Context(), "ann")
		var keys []string
		for i := range audit.Kept - 1 {
			keys = append(keys, fmt.Sprint(i))
		}
		record(ann, t, db, keys...)
		require.NoError(t, audit.Trim(t.Context(), db))
		record(ann, t, db, "last")
		require.NoError(t, audit.Trim(t.Context(), db))
		require.Len(t, list(t, db, audit.Kept+9, all), audit.Kept)
		record(ann, t, db, keys[:5]...)
		require.Len(t, list(t, db, audit.Kept+9, all), audit.Kept)
		require.NoError(t, audit.Trim(t.Context(), enginetest.UnknownOnce(db)))
		require.Len(t, rowsOf(t, db), audit.Kept)
		require.Contains(t, list(t, db, 6, all), "last")
	})
}

func rowsOf(t *testing.T, db kv.Database) []kv.KeyValue {
	t.Helper()
	pairs, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(kv.PrefixRange(audit.Prefix), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	return pairs
}

func TestCheck(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	faults := func() (texts []string) {
		c := check.Checker{DB: db, Report: func(f check.Fault) error {
			texts = append(texts, f.What)
			return nil
		}}
		require.NoError(t, audit.Check(t.Context(), &c))
		return texts
	}
	record(audit.By(t.Context(), "ann"), t, db, "a")
	require.Empty(t, faults())
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		space := tuple.SubspaceFromBytes(audit.Prefix)
		tx.Set(space.Pack("entry", int64(1), "t"), []byte("no object"))
		tx.Set(space.Pack("else", int64(1), "t"), []byte("{}"))
		return nil
	}))
	require.Equal(t, []string{"unknown key", "a change: the value is not one that settee writes"}, faults())
}
