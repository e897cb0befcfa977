package docstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

func TestDatabaseNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a0_$()+/-z": true, "_users": true, "_replicator": true, "_global_changes": true,
		"x/_replicator": true, "x/y/_users": true,
		"": false, "A": false, "aB": false, "0a": false, "_": false, "_other": false, "/a": false, "a.b": false,
		"a b": false, "ä": false, "a\n": false, "_users/x": false,
		strings.Repeat("a", docstore.MaxDatabaseNameSize): true, strings.Repeat("a", docstore.MaxDatabaseNameSize+1): false,
	} {
		if err := docstore.CheckDatabaseName(name); ok {
			require.NoError(t, err, "%q", name)
		} else {
			require.ErrorIs(t, err, docstore.ErrDatabaseName, "%q", name)
		}
	}
}

func TestDatabases(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		_, err := b.store.Create(t.Context(), "db")
		require.ErrorIs(t, err, docstore.ErrDatabaseExists)
		_, err = b.store.Create(t.Context(), "No")
		require.ErrorIs(t, err, docstore.ErrDatabaseName)
		for _, name := range []string{"other", strings.Repeat("o", kv.MaxKeySize)} {
			_, err = b.store.Database(t.Context(), name)
			require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
		}
		for i := range docstore.RowsAtOnce + 3 {
			_, err := b.store.Create(t.Context(), fmt.Sprintf("n%05d", i))
			require.NoError(t, err)
		}
		list := func(opts docstore.ListOptions) (names []string) {
			for name, err := range b.store.Databases(t.Context(), opts) {
				require.NoError(t, err)
				names = append(names, name)
			}
			return names
		}
		all := list(docstore.ListOptions{})
		assert.Len(t, all, docstore.RowsAtOnce+4)
		assert.Equal(t, []string{"db", "n00000", "n00001"}, all[:3])
		assert.Len(t, list(docstore.ListOptions{Descending: true}), len(all))
		assert.Equal(t, []string{"db"}, list(docstore.ListOptions{End: strings.Repeat("m", kv.MaxKeySize)}))
		assert.Equal(t, []string{"n00002", "n00001"}, list(docstore.ListOptions{Start: "n00002", End: "n00001", Descending: true}))

		found, err := b.store.Database(t.Context(), "db")
		require.NoError(t, err)
		assert.Equal(t, b.db.Instance(), found.Instance())
		assert.Equal(t, "db", found.Name())
		found, err = b.store.Instance("db", b.db.Instance())
		require.NoError(t, err)
		_, err = found.Info(t.Context())
		require.NoError(t, err)
		_, err = b.store.Instance("db", "x")
		require.ErrorIs(t, err, docstore.ErrInvalid)
		info := b.info(t)
		assert.Regexp(t, `^[1-9][0-9]+$`, info.InstanceStartTime)
		assert.Equal(t, docstore.Info{Name: "db", InstanceStartTime: info.InstanceStartTime, Security: json.RawMessage("{}")}, info)
		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			for name, want := range map[string]string{"db": info.InstanceStartTime, "other": "", strings.Repeat("o", kv.MaxKeySize): ""} {
				created, err := b.store.CreatedIn(tx, name)()
				require.NoError(t, err)
				assert.Equal(t, want, created)
			}
			return nil
		}))
	})
}

func TestSecurity(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		object, err := b.db.Security(t.Context())
		require.NoError(t, err)
		assert.Equal(t, `{}`, string(object))
		guarded := docstore.Open(db, prefix, docstore.Options{Security: json.RawMessage(`{"admins":{}}`)})
		defer guarded.Close()
		same, object, err := guarded.DatabaseSecurity(t.Context(), "db")
		require.NoError(t, err)
		assert.Equal(t, b.db.Instance(), same.Instance())
		assert.Equal(t, `{"admins":{}}`, string(object))
		_, _, err = guarded.DatabaseSecurity(t.Context(), "other")
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
		want := `{"admins":{"names":["a"]}, "_x":1}`
		require.NoError(t, b.db.SetSecurity(t.Context(), json.RawMessage(want)))
		object, err = b.db.Security(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, string(object))
		_, object, err = guarded.DatabaseSecurity(t.Context(), "db")
		require.NoError(t, err)
		assert.Equal(t, want, string(object), "the default is for databases that have none")
		require.ErrorIs(t, b.db.SetSecurity(t.Context(), json.RawMessage(`[]`)), docstore.ErrInvalid)
		require.ErrorIs(t, b.db.SetSecurity(t.Context(), large(docstore.MaxSecuritySize+1)), docstore.ErrTooLarge)
		require.NoError(t, b.db.SetSecurity(t.Context(), large(docstore.MaxSecuritySize)))
	})
}

