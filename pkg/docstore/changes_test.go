package docstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

func TestChanges(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		rows, last := b.changes(t, docstore.ChangesOptions{})
		assert.Empty(t, rows)
		assert.Equal(t, docstore.Sequence{}, last)
		assert.Equal(t, "0", last.String())

		a := b.put(t, "a", "", `{"n":1}`)
		c := b.put(t, "c", "", `{"n":2}`)
		b.put(t, "b", "", `{"n":3}`)
		rows, middle := b.changes(t, docstore.ChangesOptions{})
		assert.Equal(t, []string{"a", "c", "b"}, changedIDs(rows))
		assert.Equal(t, rows[2].Sequence, middle)
		assert.Equal(t, []string{a}, revs(rows[0].Revs))
		again, err := docstore.ParseSequence(middle.String())
		require.NoError(t, err)
		assert.Equal(t, middle, again)

		b.put(t, "a", a, `{"n":4}`)
		b.remove(t, "c", c)
		rows, _ = b.changes(t, docstore.ChangesOptions{})
		assert.Equal(t, []string{"b", "a", "c"}, changedIDs(rows))
		assert.True(t, rows[2].Deleted)
		rows, last = b.changes(t, docstore.ChangesOptions{Since: middle})
		assert.Equal(t, []string{"a", "c"}, changedIDs(rows))
		assert.Equal(t, b.info(t).UpdateSeq, last)
		rows, last = b.changes(t, docstore.ChangesOptions{Since: last})
		assert.Empty(t, rows)
		assert.Equal(t, b.info(t).UpdateSeq, last)

		rows, last = b.changes(t, docstore.ChangesOptions{Limit: 1})
		assert.Equal(t, []string{"b"}, changedIDs(rows))
		rows, _ = b.changes(t, docstore.ChangesOptions{Since: last, Limit: 1})
		assert.Equal(t, []string{"a"}, changedIDs(rows))
		rows, _ = b.changes(t, docstore.ChangesOptions{Descending: true, Since: last, Limit: 2})
		assert.Equal(t, []string{"c", "a"}, changedIDs(rows))

		rows, _ = b.changes(t, docstore.ChangesOptions{Documents: true, Conflicts: true})
		assert.Equal(t, `{"n":4}`, string(rows[1].Document.Body))
		assert.True(t, rows[2].Document.Deleted)

		for _, n := range []int{0, 1, 2, 3, 10} {
			count, err := b.db.CountChanges(t.Context(), docstore.Sequence{}, n)
			require.NoError(t, err)
			assert.Equal(t, min(n, 3), count)
		}
		count, err := b.db.CountChanges(t.Context(), middle, 10)
		require.NoError(t, err)
		assert.Equal(t, 2, count)
	})
}

// TestChangesOfIDs: a feed of some documents equals the feed of all, without the others.
func TestChangesOfIDs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		var ids []string
		for _, i := range []int{5, 3, 8, 1, 9, 2} {
			ids = append(ids, fmt.Sprint("d", i))
			b.put(t, fmt.Sprint("d", i), "", `{}`)
		}
		some := []string{"d9", "d3", "none", "d3", "_x", "d5"}
		rows, last := b.changes(t, docstore.ChangesOptions{IDs: some, Documents: true})
		assert.Equal(t, []string{"d5", "d3", "d9"}, changedIDs(rows))
		assert.Equal(t, "d3", rows[1].Document.ID)
		assert.Equal(t, b.info(t).UpdateSeq, last)
		since := rows[0].Sequence
		rows, last = b.changes(t, docstore.ChangesOptions{IDs: some, Since: since, Limit: 1})
		assert.Equal(t, []string{"d3"}, changedIDs(rows))
		assert.Equal(t, rows[0].Sequence, last)
		rows, _ = b.changes(t, docstore.ChangesOptions{IDs: some, Descending: true})
		assert.Equal(t, []string{"d9", "d3", "d5"}, changedIDs(rows))
		rows, _ = b.changes(t, docstore.ChangesOptions{IDs: []string{}})
		assert.Empty(t, rows)
		rows, _ = b.changes(t, docstore.ChangesOptions{IDs: ids})
		assert.Equal(t, ids, changedIDs(rows))
	})
}

