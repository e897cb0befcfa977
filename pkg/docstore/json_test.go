package docstore_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv/memkv"
)

// FuzzBody reads bytes as the body of a document: what is taken is an object without special
// members, as another parser reads it, and comes back byte for byte.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,{"_b":"\"}"}],"c":"\\"}`, `{"_id":"x"}`, `{"\u005f":1}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`,
		`[]`, `null`, "{\"\xff\":1}", `{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	db, err := memkv.Open(memkv.Options{})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, db.Close()) })
	store := docstore.Open(db, prefix, docstore.Options{})
	f.Cleanup(store.Close)
	docs, err := store.Create(f.Context(), "db")
	require.NoError(f, err)
	rev := docstore.Rev{}
	f.Fuzz(func(t *testing.T, body []byte) {
		if body == nil {
			body = []byte{}
		}
		var members map[string]json.RawMessage
		valid := utf8.Valid(body) && json.Unmarshal(body, &members) == nil && members != nil
		for name := range members {
			valid = valid && !strings.HasPrefix(name, "_")
		}
		written, err := docs.Put(t.Context(), docstore.Edit{ID: "d", Rev: rev, Body: body})
		if err != nil {
			require.ErrorIs(t, err, docstore.ErrDocument)
			if valid { // that parser takes half of a surrogate pair
				require.Contains(t, strings.ToLower(string(body)), `\ud`)
			}
			return
		}
		rev = written
		require.True(t, valid)
		doc, err := docs.Get(t.Context(), "d", docstore.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, body, doc.Body)
	})
}
