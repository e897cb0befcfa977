package docstore_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

// faults returns what a check of the store says, and makes repairs.
func (b *bundle) faults(t *testing.T, repair bool) (said []string, counts check.Counts) {
	t.Helper()
	c := check.Checker{DB: b.kv, Repair: repair, Report: func(f check.Fault) error {
		said = append(said, f.What)
		assert.Equal(t, repair && f.Repairable, f.Repaired)
		return nil
	}}
	require.NoError(t, b.store.Check(t.Context(), &c))
	return said, c.Counts
}

// TestCheckNamesFaults plants faults of each kind. The check names them, and repairs what follows from the leaves: the
// store is then what it was.
func TestCheckNamesFaults(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	b := newBundle(t, enginetest.Memory(t), docstore.Options{})
	ctx := t.Context()
	b.put(t, "d", "", `{}`)
	b.merge(t, "d", "2-x y")
	b.remove(t, "gone", b.put(t, "gone", "", `{}`))
	b.put(t, "big", "", `{"x":"`+strings.Repeat("x", 2*docstore.ChunkSize+5)+`"}`)
	content := noise(docstore.ChunkSize + 7)
	rev := b.attach(t, "a", "", map[string]*docstore.Upload{"a": b.upload(t, "a", content)})
	b.upload(t, "pending", noise(10))
	_, err := b.db.PutLocal(ctx, "_local/x", "", docjson.Must(`{"x":"`+strings.Repeat("x", docstore.ChunkSize)+`"}`))
	require.NoError(t, err)
	require.NoError(t, b.db.SetRevsLimit(ctx, 10))
	require.NoError(t, b.db.SetSecurity(ctx, []byte(`{"admins":{}}`)))
	fleeting, err := b.store.Create(ctx, "fleeting")
	require.NoError(t, err)
	require.NoError(t, fleeting.Delete(ctx))
	_, err = b.store.RemoveDatabases(ctx)
	require.NoError(t, err)
	_, err = b.store.RemoveUpdates(ctx)
	require.NoError(t, err)
	require.NoError(t, b.store.WaitUpdate(ctx, docstore.Sequence{}))
	b.transact(t, b.db.ForgetTimes) // a repaired row has none, because no other row has it
	said, sound := b.faults(t, false)
	require.Empty(t, said)

	read := func() []kv.KeyValue {
		pairs, err := kv.TransactValue(ctx, b.kv, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.GetRange(kv.PrefixRange(prefix), kv.RangeOptions{}).Slice()
		})
		require.NoError(t, err)
		return pairs
	}
	before, root := read(), tuple.SubspaceFromBytes(prefix)
	require.Len(t, before, int(sound.Rows))
	instance := uuid.MustParse(b.db.Instance())
	at := func(elements ...any) []byte { return root.Pack(append([]any{3, instance}, elements...)...) }
	// nth returns the key of the nth row of a kind, of those that contain a text.
	nth := func(n int, tag int64, contains string) []byte {
		for _, pair := range before {
			e, err := root.Unpack(pair.Key)
			require.NoError(t, err)
			if len(e) > 2 && e[2] == tag && bytes.Contains(append(pair.Key, pair.Value...), []byte(contains)) {
				if n--; n < 0 {
					return slices.Clone(pair.Key)
				}
			}
		}
		t.Fatal("no such row")
		return nil
	}
	// update returns the key of a row in updates: the database and the type.
	update := func(name string, kind int64) []byte {
		for _, pair := range slices.Backward(before) { // the last one
			e, err := root.Unpack(pair.Key)
			require.NoError(t, err)
			if e[0] == int64(4) && len(e) == 5 && e[4] == name && bytes.Equal(pair.Value, tuple.Tuple{kind, 0}.Pack()) {
				return slices.Clone(pair.Key)
			}
		}
		t.Fatal("no such update")
		return nil
	}
	deletion := func() []byte {
		for _, pair := range before {
			if e, err := root.Unpack(pair.Key); err == nil && e[0] == int64(6) {
				return slices.Clone(pair.Key)
			}
		}
		t.Fatal("no deletion")
		return nil
	}
	stamp := tuple.Versionstamp{TransactionVersion: [10]byte{7: 1}}
	const primary, derived = false, true
	type set func(key, value []byte) // nil: no value
	for _, c := range []struct {
		name     string
		plant    func(set set)
		says     string
		repaired bool
	}{
		{"a missing change", func(set set) { set(nth(0, 4, "big"), nil) }, `the change of the document "big" is missing`, derived},
		{"an unreadable change", func(set set) { set(nth(0, 4, "big"), []byte{0xfe}) }, `the change of the document "big" is missing`, derived},
		{"a change of another document", func(set set) {
			set(at(4, stamp), tuple.Tuple{"d", 2, 1, 0, tuple.Tuple{1, []byte{1}, true, false}}.Pack())
		}, "that is not its latest one", derived},
		{"a dangling change", func(set set) {
			set(at(4, stamp), tuple.Tuple{"none", 2, 1, 0, tuple.Tuple{1, []byte{1}, true, false}}.Pack())
		}, "that is not its latest one", derived},
		{"a missing index row", func(set set) { set(at(5, "d"), nil) }, `the document "d" is missing in the index`, derived},
		{"a wrong index row", func(set set) { set(at(5, "d"), tuple.Tuple{9, []byte{1}, true, 2}.Pack()) }, "has another winner there", derived},
		{"an index row of a deleted document", func(set set) { set(at(5, "gone"), tuple.Tuple{9, []byte{1}, true, 2}.Pack()) }, `the deleted document "gone" is in the index`, derived},
		{"an extra index row", func(set set) { set(at(5, "none"), tuple.Tuple{9, []byte{1}, true, 2}.Pack()) }, `the index has the document "none", which does not exist`, derived},
		{"a wrong counter", func(set set) { set(at(7, "docs"), bytes.Repeat([]byte{1}, 8)) }, "documents are counted, and there are 3", derived},
		{"a counter of no number", func(set set) { set(at(7, "bodies"), []byte{1}) }, "0 bytes of bodies are counted", derived},
		{"a missing counter", func(set set) { set(at(7, "attachments"), nil) }, "0 bytes of attachments are counted", derived},
		{"a missing content", func(set set) { set(nth(0, 9, ""), nil) }, "the content of an attachment is missing", derived},
		{"a wrong number of references", func(set set) { set(nth(0, 9, ""), tuple.Tuple{5, make([]byte, 16), 7}.Pack()) }, "does not agree with the attachments", derived},
		{"an upload that is referred to", func(set set) {
			e, err := root.Unpack(nth(0, 9, ""))
			require.NoError(t, err)
			set(root.Pack(2, 1, instance, e[3], e[4]), []byte{})
		}, "an upload to whose content a revision refers", derived},
		{"a missing header", func(set set) { set(at(1, "d"), nil) }, `the document "d" has leaves and no header`, primary},
		{"an unreadable header", func(set set) { set(at(1, "d"), []byte{0xfe}) }, "the header of a document: the value is not one", primary},
		{"a missing leaf", func(set set) { set(nth(0, 2, "big"), nil) }, "a document without leaves", primary},
		{"an unreadable leaf", func(set set) { set(nth(0, 2, "big"), []byte{0xfe}) }, "the leaves of the document cannot be read", primary},
		{"a leaf that is an ancestor", func(set set) {
			set(at(2, "d", true, 1, []byte("y"), false, 0), tuple.Tuple{append([]byte{2}, 'y'), 2, []byte(nil), tuple.Tuple{}}.Pack())
			set(at(3, "d", 1, []byte("y"), false, 0), []byte(`{}`))
		}, "the leaves of the document are not a tree", primary},
		{"a missing body", func(set set) { set(nth(0, 3, "big"), nil); set(nth(1, 3, "big"), nil); set(nth(2, 3, "big"), nil) }, `has no body`, primary},
		{"a missing chunk of a body", func(set set) { set(nth(1, 3, "big"), nil) }, "a chunk of a body is missing or truncated", primary},
		{"a truncated chunk of a body", func(set set) { set(nth(0, 3, "big"), []byte(`{`)) }, "bytes, and its leaf says", primary},
		{"broken JSON", func(set set) { set(nth(0, 3, "gone"), []byte(`[]`)) }, "is not a JSON object", primary},
		{"a dangling body", func(set set) { set(at(3, "d", 7, []byte{1}, true, 0), []byte(`{}`)) }, "which is not a leaf", primary},
		{"a changed content", func(set set) { set(nth(0, 10, "a\x00"), bytes.Repeat([]byte{1}, docstore.ChunkSize)) }, "a content is not what its digest says", primary},
		{"a missing first chunk", func(set set) { set(nth(0, 10, "a\x00"), nil) }, "a content is not what its digest says", primary},
		{"a missing last chunk", func(set set) { set(nth(1, 10, "a\x00"), nil) }, "the last chunk of a content", primary},
		{"a truncated chunk", func(set set) { set(nth(1, 10, "a\x00"), []byte{1}) }, "the last chunk of a content", primary},
		{"a content of nothing", func(set set) { set(at(10, "d", make([]byte, 16), 0), []byte{1}) }, "to which nothing refers", primary},
		{"a content without attachments", func(set set) { set(at(9, "d", make([]byte, 16)), tuple.Tuple{0, make([]byte, 16), 1}.Pack()) }, "to which no attachment refers", primary},
		{"a local document without a revision", func(set set) { set(at(6, "_local/x", 0), []byte{}) }, "local document", primary},
		{"a chunk of a local document", func(set set) { set(at(6, "_local/x", 0), []byte(`x`)) }, "a chunk of a local document is missing or truncated", primary},
		{"a security object of no JSON", func(set set) { set(at(0, "security"), []byte(`x`)) }, "the security object: the value", primary},
		{"a revs_limit of no number", func(set set) { set(at(0, "revs_limit"), []byte(`x`)) }, "the revs_limit: the value", primary},
		{"an unknown setting", func(set set) { set(at(0, "x"), []byte(`x`)) }, "unknown key", primary},
		{"an unknown kind of rows", func(set set) { set(at(77, "x"), []byte(`x`)) }, "unknown key", primary},
		{"an unknown key", func(set set) { set(root.Pack(77), []byte(`x`)) }, "unknown key", primary},
		{"a database of no tuple", func(set set) { set(root.Pack(0, "e"), []byte{0xfe}) }, "a database: the value", primary},
		{"a database in the trash", func(set set) { set(root.Pack(1, instance), []byte{}) }, "is also among the deleted ones", primary},
		{"a missing creation", func(set set) { set(update("db", 1), nil) }, `the update that says that the database "db" was created is missing`, derived},
		{"a missing update", func(set set) { set(update("db", 2), nil) }, `the update of the last change of the database "db" is missing`, derived},
		{"an unreadable update", func(set set) { set(update("db", 2), []byte{0xfe}) }, `the update of the last change of the database "db" is missing`, derived},
		{"a missing deletion", func(set set) { set(update("fleeting", 3), nil) }, `the update that says that the database "fleeting" was deleted is missing`, derived},
		{"a deletion that is never forgotten", func(set set) { set(deletion(), nil) }, `the deletion of the database "fleeting" is missing`, derived},
		{"a deletion of a living database", func(set set) { set(root.Pack(6, 7, "db"), []byte{}) }, `a deletion of the database "db" that is not the last thing`, derived},
		{"an update in another place", func(set set) { set(root.Pack(4, 2, 3, stamp, "db"), tuple.Tuple{2, 0}.Pack()) }, `an update of the database "db" in another place`, derived},
		{"a creation of no database", func(set set) {
			e, err := root.Unpack(update("db", 1))
			require.NoError(t, err)
			other := tuple.Versionstamp{TransactionVersion: [10]byte{9: 9}, UserVersion: e[3].(tuple.Versionstamp).UserVersion}
			set(root.Pack(e[0], e[1], e[2], other, "db"), tuple.Tuple{1, 0}.Pack())
		}, `which is not the last time`, derived},
		{"a database without a life", func(set set) { set(root.Pack(5, "db"), nil) }, `when the database "db" was created is missing`, primary},
		{"a life of no tuple", func(set set) { set(root.Pack(5, "db"), []byte{0xfe}) }, "the creation or deletion of a database: the value", primary},
		{"a life of nothing", func(set set) { set(root.Pack(0, "db"), nil) }, `the database "db" was last created, and that is not how it is`, primary},
		{"an unknown row of updates", func(set set) { set(root.Pack(4, 2, 9), []byte{}) }, "unknown key", primary},
		{"updates of an unknown stripe", func(set set) { set(root.Pack(4, 16, 0), []byte{}) }, "unknown key", primary},
		{"rows of no database", func(set set) { set(root.Pack(3, uuid.UUID{1}, 1, "d"), []byte{}) }, "rows of a database that does not exist", primary},
	} {
		restore := func() {
			b.transact(t, func(tx kv.Transaction) error {
				tx.ClearRange(kv.PrefixRange(prefix))
				for _, pair := range before {
					tx.Set(pair.Key, pair.Value)
				}
				return nil
			})
		}
		b.transact(t, func(tx kv.Transaction) error {
			c.plant(func(key, value []byte) {
				if value == nil {
					tx.Clear(key)
				} else {
					tx.Set(key, value)
				}
			})
			return nil
		})
		planted := read()
		said, counts := b.faults(t, false)
		assert.Contains(t, strings.Join(said, "\n"), c.says, c.name)
		assert.Zero(t, counts.Repaired)
		assert.Equal(t, planted, read(), "%s: a check changes nothing", c.name)
		again, _ := b.faults(t, true)
		assert.Contains(t, strings.Join(again, "\n"), c.says, c.name)
		left, _ := b.faults(t, false)
		if c.repaired {
			assert.Empty(t, left, c.name)
			assert.Equal(t, before, read(), c.name)
		} else {
			assert.Contains(t, strings.Join(left, "\n"), c.says, "%s: it does not follow from other rows", c.name)
		}
		restore()
	}
	assert.Equal(t, content, b.content(t, b.get(t, "a", docstore.GetOptions{}), "a"))
	assert.Equal(t, rev, b.get(t, "a", docstore.GetOptions{}).Rev.String())
}