// TestChangesMeanwhile: a document that changes while a feed is read still appears, at its new position. So a
// replication that ends with the feed has every document that existed when it began.
func TestChangesMeanwhile(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		var edits []docstore.Edit
		for i := range 2*docstore.RowsAtOnce + 50 {
			edits = append(edits, docstore.Edit{ID: fmt.Sprintf("%05d", i)})
		}
		results := b.write(t, edits, docstore.WriteOptions{})
		for _, ids := range [][]string{nil, listedIDs(b.allDocs(t, docstore.AllDocsOptions{}))} {
			for _, documents := range []bool{false, true} {
				feed := b.db.Changes(docstore.ChangesOptions{IDs: ids, Documents: documents})
				seen, changed := map[string]int{}, -1
				for row, err := range feed.All(t.Context()) {
					require.NoError(t, err)
					seen[row.ID]++
					if changed < 0 { // the last change, which has not been read yet
						for i := range results {
							if results[i].ID == lastChanged(t, b) {
								changed = i
							}
						}
						got, err := b.db.Put(t.Context(), docstore.Edit{ID: results[changed].ID, Rev: results[changed].Rev})
						require.NoError(t, err)
						results[changed].Rev = got
					}
				}
				assert.Len(t, seen, len(edits))
				for id, times := range seen {
					assert.Equal(t, 1, times, id)
				}
				rows, _ := b.changes(t, docstore.ChangesOptions{Since: feed.Last()})
				if ids == nil {
					assert.Empty(t, rows)
				} else { // from where the pass began
					assert.Equal(t, []string{results[changed].ID}, changedIDs(rows))
				}
			}
		}
		rows, _ := b.changes(t, docstore.ChangesOptions{})
		down, _ := b.changes(t, docstore.ChangesOptions{Descending: true})
		slices.Reverse(down)
		assert.Equal(t, rows, down)
		count, err := b.db.CountChanges(t.Context(), docstore.Sequence{}, 10_000)
		require.NoError(t, err)
		assert.Equal(t, len(edits), count)
	})
}

func lastChanged(t *testing.T, b *bundle) string {
	t.Helper()
	rows, _ := b.changes(t, docstore.ChangesOptions{Descending: true, Limit: 1})
	return rows[0].ID
}

// TestChangesAreReadOnce: a waiting feed reads again with every change, and does not look for rows after those that it
// has found to be the last.
func TestChangesAreReadOnce(t *testing.T) {
	t.Parallel()
	db := enginetest.Control(enginetest.Memory(t))
	b := newBundle(t, db, docstore.Options{})
	for _, test := range []struct{ rows, transactions int }{{0, 1}, {1, 1}, {499, 1}, {500, 2}, {501, 2}} {
		for have := int(b.info(t).DocCount); have < test.rows; have++ {
			b.put(t, fmt.Sprint(have), "", `{}`)
		}
		for _, descending := range []bool{false, true} {
			before, found := db.Transactions.Load(), 0
			transactions := test.transactions
			if descending {
				transactions++ // to find where it begins
			}
			for _, err := range b.db.Changes(docstore.ChangesOptions{Descending: descending}).All(t.Context()) {
				require.NoError(t, err)
				found++
			}
			assert.Equal(t, test.rows, found)
			assert.EqualValues(t, transactions, db.Transactions.Load()-before, test.rows)
		}
	}
}

func TestLargeListings(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		keys := []string{}
		for i := range 5 {
			keys = append(keys, fmt.Sprint(i), fmt.Sprint("none ", i))
			b.put(t, fmt.Sprint(i), "", string(large(docstore.BodiesAtOnce*2/5)))
		}
		rows, _ := b.changes(t, docstore.ChangesOptions{Documents: true})
		require.Len(t, rows, 5)
		for _, row := range rows {
			assert.Equal(t, row.ID, row.Document.ID)
		}
		listed := b.allDocs(t, docstore.AllDocsOptions{Documents: true, Conflicts: true})
		require.Len(t, listed, 5)
		for i, row := range listed {
			assert.Equal(t, fmt.Sprint(i), row.Document.ID)
		}
		listed = b.allDocs(t, docstore.AllDocsOptions{Keys: keys, Documents: true})
		assert.Equal(t, keys, listedIDs(listed))
		for i, row := range listed {
			assert.Equal(t, i%2 == 0, row.Document != nil)
		}
	})
}

