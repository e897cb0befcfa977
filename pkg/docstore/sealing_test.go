package docstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/sealed"
	"settee/pkg/sealed/sealedtest"
	"settee/pkg/tuple"
)

// sealing are the options of a store whose database db is sealed.
func sealing(keys *sealed.Keys) docstore.Options {
	return docstore.Options{Sealer: keys, Sealed: func(name string) bool { return name == "db" }}
}

// other is another process with the database of b.
func (b *bundle) other(t *testing.T, opts docstore.Options) *bundle {
	t.Helper()
	store := docstore.Open(b.kv, prefix, opts)
	t.Cleanup(store.Close)
	db, err := store.Database(t.Context(), b.db.Name())
	require.NoError(t, err)
	return &bundle{kv: b.kv, store: store, db: db}
}

func (b *bundle) reseal(t *testing.T, keyID string) map[string]int64 {
	t.Helper()
	counts, err := b.store.Reseal(t.Context(), keyID)
	require.NoError(t, err)
	return counts
}

const secretBody = `{"password":"relax-and-enjoy"}`

// Sealing changes nothing that can be seen of documents.
func TestSealedDocuments(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		hooked := []string{}
		opts := sealing(sealedtest.Keys(t, "a"))
		opts.Hooks = docstore.Hooks{
			Before: func(_ kv.Transaction, _ *docstore.Database, c *docstore.Change) (any, error) {
				hooked = append(hooked, "before "+string(c.Body.Bytes()))
				return nil, nil
			},
			After: func(_ kv.Transaction, _ *docstore.Database, c *docstore.Change) error {
				hooked = append(hooked, "after "+string(c.Body.Bytes()))
				return nil
			},
		}
		b := newBundle(t, db, opts)
		open, err := b.store.Create(t.Context(), "open")
		require.NoError(t, err)
		_, err = open.Put(t.Context(), docstore.Edit{ID: "a", Body: docjson.Must(`{"password":"in-the-open"}`)})
		require.NoError(t, err)
		require.Equal(t, 1, kvtest.Holding(t, db, prefix, "in-the-open"))

		require.Equal(t, []string{`before {"password":"in-the-open"}`, `after {"password":"in-the-open"}`}, hooked)
		hooked = nil
		b.put(t, "a", "", `{"password":"in-the-open"}`)
		require.Equal(t, 1, kvtest.Holding(t, db, prefix, "in-the-open"))
		require.Equal(t, []string{`before {"password":"in-the-open"}`, `after {"password":"in-the-open"}`}, hooked)

		edits := []docstore.Edit{
			{ID: "c", Pos: 2, Path: []string{"b", "a"}, Body: docjson.Must(`{"password":"relax-1"}`)},
			{ID: "c", Pos: 3, Path: []string{"d", "c", "a"}, Body: docjson.Must(`{"password":"relax-2"}`)},
			{ID: "c", Pos: 4, Path: []string{"e", "d2"}, Deleted: true, Body: docjson.Must(`{"password":"relax-3"}`)},
		}
		results := b.write(t, edits, docstore.WriteOptions{Replicated: true})
		for _, r := range results {
			require.NoError(t, r.Err)
		}
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
		revs := map[string]string{}
		for open, err := range b.db.OpenRevs(t.Context(), "c", docstore.OpenRevsOptions{}) {
			require.NoError(t, err)
			revs[open.Rev.String()] = string(open.Document.Body)
		}
		require.Equal(t, map[string]string{
			"2-b": `{"password":"relax-1"}`, "3-d": `{"password":"relax-2"}`, "4-e": `{"password":"relax-3"}`,
		}, revs)
		hooked = nil
		b.remove(t, "c", "3-d")
		require.Equal(t, []string{"before {}", `after {"password":"relax-1"}`}, hooked, "what wins now is read")

		require.Equal(t, `{"password":"relax-1"}`, string(b.get(t, "c", docstore.GetOptions{}).Body))
		for _, row := range b.allDocs(t, docstore.AllDocsOptions{Documents: true}) {
			require.Contains(t, string(row.Document.Body), "password")
		}
		rows, _ := b.changes(t, docstore.ChangesOptions{Documents: true, Conflicts: true})
		require.Len(t, rows, 2)
		require.Equal(t, `{"password":"relax-1"}`, string(rows[1].Document.Body))

		_, err = b.db.PutLocal(t.Context(), "_local/x", "0-4", docjson.Must(secretBody))
		require.NoError(t, err)
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
		local, err := b.db.GetLocal(t.Context(), "_local/x")
		require.NoError(t, err)
		require.Equal(t, docstore.LocalDocument{ID: "_local/x", Rev: "0-5", Body: []byte(secretBody)}, *local)
		require.Equal(t, map[string]int64{"a": 5}, b.reseal(t, ""))
	})
}

