package docstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

func TestDocument(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		body := "{ \"big\":12345678901234567890, \"f\":1.0, \"a\":{\"_x\":1}, \"u\":\"\\u00fc\\ud83d\\ude00\u2028\" }\n"
		first := b.put(t, "a/b", "", body)
		doc := b.get(t, "a/b", docstore.GetOptions{Sequence: true})
		assert.Equal(t, body, string(doc.Body))
		assert.Equal(t, first, doc.Rev.String())
		assert.EqualValues(t, 1, doc.Rev.Pos)
		assert.Equal(t, []string{doc.Rev.ID}, doc.Path)
		assert.Equal(t, b.info(t).UpdateSeq, doc.Sequence)

		_, err := b.tryPut(t, "a/b", "", `{}`)
		require.ErrorIs(t, err, docstore.ErrConflict)
		require.EqualError(t, err, `document "a/b": document update conflict`)
		_, err = b.tryPut(t, "a/b", "", body) // the same again is a conflict too
		require.ErrorIs(t, err, docstore.ErrConflict)
		_, err = b.tryPut(t, "new", first, `{}`)
		require.ErrorIs(t, err, docstore.ErrConflict)

		second := b.put(t, "a/b", first, `{"n":2}`)
		_, err = b.tryPut(t, "a/b", first, `{"n":2}`)
		require.ErrorIs(t, err, docstore.ErrConflict)
		doc = b.get(t, "a/b", docstore.GetOptions{})
		assert.Equal(t, `{"n":2}`, string(doc.Body))
		assert.Len(t, doc.Path, 2)
		_, err = b.db.Get(t.Context(), "a/b", docstore.GetOptions{Rev: parse(t, first)})
		require.ErrorIs(t, err, docstore.ErrNotFound) // its content is gone
		doc = b.get(t, "a/b", docstore.GetOptions{Rev: parse(t, first), Latest: true})
		assert.Equal(t, second, doc.Rev.String())

		third := b.remove(t, "a/b", second)
		_, err = b.db.Get(t.Context(), "a/b", docstore.GetOptions{})
		require.ErrorIs(t, err, docstore.ErrDeleted)
		require.ErrorIs(t, err, docstore.ErrNotFound)
		doc = b.get(t, "a/b", docstore.GetOptions{Rev: parse(t, third)})
		assert.True(t, doc.Deleted)
		assert.Equal(t, `{}`, string(doc.Body))
		assert.Equal(t, int64(1), b.info(t).DeletedCount)
		assert.Equal(t, int64(0), b.info(t).DocCount)

		fourth := b.put(t, "a/b", "", `{"n":4}`) // extends the deleted revision
		assert.True(t, strings.HasPrefix(fourth, "4-"))
		assert.Len(t, b.leaves(t, "a/b"), 1)
		fifth := b.remove(t, "a/b", fourth)
		b.put(t, "a/b", fifth, `{"n":6}`) // so does naming it
		assert.Equal(t, int64(1), b.info(t).DocCount)
		assert.Equal(t, int64(len(`{"n":6}`)), b.info(t).BodyBytes)

		_, err = b.db.Get(t.Context(), "nothing", docstore.GetOptions{})
		require.ErrorIs(t, err, docstore.ErrNotFound)
		require.NotErrorIs(t, err, docstore.ErrDeleted)
	})
}

// TestRevisionIDs: the id of a revision depends on its content only.
func TestRevisionIDs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		one, same := b.put(t, "one", "", `{"n":1}`), b.put(t, "same", "", `{"n":1}`)
		assert.Equal(t, one, same)
		assert.Regexp(t, `^1-[0-9a-f]{32}$`, one)
		assert.NotEqual(t, one, b.put(t, "other", "", `{"n":2}`))
		assert.NotEqual(t, one, b.remove(t, "deleted", ""))
		assert.NotEqual(t, b.put(t, "one", one, `{}`), b.put(t, "x", b.put(t, "x", "", `{}`), `{}`))
	})
}

