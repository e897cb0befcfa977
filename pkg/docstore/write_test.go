package docstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestBulk: each edit has its own result.
func TestBulk(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		old := b.put(t, "old", "", `{}`)
		results := b.write(t, []docstore.Edit{
			{ID: "new"},
			{ID: "old"},
			{ID: "_bad"},
			{ID: "large", Body: docjson.Must(large(docstore.MaxDocumentSize + 1))},
			{ID: "fits", Body: docjson.Must(large(1000))},
			{ID: "old", Rev: parse(t, old), Body: docjson.Must(`{"n":2}`)},
			{ID: "old", Rev: parse(t, old), Body: docjson.Must(`{"n":3}`)},
			{ID: "twice"}, {ID: "twice"},
			{ID: "attachment", Attachments: []docstore.EditAttachment{{Name: "_a"}}},
			{ID: "stub", Attachments: []docstore.EditAttachment{{Name: "a"}}},
		}, docstore.WriteOptions{})
		for i, want := range []error{
			nil, docstore.ErrConflict, docstore.ErrDocumentID, docstore.ErrTooLarge, nil, nil, docstore.ErrConflict,
			nil, docstore.ErrConflict, docstore.ErrDocument, docstore.ErrMissingStub,
		} {
			require.ErrorIs(t, results[i].Err, want, "%d", i)
			assert.Equal(t, want == nil, results[i].Rev != docstore.Rev{}, "%d", i)
			var refused *docstore.DocumentError
			if errors.As(results[i].Err, &refused) {
				assert.Equal(t, results[i].ID, refused.ID)
			}
		}
		assert.Equal(t, `{"n":2}`, string(b.get(t, "old", docstore.GetOptions{}).Body))
		assert.Equal(t, int64(4), b.info(t).DocCount)
		results = b.write(t, nil, docstore.WriteOptions{})
		assert.Empty(t, results)
	})
}

// TestLargeBulk: more documents than fit into a transaction, by number and by size.
func TestLargeBulk(t *testing.T) {
	testkit.SkipRace(t)
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		var edits []docstore.Edit
		for i := range 2*docstore.BatchDocuments + 1 {
			edits = append(edits, docstore.Edit{ID: fmt.Sprint("many ", i)})
		}
		for i := range 12 {
			edits = append(edits, docstore.Edit{ID: fmt.Sprint("large ", i), Body: docjson.Must(large(docstore.BatchSize / 3))})
		}
		edits = append(edits, docstore.Edit{ID: "very large", Body: docjson.Must(large(3 * docstore.BatchSize))})
		results := b.write(t, edits, docstore.WriteOptions{})
		for i, r := range results {
			require.NoError(t, r.Err)
			assert.Equal(t, edits[i].ID, r.ID)
		}
		assert.Equal(t, int64(len(edits)), b.info(t).DocCount)
	})
}

// TestSizes: bodies have sizes around that of a chunk, and the maximum.
func TestSizes(t *testing.T) {
	testkit.SkipRace(t)
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		for _, size := range []int{
			docstore.ChunkSize - 1, docstore.ChunkSize, docstore.ChunkSize + 1, 2 * docstore.ChunkSize,
			kv.MaxValueSize, kv.MaxValueSize + 1, docstore.MaxDocumentSize,
		} {
			// The id that takes the most room in keys.
			id := strings.Repeat("\x00", docstore.MaxIDSize-8) + fmt.Sprintf("%08d", size)
			body := large(size)
			rev := b.put(t, id, "", string(body))
			assert.Equal(t, body, b.get(t, id, docstore.GetOptions{}).Body)
			rev = b.put(t, id, rev, string(large(size-1)))
			assert.Equal(t, large(size-1), b.get(t, id, docstore.GetOptions{}).Body)
			b.remove(t, id, rev)
			b.check(t)
		}
		_, err := b.tryPut(t, "d", "", string(large(docstore.MaxDocumentSize+1)))
		require.ErrorIs(t, err, docstore.ErrTooLarge)
		require.ErrorContains(t, err, `document "d"`)
	})
}