// Bodies of all sizes fit, and their sizes are computed from the plain text.
func TestSealedSizes(t *testing.T) {
	testkit.SkipRace(t)
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, sealing(sealedtest.Keys(t, "a")))
		total := int64(0)
		for _, size := range []int{
			docstore.ChunkSize - 32, docstore.ChunkSize - 31, docstore.ChunkSize - 30, docstore.ChunkSize, 10 * docstore.ChunkSize,
			docstore.MaxDocumentSize,
		} {
			body := `{"x":"` + strings.Repeat("x", size-8) + `"}`
			id := fmt.Sprint(size)
			b.put(t, id, "", body)
			require.True(t, body == string(b.get(t, id, docstore.GetOptions{}).Body), size)
			total += int64(size)
		}
		require.Equal(t, total, b.info(t).BodyBytes)
		_, err := b.tryPut(t, "large", "", `{"x":"`+strings.Repeat("x", docstore.MaxDocumentSize)+`"}`)
		require.ErrorIs(t, err, docstore.ErrTooLarge)
		require.Equal(t, map[string]int64{"a": 6}, b.other(t, sealing(sealedtest.Keys(t, "bbbb", "a"))).reseal(t, "bbbb"))
		require.Equal(t, map[string]int64{"bbbb": 6}, b.other(t, sealing(sealedtest.Keys(t, "bbbb"))).reseal(t, ""))
		for row, err := range b.other(t, sealing(sealedtest.Keys(t, "bbbb"))).db.AllDocs(t.Context(), docstore.AllDocsOptions{Documents: true}) {
			require.NoError(t, err)
			require.Equal(t, row.ID, fmt.Sprint(len(row.Document.Body)))
			b.remove(t, row.ID, row.Rev.String()) // which reads no body
		}
		require.Equal(t, map[string]int64{"a": 6}, b.reseal(t, ""))
	})
}

// Without the key documents exist, but their bodies cannot be read.
func TestBodiesWithoutTheKey(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, sealing(sealedtest.Keys(t, "a")))
		rev := b.put(t, "doc", "", secretBody)
		_, err := b.db.PutLocal(t.Context(), "_local/x", "", docjson.Must(secretBody))
		require.NoError(t, err)
		for _, keys := range []*sealed.Keys{nil, sealedtest.Keys(t, "b")} {
			o := b.other(t, docstore.Options{Sealer: keys})
			refused := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, docstore.ErrSealed)
				require.ErrorContains(t, err, `sealed with the key "a"`)
				require.ErrorContains(t, err, "key_file")
				require.ErrorContains(t, err, `"doc"`)
				require.Equal(t, 1, strings.Count(err.Error(), `"doc"`), err)
			}
			_, err := o.db.Get(t.Context(), "doc", docstore.GetOptions{})
			refused(err)
			for _, err := range o.db.AllDocs(t.Context(), docstore.AllDocsOptions{Documents: true}) {
				refused(err)
			}
			for _, err := range o.db.Changes(docstore.ChangesOptions{Documents: true}).All(t.Context()) {
				refused(err)
			}
			for _, err := range o.db.OpenRevs(t.Context(), "doc", docstore.OpenRevsOptions{}) {
				refused(err)
			}
			_, err = o.db.GetLocal(t.Context(), "_local/x")
			require.ErrorIs(t, err, docstore.ErrSealed)
			require.Len(t, o.allDocs(t, docstore.AllDocsOptions{}), 1)
			o = b.other(t, sealing(keys))
			require.Equal(t, map[string]int64{"a": 2}, o.reseal(t, "b"), "what cannot be opened stays")
		}
		o := b.other(t, docstore.Options{})
		o.put(t, "doc", rev, `{"a":1}`) // a write reads no body
		require.Equal(t, `{"a":1}`, string(b.get(t, "doc", docstore.GetOptions{}).Body))
	})
}

// A sealed body cannot be moved to another revision, document or database.
func TestMovedBodies(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, sealing(sealedtest.Keys(t, "a")))
		b.put(t, "x", "", secretBody)
		b.put(t, "y", "", `{"password":"relax-and-entry"}`)
		move := func(from, to string) {
			t.Helper()
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				pairs, err := tx.GetRange(kv.PrefixRange(prefix), kv.RangeOptions{}).Slice()
				if err != nil {
					return err
				}
				bodies := map[string]kv.KeyValue{}
				for _, pair := range pairs {
					key, err := tuple.SubspaceFromBytes(prefix).Unpack(pair.Key)
					if err != nil {
						return err
					}
					if len(key) == 8 && key[2] == int64(3) {
						bodies[key[3].(string)] = pair
					}
				}
				tx.Set(bodies[to].Key, bodies[from].Value)
				return nil
			}))
		}
		move("x", "y")
		_, err := b.db.Get(t.Context(), "y", docstore.GetOptions{})
		require.ErrorIs(t, err, docstore.ErrSealed)
		require.ErrorIs(t, err, sealed.ErrNotAuthentic)
		require.Equal(t, secretBody, string(b.get(t, "x", docstore.GetOptions{}).Body))
		b.put(t, "y", b.allDocs(t, docstore.AllDocsOptions{Keys: []string{"y"}})[0].Rev.String(), secretBody)
	})
}