// TestDeletedDatabase: every call of a deleted database returns an error, its successor is empty, and upkeep removes
// all its rows.
func TestDeletedDatabase(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		for i := range 20 {
			b.put(t, fmt.Sprint(i), "", `{}`)
		}
		b.attach(t, "a", "", map[string]*docstore.Upload{"a": b.upload(t, "a", noise(200_000))})
		b.upload(t, "b", noise(10))
		doc := b.get(t, "a", docstore.GetOptions{})
		old := b.db
		require.NoError(t, old.Delete(t.Context()))
		b.check(t)
		var err error
		b.db, err = b.store.Create(t.Context(), "db")
		require.NoError(t, err)
		assert.NotEqual(t, old.Instance(), b.db.Instance())
		assert.Zero(t, b.info(t).DocCount)
		b.put(t, "1", "", `{"new":true}`)

		ctx := t.Context()
		for name, call := range map[string]func() error{
			"Delete": func() error { return old.Delete(ctx) },
			"Info":   func() error { _, err := old.Info(ctx); return err },
			"Get":    func() error { _, err := old.Get(ctx, "1", docstore.GetOptions{}); return err },
			"Put":    func() error { _, err := old.Put(ctx, docstore.Edit{ID: "1"}); return err },
			"Write": func() error {
				_, err := old.Write(ctx, []docstore.Edit{{ID: "1"}}, docstore.WriteOptions{})
				return err
			},
			"Changes":        func() error { return first(old.Changes(docstore.ChangesOptions{}).All(ctx)) },
			"Changes of ids": func() error { return first(old.Changes(docstore.ChangesOptions{IDs: []string{"1"}}).All(ctx)) },
			"CountChanges":   func() error { _, err := old.CountChanges(ctx, docstore.Sequence{}, 1); return err },
			"WaitChange":     func() error { return old.WaitChange(ctx, docstore.Sequence{}) },
			"AllDocs":        func() error { return first(old.AllDocs(ctx, docstore.AllDocsOptions{})) },
			"OpenRevs":       func() error { return first(old.OpenRevs(ctx, "1", docstore.OpenRevsOptions{})) },
			"RevsDiff":       func() error { _, err := old.RevsDiff(ctx, []docstore.RevsQuery{{ID: "1"}}); return err },
			"GetLocal":       func() error { _, err := old.GetLocal(ctx, "_local/1"); return err },
			"PutLocal":       func() error { _, err := old.PutLocal(ctx, "_local/1", "", docjson.Body{}); return err },
			"DeleteLocal":    func() error { return old.DeleteLocal(ctx, "_local/1") },
			"Security":       func() error { _, err := old.Security(ctx); return err },
			"SetSecurity":    func() error { return old.SetSecurity(ctx, json.RawMessage(`{}`)) },
			"RevsLimit":      func() error { _, err := old.RevsLimit(ctx); return err },
			"SetRevsLimit":   func() error { return old.SetRevsLimit(ctx, 1) },
			"Upload": func() error {
				_, err := old.Upload(ctx, "1", strings.NewReader("x"), docstore.UploadOptions{})
				return err
			},
			"ReadAttachment": func() error {
				_, err := old.ReadAttachment(ctx, "a", doc.Attachments[0]).Read(make([]byte, 1))
				return err
			},
		} {
			require.ErrorIs(t, call(), docstore.ErrDatabaseNotFound, name)
		}
		for more := true; more; {
			more, err = b.store.RemoveDatabases(ctx)
			require.NoError(t, err)
		}
		b.check(t)
		instances, err := kv.TransactValue(ctx, b.kv, func(tx kv.Transaction) (int, error) { return b.store.Instances(tx) })
		require.NoError(t, err)
		assert.Equal(t, 1, instances)
		assert.Equal(t, int64(1), b.info(t).DocCount)
	})
}

func first[T any](seq func(yield func(T, error) bool)) (err error) {
	for _, err = range seq {
		return err
	}
	return nil
}

// TestDeletedWhileWritten: databases are created and deleted while writers write into them.
func TestDeletedWhileWritten(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		stop := make(chan struct{})
		var writers sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					db, err := b.store.Database(t.Context(), "db")
					if errors.Is(err, docstore.ErrDatabaseNotFound) {
						continue
					}
					id := fmt.Sprint(w, i%7)
					upload, err := db.Upload(t.Context(), id, strings.NewReader("content"), docstore.UploadOptions{})
					if err == nil {
						_, err = db.Put(t.Context(), docstore.Edit{ID: id, Attachments: []docstore.EditAttachment{{Name: "a", Upload: upload}}})
					}
					if err != nil && !errors.Is(err, docstore.ErrConflict) {
						assert.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
					}
				}
			})
		}
		for range 20 {
			require.NoError(t, b.db.Delete(t.Context()))
			b.check(t)
			_, err := b.store.RemoveDatabases(t.Context())
			require.NoError(t, err)
			b.check(t)
			b.db, err = b.store.Create(t.Context(), "db")
			require.NoError(t, err)
		}
		close(stop)
		writers.Wait()
		_, err := b.store.RemoveDatabases(t.Context())
		require.NoError(t, err)
	})
}