// TestManyLeaves: a document has as many leaves as fit into its row in changes.
func TestManyLeaves(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		write := func(id string, n int, rev func(i int) string) (made int) {
			var edits []docstore.Edit
			for i := range n {
				edits = append(edits, docstore.Edit{ID: id, Pos: 1, Path: []string{rev(i)}})
			}
			results := b.write(t, edits, docstore.WriteOptions{Replicated: true})
			for _, r := range results {
				if r.Err == nil {
					made++
				} else {
					require.ErrorIs(t, r.Err, docstore.ErrTooManyLeaves)
				}
			}
			return made
		}
		assert.Equal(t, docstore.MaxLeaves, write("d", docstore.MaxLeaves+1, func(i int) string { return fmt.Sprintf("%032x", i) }))
		long := func(i int) string { return fmt.Sprintf("%0*d", docstore.MaxRevIDSize, i) }
		made := write("long", 500, long)
		assert.Less(t, made, docstore.MaxChangeSize/docstore.MaxRevIDSize)
		assert.Greater(t, made, docstore.MaxChangeSize*8/10/docstore.MaxRevIDSize)
		b.remove(t, "d", fmt.Sprintf("1-%032x", 7)) // existing leaves can still be replaced
		rows, _ := b.changes(t, docstore.ChangesOptions{})
		assert.Len(t, rows[1].Revs, docstore.MaxLeaves)
	})
}

// TestLongPaths: paths take several chunks, or are too long.
func TestLongPaths(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		require.NoError(t, b.db.SetRevsLimit(t.Context(), docstore.MaxRevsLimit))
		path := func(n int, format string) (ids []string) {
			for i := range n {
				ids = append(ids, fmt.Sprintf(format, n-i))
			}
			return ids
		}
		ids := path(docstore.MaxRevsLimit+1, "%032x")
		results := b.write(t, []docstore.Edit{
			{ID: "d", Pos: int64(len(ids)), Path: ids},
			{ID: "d", Pos: int64(len(ids)), Path: append([]string{"x"}, ids[1:]...)},
			{ID: "long", Pos: 4000, Path: path(4000, "%0200d")},
		}, docstore.WriteOptions{Replicated: true})
		require.NoError(t, results[0].Err)
		require.NoError(t, results[1].Err)
		require.ErrorIs(t, results[2].Err, docstore.ErrTooLarge)
		doc := b.get(t, "d", docstore.GetOptions{})
		assert.Equal(t, "x", doc.Rev.ID)
		assert.Equal(t, ids[1:docstore.MaxRevsLimit], doc.Path[1:])
		rev := b.put(t, "d", doc.Rev.String(), `{"n":1}`)
		doc = b.get(t, "d", docstore.GetOptions{Conflicts: true})
		assert.Equal(t, rev, doc.Rev.String())
		assert.Len(t, doc.Path, docstore.MaxRevsLimit)
		assert.Len(t, doc.Conflicts, 1)
	})
}

// TestConcurrentWriters: of several writers that replace one leaf at the same time with the same content, one succeeds.
func TestConcurrentWriters(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		const writers, rounds = 4, 8
		rev := docstore.Rev{}
		for range rounds {
			var made []docstore.Rev
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() {
					got, err := b.db.Put(t.Context(), docstore.Edit{ID: "lock", Rev: rev})
					_, other := b.db.Put(t.Context(), docstore.Edit{ID: fmt.Sprint("other ", i, rev)})
					if other != nil {
						t.Error(other)
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						made = append(made, got)
					} else {
						assert.ErrorIs(t, err, docstore.ErrConflict)
					}
				})
			}
			wg.Wait()
			require.Len(t, made, 1)
			rev = made[0]
		}
		assert.Equal(t, int64(1+writers*rounds), b.info(t).DocCount)
	})
}

// TestWriteIn: a document is written in one transaction with another key.
func TestWriteIn(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		write := func(fail error, token string, edits ...docstore.Edit) ([]docstore.Result, error) {
			return kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) ([]docstore.Result, error) {
				tx.Set([]byte("else"), []byte("x"))
				results, err := b.db.WriteIn(tx, edits, docstore.WriteOptions{Token: token})
				return results, errors.Join(err, fail)
			})
		}
		failed := errors.New("failed")
		_, err := write(failed, "1", docstore.Edit{ID: "d"})
		require.ErrorIs(t, err, failed)
		assert.Zero(t, b.info(t).DocCount)
		results, err := write(nil, "2", docstore.Edit{ID: "d"}, docstore.Edit{ID: "_x"}, docstore.Edit{ID: "e"})
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, results[1].Err, docstore.ErrDocumentID)
		require.NoError(t, results[2].Err)
		results, err = write(nil, "", docstore.Edit{ID: "d", Rev: results[0].Rev}) // without a token the repetition is a conflict
		require.NoError(t, err)
		require.ErrorIs(t, results[0].Err, docstore.ErrConflict)

		err = b.kv.Transact(t.Context(), func(tx kv.Transaction) error {
			doc, err := b.db.GetIn(tx, "e", docstore.GetOptions{})
			if err != nil {
				return err
			}
			if string(doc.Body) != `{}` {
				return nil // written by an earlier run
			}
			results, err := b.db.WriteIn(tx, []docstore.Edit{{ID: "e", Rev: doc.Rev, Body: docjson.Must(`{"done":true}`)}}, docstore.WriteOptions{})
			if err != nil {
				return err
			}
			return results[0].Err
		})
		require.NoError(t, err)
		assert.Equal(t, `{"done":true}`, string(b.get(t, "e", docstore.GetOptions{}).Body))

		err = b.kv.Transact(t.Context(), func(tx kv.Transaction) error {
			_, first := b.db.WriteIn(tx, []docstore.Edit{{ID: "f"}}, docstore.WriteOptions{})
			_, second := b.db.WriteIn(tx, []docstore.Edit{{ID: "f"}}, docstore.WriteOptions{})
			return errors.Join(first, second)
		})
		require.ErrorIs(t, err, kv.ErrUnreadable)
	})
}

