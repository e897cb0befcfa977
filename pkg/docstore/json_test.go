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

func TestBodyMember(t *testing.T) {
	t.Parallel()
	for name, may := range map[string]bool{
		"": true, "a": true, "a_b": true, "_": false, "_id": false, "_a": false, "_replication": false,
		"_replication_state": true, "_replication_state_time": true, "_replication_state_reason": true,
		"_replication_id": true, "_replication_stats": true, "_replication_foo": false, "_replication_state_": false,
	} {
		require.Equal(t, may, docstore.BodyMember(name), name)
	}
}

// FuzzBody reads bytes as the body of a document. An accepted body is an object without special members to another
// parser too, and is stored byte for byte.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,{"_b":"\"}"}],"c":"\\"}`, `{"_id":"x"}`, `{"\u005f":1}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`,
		`{"_replication_state":"failed"}`, `[]`, `null`, "{\"\xff\":1}", `{"a":1,"a":2}`,
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
			valid = valid && docstore.BodyMember(name)
		}
		written, err := docs.Put(t.Context(), docstore.Edit{ID: "d", Rev: rev, Body: body})
		if err != nil {
			require.ErrorIs(t, err, docstore.ErrDocument)
			if valid { // the other parser accepts half of a surrogate pair
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