func TestAllDocs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		assert.Empty(t, b.allDocs(t, docstore.AllDocsOptions{}))
		for _, id := range []string{"c", "a", "_design/x", "e", "gone", "B", "ü"} {
			b.put(t, id, "", `{}`)
		}
		gone := b.remove(t, "gone", b.get(t, "gone", docstore.GetOptions{}).Rev.String())
		for _, test := range []struct {
			opts docstore.AllDocsOptions
			want []string
		}{
			{docstore.AllDocsOptions{}, []string{"B", "_design/x", "a", "c", "e", "ü"}},
			{docstore.AllDocsOptions{Start: "a", End: "c"}, []string{"a", "c"}},
			{docstore.AllDocsOptions{Start: "a", End: "c", ExclusiveEnd: true}, []string{"a"}},
			{docstore.AllDocsOptions{Start: "b", End: "d"}, []string{"c"}},
			{docstore.AllDocsOptions{Start: "d", End: "b"}, []string{}},
			{docstore.AllDocsOptions{Start: "f"}, []string{"ü"}},
			{docstore.AllDocsOptions{End: "_"}, []string{"B"}},
			{docstore.AllDocsOptions{Descending: true}, []string{"ü", "e", "c", "a", "_design/x", "B"}},
			{docstore.AllDocsOptions{Descending: true, Start: "c", End: "a"}, []string{"c", "a"}},
			{docstore.AllDocsOptions{Descending: true, Start: "c", End: "a", ExclusiveEnd: true}, []string{"c"}},
			{docstore.AllDocsOptions{Descending: true, Start: "a", End: "c"}, []string{}},
			{docstore.AllDocsOptions{Skip: 1, Limit: 2}, []string{"_design/x", "a"}},
			{docstore.AllDocsOptions{Skip: 5}, []string{"ü"}},
			{docstore.AllDocsOptions{Skip: 9}, []string{}},
			{docstore.AllDocsOptions{Keys: []string{}}, []string{}},
			{docstore.AllDocsOptions{Keys: []string{"c", "x", "a", "c", "gone", "_bad"}}, []string{"c", "x", "a", "c", "gone", "_bad"}},
			{docstore.AllDocsOptions{Keys: []string{"c", "x", "a"}, Descending: true}, []string{"a", "x", "c"}},
			{docstore.AllDocsOptions{Keys: []string{"c", "x", "a"}, Skip: 1, Limit: 1}, []string{"x"}},
		} {
			for _, documents := range []bool{false, true} {
				test.opts.Documents = documents
				rows := b.allDocs(t, test.opts)
				assert.Equal(t, test.want, listedIDs(rows), "%+v", test.opts)
				for _, row := range rows {
					if documents && row.Rev != (docstore.Rev{}) && !row.Deleted {
						assert.Equal(t, row.Rev, row.Document.Rev)
					} else {
						assert.Nil(t, row.Document)
					}
				}
			}
		}
		rows := b.allDocs(t, docstore.AllDocsOptions{Keys: []string{"gone", "x"}})
		assert.Equal(t, gone, rows[0].Rev.String())
		assert.True(t, rows[0].Deleted)
		assert.Equal(t, docstore.DocRow{ID: "x"}, rows[1])
	})
}

// TestLongBounds: a bound may be longer than an id or a key can be.
func TestLongBounds(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		longest := strings.Repeat("m", docstore.MaxIDSize)
		for _, id := range []string{"a", longest[1:], longest, "z"} {
			b.put(t, id, "", `{}`)
		}
		for _, bound := range []string{longest + "m", longest + "\x00", strings.Repeat("m", kv.MaxKeySize)} {
			for _, exclusive := range []bool{false, true} {
				before := b.allDocs(t, docstore.AllDocsOptions{End: bound, ExclusiveEnd: exclusive})
				assert.Equal(t, []string{"a", longest[1:], longest}, listedIDs(before))
				behind := b.allDocs(t, docstore.AllDocsOptions{End: bound, ExclusiveEnd: exclusive, Descending: true})
				assert.Equal(t, []string{"z"}, listedIDs(behind))
			}
			assert.Equal(t, []string{"z"}, listedIDs(b.allDocs(t, docstore.AllDocsOptions{Start: bound})))
			assert.Equal(t, []string{longest, longest[1:], "a"}, listedIDs(b.allDocs(t, docstore.AllDocsOptions{Start: bound, Descending: true})))
			assert.Empty(t, b.allDocs(t, docstore.AllDocsOptions{Start: bound, End: bound}))
		}
	})
}

// TestManyDocs: listings have several pages.
func TestManyDocs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		var edits []docstore.Edit
		var ids []string
		for i := range 2*docstore.RowsAtOnce + 7 {
			ids = append(ids, fmt.Sprintf("%05d", i))
			edits = append(edits, docstore.Edit{ID: ids[i]})
		}
		b.write(t, edits, docstore.WriteOptions{})
		assert.Equal(t, ids, listedIDs(b.allDocs(t, docstore.AllDocsOptions{})))
		assert.Equal(t, ids[600:900], listedIDs(b.allDocs(t, docstore.AllDocsOptions{Skip: 600, Limit: 300, Documents: true})))
		assert.Equal(t, ids, listedIDs(b.allDocs(t, docstore.AllDocsOptions{Keys: ids, Documents: true})))
		slices.Reverse(ids)
		assert.Equal(t, ids, listedIDs(b.allDocs(t, docstore.AllDocsOptions{Descending: true, Documents: true})))
	})
}
