package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

var errRefused = errors.New("refused")

// mirror is hooks that keep the state of documents in rows of their own, like a queue that follows a database.
type mirror struct{ fail error }

func mirrored(name, id string) []byte {
	return tuple.SubspaceFromBytes([]byte("mirror/")).Pack(name, id)
}

func (m *mirror) hooks() docstore.Hooks {
	return docstore.Hooks{
		Before: func(_ kv.Transaction, _ *docstore.Database, c *docstore.Change) (any, error) {
			if string(c.Body.Bytes()) == `{"bad":true}` {
				return nil, errRefused
			}
			return c.Rev, nil
		},
		After: func(tx kv.Transaction, db *docstore.Database, c *docstore.Change) error {
			if m.fail != nil {
				return m.fail
			}
			if c.Draft != nil && c.Draft != c.Rev {
				return fmt.Errorf("the draft of %v for %v", c.Draft, c.Rev)
			}
			if c.Deleted {
				tx.Clear(mirrored(db.Name(), c.ID))
			} else {
				tx.Set(mirrored(db.Name(), c.ID), fmt.Appendf(nil, "%s %s was %s %v", c.Rev, c.Body.Bytes(), c.Winner, c.WinnerDeleted))
			}
			return nil
		},
		Deleted: func(_ context.Context, tx kv.Transaction, db *docstore.Database) error {
			if m.fail != nil {
				return m.fail
			}
			r := kv.PrefixRange(mirrored(db.Name(), "")[:len(mirrored(db.Name(), ""))-2])
			tx.ClearRange(r)
			return nil
		},
	}
}

func (b *bundle) mirror(t *testing.T, id string) string {
	t.Helper()
	value, err := kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) ([]byte, error) {
		return tx.Get(mirrored("db", id)).Await()
	})
	require.NoError(t, err)
	return string(value)
}

func TestHooks(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		m := &mirror{}
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{Hooks: m.hooks()})
		results := b.write(t, []docstore.Edit{
			{ID: "a", Body: docjson.Must(`{"n":1}`)}, {ID: "b", Body: docjson.Must(`{"bad":true}`)}, {ID: "c"},
		}, docstore.WriteOptions{})
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, results[1].Err, errRefused)
		require.EqualError(t, results[1].Err, `document "b": refused`)
		require.NoError(t, results[2].Err)
		a := results[0].Rev.String()
		assert.Equal(t, a+` {"n":1} was  false`, b.mirror(t, "a"))
		assert.Equal(t, "", b.mirror(t, "b"))
		assert.NotEmpty(t, b.mirror(t, "c"))

		_, err := b.tryPut(t, "a", a, `{"bad":true}`)
		require.ErrorIs(t, err, errRefused)
		assert.Equal(t, a, b.get(t, "a", docstore.GetOptions{}).Rev.String())

		// After is called only for a revision that wins. The next winner is passed with its content.
		b.merge(t, "d", "2-x y", "2-w y")
		assert.Equal(t, `2-x {"was":"2-x y"} was  false`, b.mirror(t, "d"))
		before := b.mirror(t, "d")
		b.merge(t, "d", "1-z")
		b.merge(t, "d", "2-x y") // known, whatever the hook would return
		assert.Equal(t, before, b.mirror(t, "d"))
		b.remove(t, "d", "2-x")
		assert.Equal(t, `2-w {"was":"2-w y"} was 2-x false`, b.mirror(t, "d"))
		b.remove(t, "d", "2-w")
		assert.Equal(t, `1-z {"was":"1-z"} was 2-w false`, b.mirror(t, "d"))
		b.remove(t, "d", "1-z")
		assert.Equal(t, "", b.mirror(t, "d"))
		rev := b.put(t, "d", "", `{}`)
		assert.Contains(t, b.mirror(t, "d"), rev)
		assert.Contains(t, b.mirror(t, "d"), "true")

		// An error of After or Deleted changes nothing.
		m.fail = errors.New("failed")
		results, err = b.db.Write(t.Context(), []docstore.Edit{{ID: "e"}, {ID: "f"}}, docstore.WriteOptions{})
		require.ErrorIs(t, err, m.fail)
		for _, r := range results {
			require.ErrorIs(t, r.Err, m.fail)
		}
		require.ErrorIs(t, b.db.Delete(t.Context()), m.fail)
		assert.Equal(t, int64(3), b.info(t).DocCount)
		m.fail = nil

		require.NoError(t, b.db.Delete(t.Context()))
		assert.Equal(t, "", b.mirror(t, "a"))
		b.db, err = b.store.Create(t.Context(), "db")
		require.NoError(t, err)
	})
}

