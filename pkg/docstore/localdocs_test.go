package docstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/memkv"
)

func TestLocalDocs(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	store, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	b := newBundle(t, store, docstore.Options{})
	list := func(opts docstore.LocalDocsOptions) (ids []string) {
		for doc, err := range b.db.LocalDocs(t.Context(), opts) {
			require.NoError(t, err)
			again, err := b.db.GetLocal(t.Context(), doc.ID)
			require.NoError(t, err)
			require.Equal(t, again, doc)
			ids = append(ids, doc.ID)
		}
		return ids
	}
	require.Empty(t, list(docstore.LocalDocsOptions{}))

	// Many documents with one row, and some with many, so that pages end within documents.
	var all []string
	for i := range 230 {
		id, body := fmt.Sprintf("_local/%03d", i), `{"v":1}`
		if i%50 == 30 {
			body = `{"v":"` + strings.Repeat("x", 8_000_000-100-i) + `"}`
		}
		if i%7 == 0 {
			id += "\x00"
		}
		_, err := b.db.PutLocal(t.Context(), id, "0-3", docjson.Must(body))
		require.NoError(t, err)
		all = append(all, id)
	}
	down := slices.Clone(all)
	slices.Reverse(down)
	require.Equal(t, all, list(docstore.LocalDocsOptions{}))
	require.Equal(t, down, list(docstore.LocalDocsOptions{Descending: true}))
	for _, exclusive := range []bool{false, true} {
		behind := 1
		if exclusive {
			behind = 0
		}
		up := docstore.LocalDocsOptions{Start: all[31], End: all[42], ExclusiveEnd: exclusive}
		require.Equal(t, all[31:42+behind], list(up))
		up.Start, up.End, up.Descending = up.End, up.Start, true
		require.Equal(t, down[len(all)-43:len(all)-32+behind], list(up))
	}
	require.Empty(t, list(docstore.LocalDocsOptions{Start: all[5], End: all[4]}))
	long := all[31] + strings.Repeat("x", docstore.MaxIDSize)
	require.Equal(t, all[32:], list(docstore.LocalDocsOptions{Start: long}))
	require.Equal(t, all[:32], list(docstore.LocalDocsOptions{End: long}))

	require.NoError(t, b.db.Delete(t.Context()))
	for _, err := range b.db.LocalDocs(context.Background(), docstore.LocalDocsOptions{}) {
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
	}
}