// TestCreatedAndDeletedMeanwhile: a database whose creation was reported unknown, and which was deleted before the
// repetition, does not come back.
func TestCreatedAndDeletedMeanwhile(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		store := enginetest.Control(enginetest.UnknownOnce(db))
		store.BetweenRuns(func() {
			made, err := b.store.Database(t.Context(), "short")
			require.NoError(t, err)
			require.NoError(t, made.Delete(t.Context()))
		})
		other := docstore.Open(store, prefix, docstore.Options{})
		defer other.Close()
		made, err := other.Create(t.Context(), "short")
		require.NoError(t, err)
		_, err = made.Info(t.Context())
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
		_, err = b.store.Database(t.Context(), "short")
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
	})
}

func TestLocal(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		ctx := t.Context()
		_, err := b.db.GetLocal(ctx, "_local/x")
		require.ErrorIs(t, err, docstore.ErrNotFound)
		for _, test := range []struct{ rev, want string }{{"", "0-1"}, {"0-1", "0-2"}, {"", "0-1"}, {"0-41", "0-42"}} {
			body := large(100 + 50_000*len(test.want))
			rev, err := b.db.PutLocal(ctx, "_local/x", test.rev, docjson.Must(body))
			require.NoError(t, err)
			assert.Equal(t, test.want, rev)
			doc, err := b.db.GetLocal(ctx, "_local/x")
			require.NoError(t, err)
			assert.Equal(t, &docstore.LocalDocument{ID: "_local/x", Rev: test.want, Body: body}, doc)
		}
		_, err = b.db.PutLocal(ctx, "_local/x", "0-1", docjson.Body{})
		require.NoError(t, err)
		doc, err := b.db.GetLocal(ctx, "_local/x")
		require.NoError(t, err)
		assert.Equal(t, `{}`, string(doc.Body))
		require.NoError(t, b.db.DeleteLocal(ctx, "_local/x"))
		require.ErrorIs(t, b.db.DeleteLocal(ctx, "_local/x"), docstore.ErrNotFound)
		_, err = b.db.GetLocal(ctx, "_local/x")
		require.ErrorIs(t, err, docstore.ErrNotFound)

		for _, rev := range []string{"1-a", "0-", "0-x", "0--1", "x"} {
			_, err = b.db.PutLocal(ctx, "_local/x", rev, docjson.Body{})
			require.ErrorIs(t, err, docstore.ErrRevision, rev)
		}
		for _, id := range []string{"x", "_local/", "_local", "_local/\xff", "_local/" + strings.Repeat("x", docstore.MaxIDSize)} {
			_, err = b.db.PutLocal(ctx, id, "", docjson.Body{})
			require.ErrorIs(t, err, docstore.ErrDocumentID, id)
			_, err = b.db.GetLocal(ctx, id)
			require.ErrorIs(t, err, docstore.ErrDocumentID, id)
			require.ErrorIs(t, b.db.DeleteLocal(ctx, id), docstore.ErrDocumentID, id)
		}
		_, err = b.db.PutLocal(ctx, "_local/x", "", docjson.Must(large(docstore.MaxDocumentSize+1)))
		require.ErrorIs(t, err, docstore.ErrTooLarge)
		_, err = b.db.PutLocal(ctx, "_local/_x", "", docjson.Must(large(docstore.MaxDocumentSize)))
		require.NoError(t, err)
		assert.Equal(t, docstore.Sequence{}, b.info(t).UpdateSeq) // none of it is in the feed
		assert.Empty(t, b.allDocs(t, docstore.AllDocsOptions{}))
	})
}

// TestRemovalIsBounded: each call removes at most 100 databases, and reports whether there are more.
func TestRemovalIsBounded(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		for i := range 120 {
			made, err := b.store.Create(t.Context(), fmt.Sprint("n", i))
			require.NoError(t, err)
			_, err = made.Put(t.Context(), docstore.Edit{ID: "d"})
			require.NoError(t, err)
			require.NoError(t, made.Delete(t.Context()))
		}
		for _, left := range []int{20, 0} {
			more, err := b.store.RemoveDatabases(t.Context())
			require.NoError(t, err)
			assert.Equal(t, left > 0, more)
			instances, err := kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) (int, error) { return b.store.Instances(tx) })
			require.NoError(t, err)
			assert.Equal(t, left, instances)
		}
	})
}
