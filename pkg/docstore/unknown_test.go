package docstore_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestCommitUnknown: every call returns the right result although each transaction is made once more after its commit.
func TestCommitUnknown(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		rev := b.put(t, "d", "", `{"n":1}`)
		rev = b.put(t, "d", rev, `{"n":2}`)
		b.remove(t, "d", rev)
		rev = b.put(t, "d", "", `{"n":4}`)
		assert.Equal(t, "4", rev[:1])
		_, err := b.tryPut(t, "d", "", `{"n":4}`)
		require.ErrorIs(t, err, docstore.ErrConflict)
		b.merge(t, "d", "3-c b a", "4-d c b a", "2-x a")
		assert.Len(t, b.leaves(t, "d"), 3)
		content := noise(300_000)
		rev = b.attach(t, "a", "", map[string]*docstore.Upload{"x": b.upload(t, "a", content)})
		b.attach(t, "a", rev, map[string]*docstore.Upload{"x": nil, "y": b.upload(t, "a", noise(5))})
		assert.Equal(t, content, b.content(t, b.get(t, "a", docstore.GetOptions{}), "x"))
		require.NoError(t, b.db.Discard(t.Context(), b.upload(t, "a", noise(7))))
		info := b.info(t)
		assert.Equal(t, int64(2), info.DocCount)
		assert.Equal(t, int64(300_005), info.AttachmentBytes)
		b.check(t)

		// Several edits of one batch, some of which depend on others.
		var edits []docstore.Edit
		for i := range 20 {
			edits = append(edits, docstore.Edit{ID: fmt.Sprint("bulk ", i%10), Body: docjson.Must(fmt.Appendf(nil, `{"n":%d}`, i))})
		}
		results := b.write(t, edits, docstore.WriteOptions{})
		for i, r := range results {
			if i < 10 {
				require.NoError(t, r.Err)
				edits[i].Rev = r.Rev
			} else {
				require.ErrorIs(t, r.Err, docstore.ErrConflict)
			}
		}
		results = b.write(t, edits[:10], docstore.WriteOptions{})
		for i, r := range results {
			require.NoError(t, r.Err)
			assert.Greater(t, r.Rev.Pos, edits[i].Rev.Pos)
		}

		// An edit replaces what another has written.
		first := parse(t, b.put(t, "same", "", `{}`)) // of the same content, and so of the same id
		results = b.write(t, []docstore.Edit{{ID: "chain"}, {ID: "chain", Rev: first}}, docstore.WriteOptions{})
		require.NoError(t, results[0].Err)
		require.NoError(t, results[1].Err)
		assert.EqualValues(t, 2, results[1].Rev.Pos)

		require.NoError(t, b.db.Delete(t.Context()))
		require.ErrorIs(t, b.db.Delete(t.Context()), docstore.ErrDatabaseNotFound)
		b.db, err = b.store.Create(t.Context(), "db")
		require.NoError(t, err)
	})
}

// TestMeanwhile: other calls run between a commit of unknown result and its repetition.
func TestMeanwhile(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		other := newBundle(t, db, docstore.Options{})
		hole := enginetest.Control(enginetest.UnknownOnce(db))
		store := docstore.Open(hole, prefix, docstore.Options{})
		defer store.Close()
		mine, err := store.Database(t.Context(), "db")
		require.NoError(t, err)

		// Another write makes a conflict: the edit is still a leaf.
		hole.BetweenRuns(func() { other.merge(t, "d", "9-z") })
		rev, err := mine.Put(t.Context(), docstore.Edit{ID: "d"})
		require.NoError(t, err)
		assert.Len(t, other.leaves(t, "d"), 2)

		// Another write replaces it: the result may be a conflict, and nothing is written twice.
		hole.BetweenRuns(func() {
			for _, leaf := range other.leaves(t, "d") {
				if leaf[:1] == "2" {
					other.remove(t, "d", leaf[:34])
				}
			}
		})
		_, err = mine.Put(t.Context(), docstore.Edit{ID: "d", Rev: rev})
		require.ErrorIs(t, err, docstore.ErrConflict)
		assert.Len(t, other.leaves(t, "d"), 2)

		// Another call deletes the database and creates a new one.
		hole.BetweenRuns(func() {
			require.NoError(t, other.db.Delete(t.Context()))
			var err error
			other.db, err = other.store.Create(t.Context(), "db")
			require.NoError(t, err)
		})
		_, err = mine.Put(t.Context(), docstore.Edit{ID: "e"})
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)

		// It stays deleted although there is a new one of its name.
		mine, err = store.Database(t.Context(), "db")
		require.NoError(t, err)
		hole.BetweenRuns(func() {
			var err error
			other.db, err = other.store.Create(t.Context(), "db")
			require.NoError(t, err)
		})
		require.NoError(t, mine.Delete(t.Context()))
		_, err = other.db.Info(t.Context())
		require.NoError(t, err)
	})
}