// Plain bodies are sealed, and bodies with an earlier key are sealed again.
func TestResealDocuments(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		plain := newBundle(t, db, docstore.Options{Sealer: sealedtest.Keys(t, "c", "bbbb", "a")})
		other, err := plain.store.Create(t.Context(), "other")
		require.NoError(t, err)
		_, err = other.Put(t.Context(), docstore.Edit{ID: "a", Body: docjson.Must(`{"password":"in-the-open"}`)})
		require.NoError(t, err)
		many := 2*docstore.ResealRows + 3
		for i := range many {
			plain.put(t, fmt.Sprintf("plain%03d", i), "", secretBody)
		}
		_, err = plain.db.PutLocal(t.Context(), "_local/plain", "", docjson.Must(secretBody))
		require.NoError(t, err)
		old := plain.other(t, sealing(sealedtest.Keys(t, "a")))
		big := `{"x":"` + strings.Repeat("x", 600_000) + `"}`
		for i := range 5 {
			old.put(t, fmt.Sprintf("big%d", i), "", big)
		}
		_, err = old.db.PutLocal(t.Context(), "_local/old", "", docjson.Must(big))
		require.NoError(t, err)
		before := map[string]int64{"": int64(many) + 1, "a": 6}
		now := plain.other(t, sealing(sealedtest.Keys(t, "bbbb", "a")))
		require.Equal(t, before, now.reseal(t, ""))
		require.Equal(t, before, now.reseal(t, "bbbb"))
		require.Equal(t, map[string]int64{"bbbb": int64(many) + 7}, now.reseal(t, "bbbb"))
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
		require.Equal(t, 1, kvtest.Holding(t, db, prefix, "in-the-open"))

		only := plain.other(t, sealing(sealedtest.Keys(t, "bbbb")))
		require.Equal(t, big, string(only.get(t, "big4", docstore.GetOptions{}).Body))
		require.Equal(t, secretBody, string(only.get(t, "plain042", docstore.GetOptions{}).Body))
		for id, body := range map[string]string{"_local/old": big, "_local/plain": secretBody} {
			local, err := only.db.GetLocal(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, body, string(local.Body))
			require.Equal(t, "0-1", local.Rev)
		}
	})
}

// Changes of documents during a Reseal are kept.
func TestResealAndWrite(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		plain := newBundle(t, db, docstore.Options{Sealer: sealedtest.Keys(t, "a")})
		for _, id := range []string{"changed", "deleted", "same"} {
			plain.put(t, id, "", secretBody)
		}
		b := plain.other(t, sealing(sealedtest.Keys(t, "a")))
		meanwhile := func(do func()) *bundle {
			done := false
			hindered := faultkv.Wrap(db, faultkv.Options{Script: func(call faultkv.Call) faultkv.Fault {
				if !done && call.Op == faultkv.Commit {
					done = true
					do()
				}
				return faultkv.None
			}})
			return (&bundle{kv: hindered, db: plain.db}).other(t, sealing(sealedtest.Keys(t, "a")))
		}
		rev := func(id string) string { return b.get(t, id, docstore.GetOptions{}).Rev.String() }
		require.Equal(t, map[string]int64{"": 1, "a": 2}, meanwhile(func() {
			b.put(t, "changed", rev("changed"), `{"new":1}`)
			b.remove(t, "deleted", rev("deleted"))
		}).reseal(t, "a"))
		require.Equal(t, `{"new":1}`, string(b.get(t, "changed", docstore.GetOptions{}).Body))
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))

		plain.put(t, "plain", "", secretBody)
		require.Empty(t, meanwhile(func() { require.NoError(t, b.db.Delete(t.Context())) }).reseal(t, "a"))
		_, err := b.store.RemoveDatabases(t.Context())
		require.NoError(t, err)
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
	})
}

// A commit of unknown result may seal a body twice, which loses nothing.
func TestResealUnknown(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		plain := newBundle(t, db, docstore.Options{Sealer: sealedtest.Keys(t, "a")})
		plain.put(t, "doc", "", secretBody)
		b := (&bundle{kv: enginetest.UnknownOnce(db), db: plain.db}).other(t, sealing(sealedtest.Keys(t, "a")))
		b.reseal(t, "a")
		require.Equal(t, map[string]int64{"a": 1}, b.reseal(t, ""))
		require.Equal(t, secretBody, string(plain.get(t, "doc", docstore.GetOptions{}).Body))
	})
}

// In a salted database a guessed secret cannot be checked by the revision, as it can in others, sealed or not.
func TestRevisionsOfSecretBodies(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{
			Sealer: sealedtest.Keys(t, "a"), Sealed: func(string) bool { return true },
			Salted: func(name string) bool { return name == "db" },
		})
		open, err := b.store.Create(t.Context(), "open")
		require.NoError(t, err)
		for _, db := range []*docstore.Database{b.db, open} {
			first, err := db.Put(t.Context(), docstore.Edit{ID: "a", Body: docjson.Must(secretBody)})
			require.NoError(t, err)
			second, err := db.Put(t.Context(), docstore.Edit{ID: "b", Body: docjson.Must(secretBody)})
			require.NoError(t, err)
			require.Equal(t, db == open, first == second, db.Name())
		}
	})
}
