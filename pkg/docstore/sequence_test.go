package docstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// number returns the number at the beginning of a sequence.
func number(t *testing.T, seq docstore.Sequence) int {
	t.Helper()
	text, _, found := strings.Cut(seq.String(), "-")
	require.True(t, found, "%s", seq)
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func numbers(t *testing.T, rows []docstore.ChangeRow) (all []int) {
	t.Helper()
	for _, row := range rows {
		all = append(all, number(t, row.Sequence))
	}
	return all
}

// Writes that are made one after the other have exact numbers.
func TestSequencesCountChanges(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		a := b.put(t, "a", "", `{}`)
		b.write(t, []docstore.Edit{{ID: "b"}, {ID: "c"}, {ID: "d"}}, docstore.WriteOptions{})
		a = b.put(t, "a", a, `{"n":1}`)
		b.remove(t, "a", a)
		b.put(t, "e", "", `{}`)

		rows, last := b.changes(t, docstore.ChangesOptions{})
		assert.Equal(t, []string{"b", "c", "d", "a", "e"}, changedIDs(rows))
		assert.Equal(t, []int{2, 3, 4, 6, 7}, numbers(t, rows))
		assert.Equal(t, 7, number(t, last))
		assert.Equal(t, last, b.info(t).UpdateSeq)
		doc := b.get(t, "c", docstore.GetOptions{Sequence: true})
		assert.Equal(t, rows[1].Sequence, doc.Sequence)

		rows, _ = b.changes(t, docstore.ChangesOptions{Descending: true})
		assert.Equal(t, []int{7, 6, 4, 3, 2}, numbers(t, rows))
		rows, last = b.changes(t, docstore.ChangesOptions{IDs: []string{"a", "c"}})
		assert.Equal(t, []int{3, 6}, numbers(t, rows))
		assert.Equal(t, 7, number(t, last))
		rows, last = b.changes(t, docstore.ChangesOptions{Limit: 2})
		assert.Equal(t, []int{2, 3}, numbers(t, rows))
		rows, _ = b.changes(t, docstore.ChangesOptions{Since: last})
		assert.Equal(t, []int{4, 6, 7}, numbers(t, rows))
		b.check(t)
	})
}

// Writers at the same time may take the same number. The rows of a pass have numbers in their order all the same, none
// is greater than the number of changes, and the last sequence has exactly that.
func TestSequencesOfWritersAtATime(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		const writers, each = 8, 20
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					_, err := b.db.Put(t.Context(), docstore.Edit{ID: fmt.Sprint(w, "-", i)})
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		rows, last := b.changes(t, docstore.ChangesOptions{})
		require.Len(t, rows, writers*each)
		for i, n := range numbers(t, rows) {
			assert.Equal(t, i+1, n) // each document has changed once
		}
		assert.Equal(t, writers*each, number(t, last))
		rows, _ = b.changes(t, docstore.ChangesOptions{Descending: true})
		assert.Equal(t, last, rows[0].Sequence)
		descending := numbers(t, rows)
		assert.True(t, slices.IsSortedFunc(descending, func(a, b int) int { return b - a }), "%v", descending)
	})
}

// A client goes on from a stamp, whatever the number before it is.
func TestSequenceOfAnotherNumber(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.put(t, "a", "", `{}`)
		b.put(t, "b", "", `{}`)
		rows, last := b.changes(t, docstore.ChangesOptions{})
		_, digits, _ := strings.Cut(rows[0].Sequence.String(), "-")
		for _, text := range []string{"1-" + strings.ToUpper(digits), "0-" + digits, "77-" + digits} {
			since, err := docstore.ParseSequence(text)
			require.NoError(t, err, text)
			assert.Zero(t, since.Compare(rows[0].Sequence))
			after, end := b.changes(t, docstore.ChangesOptions{Since: since})
			assert.Equal(t, []string{"b"}, changedIDs(after), text)
			assert.Zero(t, last.Compare(end))
		}
		_, err := docstore.ParseSequence(digits)
		require.ErrorIs(t, err, docstore.ErrInvalid)
	})
}