// TestInterrupted: something is committed between a transaction's reads and its commit.
func TestInterrupted(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		other := newBundle(t, db, docstore.Options{})
		hole := enginetest.Control(db)
		store := docstore.Open(hole, prefix, docstore.Options{})
		defer store.Close()
		ctx := t.Context()

		// The database is deleted: nothing more is written into it.
		for name, write := range map[string]func(db *docstore.Database) error{
			"Put": func(db *docstore.Database) error { _, err := db.Put(ctx, docstore.Edit{ID: "d"}); return err },
			"PutLocal": func(db *docstore.Database) error {
				_, err := db.PutLocal(ctx, "_local/d", "", docjson.Body{})
				return err
			},
			"DeleteLocal":  func(db *docstore.Database) error { return db.DeleteLocal(ctx, "_local/x") },
			"SetRevsLimit": func(db *docstore.Database) error { return db.SetRevsLimit(ctx, 5) },
			"SetSecurity":  func(db *docstore.Database) error { return db.SetSecurity(ctx, []byte(`{}`)) },
			"Delete":       func(db *docstore.Database) error { return db.Delete(ctx) },
			"Upload": func(db *docstore.Database) error {
				_, err := db.Upload(ctx, "d", bytes.NewReader(noise(10)), docstore.UploadOptions{})
				return err
			},
		} {
			mine, err := store.Database(ctx, "db")
			require.NoError(t, err)
			_, err = mine.PutLocal(ctx, "_local/x", "", docjson.Body{})
			require.NoError(t, err)
			hole.BeforeCommit(func() { require.NoError(t, other.db.Delete(ctx)) })
			if err := write(mine); name == "Delete" {
				require.NoError(t, err) // it is gone, as intended
			} else {
				require.ErrorIs(t, err, docstore.ErrDatabaseNotFound, name)
			}
			other.check(t)
			other.db, err = other.store.Create(ctx, "db")
			require.NoError(t, err)
		}

		// Another call creates the same.
		hole.BeforeCommit(func() {
			_, err := other.store.Create(ctx, "second")
			require.NoError(t, err)
		})
		_, err := store.Create(ctx, "second")
		require.ErrorIs(t, err, docstore.ErrDatabaseExists)

		// Another call writes the same.
		mine, err := store.Database(ctx, "db")
		require.NoError(t, err)
		hole.BeforeCommit(func() { other.put(t, "d", "", `{}`) })
		_, err = mine.Put(ctx, docstore.Edit{ID: "d"})
		require.ErrorIs(t, err, docstore.ErrConflict)

		// The upload is removed.
		upload, err := mine.Upload(ctx, "e", bytes.NewReader(noise(10)), docstore.UploadOptions{})
		require.NoError(t, err)
		hole.BeforeCommit(func() { require.NoError(t, other.db.Discard(ctx, upload)) })
		_, err = mine.Put(ctx, docstore.Edit{ID: "e", Attachments: []docstore.EditAttachment{{Name: "a", Upload: upload}}})
		require.ErrorIs(t, err, docstore.ErrMissingStub)
		other.check(t)

		// A revision refers to the upload.
		upload, err = mine.Upload(ctx, "f", bytes.NewReader(noise(10)), docstore.UploadOptions{})
		require.NoError(t, err)
		hole.BeforeCommit(func() { other.attach(t, "f", "", map[string]*docstore.Upload{"a": upload}) })
		require.NoError(t, mine.Discard(ctx, upload))
		assert.Equal(t, noise(10), other.content(t, other.get(t, "f", docstore.GetOptions{}), "a"))
	})
}

// TestCancelled: each edit that was not written has an error.
func TestCancelled(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newBundle(t, db, docstore.Options{})
		cancel()
		results, err := b.db.Write(ctx, []docstore.Edit{{ID: "a"}, {ID: "_b"}}, docstore.WriteOptions{})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, results[0].Err, context.Canceled)
		require.ErrorIs(t, results[1].Err, docstore.ErrDocumentID)
		assert.Zero(t, b.info(t).DocCount)
	})
}