// TestLargeHooks: the hooks of each document write so much that it needs a transaction of its own.
func TestLargeHooks(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{Hooks: docstore.Hooks{
			After: func(tx kv.Transaction, _ *docstore.Database, c *docstore.Change) error {
				pieces := 40
				if c.ID == "too much" {
					pieces = 120
				}
				for i := range pieces {
					tx.Set(fmt.Appendf(nil, "large/%s/%d", c.ID, i), make([]byte, docstore.ChunkSize))
				}
				return nil
			},
		}})
		var edits []docstore.Edit
		for i := range 5 {
			edits = append(edits, docstore.Edit{ID: fmt.Sprint(i)})
		}
		edits = append(edits, docstore.Edit{ID: "too much"})
		results := b.write(t, edits, docstore.WriteOptions{})
		for _, r := range results[:5] {
			require.NoError(t, r.Err)
		}
		require.ErrorIs(t, results[5].Err, docstore.ErrTooLarge)
		assert.Equal(t, int64(5), b.info(t).DocCount)
	})
}

// TestSlowHooks: the hooks of several documents take longer than a transaction may.
func TestSlowHooks(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		told := map[string]int{}
		slowly := false
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{Hooks: docstore.Hooks{
			Before: func(tx kv.Transaction, _ *docstore.Database, c *docstore.Change) (any, error) {
				if slowly {
					<-time.After(200 * time.Millisecond)
				}
				_, err := tx.Get([]byte("anything")).Await()
				return nil, err
			},
			After: func(tx kv.Transaction, _ *docstore.Database, c *docstore.Change) error {
				told[c.ID]++
				if !slowly {
					<-time.After(200 * time.Millisecond)
				}
				if c.ID == "39" {
					<-time.After(2 * time.Second) // more than the time that is left for several
				}
				_, err := tx.Get([]byte("anything")).Await()
				return err
			},
		}})
		var edits []docstore.Edit
		for i := range 40 {
			edits = append(edits, docstore.Edit{ID: fmt.Sprint(i)})
		}
		results := b.write(t, edits, docstore.WriteOptions{})
		for _, r := range results {
			require.NoError(t, r.Err)
			assert.NotZero(t, told[r.ID])
		}
		assert.Equal(t, int64(40), b.info(t).DocCount)

		slowly = true // the checks of all documents come before the first is written
		for i := range edits {
			edits[i].ID += " more"
		}
		for _, r := range b.write(t, edits, docstore.WriteOptions{}) {
			require.NoError(t, r.Err)
		}
		assert.Equal(t, int64(80), b.info(t).DocCount)
	})
}

// TestFailingStore: an error of the store in a hook is not an error of the document.
func TestFailingStore(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		runs := 0
		b := newBundle(t, db, docstore.Options{Hooks: docstore.Hooks{
			Before: func(kv.Transaction, *docstore.Database, *docstore.Change) (any, error) {
				if runs++; runs == 1 {
					return nil, fmt.Errorf("reading: %w", kv.ErrTransactionTooOld)
				}
				return nil, nil
			},
		}})
		b.put(t, "d", "", `{}`)
		assert.GreaterOrEqual(t, runs, 2) // a cluster may run it once more
	})
}