// TestWriteInTwice: several calls of a transaction write documents of one database. Each document has its row in changes, and the
// database one in updates, also if an earlier run of the transaction was committed.
func TestWriteInTwice(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		for round := range 3 {
			require.NoError(t, b.kv.Transact(t.Context(), func(tx kv.Transaction) error {
				for call := range 3 {
					id := fmt.Sprint(round, " ", call)
					edits := []docstore.Edit{{ID: id}, {ID: id + " too"}}
					results, err := b.db.WriteIn(tx, edits, docstore.WriteOptions{Token: id})
					if err != nil {
						return err
					}
					edits[0] = docstore.Edit{ID: id + " refused", Rev: results[0].Rev}
					refused, err := b.db.WriteIn(tx, edits[:1], docstore.WriteOptions{Token: id})
					if err != nil {
						return err
					}
					require.NoError(t, errors.Join(results[0].Err, results[1].Err))
					require.ErrorIs(t, refused[0].Err, docstore.ErrConflict)
				}
				return nil
			}))
			rows, _ := b.changes(t, docstore.ChangesOptions{})
			require.Len(t, rows, 7*round+6)
			updates, _ := b.updates(t, docstore.UpdatesOptions{})
			assert.Equal(t, []string{"created db", "updated db"}, updates)
			b.put(t, fmt.Sprint("alone ", round), "", `{}`)
		}
		b.check(t)
	})
}

// TestRepetitionOfReplaced: a repetition in a salted database finds its revision also after another write has replaced it. In other
// databases it gets a conflict, because another client may have written the same.
func TestRepetitionOfReplaced(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{Salted: func(name string) bool { return name == "db" }})
		open, err := b.store.Create(t.Context(), "open")
		require.NoError(t, err)
		for _, db := range []*docstore.Database{b.db, open} {
			write := func(edit docstore.Edit, token string) docstore.Result {
				results, err := kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) ([]docstore.Result, error) {
					return db.WriteIn(tx, []docstore.Edit{edit}, docstore.WriteOptions{Token: token})
				})
				require.NoError(t, err)
				return results[0]
			}
			first := docstore.Edit{ID: "d", Body: docjson.Must(`{"n":1}`)}
			made := write(first, "first")
			require.NoError(t, made.Err)
			second := docstore.Edit{ID: "d", Rev: made.Rev, Body: docjson.Must(`{"n":2}`)}
			next := write(second, "second")
			require.NoError(t, next.Err)
			repeat := func(salted bool) {
				t.Helper()
				once, twice := write(first, "first"), write(second, "second")
				if salted {
					require.Equal(t, []docstore.Result{made, next}, []docstore.Result{once, twice})
				} else {
					require.ErrorIs(t, once.Err, docstore.ErrConflict)
					require.ErrorIs(t, twice.Err, docstore.ErrConflict)
				}
			}
			last, err := db.Put(t.Context(), docstore.Edit{ID: "d", Rev: next.Rev, Body: docjson.Must(`{"n":3}`)})
			require.NoError(t, err)
			repeat(db == b.db)
			require.ErrorIs(t, write(first, "third").Err, docstore.ErrConflict, "the same text by another client")
			if db == b.db {
				_, err = db.Put(t.Context(), docstore.Edit{ID: "d", Rev: last, Deleted: true})
				require.NoError(t, err)
				repeat(true)
				doc, err := db.Get(t.Context(), "d", docstore.GetOptions{})
				require.ErrorIs(t, err, docstore.ErrNotFound, "%v", doc)
			}
		}
	})
}
