package docstore_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

func TestLargeBodiesAreReadInPieces(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		const large = 1_000
		b := newBundle(t, db, docstore.Options{})
		body := `{"text":"` + strings.Repeat("0123456789", 80_000) + `"}`
		rev := b.put(t, "large", "", body)
		b.put(t, "small", "", `{"n":1}`)
		check := func(doc *docstore.Document) {
			t.Helper()
			if doc.ID == "small" {
				require.Equal(t, `{"n":1}`, string(doc.Body))
				return
			}
			require.Nil(t, doc.Body)
			require.EqualValues(t, len(body), doc.Size)
			text, err := io.ReadAll(b.db.ReadBody(t.Context(), doc))
			require.NoError(t, err)
			require.True(t, body == string(text))
		}
		doc := b.get(t, "large", docstore.GetOptions{LargeBody: large})
		check(doc)
		check(b.get(t, "small", docstore.GetOptions{LargeBody: large}))
		require.Len(t, b.get(t, "large", docstore.GetOptions{LargeBody: int64(len(body)) + 1}).Body, len(body))
		for _, opts := range []docstore.AllDocsOptions{{}, {Keys: []string{"small", "large"}}} {
			opts.Documents, opts.LargeBody = true, large
			for row, err := range b.db.AllDocs(t.Context(), opts) {
				require.NoError(t, err)
				check(row.Document)
			}
		}
		for row, err := range b.db.Changes(docstore.ChangesOptions{Documents: true, LargeBody: large}).All(t.Context()) {
			require.NoError(t, err)
			check(row.Document)
		}
		for leaf, err := range b.db.OpenRevs(t.Context(), "large", docstore.OpenRevsOptions{LargeBody: large}) {
			require.NoError(t, err)
			check(leaf.Document)
		}
		reader := b.db.ReadBody(t.Context(), doc)
		_, err := io.ReadFull(reader, make([]byte, 100))
		require.NoError(t, err)
		b.put(t, "large", rev, `{}`)
		_, err = io.ReadAll(reader)
		require.ErrorIs(t, err, docstore.ErrNotFound, "the revision was replaced")
	})
}

func TestSealedBodiesAreReadAsAWhole(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{Sealed: func(string) bool { return true }})
		b.put(t, "a", "", `{"text":"long enough"}`)
		require.NotNil(t, b.get(t, "a", docstore.GetOptions{LargeBody: 1}).Body)
	})
}