func TestInvalid(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		for id, ok := range map[string]bool{
			"": false, "_x": false, "_design": false, "_design/": false, "_design/x": true, "_local/x": false,
			"a\xff": false, "a\x00b": true, " ": true, strings.Repeat("\x00", docstore.MaxIDSize): true,
			strings.Repeat("x", docstore.MaxIDSize+1): false,
		} {
			_, err := b.tryPut(t, id, "", `{}`)
			if ok {
				require.NoError(t, err, "%.20q", id)
				assert.Equal(t, `{}`, string(b.get(t, id, docstore.GetOptions{}).Body))
				continue
			}
			require.ErrorIs(t, err, docstore.ErrDocumentID, "%.20q", id)
			_, err = b.db.Get(t.Context(), id, docstore.GetOptions{})
			require.ErrorIs(t, err, docstore.ErrDocumentID)
		}
		for body, ok := range map[string]bool{
			``: false, ` `: false, `[]`: false, `"x"`: false, `{"a":1`: false, `{} {}`: false, `{"a":01}`: false,
			`{"_a":1}`: false, `{"\u005fa":1}`: false, `{"b":{"c":1},"_a":1}`: false, `{"b":[1,"_a"],"_a":1}`: false,
			`{"a":{"_b":1}}`: true, `{"a":["_b",{"_c":1}],"b":"_"}`: true, `{"":1}`: true, "\n {} \t": true,
			`{"a":1,"a":2}`: true, "{\"a\":\"\xff\"}": false, `{"a\"_":"\\","b":"{_"}`: true,
			`{"a":"\ud83d\ude00"}`: true, `{"a":"\ud83d"}`: false, `{"a":"\ude00"}`: false,
			`{"a":"\ud83dx\ude00"}`: false, `{"a":"\ud83d\u0041"}`: false, `{"\ud83d":1}`: false, `{"a":"\\ud83d"}`: true,
		} {
			_, err := b.tryPut(t, "body "+fmt.Sprintf("%x", body), "", body)
			if ok {
				require.NoError(t, err, "%q", body)
			} else {
				require.ErrorIs(t, err, docstore.ErrDocument, "%q", body)
			}
		}
		for _, rev := range []string{"", "1", "-", "-a", "0-", "-1-a", "x-a", "1-" + strings.Repeat("g", 32), "1-" + strings.Repeat("é", 16), "9223372036854775808-a", "1-\xff"} {
			_, err := docstore.ParseRev(rev)
			require.ErrorIs(t, err, docstore.ErrRevision, "%q", rev)
		}
		for rev, want := range map[string]string{
			"1-": "1-", "1-a": "1-a", "1-A": "1-A", "+01-a-b": "1-a-b", "0-a": "0-a", "9223372036854775807-é": "9223372036854775807-é",
			"1-" + strings.Repeat("aB", 16): "1-" + strings.Repeat("ab", 16), "1-abcdefghijklmnop": "1-6162636465666768696a6b6c6d6e6f70",
			"1-éééééééé": "1-" + strings.Repeat("c3a9", 8), "1-" + strings.Repeat("x", 5000): "1-" + strings.Repeat("x", 5000),
		} {
			got, err := docstore.ParseRev(rev)
			require.NoError(t, err, "%q", rev)
			require.Equal(t, want, got.String())
		}
		require.Equal(t, "1- ", parse(t, "1- ").String())
		results := b.write(t, []docstore.Edit{
			{ID: "r", Pos: 1, Path: []string{"a", "b"}}, {ID: "r", Pos: 1}, {ID: "r", Pos: 2, Path: []string{"a", "abcdefghijklmnop"}}, {ID: "r"},
			{ID: "r", Pos: 0, Path: []string{"a"}}, {ID: "r", Pos: 1, Path: []string{strings.Repeat("x", docstore.MaxRevIDSize+1)}},
			{ID: "r", Pos: 1, Path: []string{"\xff"}},
		}, docstore.WriteOptions{Replicated: true})
		for _, r := range results {
			require.ErrorIs(t, r.Err, docstore.ErrRevision)
		}
		_, err := b.db.Put(t.Context(), docstore.Edit{ID: "r", Rev: docstore.Rev{Pos: -1, ID: "x"}})
		require.ErrorIs(t, err, docstore.ErrConflict)
		b.merge(t, "last", "9223372036854775807-a")
		_, err = b.tryPut(t, "last", "9223372036854775807-a", "{}")
		require.ErrorIs(t, err, docstore.ErrRevision)
		for _, s := range []string{"", "x", "00", "1-", strings.Repeat("ff", 12), strings.Repeat("0", 26), "-" + strings.Repeat("0", 24), "-1-" + strings.Repeat("0", 24), strings.Repeat("9", 19) + "-" + strings.Repeat("0", 24)} {
			_, err := docstore.ParseSequence(s)
			require.ErrorIs(t, err, docstore.ErrInvalid, s)
		}
	})
}

// TestReplicated: the results of TestMerge of package revtree reach the store.
func TestReplicated(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.merge(t, "d", "2-b a")
		before := b.info(t).UpdateSeq
		b.merge(t, "d", "2-b a", "1-a") // known
		assert.Equal(t, before, b.info(t).UpdateSeq)
		b.merge(t, "d", "3-c b a", "3-d b a", "4-x!", "2-z y") // several of one document in one write
		assert.Equal(t, []string{"4-x!", "2-z y", "3-c b a", "3-d b a"}, b.leaves(t, "d"))
		assert.NotEqual(t, before, b.info(t).UpdateSeq)

		doc := b.get(t, "d", docstore.GetOptions{Conflicts: true})
		assert.Equal(t, "3-d", doc.Rev.String())
		assert.Equal(t, `{"was":"3-d b a"}`, string(doc.Body))
		assert.Equal(t, []string{"3-c", "2-z"}, revs(doc.Conflicts))
		assert.Equal(t, []string{"4-x"}, revs(doc.DeletedConflicts))

		// What an edit knows of others' history is stored, and is not a change.
		before = b.info(t).UpdateSeq
		b.merge(t, "d", "2-z y")
		b.merge(t, "d", "4-x w v!")
		assert.Equal(t, []string{"4-x w v!", "2-z y", "3-c b a", "3-d b a"}, b.leaves(t, "d"))
		assert.Equal(t, before, b.info(t).UpdateSeq)
		b.check(t)

		// A conflict is resolved by deleting a leaf.
		b.remove(t, "d", "3-d")
		doc = b.get(t, "d", docstore.GetOptions{})
		assert.Equal(t, "3-c", doc.Rev.String())
		rows, _ := b.changes(t, docstore.ChangesOptions{})
		require.Len(t, rows, 1)
		assert.Equal(t, []string{"3-c", "2-z"}, revs(rows[0].Revs[:2]))
		assert.Len(t, rows[0].Revs, 4)

		// A leaf that turns out to be an ancestor is no longer a leaf.
		b.merge(t, "e", "4-d c", "2-b a")
		assert.Len(t, b.leaves(t, "e"), 2)
		b.merge(t, "e", "3-c b")
		assert.Equal(t, []string{"4-d c b a"}, b.leaves(t, "e"))
	})
}

func TestStemming(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		limit, err := b.db.RevsLimit(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1000, limit)
		for _, wrong := range []int{-1, 0, docstore.MaxRevsLimit + 1} {
			require.ErrorIs(t, b.db.SetRevsLimit(t.Context(), wrong), docstore.ErrInvalid)
		}
		require.NoError(t, b.db.SetRevsLimit(t.Context(), 3))
		rev := ""
		for n := range 6 {
			rev = b.put(t, "d", rev, fmt.Sprintf(`{"n":%d}`, n))
		}
		doc := b.get(t, "d", docstore.GetOptions{})
		assert.EqualValues(t, 6, doc.Rev.Pos)
		assert.Len(t, doc.Path, 3)
		require.NoError(t, b.db.SetRevsLimit(t.Context(), 1))
		assert.Len(t, b.get(t, "d", docstore.GetOptions{}).Path, 3)
		b.put(t, "d", rev, `{}`)
		assert.Len(t, b.get(t, "d", docstore.GetOptions{}).Path, 1)
		b.merge(t, "d", "9-i h g f")
		assert.Contains(t, b.leaves(t, "d"), "9-i")
	})
}

func TestOpenRevs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.merge(t, "d", "3-c b a", "3-d b a", "2-x!")
		open := func(opts docstore.OpenRevsOptions) []string {
			found := []string{}
			for r, err := range b.db.OpenRevs(t.Context(), "d", opts) {
				require.NoError(t, err)
				s := r.Rev.String()
				if r.Document == nil {
					s += " missing"
				} else {
					assert.Equal(t, r.Rev, r.Document.Rev)
					assert.Contains(t, string(r.Document.Body), s)
				}
				found = append(found, s)
			}
			return found
		}
		some := []docstore.Rev{parse(t, "2-b"), parse(t, "3-c"), parse(t, "9-z"), parse(t, "3-c"), parse(t, "9-z")}
		assert.Equal(t, []string{"3-d", "3-c", "2-x"}, open(docstore.OpenRevsOptions{}))
		assert.Equal(t, []string{"2-b missing", "3-c", "9-z missing"}, open(docstore.OpenRevsOptions{Revs: some}))
		assert.Equal(t, []string{"3-d", "3-c", "9-z missing"}, open(docstore.OpenRevsOptions{Revs: some, Latest: true}))
		assert.Empty(t, open(docstore.OpenRevsOptions{Revs: []docstore.Rev{}}))
		for r, err := range b.db.OpenRevs(t.Context(), "nothing", docstore.OpenRevsOptions{}) {
			t.Error("a document that does not exist has no revisions", r, err)
		}
		for _, err := range b.db.OpenRevs(t.Context(), "_x", docstore.OpenRevsOptions{}) {
			require.ErrorIs(t, err, docstore.ErrDocumentID)
		}
	})
}

// TestOpenLargeRevs: leaves that do not fit into memory together change while they are read.
func TestOpenLargeRevs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		for _, path := range []string{"2-a", "2-b", "2-c"} {
			edit := replicated(t, "d", path)
			edit.Body = docjson.Must(large(docstore.BodiesAtOnce * 2 / 3))
			results := b.write(t, []docstore.Edit{edit}, docstore.WriteOptions{Replicated: true})
			require.NoError(t, results[0].Err)
		}
		var found []string
		for r, err := range b.db.OpenRevs(t.Context(), "d", docstore.OpenRevsOptions{}) {
			require.NoError(t, err)
			found = append(found, r.Rev.String())
			if len(found) == 1 {
				b.merge(t, "d", "3-z b")
			}
		}
		assert.Equal(t, []string{"2-c", "3-z", "2-a"}, found)
	})
}

func TestRevsDiff(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.merge(t, "d", "3-c b a", "2-x!")
		var queries []docstore.RevsQuery
		for i := range 120 {
			queries = append(queries, docstore.RevsQuery{ID: fmt.Sprintf("n%03d", i), Revs: []docstore.Rev{parse(t, "1-a")}})
		}
		queries = append(queries,
			docstore.RevsQuery{ID: "d", Revs: []docstore.Rev{parse(t, "3-c"), parse(t, "1-a"), parse(t, "2-x"), parse(t, "3-y"), parse(t, "1-z")}},
			docstore.RevsQuery{ID: "d", Revs: []docstore.Rev{parse(t, "2-b")}},
			docstore.RevsQuery{ID: "_bad", Revs: []docstore.Rev{parse(t, "1-a")}})
		diffs, err := b.db.RevsDiff(t.Context(), queries)
		require.NoError(t, err)
		require.Len(t, diffs, 122)
		assert.Equal(t, "n119", diffs[119].ID)
		assert.Equal(t, "d", diffs[120].ID)
		assert.Equal(t, []string{"3-y", "1-z"}, revs(diffs[120].Missing))
		assert.Equal(t, []string{"2-x"}, revs(diffs[120].PossibleAncestors))
		assert.Equal(t, []string{"1-a"}, revs(diffs[121].Missing))
	})
}

// large returns a JSON object of n bytes.
func large(n int) []byte {
	const around = `{"x":""}`
	return []byte(`{"x":"` + strings.Repeat("x", n-len(around)) + `"}`)
}

// TestEmptyRevisionIDs: a leaf and its ancestors may have an empty id.
func TestEmptyRevisionIDs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.merge(t, "d", "1-", "2-b!", "3-c b a")
		first := docstore.Rev{Pos: 1}
		doc := b.get(t, "d", docstore.GetOptions{Rev: first})
		require.Equal(t, "1-", doc.Rev.String())
		require.Equal(t, []string{""}, doc.Path)
		diffs, err := b.db.RevsDiff(t.Context(), []docstore.RevsQuery{{ID: "d", Revs: []docstore.Rev{first}}})
		require.NoError(t, err)
		require.Empty(t, diffs)

		next, err := b.db.Put(t.Context(), docstore.Edit{ID: "d", Rev: first, Body: docjson.Must(`{"v":2}`)})
		require.NoError(t, err)
		require.Equal(t, []string{next.ID, ""}, b.get(t, "d", docstore.GetOptions{Rev: next}).Path)
		edits := []docstore.Edit{{ID: "d", Pos: 4, Path: []string{"", "", next.ID, ""}}}
		require.NoError(t, b.write(t, edits, docstore.WriteOptions{Replicated: true})[0].Err)
		require.Equal(t, []string{"", "", next.ID, ""}, b.get(t, "d", docstore.GetOptions{}).Path)
	})
}

// FuzzParseRev: the form that ParseRev returns is the only one of a revision.
func FuzzParseRev(f *testing.F) {
	for _, text := range []string{"1-", "+01-a-b", "1-abcdefghijklmnop", "1--" + strings.Repeat("F", 31), "0-", "1-" + strings.Repeat("é", 16)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rev, err := docstore.ParseRev(text)
		if err != nil {
			require.ErrorIs(t, err, docstore.ErrRevision)
			return
		}
		again, err := docstore.ParseRev(rev.String())
		require.NoError(t, err)
		require.Equal(t, rev, again)
		require.Zero(t, rev.Compare(again))
		require.NotEqual(t, 16, len(rev.ID))
	})
}
